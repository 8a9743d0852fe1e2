"""Weighted sums of objectives, and what holds for each objective by its name: gradients, ends of texts, mistakes."""

import math
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from engines.alignment.divergences import TargetLaws
from engines.alignment.mixed import OBJECTIVES, Mixed, Settings, Weight, WindowLaws, window_laws
from engines.alignment.objectives import log_streak
from window_samples import random_windows

FROZEN = ("streak_ce", "tree_streak", "streak_kl")
"""Objectives with a factor that is held fixed, so that their gradient is not that of their value."""


def loss_of(name: str, laws: WindowLaws) -> Tensor:
    return Mixed(weights={name: 1.0}, settings=Settings(nodes=5)).loss(laws, 0)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in FROZEN])
def test_the_gradient_of_an_objective_is_that_of_its_value(name: str) -> None:
    laws = random_windows(3)

    def value(scores: Tensor) -> Tensor:
        log_q = scores.log_softmax(-1)
        tokens = torch.zeros_like(laws.valid, dtype=torch.long)
        return loss_of(name, window_laws(log_q, tokens, laws.valid, target=laws.target))

    assert torch.autograd.gradcheck(value, laws.draft_logs.clone().requires_grad_())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_places_behind_the_end_of_the_text_change_nothing(name: str) -> None:
    laws = random_windows()
    assert laws.target is not None
    behind = ~laws.valid[..., None]
    changed = WindowLaws(
        # The floor of the tree is the one of the whole window: the drafter does not know where the text will end.
        draft_logs=laws.draft_logs if name == "tree_streak" else laws.draft_logs.masked_fill(behind, -50.0),
        log_q=laws.log_q.masked_fill(~laws.valid, -50.0),
        valid=laws.valid,
        target=TargetLaws(tokens=laws.target.tokens, logs=laws.target.logs.masked_fill(behind, -50.0)),
    )

    assert torch.equal(loss_of(name, changed), loss_of(name, laws))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_places_behind_the_end_of_the_text_get_no_gradient(name: str) -> None:
    laws = random_windows()
    draft_logs = laws.draft_logs.clone().requires_grad_()
    tokens = torch.ones_like(laws.valid, dtype=torch.long)

    loss_of(name, window_laws(draft_logs, tokens, laws.valid, target=laws.target)).backward()

    assert draft_logs.grad is not None
    assert (draft_logs.grad[~laws.valid] == 0).all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_token_that_the_drafter_rules_out_leaves_the_gradient_finite(name: str) -> None:
    laws = random_windows()
    scores = laws.draft_logs.clone()
    scores[..., 0] = -1e4
    scores.requires_grad_()
    tokens = torch.zeros_like(laws.valid, dtype=torch.long)

    loss_of(name, window_laws(scores.log_softmax(-1), tokens, laws.valid, target=laws.target)).backward()

    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def test_a_mixture_is_the_weighted_sum_of_its_objectives() -> None:
    laws = random_windows()

    mixed = Mixed(weights={name: 0.5 + at for at, name in enumerate(OBJECTIVES)}).loss(laws, 0)

    alone = [Mixed(weights={name: 1.0}).loss(laws, 0) for name in OBJECTIVES]
    assert torch.allclose(mixed, sum(((0.5 + at) * each for at, each in enumerate(alone)), start=torch.zeros(())))


@pytest.mark.parametrize(("step", "weight"), [(0, 1.0), (100, 1.0), (150, 0.75), (200, 0.5), (9000, 0.5)])
def test_weights_are_linear_between_their_steps_and_constant_outside(step: int, weight: float) -> None:
    mixed = Mixed(weights={"ce": [(100, 1.0), (200, 0.5)]})

    assert mixed.weights_at(step) == {"ce": weight}


def test_an_objective_without_weight_at_a_step_is_not_computed() -> None:
    laws = random_windows()
    blind = WindowLaws(draft_logs=laws.draft_logs, log_q=laws.log_q, valid=laws.valid)

    mixed = Mixed(weights={"log_streak": 1.0, "tv": [(0, 0.0), (10, 0.0), (20, 1.0)]})

    assert torch.equal(mixed.loss(blind, 10), log_streak(laws.log_q, laws.valid))


def test_an_objective_that_needs_the_target_says_so_when_there_is_none() -> None:
    laws = random_windows()
    blind = WindowLaws(draft_logs=laws.draft_logs, log_q=laws.log_q, valid=laws.valid)

    with pytest.raises(ValueError, match="objective 'tv' needs the target's laws of the windows, and none were given"):
        Mixed(weights={"tv": 1.0}).loss(blind, 0)


@pytest.mark.parametrize(("name", "needed"), [("tv", True), ("distillspec", True), ("streak", False)])
def test_a_mixture_knows_whether_it_needs_a_forward_of_the_target(name: str, needed: bool) -> None:
    assert Mixed(weights={"ce": 1.0, name: 1.0}).needs_target == needed


def test_partly_shown_windows_are_for_cross_entropy_alone() -> None:
    laws = random_windows()
    noisy = window_laws(
        laws.draft_logs, torch.zeros_like(laws.valid, dtype=torch.long), laws.valid, noise_weights=torch.ones(2, 3, 4)
    )

    with pytest.raises(ValueError, match="objective 'streak' needs windows masked throughout"):
        Mixed(weights={"ce": 1.0, "streak": 1.0}).loss(noisy, 0)


MISTAKES: Sequence[tuple[Mapping[str, Weight], str]] = [
    ({}, "at least one objective; known objectives: streak, log_streak"),
    ({"streek": 1.0}, "unknown objective 'streek'; known objectives: streak, log_streak, streak_ce"),
    ({"ce": -1.0}, "weight of 'ce' must be 0, or a number from 1e-06 to 1e\\+06, not -1.0"),
    ({"ce": math.nan}, "weight of 'ce' must be 0, or a number from 1e-06 to 1e\\+06, not nan"),
    ({"ce": []}, "steps of 'ce' must be whole numbers that ascend"),
    ({"ce": [(10, 1.0), (10, 0.5)]}, r"steps of 'ce' must be whole numbers that ascend.*\[10, 10\]"),
    ({"ce": [(-1, 1.0)]}, "ascend from 0 or later"),
    ({"ce": [(0.5, 1.0)]}, "whole numbers"),
    ({"ce": [(1, 2, 3)]}, r"weight of 'ce' is a number or pairs \(step, weight\)"),
    ({"ce": 0.0}, "all weights are 0 at step 0: ce"),
    ({"ce": [(0, 1.0), (5, 0.0)], "tv": [(5, 0.0), (9, 1.0)]}, "all weights are 0 at step 5: ce, tv"),
]


@pytest.mark.parametrize(("weights", "message"), MISTAKES)
def test_a_mistake_in_the_weights_is_named(weights: Mapping[str, Weight], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixed(weights=weights)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"decay": 0.0}, r"decay must lie in \(0, 1\], not 0.0"),
        ({"softness": 0.0}, "softness must be a positive number of nats, not 0.0"),
        ({"draft_temperature": 0.0}, "draft_temperature must be a positive number, not 0.0"),
    ],
)
def test_a_mistake_in_the_settings_is_named(setting: Mapping[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**setting)  # type: ignore[arg-type]  # the test passes floats by name


@pytest.mark.parametrize(("drafts", "nodes"), [(0, 4), (4, 0)])
def test_a_served_shape_of_nothing_is_refused(drafts: int, nodes: int) -> None:
    with pytest.raises(ValueError, match=f"drafts and nodes must be at least 1, not {drafts} and {nodes}"):
        Settings(drafts=drafts, nodes=nodes)
