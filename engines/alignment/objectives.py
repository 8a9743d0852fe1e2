"""Objectives over the drafter's log-probabilities of the verifier's own tokens, one pure function each.

Knows tensors only; those that compare whole laws are in engines/alignment/divergences.py, sums in mixed.py.
In all: log_q [..., G] = log q_j(x_j | prefix) for tokens x that the verifier drew, so that a mean over windows is an
expectation over x ~ P; valid [..., G] = whether place j lies within the text. Places behind its end add nothing. The
result is a scalar to be minimised: `ce` and `exp_ce` in nats, a mean over valid places; the others a mean over the
windows that have a valid place, the streaks in tokens (negative, since more is better).
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

SMALLEST_STREAK = 1e-6
NEVER = float("-inf")


def path_logs(log_q: Tensor, valid: Tensor) -> Tensor:
    """Log of the product of the first m probabilities, -inf from the end of the text on: [..., G] -> [..., G]."""
    return log_q.masked_fill(~valid, NEVER).cumsum(dim=-1)


def streak_sum(log_q: Tensor, valid: Tensor) -> Tensor:
    """Expected accepted streak of a sampled draft, sum over m of prod_{j<=m} q_j: [..., G] -> [...].

    Source: SpecDiff-2, Definition 5.1.
    """
    return path_logs(log_q, valid).exp().sum(dim=-1)


@torch.no_grad()
def streak_gains(log_q: Tensor, valid: Tensor) -> Tensor:
    """Derivative of the streak sum with respect to q_j: the chance to get there times one plus what may follow it.

    Unlike the derivative with respect to log q_j it does not vanish with q_j itself: a place that ends most streaks
    weighs as much as it would bring. 0 from the end of the text on.

    Shapes:
        log_q, valid: [..., G]
        returns:      [..., G] in tokens, without gradient
    """
    q = log_q.masked_fill(~valid, NEVER).exp()
    following, gains = torch.zeros_like(q[..., 0]), []
    for place in range(q.shape[-1] - 1, -1, -1):
        gains.append(1 + following)
        following = q[..., place] * gains[-1]
    reached = pad(q.cumprod(dim=-1)[..., :-1], (1, 0), value=1.0)
    return reached * torch.stack(gains[::-1], dim=-1) * valid


def window_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of one value per window [...] over the windows that have a place within the text, valid [..., G]."""
    begun = valid.any(dim=-1)
    return values.masked_fill(~begun, 0.0).sum() / begun.sum()


def ce(log_q: Tensor, valid: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy over valid places; `weights` are masked diffusion's (0 where shown, else 1 / share masked)."""
    losses = -log_q.masked_fill(~valid, 0.0)
    if weights is not None:
        losses = losses * weights
    return losses.sum() / valid.sum()


def exp_ce(log_q: Tensor, valid: Tensor, *, decay: float) -> Tensor:
    """Cross-entropy whose place j weighs decay^(j-1): a weighted mean over valid places, `ce` where decay is 1."""
    places = torch.arange(log_q.shape[-1], dtype=log_q.dtype, device=log_q.device)
    weights = torch.pow(decay, places) * valid
    return (-log_q.masked_fill(~valid, 0.0) * weights).sum() / weights.sum()


def streak(log_q: Tensor, valid: Tensor) -> Tensor:
    """Minus the expected accepted streak of a sampled draft.

    Its gradient is that of the cross-entropy with the frozen weights sum_{m>=j} prod_{i<=m} q_i; windows whose first
    place is hard weigh next to nothing in it.
    Source: SpecDiff-2, Definition 5.1.
    """
    return -window_mean(streak_sum(log_q, valid), valid)


def log_streak(log_q: Tensor, valid: Tensor) -> Tensor:
    """Mean of -log(streak sum): hard windows keep their gradient, which the plain streak takes from them."""
    return -window_mean((streak_sum(log_q, valid) + SMALLEST_STREAK).log(), valid)


def streak_ce(log_q: Tensor, valid: Tensor) -> Tensor:
    """Cross-entropy whose place j weighs the chance that a draft gets there, prod_{i<j} q_i, frozen: in nats.

    Not the gradient of `streak`: a place weighs by what lies before it, not by the tokens that may follow.
    Source: SpecDiff-2, Eq. 9 (dynamic position weights).
    """
    own = log_q.masked_fill(~valid, 0.0)
    reached = pad(own.cumsum(dim=-1)[..., :-1], (1, 0)).exp().detach()
    return -window_mean((reached * own).sum(dim=-1), valid)


def iid_streak(log_q: Tensor, valid: Tensor, *, drafts: int) -> Tensor:
    """Minus the expected accepted tokens under `walk` of K = `drafts` joint samples from q, merged into a trie.

    The trie holds x_1..x_m with probability 1 - (1 - prod_{i<=m} q_i)^K, and the walk follows x ~ P as deep as it is
    held: exact, and `streak` where K is 1. All K are true samples; the argmax chain that the engine swaps in for one
    of them is not counted.
    """
    held = 1 - (1 - path_logs(log_q, valid).exp()).pow(drafts)
    return -window_mean(held.sum(dim=-1), valid)


def tree_streak(log_q: Tensor, valid: Tensor, floors: Tensor, *, softness: float = 1.0) -> Tensor:
    """Minus the accepted nodes under `walk` of the best-first tree, smoothed: a surrogate, exact as softness goes to 0.

    The tree holds x_1..x_m where prod_{i<=m} q_i is above the tree's floor, a step function without a gradient. Here
    the step is a logistic curve in the log-product, `softness` nats wide; at 1 it is Q / (Q + floor). The floor is
    frozen: that other paths have to give way is the softmax's work already.

    Shapes:
        floors: [...] log-products that part the tree from what it leaves out, of `tree_floors`
    """
    held = torch.sigmoid((path_logs(log_q, valid) - floors.detach()[..., None]) / softness)
    return -window_mean(held.sum(dim=-1), valid)


@torch.no_grad()
def tree_floors(draft_logs: Tensor, nodes: int) -> Tensor:
    """The log-product half-way between the last path that a best-first tree of N = `nodes` takes and the next one.

    A path among the N + 1 best has a beginning among the N + 1 best of its depth, so it is enough to keep those. The
    argmax chain is as deep as it is among the best: engines/speculative/drafts.py gives it a few nodes more.

    Shapes:
        draft_logs: [..., G, V] log-probabilities
        returns:    [...]; the smallest number where there are no more than N paths at all
    """
    kept = nodes + 1
    best = draft_logs.topk(min(kept, draft_logs.shape[-1]), dim=-1).values
    depths = [best[..., 0, :]]
    for place in range(1, draft_logs.shape[-2]):
        # Of two descending lists, the sum of entries a and b (from 0) is no better than (a + 1)(b + 1) - 1 others.
        ranks = range(depths[-1].shape[-1])
        pairs = [(a, b) for a in ranks for b in range(min(best.shape[-1], kept // (a + 1)))]
        above, own = torch.tensor(pairs, device=best.device).T
        sums = depths[-1][..., above] + best[..., place, own]
        depths.append(sums.topk(min(kept, sums.shape[-1]), dim=-1).values)
    paths = torch.cat(depths, dim=-1)
    if paths.shape[-1] <= nodes:
        return torch.full_like(paths[..., 0], torch.finfo(paths.dtype).min)
    last, following = paths.topk(kept, dim=-1).values[..., -2:].unbind(dim=-1)
    return ((last + following) / 2).clamp(min=torch.finfo(paths.dtype).min)
