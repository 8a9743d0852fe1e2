"""Verification by the target's own draws: how much of a draft tree is kept, and which token follows it.

Knows tensors only. Both rules follow the target's own tokens: at every node a token y is drawn from the law there, and
the walk goes on while a child of that node carries y. `walk` may use every node; `paper` (SpecDiff-2, section 5.2)
first selects one draft, that of the largest expected streak under the target, and walks on it alone. "Accept x with
probability p(x), else draw from p without x" has the same law as "draw y from p, accept if y = x". So both are
lossless for drafts of any origin (tests/test_verification.py, by exact enumeration). Rules that weigh the drafter's
law are in rejection.py.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engines.speculative.drafts import ROOT, DraftTree
from engines.speculative.streak import expected_streak


class Verdict(NamedTuple):
    """accepted: nodes that are kept, from the first place down; bonus: the target's token after the last of them."""

    accepted: list[int]
    bonus: int


class Coins(Protocol):
    """The randomness of one round."""

    def token(self, row: int) -> int:
        """The target's own draw after the bonus token (row 0) or a node (row 1 + n)."""
        ...

    def accept(self, probability: float) -> bool:
        """True with this probability."""
        ...

    def draw(self, law: Tensor) -> int:
        """A token from the law [V]."""
        ...


def walk(tree: DraftTree, coins: Coins, allowed: set[int] | None = None) -> Verdict:
    """Descend the tree along the target's tokens; `allowed`: nodes that may be used, None for all."""
    below = tree.children()
    accepted: list[int] = []
    row = 0
    while True:
        token = coins.token(row)
        node = below[row].get(token, ROOT)
        if node == ROOT or (allowed is not None and node not in allowed):
            return Verdict(accepted, token)
        accepted.append(node)
        row = node + 1


def paper(tree: DraftTree, log_laws: Tensor, coins: Coins) -> Verdict:
    """Self-selection, then greedy acceptance on the chosen draft.

    Shapes:
        log_laws: [1 + N, V] log-probabilities of the target after the bonus token and after every node
    Source: SpecDiff-2, section 5.2.
    """
    return walk(tree, coins, set(select_draft(tree, log_laws)) if tree.leaves else set())


def select_draft(tree: DraftTree, log_laws: Tensor) -> list[int]:
    """The nodes of the draft with the largest expected streak (the first of equals). log_laws: [1 + N, V]."""
    if len(tree.leaves) == 1:
        return tree.path(tree.leaves[0])
    node_logs = log_laws[torch.tensor(tree.parents) + 1, torch.tensor(tree.tokens)]
    paths = [tree.path(leaf) for leaf in tree.leaves]
    longest = max(len(path) for path in paths)
    # Drafts may differ in length: a place that a draft does not have adds exp(-inf) to its streak.
    padded = torch.tensor([path + [len(tree.tokens)] * (longest - len(path)) for path in paths])
    streaks = expected_streak(torch.cat((node_logs, torch.tensor([float("-inf")])))[padded])
    return paths[int(streaks.argmax())]
