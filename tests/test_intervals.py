"""Intervals: known values, stated coverage on seeded simulations, and pass@k against brute force."""

from dataclasses import astuple
from itertools import combinations

import numpy as np
import pytest

from analysis import intervals
from analysis.intervals import Interval, difference_curve, mean_curve, median, pass_at_k, rate, rate_ratio


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_mean_curve_is_the_mean_over_problems() -> None:
    curve = mean_curve([[0.0, 1.0], [1.0, 1.0], [0.0, 0.5], [0.0, 1.0]], generator())

    assert [point.value for point in curve] == [0.25, 0.875]


def test_equal_problems_leave_no_doubt() -> None:
    assert mean_curve(np.ones((7, 1)), generator()) == (Interval(value=1.0, low=1.0, high=1.0),)


def test_the_interval_of_a_mean_is_near_the_normal_one_for_many_problems() -> None:
    values = generator(1).random((400, 1))

    point = mean_curve(values, generator())[0]

    half = 1.96 * values.std() / 20
    assert point.low == pytest.approx(point.value - half, abs=0.1 * half)
    assert point.high == pytest.approx(point.value + half, abs=0.1 * half)


def test_chunks_do_not_change_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    values = generator(1).random((50, 3))
    whole = mean_curve(values, generator())

    monkeypatch.setattr(intervals, "CHUNK", 777)

    # Sums of other sizes may be added in another order.
    assert [astuple(each) for each in mean_curve(values, generator())] == [
        pytest.approx(astuple(each), rel=1e-12) for each in whole
    ]


def test_the_same_seed_gives_the_same_interval() -> None:
    values = generator(1).random((20, 2))

    assert mean_curve(values, generator(5)) == mean_curve(values, generator(5))


def test_pairing_makes_a_difference_sharper_than_its_parts() -> None:
    ability = generator(2).random((100, 1))

    difference = difference_curve(ability + 0.1, ability, generator())[0]

    assert difference.low == pytest.approx(0.1)
    assert difference.high == pytest.approx(0.1)


def test_a_rate_is_a_ratio_of_sums() -> None:
    assert rate([10, 0], [2, 3], generator()).value == 2.0


def test_a_speed_up_is_the_ratio_of_two_ratios_of_sums() -> None:
    assert rate_ratio([10, 5], [2, 3], [10, 5], [10, 10], generator()).value == 4.0


def test_an_arm_against_itself_has_speed_up_one_without_doubt() -> None:
    tokens, seconds = generator(3).random(30) + 1, generator(4).random(30) + 1

    against_itself = rate_ratio(tokens, seconds, tokens, seconds, generator())

    assert against_itself == Interval(value=1.0, low=1.0, high=1.0)


def test_the_median_lies_within_its_interval() -> None:
    values = generator(1).lognormal(size=101)

    found = median(values, generator())

    assert found.value == np.median(values)
    assert found.low < found.value < found.high


# 400 simulated studies of 60 problems, 1,000 resamples each. At 95 % the share covered has a standard error of 1.1
# points, and a percentile interval at this size is known to fall about one point short: 91 % to 98 % is the tolerance.
STUDIES, PROBLEMS, TOLERANCE = 400, 60, (0.91, 0.98)


def test_the_interval_of_a_mean_covers_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 1_000)
    draws = generator(10)
    answers = draws.random((STUDIES, PROBLEMS, 1)) < 0.4

    found = [mean_curve(study, draws)[0] for study in answers]

    covered = np.mean([point.low <= 0.4 <= point.high for point in found])
    assert TOLERANCE[0] <= covered <= TOLERANCE[1]


def test_the_interval_of_a_speed_up_covers_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 1_000)
    draws = generator(11)
    tokens = draws.integers(50, 500, size=(STUDIES, PROBLEMS)).astype(float)
    base_seconds = tokens / 20 * draws.lognormal(-0.02, 0.2, size=tokens.shape)
    seconds = tokens / 60 * draws.lognormal(-0.08, 0.4, size=tokens.shape)

    found = [rate_ratio(t, s, t, b, draws) for t, s, b in zip(tokens, seconds, base_seconds, strict=True)]

    covered = np.mean([point.low <= 3.0 <= point.high for point in found])
    assert TOLERANCE[0] <= covered <= TOLERANCE[1]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_share_of_draws_with_a_correct_sample(k: int) -> None:
    samples = 5
    correct = np.arange(samples + 1)

    draws = [[any(pick < c for pick in picks) for picks in combinations(range(samples), k)] for c in correct]

    assert pass_at_k(correct, np.full(samples + 1, samples), k) == pytest.approx(np.mean(draws, axis=1))


def test_pass_at_k_stands_thousands_of_samples() -> None:
    assert pass_at_k([1], [10_000], 100)[0] == pytest.approx(0.01)


@pytest.mark.parametrize("k", [0, 4])
def test_a_k_beyond_the_samples_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k} is not allowed; allowed: 1 to 3"):
        pass_at_k([1, 1], [3, 5], k)


def test_more_correct_than_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="correct must lie between 0 and the number of samples"):
        pass_at_k([4], [3], 1)


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(ValueError, match="values has 1 missing or infinite values"):
        mean_curve([[np.nan], [1.0]], generator())


def test_no_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        median([], generator())


def test_different_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="different numbers of problems"):
        rate([1, 2], [1], generator())


def test_seconds_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="seconds has the value 0; allowed: numbers > 0"):
        rate([1, 2], [1, 0], generator())
