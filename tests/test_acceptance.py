"""Acceptance by position: what a round tested, what an end left untested, and both against a simulated law."""

import math
import random
from collections.abc import Sequence

import pytest

from results.acceptance import Acceptance, acceptance
from results.records import Round

PREFILL = Round(seconds=0.1, kept=1, chars=1)
WINDOW = 4


def speculative(accepted: int, kept: int, drafted: int = WINDOW) -> Round:
    return Round(seconds=1.0, kept=kept, chars=kept, drafted=drafted, accepted=accepted)


def counts(*rounds: Round, window: int = WINDOW) -> list[tuple[int, int]]:
    """Rounds that tested, and rounds that accepted, each position."""
    found = acceptance([[PREFILL, *rounds]], window)
    return [(position.tested, position.accepted) for position in found.positions]


def test_the_bonus_token_tests_the_position_that_it_stands_at() -> None:
    assert counts(speculative(accepted=2, kept=3)) == [(1, 1), (1, 1), (1, 0), (0, 0)]


def test_a_whole_window_has_no_position_for_its_bonus_token() -> None:
    assert counts(speculative(accepted=4, kept=5)) == [(1, 1), (1, 1), (1, 1), (1, 1)]


def test_an_end_within_the_accepted_run_leaves_the_rest_untested() -> None:
    assert counts(speculative(accepted=2, kept=2)) == [(1, 1), (1, 1), (0, 0), (0, 0)]


def test_an_end_token_for_a_bonus_token_is_a_test_like_any_other() -> None:
    assert counts(speculative(accepted=0, kept=1)) == [(1, 0), (0, 0), (0, 0), (0, 0)]


def test_a_short_draft_tests_no_position_behind_it() -> None:
    assert counts(speculative(accepted=2, kept=3, drafted=2)) == [(1, 1), (1, 1), (0, 0), (0, 0)]


def test_a_round_without_a_draft_tests_nothing_and_counts_in_tau() -> None:
    found = acceptance([[PREFILL, speculative(2, 3), speculative(0, 1, drafted=0)]], WINDOW)

    assert found.positions[0].tested == 1
    assert (found.tau, found.tau_with_bonus) == (1.0, 2.0)


def test_a_tree_is_as_deep_as_its_window_and_not_as_its_number_of_nodes() -> None:
    assert counts(speculative(accepted=4, kept=5, drafted=24)) == [(1, 1)] * 4


def test_the_prefill_is_no_round() -> None:
    found = acceptance([[PREFILL], [PREFILL, speculative(1, 2)]], WINDOW)

    assert (found.rounds, found.kept) == (1, 2)


def test_rounds_are_pooled_over_answers() -> None:
    found = acceptance([[PREFILL, speculative(4, 5)], [PREFILL, speculative(0, 1), speculative(1, 2)]], WINDOW)

    assert found.tau == pytest.approx(5 / 3)
    assert found.alpha == pytest.approx((2 / 3, 1 / 2, 1.0, 1.0))
    assert found.survival == pytest.approx((2 / 3, 1 / 3, 1 / 3, 1 / 3))


def test_a_position_that_no_round_reached_is_not_a_number() -> None:
    found = acceptance([[PREFILL, speculative(0, 1)]], WINDOW)

    assert [math.isnan(alpha) for alpha in found.alpha] == [False, True, True, True]


def test_nothing_survives_a_position_that_was_never_accepted() -> None:
    assert acceptance([[PREFILL, speculative(1, 2)]], WINDOW).survival == (1, 0, 0, 0)


def test_nothing_measured_is_not_a_number() -> None:
    found = acceptance([], WINDOW)

    assert math.isnan(found.tau)
    assert math.isnan(found.tau_with_bonus)


def test_plain_decoding_has_no_positions() -> None:
    assert acceptance([[PREFILL, speculative(0, 1, drafted=0)]], 0).alpha == ()


def test_a_negative_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window = -1 is not allowed"):
        acceptance([], -1)


def simulated(alpha: Sequence[float], answers: int, end: float, cap: int) -> Acceptance:
    """Answers of a target that ends after each token with probability `end`, or at `cap` tokens."""
    rng = random.Random(5)
    drawn = []
    for _ in range(answers):
        rounds, length, ended = [PREFILL], 1, False
        while not ended:
            streak = next((at for at, chance in enumerate(alpha) if rng.random() >= chance), len(alpha))
            ends_at = next((at for at in range(1, streak + 2) if rng.random() < end), streak + 2)
            kept = min(streak + 1, ends_at, cap - length)
            length += kept
            ended = kept == ends_at or length == cap
            rounds.append(speculative(min(streak, kept), kept, drafted=len(alpha)))
        drawn.append(rounds)
    return acceptance(drawn, len(alpha))


def test_ends_do_not_bend_the_acceptance_of_any_position() -> None:
    """Seed 5; the tolerance is four standard errors of each position's own count."""
    alpha = (0.9, 0.85, 0.8, 0.75, 0.7, 0.65)
    found = simulated(alpha, answers=3000, end=0.1, cap=12)

    for truth, position in zip(alpha, found.positions, strict=True):
        error = math.sqrt(truth * (1 - truth) / position.tested)
        assert abs(position.alpha - truth) < 4 * error


def test_survival_adds_up_to_the_tau_of_rounds_that_nothing_cuts() -> None:
    """Answers without an end but a cap far away: one round in 1000 is cut. Seed 5, tolerance 1 %."""
    found = simulated((0.9, 0.8, 0.7), answers=5, end=0.0, cap=3000)

    assert sum(found.survival) == pytest.approx(found.tau, rel=0.01)
