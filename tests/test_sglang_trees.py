"""Draft trees of a batch on tensors: the same trees, masks, walks and laws as the ones that are built node by node."""

import pytest
import torch
from torch import Tensor

from engines.drafters.diffusion import window_mask
from engines.sglang_plugin.acceptance import Draws, Verdict, select_draft, walk
from engines.sglang_plugin.drafter_shapes import propose, window_sees
from engines.sglang_plugin.settings import Arm, Further
from engines.sglang_plugin.tree import (
    NO_PARENT,
    Rows,
    arrange,
    best_first,
    chain_parents,
    first_equal,
    full_mask,
    links,
)
from engines.speculation import Speculation
from engines.speculative import verification
from engines.speculative.drafts import DraftTree, ancestors_mask, draft_tree, trie
from enumeration import RandomTarget, ScriptedCoins

SEEDS = range(8)


def scores(batch: int, window: int, vocab_size: int, seed: int) -> Tensor:
    return 2 * torch.randn(batch, window, vocab_size, generator=torch.Generator().manual_seed(seed))


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[on] for on in tree.path(node)) for node in range(len(tree.tokens))}


def paths_in(tokens: Tensor, rows: Rows) -> set[tuple[int, ...]]:
    """Token paths of the nodes of one request's rows."""
    found = set()
    for row in range(1, tokens.numel()):
        if rows.is_node[0, row]:
            path = rows.paths[0, row]
            found.add(tuple(tokens[path[path < tokens.numel()]].tolist()))
    return found


@pytest.mark.parametrize(
    ("window", "vocab_size", "nodes"), [(4, 7, 4), (4, 7, 12), (3, 3, 20), (6, 40, 48), (5, 2, 16)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_grows_the_trees_that_each_request_would_grow(
    window: int, vocab_size: int, nodes: int, seed: int
) -> None:
    marginals = scores(3, window, vocab_size, seed)

    tokens, parents = best_first(marginals, nodes)

    grown = [paths_in(tokens[b], arrange(parents[b : b + 1], window)) for b in range(3)]
    assert grown == [paths(draft_tree(each, nodes).tree) for each in marginals]


def test_rows_that_no_node_is_left_for_have_no_parent() -> None:
    marginals = scores(1, 2, 3, seed=0)
    marginals[..., 2] = float("-inf")

    _, parents = best_first(marginals, 9)

    assert int((parents == NO_PARENT).sum()) == 9 - (2 + 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_of_most_likely_tokens_is_in_the_tree_also_where_many_are_equal(seed: int) -> None:
    marginals = scores(1, 4, 6, seed).round().clamp(-1, 1)

    tokens, parents = best_first(marginals, 5)

    best = [set((place == place.max()).nonzero()[:, 0].tolist()) for place in marginals[0]]
    whole = [path for path in paths_in(tokens[0], arrange(parents, 4)) if len(path) == 4]
    assert any(all(token in place for token, place in zip(path, best, strict=True)) for path in whole)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_sees_what_the_mask_of_one_tree_shows(seed: int) -> None:
    tokens, parents = best_first(scores(1, 4, 6, seed), 13)
    rows = arrange(parents, 4)
    tree = DraftTree(tokens[0, 1:].tolist(), (parents[0, 1:] - 1).tolist(), rows.depths[0, 1:].tolist(), [])

    assert torch.equal(rows.sees[0], ancestors_mask(tree, 0, torch.float32) == 0)


def test_chains_hang_below_the_bonus_token() -> None:
    assert chain_parents(2, 3).tolist() == [[0, 0, 1, 2, 0, 4, 5]]


def test_equal_beginnings_count_as_one_node() -> None:
    drafts = torch.tensor([[[5, 6, 7], [5, 6, 8], [5, 9, 7], [5, 6, 8]]])

    assert first_equal(drafts).tolist() == [[0, 1, 2, 3, 1, 2, 6, 1, 8, 9, 1, 2, 6]]


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("width", [3, 4])
def test_the_drafters_window_sees_what_it_sees_in_the_reference_engine(count: int, width: int) -> None:
    expected = window_mask(count, width, 0, torch.float32) == 0

    sees = window_sees(torch.tensor([count]), 4, width)[0]

    assert torch.equal(sees[: count + width, : count + width], expected)
    assert not sees[: count + width, count + width :].any()
    assert torch.equal(sees[count + width :], torch.eye(4 + width, dtype=torch.bool)[count + width :])


@pytest.mark.parametrize("shared", [True, False])
def test_masks_are_laid_out_one_request_after_the_other(shared: bool) -> None:
    lengths = torch.tensor([0, 5, 2])
    window = torch.rand(1 if shared else 3, 4, 4, generator=torch.Generator().manual_seed(3)) > 0.5
    every = window.expand(3, 4, 4)
    parts = [
        torch.cat((torch.ones(4, n, dtype=torch.bool), own), 1).reshape(-1)
        for n, own in zip(lengths, every, strict=True)
    ]

    flat = full_mask(lengths, window, 100)

    assert torch.equal(flat[: 7 * 4 + 3 * 16], torch.cat(parts))


@pytest.mark.parametrize("seed", SEEDS)
def test_links_lead_from_a_row_to_each_of_its_children(seed: int) -> None:
    _, parents = best_first(scores(1, 3, 5, seed), 11)
    first, after = links(arrange(parents, 3), 1)

    found: list[tuple[int, int]] = []
    for row in range(12):
        child = int(first[0, row])
        while child != -1:
            found.append((child, row))
            child = int(after[0, child])
    assert sorted(found) == [(row, int(parents[0, row])) for row in range(1, 12)]


def verdict_of(tokens: Tensor, rows: Rows, laws: Tensor, coins: ScriptedCoins, rule: str) -> Verdict:
    """The batched rule on one tree with the draws of scripted coins."""
    drawn = torch.tensor([[coins.token(row) for row in range(tokens.shape[1])]])
    draws = Draws(drawn, laws)
    chosen = select_draft(tokens, rows, draws) if rule == "paper" else None
    return walk(tokens, rows, drawn, chosen)


@pytest.mark.parametrize("rule", ["walk", "paper"])
@pytest.mark.parametrize("seed", range(60))
def test_a_batch_keeps_what_the_rule_keeps_of_one_tree(rule: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens, parents = best_first(scores(1, 3, 4, seed), 9)
    rows = arrange(parents, 3)
    leaves = [row for row in range(1, 10) if row not in parents[0].tolist()]
    tree = DraftTree(
        tokens[0, 1:].tolist(), (parents[0, 1:] - 1).tolist(), rows.depths[0, 1:].tolist(), [row - 1 for row in leaves]
    )
    laws = RandomTarget(seed, vocab_size=4).rows(tree)
    script = tuple(torch.randint(4, (12,), generator=generator).tolist())

    found = verdict_of(tokens, rows, laws, ScriptedCoins(laws, script), rule)

    coins = ScriptedCoins(laws, script)
    for row in range(10):  # the batch draws at every row before it walks
        coins.token(row)
    kept = verification.walk(tree, coins) if rule == "walk" else verification.paper(tree, laws.log(), coins)
    expected = [*(tree.tokens[node] for node in kept.accepted), kept.bonus]
    assert found.tokens[0, : int(found.counts[0])].tolist() == expected
    assert found.rows[0, : int(found.counts[0])].tolist() == [0, *(node + 1 for node in kept.accepted)]


@pytest.mark.parametrize("seed", range(60))
def test_drafts_with_equal_beginnings_are_walked_as_their_trie(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    drafts = torch.randint(2, (1, 3, 3), generator=generator)
    tree = trie(drafts[0].tolist())
    script = torch.randint(2, (1 + len(tree.tokens),), generator=generator).tolist()
    node_at = {
        path: node for node in range(len(tree.tokens)) for path in [tuple(tree.tokens[n] for n in tree.path(node))]
    }
    drawn = [script[0]]
    drawn += [script[1 + node_at[tuple(draft[: end + 1])]] for draft in drafts[0].tolist() for end in range(3)]
    coins = ScriptedCoins(torch.full((1 + len(tree.tokens), 2), 0.5), ())
    coins.tokens = dict(enumerate(script))
    tokens = torch.cat((torch.zeros(1, 1, dtype=torch.long), drafts.view(1, -1)), 1)

    found = walk(tokens, arrange(chain_parents(3, 3), 3), torch.tensor([drawn]))

    kept = verification.walk(tree, coins)
    expected = [*(tree.tokens[node] for node in kept.accepted), kept.bonus]
    assert found.tokens[0, : int(found.counts[0])].tolist() == expected


def arm(**settings: object) -> Arm:
    known = {name: settings.pop(name) for name in ("window", "num_drafts") if name in settings}
    further = Further(**settings)  # type: ignore[arg-type]
    shape = {"shape": further.shape, "nodes": further.nodes, "draft_temperature": further.draft_temperature}
    return Arm(speculation=Speculation(drafter="d", **known, **shape), further=further)  # type: ignore[arg-type]


def test_a_chain_is_the_argmax_of_every_place() -> None:
    marginals = scores(2, 5, 9, seed=1)

    assert torch.equal(propose(marginals, arm(window=5)), marginals.argmax(-1))


def test_joint_drafts_begin_with_the_argmax_chain() -> None:
    marginals = scores(2, 5, 9, seed=1)

    drafted = propose(marginals, arm(window=5, num_drafts=3, shape="iid")).view(2, 3, 5)

    assert torch.equal(drafted[:, 0], marginals.argmax(-1))


def test_sampled_places_follow_the_marginals_at_the_drafts_temperature() -> None:
    """Seed 0, 20000 drafts; every frequency within 0.02 of its probability, more than five standard deviations."""
    torch.manual_seed(0)
    marginals = scores(1, 2, 4, seed=1)

    drafted = propose(marginals.expand(20000, 2, 4), arm(window=2, draft_temperature=0.7))

    frequencies = torch.stack([torch.bincount(drafted[:, place], minlength=4) / 20000 for place in range(2)])
    assert (frequencies - torch.softmax(marginals[0] / 0.7, -1)).abs().max() < 0.02
