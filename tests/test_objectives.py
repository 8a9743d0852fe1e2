"""Objectives over the verifier's tokens: each equals its formula, and what a walk accepts of all texts."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engines.alignment.mixed import WindowLaws
from engines.alignment.objectives import ce, exp_ce, iid_streak, log_streak, streak, streak_ce, tree_floors, tree_streak
from engines.speculative.drafts import draft_tree
from enumeration import RandomTarget, expected_accepted, random_laws
from test_dominance import accepted_on_sampled_drafts
from test_verification import by_walk
from window_samples import random_windows

seeds = st.integers(0, 100_000)


def gradient(objective: Callable[[Tensor, Tensor], Tensor], laws: WindowLaws) -> Tensor:
    """Gradient of an objective with respect to log q of the verifier's tokens."""
    log_q = laws.log_q.clone().requires_grad_()
    return torch.autograd.grad(objective(log_q, laws.valid), [log_q])[0]


def weighted_ce_gradient(laws: WindowLaws, weight_at: Callable[[list[float], int], float]) -> Tensor:
    """Gradient of the cross-entropy, a mean over windows, whose place j weighs weight_at(q of the valid places, j)."""
    found = torch.zeros_like(laws.log_q)
    for b, a in itertools.product(*map(range, laws.log_q.shape[:2])):
        q = laws.log_q[b, a][laws.valid[b, a]].exp().tolist()
        for j in range(len(q)):
            found[b, a, j] = -weight_at(q, j) / 6
    return found


def mean_over_texts(objective: Callable[[Tensor, Tensor], Tensor], target: RandomTarget, laws: Tensor) -> float:
    """Expectation of an objective over the target's texts, each as one window. laws: the drafter's [G, V]."""
    window = laws.shape[0]
    total = 0.0
    for text, chance in target.law(window).items():
        log_q = laws.log()[torch.arange(window), torch.tensor(text)][None]
        total += chance * float(objective(log_q, torch.ones(1, window, dtype=torch.bool)))
    return total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_streak_is_what_a_walk_accepts_of_a_sampled_draft(seed: int) -> None:
    accepted = accepted_on_sampled_drafts(by_walk, seed, count=1, window=3)

    assert -mean_over_texts(streak, RandomTarget(seed), random_laws(3, 3, seed + 7)) == pytest.approx(accepted)


@pytest.mark.parametrize("drafts", [2, 3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_iid_streak_is_what_a_walk_accepts_of_that_many_sampled_drafts(seed: int, drafts: int) -> None:
    accepted = accepted_on_sampled_drafts(by_walk, seed, count=drafts, window=2)

    def objective(log_q: Tensor, valid: Tensor) -> Tensor:
        return iid_streak(log_q, valid, drafts=drafts)

    assert -mean_over_texts(objective, RandomTarget(seed), random_laws(2, 3, seed + 7)) == pytest.approx(accepted)


@settings(deadline=None, max_examples=40)
@given(seed=seeds, nodes=st.integers(1, 12))
def test_the_tree_streak_without_softness_is_what_a_walk_accepts_of_the_best_first_tree(seed: int, nodes: int) -> None:
    target, laws = RandomTarget(seed), random_laws(3, 3, seed + 7)
    tree = draft_tree(laws.log(), nodes, floor=-math.inf).tree
    floors = tree_floors(laws.log()[None], nodes)

    def objective(log_q: Tensor, valid: Tensor) -> Tensor:
        return tree_streak(log_q, valid, floors, softness=1e-7)

    rows = target.rows(tree)
    assert -mean_over_texts(objective, target, laws) == pytest.approx(expected_accepted(by_walk, tree, rows, rows))


@settings(deadline=None, max_examples=40)
@given(seed=seeds, nodes=st.integers(1, 38))
def test_the_floor_parts_the_best_paths_from_all_others(seed: int, nodes: int) -> None:
    logs = random_laws(3, 3, seed).log()
    paths = [
        sum(float(logs[place, token]) for place, token in enumerate(path))
        for depth in (1, 2, 3)
        for path in itertools.product(range(3), repeat=depth)
    ]

    floor = float(tree_floors(logs, nodes))

    assert sum(path > floor for path in paths) == nodes


def test_a_tree_that_holds_every_path_accepts_the_whole_window() -> None:
    laws = random_laws(2, 3, 1).log()

    floors = tree_floors(laws[None], 12)

    assert float(tree_streak(laws[None, :, 0], torch.ones(1, 2, dtype=torch.bool), floors)) == -2.0


def test_the_iid_streak_of_one_draft_is_the_streak() -> None:
    laws = random_windows()

    assert torch.allclose(iid_streak(laws.log_q, laws.valid, drafts=1), streak(laws.log_q, laws.valid))


def test_the_iid_streak_has_a_gradient_at_a_drafter_that_is_sure() -> None:
    log_q = torch.zeros(1, 3, requires_grad=True)

    iid_streak(log_q, torch.ones(1, 3, dtype=torch.bool), drafts=4).backward()

    assert log_q.grad is not None
    assert torch.isfinite(log_q.grad).all()


def test_the_streak_has_the_gradient_of_cross_entropy_weighed_by_all_products_that_a_place_is_in() -> None:
    laws = random_windows()

    exact = weighted_ce_gradient(laws, lambda q, j: sum(math.prod(q[: m + 1]) for m in range(j, len(q))))
    assert torch.allclose(gradient(streak, laws), exact)


def test_the_streak_cross_entropy_has_the_gradient_of_its_loss_with_frozen_weights() -> None:
    laws = random_windows()

    frozen = weighted_ce_gradient(laws, lambda q, j: math.prod(q[:j]))
    assert torch.allclose(gradient(streak_ce, laws), frozen)


def test_the_streak_cross_entropy_is_the_sum_of_its_weighted_places() -> None:
    log_q = torch.tensor([[0.5, 0.8, 0.9]]).log()

    loss = streak_ce(log_q, torch.tensor([[True, True, False]]))

    assert float(loss) == pytest.approx(-(math.log(0.5) + 0.5 * math.log(0.8)))


def test_the_gradient_of_the_streak_is_not_that_of_the_streak_cross_entropy() -> None:
    laws = random_windows()

    assert not torch.allclose(gradient(streak, laws), gradient(streak_ce, laws))


def test_the_tree_streak_has_the_gradient_of_logistic_curves_around_a_frozen_floor() -> None:
    laws = random_windows()
    floors = tree_floors(laws.draft_logs, 5)

    def weight(window: tuple[int, int]) -> Callable[[list[float], int], float]:
        odds = math.exp(float(floors[window]))
        return lambda q, j: sum(
            math.prod(q[: m + 1]) * odds / (math.prod(q[: m + 1]) + odds) ** 2 for m in range(j, len(q))
        )

    found = gradient(lambda log_q, valid: tree_streak(log_q, valid, floors), laws)
    for window in itertools.product(range(2), range(3)):
        assert torch.allclose(found[window], weighted_ce_gradient(laws, weight(window))[window])


def test_decayed_cross_entropy_is_the_mean_weighed_by_powers_of_the_decay() -> None:
    log_q = torch.tensor([[-1.0, -3.0, -100.0]])

    loss = exp_ce(log_q, torch.tensor([[True, True, False]]), decay=0.5)

    assert float(loss) == pytest.approx((1.0 + 0.5 * 3.0) / 1.5)


def test_decayed_cross_entropy_without_decay_is_cross_entropy() -> None:
    laws = random_windows()

    assert torch.allclose(exp_ce(laws.log_q, laws.valid, decay=1.0), ce(laws.log_q, laws.valid))


@pytest.mark.parametrize("objective", [streak, log_streak, streak_ce])
def test_a_window_without_any_valid_place_is_not_counted(objective: Callable[[Tensor, Tensor], Tensor]) -> None:
    log_q = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])

    both = objective(log_q, torch.tensor([[True, True], [False, False]]))

    assert torch.equal(both, objective(log_q[:1], torch.ones(1, 2, dtype=torch.bool)))
