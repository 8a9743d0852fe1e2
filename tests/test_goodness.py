"""Chi-square and total variation against a known law: right draws pass, wrong ones fail, and rarity is pooled."""

import numpy as np
import pytest

from analysis.goodness import SMALLEST_EXPECTED, goodness_of_fit, mean_absolute_deviations, pool

LAW = np.array([0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125])


def test_counts_in_proportion_fit_perfectly() -> None:
    fit = goodness_of_fit(320 * LAW, LAW)

    assert (fit.draws, fit.cells, fit.p_value, fit.tv) == (320, 6, 1.0, 0.0)


def test_p_values_of_right_draws_are_spread_evenly() -> None:
    """How many of 300 tests of 400 draws fall below 0.1, seed 3; expected 30 with a standard deviation of 5.2."""
    generator = np.random.default_rng(3)
    low = sum(goodness_of_fit(generator.multinomial(400, LAW), LAW).p_value < 0.1 for _ in range(300))

    assert 14 < low < 46


def test_draws_of_another_law_do_not_fit() -> None:
    other = np.array([0.45, 0.3, 0.125, 0.0625, 0.03125, 0.03125])

    assert goodness_of_fit(np.random.default_rng(3).multinomial(4000, other), LAW).p_value < 1e-6


def test_an_outcome_that_the_law_rules_out_never_fits() -> None:
    fit = goodness_of_fit([500, 499, 1], [0.5, 0.5, 0.0])

    assert fit.p_value == 0.0


def test_the_expected_total_variation_is_the_mean_of_right_draws() -> None:
    """Mean over 4,000 sets of 50 draws, seed 5; its standard error is about 0.0005."""
    draws = np.random.default_rng(5).multinomial(50, LAW, size=4000) / 50
    simulated = np.abs(draws - LAW).sum(axis=1).mean() / 2

    assert goodness_of_fit(np.round(50 * LAW), LAW).expected_tv == pytest.approx(simulated, abs=0.002)


def test_a_certain_or_impossible_outcome_never_deviates() -> None:
    assert mean_absolute_deviations(10, np.array([0.0, 1.0])).tolist() == [0.0, 0.0]


def test_rare_outcomes_share_a_cell_and_nothing_is_lost() -> None:
    observed, expected = np.array([3.0, 0.0, 2.0, 11.0, 84.0]), np.array([2.0, 1.0, 3.0, 10.0, 84.0])
    cells = pool(observed, expected)

    assert cells.tolist() == [[5.0, 6.0], [11.0, 10.0], [84.0, 84.0]]
    assert cells[:, 1].min() >= SMALLEST_EXPECTED


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="9 draws are not enough"):
        goodness_of_fit([5, 4], [0.5, 0.5])
