"""Which rule accepts more on shared drafts and random laws, enumerated exactly: theorems always, habits on average."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.speculative.drafts import draft_chain, draft_tree, trie
from engines.speculative.rejection import block, leviathan, specinfer, traversal
from enumeration import RandomTarget, Rule, expected_accepted, random_laws, sampled_sets
from test_verification import by_paper, by_walk

ROUNDING = 1e-9
seeds = st.integers(0, 100_000)
several_drafts = st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=4)


def accepted_on_sampled_drafts(rule: Rule, seed: int, count: int, window: int, *, vocab_size: int = 3) -> float:
    """Expected accepted tokens over the draws of drafts and coins."""
    target, draft_laws = RandomTarget(seed, vocab_size), random_laws(window, vocab_size, seed + 7)
    return sum(
        chance * expected_accepted(rule, tree, target.rows(tree), draft_laws)
        for tree, chance in sampled_sets(draft_laws, count)
    )


@settings(deadline=None, max_examples=60)
@given(drafts=several_drafts, seed=seeds)
def test_the_walk_accepts_at_least_what_the_paper_rule_accepts(drafts: list[list[int]], seed: int) -> None:
    tree = trie(drafts)
    laws = RandomTarget(seed).rows(tree)

    assert expected_accepted(by_walk, tree, laws, laws) >= expected_accepted(by_paper, tree, laws, laws) - ROUNDING


@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_block_verification_accepts_at_least_what_leviathan_accepts(seed: int) -> None:
    best, plain = (accepted_on_sampled_drafts(rule, seed, count=1, window=3) for rule in (block, leviathan))

    assert best >= plain - ROUNDING


@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_min_p_over_q_accepts_at_least_what_the_walk_accepts_on_a_sampled_chain(seed: int) -> None:
    weighed, walked = (accepted_on_sampled_drafts(rule, seed, count=1, window=3) for rule in (leviathan, by_walk))

    assert weighed >= walked - ROUNDING


@settings(deadline=None, max_examples=60)
@given(seed=seeds, nodes=st.integers(3, 10))
def test_a_tree_accepts_at_least_what_its_argmax_chain_accepts(seed: int, nodes: int) -> None:
    target, scores = RandomTarget(seed), random_laws(3, 3, seed + 7).log()
    tree, chain = draft_tree(scores, nodes).tree, draft_chain(scores)
    whole, alone = (
        expected_accepted(by_walk, each, laws, laws) for each in (tree, chain) for laws in [target.rows(each)]
    )

    assert whole >= alone - ROUNDING


@pytest.mark.parametrize(("count", "vocab_size"), [(2, 3), (3, 2)])
def test_traversal_accepts_more_than_specinfer_on_average(count: int, vocab_size: int) -> None:
    """No theorem for every law, so the share of cases is part of the test: 30 random laws."""
    gains = []
    for seed in range(30):
        ours, theirs = (
            accepted_on_sampled_drafts(rule, seed, count, 2, vocab_size=vocab_size) for rule in (traversal, specinfer)
        )
        gains.append(ours - theirs)

    assert sum(gains) > 0
    assert sum(gain >= -ROUNDING for gain in gains) >= 27
