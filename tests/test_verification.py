"""Every rule emits the target's law for every shape that it is exact for: each outcome of each coin is enumerated."""

import pytest
import torch
from torch import Tensor

from engines.speculation import EXACT_FOR, RULES
from engines.speculative.drafts import DraftTree, draft_tree, trie
from engines.speculative.rejection import acceptance, block, leviathan, specinfer, surplus, traversal
from engines.speculative.streak import expected_streak
from engines.speculative.verification import Coins, Verdict, paper, select_draft, walk
from enumeration import (
    Law,
    RandomTarget,
    Rule,
    distance,
    emitted_law,
    emitted_law_of_sampled_drafts,
    expected_accepted,
    random_laws,
    sampled_sets,
)


def by_walk(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    return walk(tree, coins)


def by_paper(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    return paper(tree, laws.log(), coins)


BY_NAME: dict[str, Rule] = {
    "walk": by_walk,
    "paper": by_paper,
    "leviathan": leviathan,
    "block": block,
    "specinfer": specinfer,
    "traversal": traversal,
}
EXACT = 1e-9
MULTI = [rule for rule in RULES if "iid" in EXACT_FOR[rule]]


def test_every_rule_is_tested() -> None:
    assert set(BY_NAME) == set(RULES)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_emits_the_targets_law_on_a_sampled_chain(rule: str, seed: int) -> None:
    target, draft_laws = RandomTarget(seed), random_laws(3, 3, seed + 50)

    law = emitted_law_of_sampled_drafts(target, draft_laws, 1, BY_NAME[rule], 4)

    assert distance(law, target.law(4)) < EXACT


@pytest.mark.parametrize(("count", "vocab_size"), [(2, 3), (3, 2)])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rule", MULTI)
def test_a_rule_emits_the_targets_law_on_sampled_drafts(rule: str, seed: int, count: int, vocab_size: int) -> None:
    target, draft_laws = RandomTarget(seed, vocab_size), random_laws(2, vocab_size, seed + 50)

    law = emitted_law_of_sampled_drafts(target, draft_laws, count, BY_NAME[rule], 3)

    assert distance(law, target.law(3)) < EXACT


@pytest.mark.parametrize("rule", ["leviathan", "block", "specinfer", "traversal"])
def test_a_rule_emits_the_targets_law_on_the_argmax_chain_with_its_one_hot(rule: str) -> None:
    target, one_hot = RandomTarget(4), torch.eye(3, dtype=torch.float64)[[2, 0, 1]]

    law = emitted_law(target, trie([[2, 0, 1]]), one_hot, BY_NAME[rule], 4)

    assert distance(law, target.law(4)) < EXACT


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_emits_the_law_of_temperature_0(rule: str) -> None:
    target, draft_laws = RandomTarget(3, scale=300.0), random_laws(3, 3, 8)

    law = emitted_law_of_sampled_drafts(target, draft_laws, 1, BY_NAME[rule], 4)

    assert distance(law, target.law(4)) < 1e-6


DRAFTS = {
    "no draft": [],
    "chain": [[0, 1, 2]],
    "two drafts": [[0, 1], [2, 1]],
    "drafts with a common beginning": [[0, 1, 2], [0, 2, 2], [0, 1, 0]],
    "the same draft twice": [[1, 1], [1, 1]],
    "drafts of different length": [[0, 1, 2], [0], [2, 2]],
}


@pytest.mark.parametrize("drafts", DRAFTS.values(), ids=DRAFTS.keys())
@pytest.mark.parametrize("rule", [by_walk, by_paper])
@pytest.mark.parametrize("seed", [1, 2])
def test_walk_and_paper_emit_the_targets_law_on_drafts_of_any_origin(
    rule: Rule, drafts: list[list[int]], seed: int
) -> None:
    target, tree = RandomTarget(seed), trie(drafts)

    assert distance(emitted_law(target, tree, random_laws(3, 3, 0), rule, 4), target.law(4)) < EXACT


@pytest.mark.parametrize("rule", [by_walk, by_paper])
@pytest.mark.parametrize("nodes", [3, 5, 8])
def test_walk_and_paper_emit_the_targets_law_on_a_best_first_tree(rule: Rule, nodes: int) -> None:
    target, tree = RandomTarget(1), draft_tree(random_laws(3, 3, 5).log(), nodes).tree

    assert distance(emitted_law(target, tree, random_laws(3, 3, 0), rule, 4), target.law(4)) < EXACT


# One broken form of every rule; each must fail the tests above.


def walk_by_argmax(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Matches drafts against the argmax, and draws the bonus token only."""
    best = laws.argmax(-1).tolist()
    below, row, accepted = tree.children(), 0, list[int]()
    while (node := below[row].get(best[row])) is not None:
        accepted.append(node)
        row = node + 1
    return Verdict(accepted, coins.token(row))


def paper_with_the_first_draw_as_bonus(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Takes the token after the accepted run from another place's law."""
    return Verdict(paper(tree, laws.log(), coins).accepted, coins.token(0))


def paper_that_selects_after_the_draws(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Accepts a draft's token by a coin of its own while another draft has had one already."""
    for leaf in tree.leaves:
        path = tree.path(leaf)
        accepted: list[int] = []
        for node in path:
            if not coins.accept(float(laws[tree.parents[node] + 1][tree.tokens[node]])):
                break
            accepted.append(node)
        if accepted:
            return Verdict(accepted, coins.token(accepted[-1] + 1))
    return Verdict([], coins.token(0))


def leviathan_with_the_plain_law_after_a_rejection(
    tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins
) -> Verdict:
    for depth, token in enumerate(tree.tokens):
        if not coins.accept(acceptance(1.0, laws[depth], draft_laws[depth], token)):
            return Verdict(list(range(depth)), coins.token(depth))
    return Verdict(list(range(len(tree.tokens))), coins.token(len(tree.tokens)))


def block_without_the_rejected_mass(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Takes the path's rate itself as the acceptance rate of every beginning."""
    rates = [1.0]
    for depth, token in enumerate(tree.tokens):
        rates.append(acceptance(rates[-1], laws[depth], draft_laws[depth], token))
    for depth in range(len(tree.tokens), -1, -1):
        if coins.accept(rates[depth]):
            whole = depth == len(tree.tokens)
            rest = laws[depth] if whole else surplus(rates[depth], laws[depth], draft_laws[depth]).law
            return Verdict(list(range(depth)), coins.draw(rest))
    raise AssertionError


def specinfer_against_the_whole_law(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Gives every draft the whole of p, not what the ones before have left."""
    for leaf in tree.leaves:
        node = tree.path(leaf)[0]
        if coins.accept(acceptance(1.0, laws[0], draft_laws[0], tree.tokens[node])):
            return Verdict([node], coins.token(node + 1))
    return Verdict([], coins.draw(surplus(1.0, laws[0], draft_laws[0]).law))


def traversal_from_the_root(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Accepts the first child by its own rate, and only then looks below it."""
    path = tree.path(tree.leaves[0])
    rate, accepted = 1.0, list[int]()
    for depth, node in enumerate(path):
        rate = acceptance(rate, laws[tree.parents[node] + 1], draft_laws[depth], tree.tokens[node])
        if not coins.accept(rate):
            break
        accepted.append(node)
    return Verdict(accepted, coins.token(accepted[-1] + 1 if accepted else 0))


MUTANTS: dict[str, tuple[Rule, int]] = {
    "walk": (walk_by_argmax, 1),
    "paper": (paper_with_the_first_draw_as_bonus, 1),
    "paper, several drafts": (paper_that_selects_after_the_draws, 2),
    "leviathan": (leviathan_with_the_plain_law_after_a_rejection, 1),
    "block": (block_without_the_rejected_mass, 1),
    "specinfer": (specinfer_against_the_whole_law, 2),
    "traversal": (traversal_from_the_root, 2),
}


@pytest.mark.parametrize(("mutant", "count"), MUTANTS.values(), ids=MUTANTS.keys())
def test_a_broken_rule_is_found_out(mutant: Rule, count: int) -> None:
    target, draft_laws = RandomTarget(1), random_laws(2, 3, 51)

    law = emitted_law_of_sampled_drafts(target, draft_laws, count, mutant, 3)

    assert distance(law, target.law(3)) > 0.01


@pytest.mark.parametrize("rule", ["specinfer", "traversal"])
def test_a_rule_with_the_drafters_law_is_not_exact_where_the_argmax_chain_is_swapped_in(rule: str) -> None:
    target, draft_laws = RandomTarget(2), random_laws(2, 3, 52)
    argmax = tuple(draft_laws.argmax(-1).tolist())
    law: Law = {}
    for tree, chance in sampled_sets(draft_laws, 1):
        swapped = trie([argmax, tuple(tree.tokens)])
        for text, weight in emitted_law(target, swapped, draft_laws, BY_NAME[rule], 3).items():
            law[text] = law.get(text, 0.0) + chance * weight

    assert distance(law, target.law(3)) > 0.01


def test_self_selection_takes_the_draft_of_the_largest_expected_streak() -> None:
    logs = torch.tensor([[0.9, 0.1], [0.6, 0.9]]).log()
    tree = trie([[0, 1], [1, 0]])
    log_laws = torch.tensor([[0.9, 0.6], [0.5, 0.1], [0.5, 0.5], [0.9, 0.5], [0.5, 0.5]]).log()

    assert torch.allclose(expected_streak(logs), torch.tensor([0.9 + 0.09, 0.6 + 0.54]))
    assert select_draft(tree, log_laws) == tree.path(tree.leaves[1])


@pytest.mark.parametrize("drafts", list(DRAFTS.values())[1:], ids=list(DRAFTS)[1:])
def test_the_walk_accepts_every_node_by_the_chance_to_get_there(drafts: list[list[int]]) -> None:
    target, tree = RandomTarget(6), trie(drafts)
    laws = target.rows(tree)
    reached = [1.0]
    for parent, token in zip(tree.parents, tree.tokens, strict=True):
        reached.append(reached[parent + 1] * float(laws[parent + 1, token]))

    expected = sum(reached[1:])

    assert expected == pytest.approx(expected_accepted(by_walk, tree, laws, laws), abs=1e-9)
