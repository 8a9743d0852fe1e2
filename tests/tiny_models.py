"""Tiny random models with a real tokenizer, as directories: what the engine tests run on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch

from engines import tiny
from engines.alignment.drafting import drafter_from_verifier
from engines.cache import DecoderConfig
from engines.checkpoints import save_decoder
from engines.decoder import Decoder
from engines.embedded.tokenizer import VOCAB_SIZE, build_tokenizer

TEXTS = ("Mia has 42 coins. First she finds 17.", "The answer is \\boxed{59}.", "Work step by step.")
TINY = DecoderConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=96,
    attention_bias=True,
)


def sharpened(config: DecoderConfig, seed: int) -> Decoder:
    """A random decoder whose laws are neither flat nor one-hot."""
    return tiny.sharpened(config, seed, 12.0)


def write_model(
    folder: Path, *, seed: int = 0, tokenizer: bool = True, layers: int | None = None, **extra: int | str
) -> Path:
    """A verifier's directory, of its first layers only if so told; with mask_token_id in `extra` a drafter's."""
    decoder = sharpened(TINY, seed)
    decoder = drafter_from_verifier(decoder, layers) if layers else decoder
    return write_decoder(folder, decoder, tokenizer=tokenizer, extra=extra)


def write_decoder(
    folder: Path,
    decoder: Decoder,
    *,
    tokenizer: bool = True,
    texts: Sequence[str] = TEXTS,
    extra: Mapping[str, int | str] = MappingProxyType({}),
) -> Path:
    """The given decoder as a model directory."""
    chat = build_tokenizer(texts)
    special = {"eos_token_id": int(chat.eos_token_id), "pad_token_id": int(chat.pad_token_id)}
    save_decoder(decoder, folder, extra={**special, **extra}, dtype=torch.float32)
    if tokenizer:
        chat.save_pretrained(folder)
    return folder


def write_drafter(folder: Path, *, logits_shift: int = 1, near: int | None = 0, draft_prefix: str = "causal") -> Path:
    """A drafter's directory: one layer of the verifier of seed `near`, so that some of its drafts are right."""
    drafter = drafter_from_verifier(sharpened(TINY, near or 0), 1)
    return write_decoder(
        folder, drafter, extra={"mask_token_id": 4, "logits_shift": logits_shift, "draft_prefix": draft_prefix}
    )


def write_other_tokens(folder: Path) -> Path:
    """A drafter whose tokenizer was trained on other texts, so that it cuts and numbers most words otherwise."""
    other = ("step by step we find the coins", "how many has she first", "work 17 42 59 answer boxed")
    drafter = drafter_from_verifier(sharpened(TINY, 0), 1)
    return write_decoder(folder, drafter, texts=other, extra={"mask_token_id": 4, "logits_shift": 1})
