"""Verification by rejection: rules that weigh the target's law p against the drafter's law q.

Knows tensors only. Each is exact only for drafts truly drawn from q, token by token: a sampled chain (`leviathan`,
`block`) or K of them (`specinfer`, `traversal`); engines/speculation.py refuses other shapes. An argmax chain counts as
drawn from its one-hot. Every rule is held to the target's law by exact enumeration (tests/test_verification.py).

Shapes, in all rules:
    laws:       [1 + N, V] probabilities of the target after the bonus token and after every node
    draft_laws: [G, V] probabilities from which the tokens of each place were drawn
"""

from typing import NamedTuple

from torch import Tensor

from engines.speculative.drafts import ROOT, DraftTree
from engines.speculative.verification import Coins, Verdict


def leviathan(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Accept each token with min(1, p/q); at the first rejection draw from what p has above q.

    Source: Leviathan et al. (2023), algorithm 1.
    """
    for depth, token in enumerate(tree.tokens):
        p, q = laws[depth], draft_laws[depth]
        if not coins.accept(acceptance(1.0, p, q, token)):
            return Verdict(list(range(depth)), coins.draw(surplus(1.0, p, q).law))
    return Verdict(list(range(len(tree.tokens))), coins.token(len(tree.tokens)))


def block(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Accept the longest beginning of the chain that a joint test lets through: at least what `leviathan` accepts.

    Source: Sun et al. (2024), arXiv 2403.10444, algorithm 2.
    """
    rates = [1.0]
    for depth, token in enumerate(tree.tokens):
        rates.append(acceptance(rates[-1], laws[depth], draft_laws[depth], token))
    length = len(tree.tokens)
    if coins.accept(rates[length]):
        return Verdict(list(range(length)), coins.token(length))
    for depth in range(length - 1, -1, -1):
        rest = surplus(rates[depth], laws[depth], draft_laws[depth])
        if coins.accept(rest.rate):
            return Verdict(list(range(depth)), coins.draw(rest.law))
    raise AssertionError("the empty draft has an acceptance rate of 1")


def specinfer(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """At every node try the drafts' tokens in turn, each against what the ones before have left of p.

    Source: Miao et al. (2023), arXiv 2305.09781, algorithm 2.
    """
    drafts = [tree.path(leaf) for leaf in tree.leaves]
    accepted: list[int] = []
    while True:
        depth = len(accepted)
        law = laws[accepted[-1] + 1 if accepted else 0]
        chosen = ROOT
        for draft in drafts:
            if depth == len(draft):
                continue
            node = draft[depth]
            if coins.accept(acceptance(1.0, law, draft_laws[depth], tree.tokens[node])):
                chosen = node
                break
            law = surplus(1.0, law, draft_laws[depth]).law
        if chosen == ROOT:
            return Verdict(accepted, coins.draw(law))
        accepted.append(chosen)
        drafts = [draft for draft in drafts if len(draft) > depth and draft[depth] == chosen]


def traversal(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Test whole paths from their leaves up; a rejected child leaves its node with what it has not taken of p.

    Source: Weng et al. (2025), arXiv 2505.12398, algorithm 2.
    """

    def visit(node: int, rate: float, drafts: list[list[int]], depth: int) -> Verdict | None:
        """The verdict if the path to `node` or one below it is accepted, which happens with probability `rate`."""
        law = laws[node + 1]
        tried: set[int] = set()
        for draft in drafts:
            if depth == len(draft):
                continue
            child, q = draft[depth], draft_laws[depth]
            # A token drawn several times is tried as often, but what follows it belongs to its first turn.
            below = [] if child in tried else [each for each in drafts if len(each) > depth and each[depth] == child]
            tried.add(child)
            verdict = visit(child, acceptance(rate, law, q, tree.tokens[child]), below, depth + 1)
            if verdict:
                return verdict
            rate, law = surplus(rate, law, q)
        if coins.accept(rate):
            return Verdict(tree.path(node), coins.draw(law))
        return None

    verdict = visit(ROOT, 1.0, [tree.path(leaf) for leaf in tree.leaves], 0)
    if verdict is None:
        raise AssertionError("the empty draft has an acceptance rate of 1")
    return verdict


def acceptance(rate: float, law: Tensor, draft_law: Tensor, token: int) -> float:
    """min(1, rate * p / q) of a drawn token; rate is the acceptance rate of the path before it."""
    return min(1.0, rate * float(law[token]) / float(draft_law[token]))


class Surplus(NamedTuple):
    """What is left after a rejected child: acceptance rate of the path before it, and the law of the next token."""

    rate: float
    law: Tensor


def surplus(rate: float, law: Tensor, draft_law: Tensor) -> Surplus:
    """The part of rate * p above q, normalised; where nothing is, the path cannot be accepted any more.

    A path of rate 1 over p = q has nothing left either, but is not rejected in the first place, up to rounding.
    """
    above = (rate * law - draft_law).clamp_min(0.0)
    mass = float(above.sum())
    if mass <= 0.0:
        return Surplus(1.0 if rate == 1.0 else 0.0, law)
    return Surplus(mass / (mass + (1.0 - rate)), above / mass)
