"""Draft shapes: what is in a tree, in which order, and what a verify forward may see of it."""

import itertools
from math import prod

import pytest
import torch
from torch import Tensor

from engines.speculative.drafts import (
    DraftTree,
    RankedTree,
    ancestors_mask,
    draft_chain,
    draft_samples,
    draft_tree,
    ranked_chain,
    trie,
)


def scores(window: int, vocab_size: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(window, vocab_size, generator=torch.Generator().manual_seed(seed))


def paths(tree: DraftTree) -> list[tuple[int, ...]]:
    return [tuple(tree.tokens[on] for on in tree.path(node)) for node in range(len(tree.tokens))]


def most_likely_paths(marginals: Tensor, count: int) -> set[tuple[int, ...]]:
    """The `count` best beginnings of drafts by product of marginals, out of all there are."""
    laws = torch.softmax(marginals.double(), -1).tolist()
    places = range(len(laws[0]))
    every = [text for length in range(1, len(laws) + 1) for text in itertools.product(places, repeat=length)]
    every.sort(key=lambda text: -prod(laws[at][token] for at, token in enumerate(text)))
    return set(every[:count])


@pytest.mark.parametrize("nodes", [1, 4, 9, 20, 39])
def test_a_grown_tree_holds_the_best_nodes_of_all(nodes: int) -> None:
    marginals = scores(3, 3)

    tree = draft_tree(marginals, nodes, floor=float("-inf")).tree

    assert set(paths(tree)) == most_likely_paths(marginals, nodes)


@pytest.mark.parametrize("nodes", [4, 7, 12])
def test_a_tree_holds_the_argmax_chain_and_then_the_best_others(nodes: int) -> None:
    marginals = scores(4, 5, seed=3)
    chain = set(paths(draft_chain(marginals)))

    tree = draft_tree(marginals, nodes).tree

    held = set(paths(tree))
    assert len(held) == nodes
    assert chain <= held
    others = most_likely_paths(marginals, 200) - chain
    ranked = sorted(others, key=lambda p: -sum(torch.log_softmax(marginals, -1)[i][t].item() for i, t in enumerate(p)))
    assert held - chain == set(ranked[: nodes - 4])


def test_a_tree_says_how_likely_the_drafter_thinks_each_path() -> None:
    marginals = scores(3, 4)
    logs = torch.log_softmax(marginals, -1)

    tree, path_logs = draft_tree(marginals, 8)

    expected = [sum(float(logs[at, token]) for at, token in enumerate(path)) for path in paths(tree)]
    assert path_logs == pytest.approx(expected, abs=1e-5)


def test_parents_come_before_their_children_and_every_leaf_ends_a_draft() -> None:
    tree = draft_tree(scores(4, 6), 15).tree

    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert set(tree.leaves) == set(range(15)) - set(tree.parents)


def test_no_node_below_the_floor_is_drafted() -> None:
    path_logs = draft_tree(scores(4, 6), 60, floor=-2.0).path_logs

    assert path_logs
    assert min(path_logs) >= -2.0
    assert len(draft_tree(scores(4, 6), 60, floor=-4.0).path_logs) > len(path_logs)


def test_a_token_without_probability_is_never_drafted() -> None:
    marginals = scores(3, 4)
    marginals[:, 2] = float("-inf")

    assert 2 not in draft_tree(marginals, 39).tree.tokens


def test_scores_behind_a_path_count_there_and_nowhere_else() -> None:
    marginals, behind = scores(3, 4), scores(2, 4, seed=9)
    fork = (int(marginals[0].argmin()),)
    logs, own = torch.log_softmax(marginals, -1), torch.log_softmax(behind, -1)

    tree, path_logs = draft_tree(marginals, 84, floor=float("-inf"), below={fork: behind})

    def expected(path: tuple[int, ...]) -> float:
        laws = [logs[0], own[0], own[1]] if path[:1] == fork else logs
        return sum(float(law[token]) for law, token in zip(laws, path, strict=False))

    assert path_logs == pytest.approx([expected(path) for path in paths(tree)], abs=1e-5)
    assert path_logs == sorted(path_logs, reverse=True)


def test_the_argmax_chain_follows_the_scores_behind_its_own_beginning() -> None:
    marginals, behind = scores(3, 6), scores(2, 6, seed=4)
    first = int(marginals[0].argmax())

    tree = draft_tree(marginals, 3, below={(first,): behind}).tree

    assert tree.tokens == [first, *behind.argmax(-1).tolist()]


def test_forks_are_the_likeliest_nodes_with_siblings_and_something_below() -> None:
    tree = trie([[5, 6, 7], [5, 6, 8], [5, 9], [4]])
    ranked = RankedTree(tree, [-0.1, -0.2, -1.0, -1.1, -3.0, -2.0])

    assert ranked.forks(4, depth=3) == [(5,), (5, 6), (4,), (5, 9)]
    assert ranked.forks(2, depth=3) == [(5,), (5, 6)]
    assert ranked.forks(9, depth=4)[2] == (5, 6, 7)


def test_the_ranked_chain_is_the_argmax_chain() -> None:
    marginals = scores(5, 7)

    assert ranked_chain(marginals).tree == draft_chain(marginals)
    assert ranked_chain(marginals).path_logs == pytest.approx(draft_tree(marginals, 5).path_logs, abs=1e-5)


def test_the_argmax_chain_takes_the_place_of_the_first_sample() -> None:
    marginals = scores(4, 20)

    tree = draft_samples(torch.softmax(marginals, -1), 5, torch.Generator().manual_seed(1), argmax=marginals)

    assert [tree.tokens[node] for node in tree.path(tree.leaves[0])] == draft_chain(marginals).tokens
    assert len(tree.leaves) == 5


def test_samples_are_drawn_from_the_laws() -> None:
    """Share of each first token among 4,000 drafts, seed 0; standard error at most 0.008, limit 0.03."""
    laws = torch.softmax(scores(2, 4), -1)

    tree = draft_samples(laws, 4000, torch.Generator().manual_seed(0))

    first = torch.tensor([tree.tokens[tree.path(leaf)[0]] for leaf in tree.leaves])
    assert (torch.bincount(first, minlength=4) / 4000 - laws[0]).abs().max() < 0.03


def test_the_beginning_of_a_tree_is_a_tree() -> None:
    tree = trie([[5, 6, 7], [5, 8], [9, 6]])

    assert tree.first(4) == DraftTree([5, 6, 7, 8], [-1, 0, 1, 0], [1, 2, 3, 2], [2, 3])


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
