"""Pretraining of the embedded verifier: next-token cross-entropy on worked solutions, prompts masked out.

Knows token ids; a task's texts come in as batches. The batch of step n is made from the seed and n alone.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engines.alignment.examples import Example
from engines.alignment.windows import pad_sequences
from engines.cache import DecoderConfig
from engines.decoder import Decoder, causal_mask

IGNORED = -100


def new_verifier(config: DecoderConfig, seed: int) -> Decoder:
    """A decoder with fresh weights: variance by fan-in, smaller where layers add into the residual stream."""
    generator = torch.Generator().manual_seed(seed)
    decoder = Decoder(config)
    residual = (2 * config.num_hidden_layers) ** -0.5
    for name, parameter in decoder.named_parameters():
        if name.startswith("embed"):
            nn.init.normal_(parameter, std=0.02, generator=generator)
        elif parameter.dim() == 2:
            scale = residual if name.endswith(("out.weight", "down.weight")) else 1.0
            nn.init.normal_(parameter, std=scale * parameter.shape[1] ** -0.5, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return decoder


def next_token_targets(inputs: Tensor, lengths: Tensor, prompts: Tensor) -> Tensor:
    """Next-token targets [B, T]; prompts and padding carry none."""
    targets = inputs.roll(-1, dims=1)
    places = torch.arange(inputs.shape[1])
    wanted = (places >= prompts[:, None] - 1) & (places < lengths[:, None] - 1)
    return targets.masked_fill(~wanted, IGNORED)


def pretraining_loss(
    decoder: Decoder, batch_at: Callable[[int], Sequence[Example]], pad_id: int
) -> Callable[[int], Tensor]:
    """The loss per step that the trainer wants: mean cross-entropy in nats over response tokens."""

    def loss_at(step: int) -> Tensor:
        examples = batch_at(step)
        inputs, lengths = pad_sequences(examples, pad_id)
        targets = next_token_targets(inputs, lengths, torch.tensor([len(e.prompt_ids) for e in examples]))
        rows = inputs.shape[1]
        with torch.autocast("cpu", torch.bfloat16):
            hidden = decoder(inputs, torch.arange(rows), causal_mask(rows))
            wanted = targets != IGNORED
            logits = decoder.logits(hidden[wanted])
        return F.cross_entropy(logits.float(), targets[wanted])

    return loss_at
