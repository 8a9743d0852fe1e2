"""The rules emit the target's law: by exact enumeration of all of the target's draws on a small vocabulary."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engines.speculative.distributions import PositionNoise, log_law, target_tokens
from engines.speculative.drafts import DraftTree, ancestors_mask, draft_chain, draft_iid, trie
from engines.speculative.verification import Verdict, expected_streak, select_draft, walk

V = 3
Law = dict[tuple[int, ...], float]
Rule = Callable[[DraftTree, list[int], Tensor], Verdict]


class RandomTarget:
    """A target whose law after every prefix is random but fixed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.probs = cache(lambda prefix: self.log_probs(prefix).exp().tolist())

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        key = self.seed
        for token in prefix:
            key = key * 31 + token + 1
        scores = 1.5 * torch.randn(V, generator=torch.Generator().manual_seed(key))
        return torch.log_softmax(scores, -1)

    def rows(self, tree: DraftTree) -> Tensor:
        paths = [(), *(tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree.tokens)))]
        return torch.stack([self.log_probs(path) for path in paths])

    def law(self, length: int) -> Law:
        law: Law = {}
        for text in itertools.product(range(V), repeat=length):
            law[text] = prod(self.probs(text[:at])[token] for at, token in enumerate(text))
        return law


def by_walk(tree: DraftTree, drawn: list[int], rows: Tensor) -> Verdict:
    return walk(tree, drawn)


def by_paper(tree: DraftTree, drawn: list[int], rows: Tensor) -> Verdict:
    return walk(tree, drawn, set(select_draft(tree, rows)))


def accept_the_target_argmax(tree: DraftTree, drawn: list[int], rows: Tensor) -> Verdict:
    """Mutant: matches drafts against the argmax at temperature > 0."""
    return walk(tree, [*rows.argmax(-1).tolist()])


def keep_the_first_draw_as_bonus(tree: DraftTree, drawn: list[int], rows: Tensor) -> Verdict:
    """Mutant: the token after the accepted run is drawn from the law of another place."""
    return Verdict(walk(tree, drawn).accepted, drawn[0])


def emitted_law(target: RandomTarget, tree: DraftTree, rule: Rule, length: int) -> Law:
    """Law of the first `length` tokens: one round under `rule`, completed by the target where the round is shorter."""
    rows = target.rows(tree)
    probs = rows.exp().tolist()
    law: Law = defaultdict(float)
    for drawn in itertools.product(range(V), repeat=len(probs)):
        weight = prod(probs[row][token] for row, token in enumerate(drawn))
        verdict = rule(tree, list(drawn), rows)
        run = (*(tree.tokens[node] for node in verdict.accepted), verdict.bonus)[:length]
        for rest in itertools.product(range(V), repeat=length - len(run)):
            text = run + rest
            law[text] += weight * prod(target.probs(text[:at])[text[at]] for at in range(len(run), length))
    return law


def distance(one: Law, other: Law) -> float:
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in set(one) | set(other))


DRAFTS = {
    "chain": [[0, 1, 2]],
    "two drafts": [[0, 1], [2, 1]],
    "drafts with a common beginning": [[0, 1, 2], [0, 2, 2], [0, 1, 0]],
    "the same draft twice": [[1, 1], [1, 1]],
}


@pytest.mark.parametrize("drafts", DRAFTS.values(), ids=DRAFTS.keys())
@pytest.mark.parametrize("rule", [by_walk, by_paper])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_rule_emits_the_law_of_the_target(rule: Rule, drafts: list[list[int]], seed: int) -> None:
    target, tree = RandomTarget(seed), trie(drafts)

    assert distance(emitted_law(target, tree, rule, 3), target.law(3)) < 1e-5


@pytest.mark.parametrize("mutant", [accept_the_target_argmax, keep_the_first_draw_as_bonus])
def test_a_broken_rule_does_not(mutant: Rule) -> None:
    target, tree = RandomTarget(1), trie([[0, 1, 2], [0, 2, 2]])

    assert distance(emitted_law(target, tree, mutant, 3), target.law(3)) > 0.005


drafts_strategy = st.lists(st.lists(st.integers(0, V - 1), min_size=3, max_size=3), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(
    drafts=drafts_strategy, seed=st.integers(0, 1000), draws=st.lists(st.integers(0, V - 1), min_size=13, max_size=13)
)
def test_the_walk_accepts_at_least_what_the_paper_rule_accepts(
    drafts: list[list[int]], seed: int, draws: list[int]
) -> None:
    tree = trie(drafts)
    rows = RandomTarget(seed).rows(tree)

    assert len(by_walk(tree, draws, rows).accepted) >= len(by_paper(tree, draws, rows).accepted)


def test_self_selection_takes_the_draft_of_the_largest_expected_streak() -> None:
    log_probs = torch.tensor([[0.9, 0.1], [0.6, 0.9]]).log()

    assert torch.allclose(expected_streak(log_probs), torch.tensor([0.9 + 0.09, 0.6 + 0.54]))


def test_a_row_of_the_mask_sees_prefix_bonus_ancestors_and_itself() -> None:
    tree = trie([[5, 6], [5, 7], [8, 6]])

    seen = ancestors_mask(tree, 2, torch.bfloat16) == 0

    assert seen.int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 1, 0],
        [1, 1, 1, 0, 0, 0, 1, 1],
    ]


def test_the_mask_of_a_chain_is_the_causal_triangle() -> None:
    seen = ancestors_mask(trie([[5, 6, 7]]), 1, torch.float32) == 0

    assert seen.int().tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_the_argmax_chain_is_among_the_drafts_of_iid() -> None:
    marginals = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))

    tree = draft_iid(marginals, 5, 1.0, torch.Generator().manual_seed(1))

    assert [tree.tokens[node] for node in tree.path(tree.leaves[0])] == draft_chain(marginals).tokens


def test_noise_of_a_position_depends_on_the_seed_and_the_position_alone() -> None:
    once, again = PositionNoise(7, 11), PositionNoise(7, 11)
    once.rows([0, 1])

    assert torch.equal(once.rows([130, 3]), again.rows([130, 3]))


def test_draws_follow_the_law_at_a_temperature() -> None:
    """Total variation against softmax(scores / 0.7) over 20,000 positions, seed 5; expected about 0.008, limit 0.02."""
    scores, noise = torch.randn(1, 20, generator=torch.Generator().manual_seed(0)), PositionNoise(5, 20)
    drawn = target_tokens(scores.expand(20_000, 20), 0.7, noise.rows(list(range(20_000))))

    shares = torch.bincount(drawn, minlength=20) / 20_000

    assert 0.5 * (shares - log_law(scores[0], 0.7).exp()).abs().sum() < 0.02


def test_at_temperature_0_the_law_is_a_one_hot() -> None:
    assert log_law(torch.tensor([1.0, 3.0, 2.0]), 0.0).exp().tolist() == [0.0, 1.0, 0.0]
