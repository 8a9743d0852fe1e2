"""Draft trees of a whole batch as tensors of fixed shapes: how rows hang together, and the best-first tree.

Knows tensors only. No step waits for the host, so that a device may run ahead of it; for one request at a time the same
is done in engines/speculative/drafts.py. A verify forward has R = 1 + N rows: row 0 is the bonus token, the others are
the drafted nodes, parents before their children. The K drafts of shape `iid` keep a chain of rows each, however they
begin; that some rows stand for the same node is known to `first_equal` alone.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

NO_PARENT = -1
"""Parent of a row that holds no node: the vocabulary had fewer than were to be drafted."""


class Rows(NamedTuple):
    """How the rows of a verify forward hang together. B is 1 where all requests share it.

    parents: [B, R] row numbers; 0 for the bonus token itself, and for rows without a node
    is_node: [B, R] whether a row holds the bonus token or a node
    sees:    [B, R, R] whether a row sees another: the bonus token, its ancestors and itself
    depths:  [B, R] 0 for the bonus token
    paths:   [B, R, G] rows from the first place down to each row, R where a path is shorter
    """

    parents: Tensor
    is_node: Tensor
    sees: Tensor
    depths: Tensor
    paths: Tensor


def arrange(parents: Tensor, window: int) -> Rows:
    """Everything that follows from parents [B, R], NO_PARENT being allowed, in trees of at most `window` places."""
    is_node = parents != NO_PARENT
    parents = parents.clamp(min=0)
    count = parents.shape[1]
    order = torch.arange(count, device=parents.device)
    step = torch.nn.functional.one_hot(parents, count).float() + torch.eye(count, device=parents.device)
    for _ in range(window.bit_length()):  # after n doublings all ancestors up to 2**n steps above are seen
        step = (step @ step).clamp(max=1.0)
    sees = step > 0
    above = torch.where(sees & (order > 0), order, count)
    # A node's ancestors in ascending order are its path, since parents come before their children.
    return Rows(parents, is_node, sees, sees.sum(-1) - 1, above.sort(-1).values[..., :window])


def chain_parents(count: int, window: int) -> Tensor:
    """Parents of `count` chains below the bonus token: [1, 1 + count * window]."""
    rows = torch.arange(count * window).view(count, window)
    rows[:, 0] = 0
    return torch.cat((torch.zeros(1, dtype=torch.long), rows.reshape(-1)))[None]


def first_equal(drafts: Tensor) -> Tensor:
    """For every row of K chains [B, K, G] the first row of the same path, so that equal beginnings count as one node.

    Returns:
        [B, 1 + K * G]
    """
    batch, count, window = drafts.shape
    same = (drafts[:, :, None] == drafts[:, None]).cumprod(-1)
    place = 1 + torch.arange(window, device=drafts.device)
    rows = (same.argmax(2) * window + place).view(batch, count * window)
    return torch.nn.functional.pad(rows, (1, 0))


def best_first(marginals: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """The argmax chain, then the nodes of largest product of marginals, of every request of a batch.

    The best nodes of a place hang below the best nodes of the place before it. So a beam of `nodes` goes from place to
    place, and the best of all beams are the tree. A pair (m-th of the beam, r-th most likely token) can only matter if
    no more than `nodes` pairs are at least as good, those with neither number larger.

    Shapes:
        marginals: [B, G, V] scores, G <= nodes
        returns:   tokens and parents, both [B, 1 + nodes] (the first token is no token); NO_PARENT behind the last
                   node that has a probability above 0
    Source: as draft_tree of engines/speculative/drafts.py, whose trees these are (tests/test_sglang_trees.py).
    """
    batch, window, _ = marginals.shape
    ranked = torch.log_softmax(marginals.float(), dim=-1).topk(min(nodes, marginals.shape[-1]), dim=-1)
    logs, tokens, parents, keys = [], [], [], []
    beam = torch.zeros(batch, 1, device=marginals.device)
    start = 0
    for place in range(window):
        pairs = best_pairs(beam.shape[1], ranked.values.shape[-1], nodes, marginals.device)
        scores = beam[:, pairs[0]] + ranked.values[:, place, pairs[1]]
        # The pair of the two first is the chain, whatever equals it.
        key = torch.cat((torch.full_like(scores[:, :1], float("inf")), scores[:, 1:]), dim=1)
        kept = key.topk(min(nodes, key.shape[1]), dim=1)
        beam = scores.gather(1, kept.indices)
        above = pairs[0][kept.indices]
        parents.append(above + start if place else torch.full_like(above, NO_PARENT))
        tokens.append(ranked.indices[:, place].gather(1, pairs[1][kept.indices]))
        logs.append(beam)
        keys.append(kept.values)
        start += 0 if not place else logs[-2].shape[1]
    return select(torch.cat(logs, 1), torch.cat(keys, 1), torch.cat(tokens, 1), torch.cat(parents, 1), nodes)


@cache
def best_pairs(width: int, ranks: int, nodes: int, device: torch.device) -> Tensor:
    """Pairs (m, r) with (m + 1) * (r + 1) <= nodes, the pair (0, 0) first: [2, pairs]."""
    pairs = [(m, r) for m in range(width) for r in range(min(ranks, nodes // (m + 1)))]
    return torch.tensor(pairs, device=device).T


def select(logs: Tensor, keys: Tensor, tokens: Tensor, parents: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """The first `nodes` candidates by key, as rows with parents among themselves; arguments [B, candidates]."""
    chosen = keys.sort(dim=1, descending=True, stable=True).indices
    row_of = chosen.argsort(dim=1) + 1  # of every candidate
    chosen = chosen[:, :nodes]
    above = parents.gather(1, chosen)
    rows = torch.where(above == NO_PARENT, 0, row_of.gather(1, above.clamp(min=0)))
    rows = torch.where(logs.gather(1, chosen) == float("-inf"), NO_PARENT, rows)
    missing = nodes - rows.shape[1]
    rows = torch.nn.functional.pad(rows, (0, missing), value=NO_PARENT)
    picked = torch.nn.functional.pad(tokens.gather(1, chosen), (0, missing))
    return torch.nn.functional.pad(picked, (1, 0)), torch.nn.functional.pad(rows, (1, 0))


def full_mask(lengths: Tensor, window: Tensor, total: int) -> Tensor:
    """Masks as SGLang takes them, flat: for each request [rows, its length + rows], the length being visible.

    Shapes:
        lengths: [B] committed tokens of each request
        window:  [B or 1, rows, rows] what the rows see of each other
        total:   elements to make room for, at least those needed; lengths stay on the device
    """
    rows = window.shape[-1]
    flat = torch.ones(total, dtype=torch.bool, device=window.device)
    width = lengths.long() + rows
    first = (width * rows).cumsum(0) - width * rows + lengths
    order = torch.arange(rows, device=window.device)
    places = first.view(-1, 1, 1) + order.view(1, -1, 1) * width.view(-1, 1, 1) + order
    flat[places.reshape(-1)] = window.expand(lengths.numel(), rows, rows).reshape(-1)
    return flat


def links(rows: Rows, batch: int) -> tuple[Tensor, Tensor]:
    """First child and next sibling of every row, -1 for none: both [batch, R]."""
    count = rows.parents.shape[1]
    order = torch.arange(count, device=rows.parents.device)
    is_child = (rows.parents[:, None] == order[:, None]) & rows.is_node[:, None] & (order > 0)  # [b, row, other]
    is_younger = (rows.parents[:, None] == rows.parents[:, :, None]) & rows.is_node[:, None] & (order > order[:, None])
    is_younger &= (order > 0)[:, None]
    first, after = (
        torch.where(found.any(-1), found.int().argmax(-1), -1).expand(batch, count) for found in (is_child, is_younger)
    )
    return first, after
