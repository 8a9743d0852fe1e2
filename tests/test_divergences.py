"""Objectives over whole laws: divergences, their gradients, and what total variation says of acceptance."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engines.alignment.divergences import (
    TargetLaws,
    ar_distillation,
    distillspec,
    place_divergence,
    streak_kl,
    top_laws,
    tv,
)
from engines.alignment.objectives import streak_gains
from engines.speculative.rejection import leviathan
from enumeration import RandomTarget, random_laws
from test_dominance import accepted_on_sampled_drafts
from test_verification import by_walk
from window_samples import random_windows

seeds = st.integers(0, 100_000)


def test_distillation_pulls_every_place_to_the_targets_law() -> None:
    laws = random_windows()
    assert laws.target is not None
    scores = laws.draft_logs.clone().requires_grad_()

    distillspec(scores.log_softmax(-1), laws.target, laws.valid).backward()

    p = torch.zeros_like(laws.draft_logs).scatter(-1, laws.target.tokens, laws.target.logs.exp())
    expected = (laws.draft_logs.exp() - p) * laws.valid[..., None] / laws.valid.sum()
    assert scores.grad is not None
    assert torch.allclose(scores.grad, expected)


def test_autoregressive_distillation_is_distillation_of_the_first_place() -> None:
    laws = random_windows()
    assert laws.target is not None

    only_first = laws.valid & (torch.arange(4) == 0)

    assert torch.allclose(
        ar_distillation(laws.draft_logs, laws.target, laws.valid),
        distillspec(laws.draft_logs, laws.target, only_first),
    )


def test_streak_weighted_distillation_is_that_of_each_place_times_what_the_streak_gains_there() -> None:
    laws = random_windows()
    assert laws.target is not None
    q = laws.log_q.exp().masked_fill(~laws.valid, 0.0).requires_grad_()
    streaks = q.cumprod(dim=-1).sum(dim=-1)
    (gains,) = torch.autograd.grad((1 + streaks).log().sum(), [q])

    found = streak_kl(laws.draft_logs, laws.target, laws.valid, laws.log_q)

    places = place_divergence(laws.draft_logs, laws.target) * laws.valid
    assert torch.allclose(found, (gains * places).sum(dim=-1).sum() / laws.valid.any(dim=-1).sum())


def test_weights_of_cold_drafts_are_those_of_the_argmax_chain() -> None:
    laws = random_windows()
    assert laws.target is not None
    # From the start on as far as the chain holds the verifier's tokens, and one place more; each gain is what follows.
    hits = (laws.log_q == laws.draft_logs.amax(dim=-1)) & laws.valid
    gains = streak_gains(hits.double().log(), laws.valid)
    weights = gains / (1 + hits.cumprod(dim=-1).sum(dim=-1, keepdim=True))

    found = streak_kl(laws.draft_logs, laws.target, laws.valid, laws.log_q, draft_temperature=1e-3)

    places = place_divergence(laws.draft_logs, laws.target) * laws.valid
    assert torch.allclose(found, (weights * places).sum() / laws.valid.any(dim=-1).sum(), atol=1e-4)


def test_a_place_that_ends_every_streak_keeps_its_weight() -> None:
    log_q = torch.tensor([[0.9, 1e-9, 0.5]]).log()

    gains = streak_gains(log_q, torch.ones(1, 3, dtype=torch.bool))

    assert torch.allclose(gains, torch.tensor([[1.0, 0.9 * 1.5, 0.9e-9]]))


@pytest.mark.parametrize("objective", [distillspec, tv])
def test_equal_laws_do_not_diverge(objective: Callable[[Tensor, TargetLaws, Tensor], Tensor]) -> None:
    laws = random_windows()

    assert float(objective(laws.draft_logs, top_laws(laws.draft_logs, 3), laws.valid)) == pytest.approx(0.0, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(seed=seeds, count=st.integers(1, 5))
def test_what_is_known_of_the_target_in_part_bounds_its_divergence_from_below(seed: int, count: int) -> None:
    laws = random_windows(seed)
    assert laws.target is not None
    target_logs = torch.zeros_like(laws.draft_logs).scatter(-1, laws.target.tokens, laws.target.logs)

    for objective in (distillspec, tv):
        known = objective(laws.draft_logs, top_laws(target_logs, count), laws.valid)
        assert 0 <= float(known) <= float(objective(laws.draft_logs, laws.target, laws.valid)) + 1e-12


def test_what_is_left_over_is_compared_as_one_token() -> None:
    draft, target = (torch.tensor([[law]], dtype=torch.float64).log() for law in ([0.5, 0.3, 0.2], [0.7, 0.2, 0.1]))
    valid = torch.ones(1, 1, dtype=torch.bool)

    divergence = distillspec(draft, top_laws(target, 1), valid)

    assert float(divergence) == pytest.approx(0.7 * math.log(0.7 / 0.5) + 0.3 * math.log(0.3 / 0.5))


def test_target_laws_of_two_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one shape, not \(1, 2, 3\) and \(1, 2, 4\)"):
        TargetLaws(tokens=torch.zeros(1, 2, 3, dtype=torch.long), logs=torch.zeros(1, 2, 4))


@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_a_sampled_token_is_accepted_by_min_p_q_under_leviathan_and_by_p_q_under_the_walk(seed: int) -> None:
    p, q = RandomTarget(seed).law_after(()), random_laws(1, 3, seed + 7)[0]

    weighed, walked = (accepted_on_sampled_drafts(rule, seed, count=1, window=1) for rule in (leviathan, by_walk))

    assert weighed == pytest.approx(float(torch.minimum(p, q).sum()))
    assert walked == pytest.approx(float((p * q).sum()))


@settings(deadline=None, max_examples=100)
@given(seed=seeds, vocab_size=st.integers(2, 50))
def test_no_law_lets_the_walk_accept_more_of_sampled_drafts_than_leviathan(seed: int, vocab_size: int) -> None:
    """SpecDiff-2, Theorem C.3."""
    p, q = random_laws(2, vocab_size, seed)

    assert float(torch.minimum(p, q).sum()) >= float((p * q).sum())


def test_one_minus_the_total_variation_is_what_leviathan_accepts() -> None:
    p, q = random_laws(2, 5, 3)

    distance = tv(q.log()[None], top_laws(p.log()[None], 5), torch.ones(1, dtype=torch.bool))

    assert 1 - float(distance) == pytest.approx(float(torch.minimum(p, q).sum()))
