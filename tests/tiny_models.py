"""Tiny random models with a real tokenizer, as directories: what the engine tests run on."""

import dataclasses
from pathlib import Path

import torch

from engines.checkpoints import save_decoder
from engines.decoder import Decoder, DecoderConfig
from engines.embedded.pretraining import new_verifier
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
    decoder = new_verifier(config, seed)
    with torch.no_grad():
        decoder.embed.weight.mul_(12)
    return decoder


def write_model(folder: Path, *, seed: int = 0, tokenizer: bool = True, **extra: int) -> Path:
    """A verifier's directory; with mask_token_id and logits_shift in `extra` a drafter's."""
    return write_decoder(folder, sharpened(TINY, seed), tokenizer=tokenizer, **extra)


def write_decoder(folder: Path, decoder: Decoder, *, tokenizer: bool = True, **extra: int) -> Path:
    """The given decoder as a model directory."""
    chat = build_tokenizer(TEXTS)
    special = {"eos_token_id": int(chat.eos_token_id), "pad_token_id": int(chat.pad_token_id)}
    save_decoder(decoder, folder, extra={**special, **extra}, dtype=torch.float32)
    if tokenizer:
        chat.save_pretrained(folder)
    return folder


def write_drafter(folder: Path, *, logits_shift: int = 1, near: int | None = 0) -> Path:
    """A drafter's directory: one layer of the verifier of seed `near`, so that some of its drafts are right."""
    verifier = sharpened(TINY, near or 0)
    drafter = Decoder(dataclasses.replace(TINY, num_hidden_layers=1))
    state = verifier.state_dict()
    drafter.load_state_dict({name: state[name] for name in drafter.state_dict()})
    return write_decoder(folder, drafter, mask_token_id=4, logits_shift=logits_shift)
