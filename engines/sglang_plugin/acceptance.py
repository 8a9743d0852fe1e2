"""Verification of a batch on tensors: the target's own draws at every row, and the walk along them.

The rules are those of engines/speculative/verification.py, `walk` and `paper`, for many requests at once and without
waiting for the host. Every kept token is a draw from the target's law after the tokens before it, whatever was drafted,
so the law of the text is the target's. The draws are SGLang's own, by its own sampler: with a request seed a draw is a
function of seed and position, and the text is that of decoding without drafts.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from engines.sglang_plugin.tree import Rows
from engines.speculative.streak import expected_streak

NEVER = float("-inf")


class Draws(NamedTuple):
    """The target at every row.

    tokens: [B, R] a draw after each row
    laws:   [B * R, V] probabilities after each row; None where they are the one-hots of `tokens` or nobody asks
    """

    tokens: Tensor
    laws: Tensor | None


class Verdict(NamedTuple):
    """What a round keeps.

    rows:    [B, 1 + G] rows from the bonus token down to the last accepted node, -1 behind it
    tokens:  [B, 1 + G] the target's draw after each of these rows: accepted tokens, then the new bonus token
    counts:  [B] how many of both there are, at least 1
    """

    rows: Tensor
    tokens: Tensor
    counts: Tensor


def draw(logits: Tensor, info: Any, positions: Tensor, rows: int, *, laws: bool) -> Draws:
    """The target's draws after `rows` rows of each request.

    Args:
        logits: [B * R, V] with penalties, bias and grammar applied
        info: SGLang's sampling settings of the batch
        positions: [B * R] of the rows' tokens
        rows: R
        laws: whether the laws are wanted
    """
    from sglang.srt.layers import sampler

    if info.is_all_greedy:
        return Draws(logits.argmax(-1).view(-1, rows), None)
    probabilities = torch.softmax(logits.float() / by_row(info.temperatures, rows), dim=-1)
    seeds = None if info.sampling_seed is None else by_row(info.sampling_seed, rows)
    if not (info.need_top_p_sampling or info.need_top_k_sampling or info.need_min_p_sampling):
        tokens = sampler.sampling_from_probs_torch(probabilities, sampling_seed=seeds, positions=positions)
        return Draws(tokens.view(-1, rows).long(), probabilities if laws else None)
    tokens, weights, order, _ = sampler.top_k_top_p_min_p_sampling_from_probs_torch(
        probabilities,
        by_row(info.top_ks, rows),
        by_row(info.top_ps, rows),
        by_row(info.min_ps, rows),
        info.need_min_p_sampling,
        seeds,
        positions,
        return_filtered_probs=True,
    )
    kept = torch.zeros_like(probabilities).scatter_(-1, order.long(), weights) if laws else None
    return Draws(tokens.view(-1, rows).long(), None if kept is None else kept / kept.sum(-1, keepdim=True))


def by_row(values: Tensor, rows: int) -> Tensor:
    """A value per request, for each of its rows."""
    return values.repeat_interleave(rows, 0)


def node_logs(tokens: Tensor, rows: Rows, draws: Draws) -> Tensor:
    """Log-probability of every row's token after its parent: [B, R], -inf where the row holds no node."""
    batch, count = tokens.shape
    parents = rows.parents.expand(batch, count)
    if draws.laws is None:
        logs = torch.where(draws.tokens.gather(1, parents) == tokens, 0.0, NEVER)
    else:
        place = parents + count * torch.arange(batch, device=tokens.device)[:, None]
        logs = draws.laws[place, tokens].log()
    return logs.masked_fill(~rows.is_node, NEVER)


def select_draft(tokens: Tensor, rows: Rows, draws: Draws) -> Tensor:
    """The row at the end of the draft with the largest expected streak (the first of equals): [B].

    Source: SpecDiff-2, section 5.2.
    """
    logs = torch.nn.functional.pad(node_logs(tokens, rows, draws), (0, 1), value=NEVER)
    batch, count = tokens.shape
    paths = rows.paths.expand(batch, count, -1)
    return expected_streak(logs.gather(1, paths.reshape(batch, -1)).view(paths.shape)).argmax(-1)


def walk(tokens: Tensor, rows: Rows, drawn: Tensor, chosen: Tensor | None = None) -> Verdict:
    """Descend from the bonus token while a row carries the target's draw after its parent.

    Shapes:
        tokens: [B, R] the rows' tokens
        drawn:  [B, R] the target's draws; rows of the same path must have the same
        chosen: [B] the end of the one draft that may be used; None for all
    """
    batch, count = tokens.shape
    sees = rows.sees.expand(batch, count, count)
    follows = (drawn.gather(1, rows.parents.expand(batch, count)) == tokens) & rows.is_node
    if chosen is not None:
        follows &= sees[torch.arange(batch, device=tokens.device), chosen]
    follows[:, 0] = True
    kept = ~(sees & ~follows[:, None]).any(-1)
    depths = torch.where(kept, rows.depths, -1)
    last = depths.argmax(-1)
    path = rows.paths.expand(batch, count, -1)[torch.arange(batch, device=tokens.device), last]
    accepted = torch.nn.functional.pad(torch.where(path < count, path, -1), (1, 0))
    return Verdict(accepted, drawn.gather(1, accepted.clamp(min=0)), depths.amax(-1) + 1)
