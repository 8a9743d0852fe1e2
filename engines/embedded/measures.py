"""What the model card states of the verifier: how much entropy its own solutions hold.

Knows a model directory and token ids.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from engines.alignment.examples import Example
from engines.checkpoints import load_decoder
from engines.decoder import causal_mask

HIGH_ENTROPY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Entropy:
    """Of the verifier's law over the tokens of its solutions at temperature 1.

    mean_nats in nats a token; share_high of the tokens have more than HIGH_ENTROPY; tokens counts them.
    """

    mean_nats: float
    share_high: float
    tokens: int


@torch.inference_mode()
def solution_entropy(folder: Path, solutions: Iterable[Example]) -> Entropy:
    """Entropy of the verifier's law at every place of its own solutions."""
    verifier = load_decoder(folder, torch.float32)
    total, high, tokens = 0.0, 0, 0
    for solution in solutions:
        ids = torch.tensor([solution.prompt_ids + solution.response_ids[:-1]])
        rows = ids.shape[1]
        hidden = verifier(ids, torch.arange(rows), causal_mask(rows))[0, len(solution.prompt_ids) - 1 :]
        log_law = torch.log_softmax(verifier.logits(hidden), dim=-1)
        entropy = -(log_law.exp() * log_law).sum(dim=-1)
        total += float(entropy.sum())
        high += int((entropy > HIGH_ENTROPY).sum())
        tokens += len(entropy)
    return Entropy(mean_nats=total / tokens, share_high=high / tokens, tokens=tokens)
