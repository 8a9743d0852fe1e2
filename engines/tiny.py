"""A tiny random target with its drafter, and the target's exact law over whole texts at temperature 1.

With a vocabulary of 8 all texts of a few tokens can be written down with their probabilities, by plain forwards without
cache, draft or rule: what an engine's own sampling is held against (harness/audit_law.py). Knows no engine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engines.alignment.drafting import drafter_from_verifier
from engines.cache import DecoderConfig
from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, save_decoder
from engines.decoder import Decoder, causal_mask
from engines.embedded.pretraining import new_verifier
from engines.embedded.tokenizer import SPECIAL_TOKENS, build_tokenizer

LETTERS = "abc"
TINY = DecoderConfig(
    vocab_size=len(SPECIAL_TOKENS) + len(LETTERS),
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    max_position_embeddings=32,
    attention_bias=True,
)
# Chosen by their exact laws alone: every second round rejects something, where q is far from p; every third accepts its
# whole window, after which the law is far from one-hot; one answer in ten ends early. A wrong token would show in each.
SEED = 133
SHARPNESS = 14.0
"""Factor on the embeddings, which are the output head too: without it a random decoder's laws are flat."""


class TinyModels(NamedTuple):
    """Two model directories."""

    target: Path
    drafter: Path


def write_tiny_models(folder: Path) -> TinyModels:
    """A random target, and for its drafter the target's first layer, so that some of the drafts are right."""
    target = sharpened(TINY, SEED, SHARPNESS)
    drafter = drafter_from_verifier(target, 1)
    tokenizer = build_tokenizer([LETTERS], vocab_size=TINY.vocab_size, alphabet=LETTERS)
    special = {"eos_token_id": int(tokenizer.eos_token_id), "pad_token_id": int(tokenizer.pad_token_id)}
    masked = {"mask_token_id": int(tokenizer.mask_token_id), "logits_shift": 1}
    models = TinyModels(folder / "target", folder / "drafter")
    save_decoder(target, models.target, extra=special, dtype=torch.float32)
    save_decoder(drafter, models.drafter, extra=special | masked, dtype=torch.float32)
    for path in models:
        tokenizer.save_pretrained(path)
    return models


def sharpened(config: DecoderConfig, seed: int, factor: float) -> Decoder:
    """A random decoder whose laws are made less flat by a factor on its embeddings."""
    decoder = new_verifier(config, seed)
    with torch.no_grad():
        decoder.embed.weight.mul_(factor)
    return decoder


@torch.inference_mode()
def exact_law(target: Path, messages: Sequence[Mapping[str, str]], length: int) -> dict[tuple[int, ...], float]:
    """Probability of every answer of `length` tokens, or of fewer where an end token ends it."""
    chat, decoder = ChatTokenizer(target), load_decoder(target, torch.float64)
    prompt = chat.prompt_ids(messages)
    ended: dict[tuple[int, ...], float] = {}
    growing: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        laws = next_laws(decoder, [[*prompt, *text] for text in growing]).tolist()
        grown = {
            (*text, token): weight * probability
            for (text, weight), law in zip(growing.items(), laws, strict=True)
            for token, probability in enumerate(law)
        }
        ended |= {text: weight for text, weight in grown.items() if text[-1] in chat.stop_ids}
        growing = {text: weight for text, weight in grown.items() if text[-1] not in chat.stop_ids}
    return ended | growing


def next_laws(decoder: Decoder, texts: list[list[int]]) -> Tensor:
    """The law of the token after each of several texts of equal length: [len(texts), V]."""
    ids = torch.tensor(texts)
    rows = ids.shape[1]
    hidden = decoder(ids, torch.arange(rows), causal_mask(rows, torch.float64))
    return torch.softmax(decoder.logits(hidden[:, -1]), dim=-1)
