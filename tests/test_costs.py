"""What a round costs, against numbers worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.costs import Network, break_even_tau, forward_flops, needed_tau, round_flops, speed_limit, speed_up

TARGET = Network(matmul_parameters=1000, layers=2, width=8)
DRAFTER = Network(matmul_parameters=100, layers=1, width=4)
seconds = st.floats(0.001, 1)


def test_a_round_of_two_steps_that_keeps_six_tokens_is_three_times_as_fast() -> None:
    assert speed_up(5, step_seconds=0.01, round_seconds=0.02) == pytest.approx(3)


def test_a_round_of_two_steps_pays_from_one_accepted_token_on() -> None:
    assert break_even_tau(step_seconds=0.01, round_seconds=0.02) == pytest.approx(1)


@given(tau=st.floats(0, 32), step=seconds, whole=seconds)
def test_the_needed_tau_is_the_inverse_of_the_speed_up(tau: float, step: float, whole: float) -> None:
    reached = speed_up(tau, step_seconds=step, round_seconds=whole)

    assert needed_tau(reached, step_seconds=step, round_seconds=whole) == pytest.approx(tau, abs=1e-9)


def test_the_limit_counts_only_the_two_forwards() -> None:
    limit = speed_limit(5, step_seconds=0.01, draft_seconds=0.003, verify_seconds=0.012)

    assert limit == pytest.approx(6 * 0.01 / 0.015)


def test_plain_decoding_reaches_its_limit() -> None:
    assert speed_limit(0, step_seconds=0.01, draft_seconds=0.0, verify_seconds=0.01) == 1


def test_what_is_not_known_stays_not_known() -> None:
    assert math.isnan(break_even_tau(step_seconds=math.nan, round_seconds=0.02))


@pytest.mark.parametrize("bad", [0.0, -0.01])
def test_seconds_that_are_not_above_zero_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"step_seconds = .* allowed: a number > 0"):
        speed_up(5, step_seconds=bad, round_seconds=0.02)


def test_a_forward_takes_two_flops_a_parameter_and_row() -> None:
    assert forward_flops(TARGET, 13) == 13 * 2 * 1000


def test_attention_adds_four_flops_a_layer_width_and_key() -> None:
    assert forward_flops(TARGET, 13, context=50) == 13 * (2 * 1000 + 4 * 2 * 8 * 50)


def test_a_round_is_the_drafters_rows_and_the_targets() -> None:
    found = round_flops(TARGET, 13, DRAFTER, 17, context=50)

    assert found == 13 * (2000 + 3200) + 17 * (200 + 800)


def test_a_plain_step_is_one_row_of_the_target() -> None:
    assert round_flops(TARGET, 1) == 2000


def test_a_negative_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="rows = -1 is not allowed"):
        forward_flops(TARGET, -1)
