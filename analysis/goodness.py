"""Goodness of fit: do counted outcomes follow a law that is known exactly?

Arrays in, Fit out. Total variation alone says little: it is above 0 for any finite sample, so its mean under the law
stands beside it. Sources: chi-square, Pearson (1900); mean absolute deviation of a binomial count, De Moivre (1730), in
Diaconis and Zabell (1991), Statistical Science 6(3).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

SMALLEST_EXPECTED = 5.0
"""Outcomes are pooled into cells that expect at least so many draws; below, chi-square's law is only roughly known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How well `draws` outcomes fit a law.

    cells:       of the chi-square test, rare outcomes pooled
    p_value:     chance that draws from the law itself fit no better; 0 where an outcome is impossible under it
    tv:          total variation between the shares of the outcomes and the law
    expected_tv: its mean for draws from the law itself
    """

    draws: int
    cells: int
    p_value: float
    tv: float
    expected_tv: float


def goodness_of_fit(counts: ArrayLike, law: ArrayLike) -> Fit:
    """Hold counts of outcomes against their probabilities.

    Shapes:
        counts, law: [outcomes]; law sums to 1 up to rounding, 0 marks an impossible outcome
    Raises ValueError where there are not enough draws for two cells.
    """
    observed, probabilities = np.asarray(counts, dtype=float), np.asarray(law, dtype=float)
    probabilities = probabilities / probabilities.sum()
    draws = int(observed.sum())
    cells = pool(observed, draws * probabilities)
    if len(cells) < 2:
        raise ValueError(f"{draws} draws are not enough for two cells that expect {SMALLEST_EXPECTED:g} each")
    impossible = observed[probabilities == 0].sum() > 0
    return Fit(
        draws=draws,
        cells=len(cells),
        p_value=0.0 if impossible else float(stats.chisquare(cells[:, 0], cells[:, 1]).pvalue),
        tv=float(np.abs(observed / draws - probabilities).sum() / 2),
        expected_tv=float(mean_absolute_deviations(draws, probabilities).sum() / 2 / draws),
    )


def pool(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Observed and expected counts of cells, [cells, 2]: outcomes in order of rarity, as few in a cell as will do.

    The cells depend on the law and the number of draws alone, never on what was drawn.
    """
    cells: list[tuple[float, float]] = []
    seen = hoped = 0.0
    for index in np.argsort(expected, kind="stable"):
        seen, hoped = seen + observed[index], hoped + expected[index]
        if hoped >= SMALLEST_EXPECTED:
            cells.append((seen, hoped))
            seen = hoped = 0.0
    if cells:  # what is left over joins the last cell
        cells[-1] = (cells[-1][0] + seen, cells[-1][1] + hoped)
    return np.array(cells).reshape(-1, 2)


def mean_absolute_deviations(draws: int, law: NDArray[np.float64]) -> NDArray[np.float64]:
    """E |X - n p| of the binomial count X of each outcome: 2 k (1 - p) P(X = k) with k = floor(n p) + 1."""
    above = np.floor(draws * law) + 1
    deviations: NDArray[np.float64] = 2 * above * (1 - law) * stats.binom.pmf(above, draws, law)
    return deviations
