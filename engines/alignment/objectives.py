"""Objectives of alignment, one pure function each, over log-probabilities that the drafter gives the verifier's tokens.

Knows tensors only. In all: log_q [..., G] = log q_j(x_j | prefix) for the verifier's tokens x, valid [..., G] whether
place j lies within the text; the result is a scalar to be minimised, in nats or in tokens.
"""

from torch import Tensor

SMALLEST_STREAK = 1e-6


def streak_sum(log_q: Tensor, valid: Tensor) -> Tensor:
    """Expected accepted streak of a sampled draft, sum over m of prod_{j<=m} q_j: [..., G] -> [...].

    Source: SpecDiff-2, Definition 5.1.
    """
    return (log_q.masked_fill(~valid, float("-inf")).cumsum(dim=-1)).exp().sum(dim=-1)


def ce(log_q: Tensor, valid: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy over valid places; `weights` are masked diffusion's (0 where shown, else 1 / share masked)."""
    losses = -log_q.masked_fill(~valid, 0.0)
    if weights is not None:
        losses = losses * weights
    return losses.sum() / valid.sum()


def log_streak(log_q: Tensor, valid: Tensor) -> Tensor:
    """Mean of -log(streak sum): hard windows keep their gradient, which the plain streak takes from them."""
    return -(streak_sum(log_q, valid) + SMALLEST_STREAK).log().mean()
