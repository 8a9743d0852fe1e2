"""Verification: how much of a draft tree is kept, and which token follows it.

Knows tensors only. Both rules follow the target's own tokens: at every node a token y is drawn from the law there, and
the walk goes on while a child of that node carries y. `walk` may use every node; `paper` (SpecDiff-2, section 5.2)
first selects one draft, that of the largest expected streak under the target, and walks on it alone. "Accept x with
probability p(x), else draw from p without x" has the same law as "draw y from p, accept if y = x". So both are
lossless: the emitted tokens are the target's own draws (tests/test_verification.py, by exact enumeration).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from engines.speculative.drafts import ROOT, DraftTree


class Verdict(NamedTuple):
    """accepted: nodes that are kept, from the first place down; bonus: the target's token after the last of them."""

    accepted: list[int]
    bonus: int


def walk(tree: DraftTree, drawn: list[int], allowed: set[int] | None = None) -> Verdict:
    """Descend the tree along the target's tokens.

    Args:
        drawn: 1 + N tokens, the target's draw after the bonus token (row 0) and after every node (row 1 + n)
        allowed: nodes that may be used; None for all
    """
    below = tree.children()
    accepted: list[int] = []
    row = 0
    while (node := below[row].get(drawn[row], ROOT)) != ROOT and (allowed is None or node in allowed):
        accepted.append(node)
        row = node + 1
    return Verdict(accepted, drawn[row])


def expected_streak(target_log_probs: Tensor) -> Tensor:
    """Expected number of accepted tokens of each draft when it is walked alone.

    Shapes:
        target_log_probs: [K, G]; entry [k, j] = log P(x_j | prefix, x_<j)
        returns:          [K]; sum over m of the product of the first m probabilities
    Source: SpecDiff-2, Eq. 7.
    """
    return target_log_probs.cumsum(dim=-1).exp().sum(dim=-1)


def select_draft(tree: DraftTree, log_laws: Tensor) -> list[int]:
    """Self-selection: the nodes of the draft with the largest expected streak (the first of equals).

    Shapes:
        log_laws: [1 + N, V] log-probabilities of the target after the bonus token and after every node
    """
    parents = torch.tensor(tree.parents) + 1
    node_log_probs = log_laws[parents, torch.tensor(tree.tokens)]
    paths = torch.tensor([tree.path(leaf) for leaf in tree.leaves])
    best = int(expected_streak(node_log_probs[paths]).argmax())
    return [int(node) for node in paths[best]]
