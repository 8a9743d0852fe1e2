"""Estimates with their intervals: arrays in, Interval out; nothing here touches a file or a DataFrame.

The unit is the problem: whole problems are resampled, with all their budgets, samples and arms together, so curves and
differences stay paired. Average or add up the samples of a problem first. Intervals are 95 % percentile bootstrap
intervals, pointwise: no claim over all budgets at once. Randomness is passed in; two calls with equally seeded
generators and the same number of problems draw the same resamples.
Sources: Efron and Tibshirani (1993), chapter 13; pass@k: Chen et al. (2021), arXiv 2107.03374, section 2.1.

Shapes: P problems, B budgets, R resamples.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

RESAMPLES = 10_000
LEVEL = 0.95
# Resamples are drawn in chunks of so many numbers, which bounds the memory for benchmarks of thousands of problems.
CHUNK = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(value=np.nan, low=np.nan, high=np.nan)
"""Of what cannot be computed."""


def mean_curve(values: ArrayLike, generator: Generator) -> tuple[Interval, ...]:
    """Mean over problems at every budget.

    Shapes:
        values:  [P, B]; one problem's mean over its samples
        returns: B intervals
    Raises ValueError for no problems, another shape, or a missing value.
    """
    table = _numbers("values", values, dimensions=2)
    means = _bootstrap(len(table), generator, lambda chosen: _sums(table, chosen) / len(table))
    return _intervals(table.mean(axis=0), means)


def difference_curve(first: ArrayLike, second: ArrayLike, generator: Generator) -> tuple[Interval, ...]:
    """Mean of first minus second over the same problems, at every budget.

    Shapes:
        first, second: [P, B], row by row the same problem
        returns:       B intervals
    Raises ValueError as mean_curve does, and for different shapes.
    """
    left, right = _numbers("first", first, dimensions=2), _numbers("second", second, dimensions=2)
    if left.shape != right.shape:
        raise ValueError(f"first has shape {left.shape}, second {right.shape}; allowed: the same problems and budgets")
    return mean_curve(left - right, generator)


def rate(amounts: ArrayLike, seconds: ArrayLike, generator: Generator) -> Interval:
    """Ratio of sums, such as tokens per second or accepted tokens per round.

    Shapes:
        amounts, seconds: [P]; sums over a problem's samples; seconds > 0
    Raises ValueError for no problems, different lengths, a missing value, or seconds that are not above zero.
    """
    columns = _columns(positive=("seconds",), amounts=amounts, seconds=seconds)
    sums = _bootstrap(len(columns), generator, lambda chosen: _sums(columns, chosen))
    return _interval(columns[:, 0].sum() / columns[:, 1].sum(), sums[:, 0] / sums[:, 1])


def rate_ratio(
    amounts: ArrayLike,
    seconds: ArrayLike,
    base_amounts: ArrayLike,
    base_seconds: ArrayLike,
    generator: Generator,
) -> Interval:
    """Speed-up: the ratio of sums of an arm over that of a baseline, on the same problems.

    Shapes:
        all: [P], position by position the same problem; both seconds > 0, the sum of base_amounts too
    Raises ValueError as rate does.
    """
    columns = _columns(
        positive=("seconds", "base_seconds"),
        amounts=amounts,
        seconds=seconds,
        base_amounts=base_amounts,
        base_seconds=base_seconds,
    )
    total = columns.sum(axis=0)
    if total[2] <= 0:
        raise ValueError(f"base_amounts has the sum {total[2]:g}; allowed: a sum > 0")
    sums = _bootstrap(len(columns), generator, lambda chosen: _sums(columns, chosen))
    value = (total[0] / total[1]) / (total[2] / total[3])
    # A resample of problems without base amounts has no finite ratio: the upper end is then unknown or infinite.
    with np.errstate(divide="ignore", invalid="ignore"):
        return _interval(value, (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3]))


def median(values: ArrayLike, generator: Generator) -> Interval:
    """Median over problems, for instance of per-problem speed-ups.

    Shapes:
        values: [P]
    Raises ValueError for no problems or a missing value.
    """
    numbers = _numbers("values", values, dimensions=1)
    medians = _bootstrap(len(numbers), generator, lambda chosen: np.median(numbers[chosen], axis=1))
    return _interval(float(np.median(numbers)), medians)


def pass_at_k(correct: ArrayLike, samples: ArrayLike, k: int) -> Numbers:
    """Unbiased estimate, for each problem, that at least one of k samples is correct: 1 - C(n - c, k) / C(n, k).

    Shapes:
        correct, samples: [P]; c correct ones of n samples
        returns:          [P]; mean_curve(returned[:, None], ...) is the benchmark's pass@k
    Raises ValueError unless 1 <= k <= n and 0 <= c <= n for every problem.
    """
    hits, tries = _numbers("correct", correct, dimensions=1), _numbers("samples", samples, dimensions=1)
    if hits.shape != tries.shape:
        raise ValueError(f"correct has length {len(hits)}, samples {len(tries)}; allowed: the same problems")
    if not 1 <= k <= tries.min():
        raise ValueError(f"k = {k} is not allowed; allowed: 1 to {tries.min():g}, the smallest number of samples")
    if (hits < 0).any() or (hits > tries).any():
        raise ValueError("correct must lie between 0 and the number of samples for every problem")
    draws = np.arange(k)
    # The chance that draw i misses too, given that the ones before it missed; no factorials that could overflow.
    misses = np.maximum(tries[:, None] - hits[:, None] - draws, 0) / (tries[:, None] - draws)
    return np.asarray(1 - misses.prod(axis=1), dtype=np.float64)


def _bootstrap(problems: int, generator: Generator, statistic: Callable[[Indices], Numbers]) -> Numbers:
    """The statistic of every resample: [R] or [R, ...]."""
    return np.concatenate([statistic(chosen) for chosen in _resamples(problems, generator)])


def _resamples(problems: int, generator: Generator) -> Iterator[Indices]:
    """Problems drawn with replacement, as indices [r, P], R rows in all."""
    rows = max(1, CHUNK // problems)
    for start in range(0, RESAMPLES, rows):
        yield generator.integers(problems, size=(min(rows, RESAMPLES - start), problems))


def _sums(values: Numbers, chosen: Indices) -> Numbers:
    """Sums over each resample: values [P, C], chosen [r, P] -> [r, C]. Counting first needs no [r, P, C] array."""
    rows, problems = chosen.shape
    cells = chosen + problems * np.arange(rows)[:, None]
    counts = np.bincount(cells.ravel(), minlength=rows * problems).reshape(rows, problems)
    return counts.astype(np.float64) @ values


def _intervals(values: Numbers, resampled: Numbers) -> tuple[Interval, ...]:
    tail = (1 - LEVEL) / 2
    lows, highs = np.quantile(resampled, [tail, 1 - tail], axis=0)
    return tuple(
        Interval(value=float(value), low=float(low), high=float(high))
        for value, low, high in zip(values, lows, highs, strict=True)
    )


def _interval(value: float, resampled: Numbers) -> Interval:
    return _intervals(np.array([value]), resampled[:, None])[0]


def _numbers(name: str, values: ArrayLike, *, dimensions: int) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != dimensions or len(numbers) == 0:
        raise ValueError(f"{name} has shape {numbers.shape}; allowed: {dimensions} dimensions and at least one problem")
    missing = np.count_nonzero(~np.isfinite(numbers))
    if missing:
        raise ValueError(f"{name} has {missing} missing or infinite values; allowed: none")
    return numbers


def _columns(*, positive: tuple[str, ...], **given: ArrayLike) -> Numbers:
    """Equally long vectors side by side: [P, C]."""
    vectors = {name: _numbers(name, values, dimensions=1) for name, values in given.items()}
    lengths = {name: len(vector) for name, vector in vectors.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"different numbers of problems: {lengths}; allowed: the same problems everywhere")
    for name in positive:
        if vectors[name].min() <= 0:
            raise ValueError(f"{name} has the value {vectors[name].min():g}; allowed: numbers > 0")
    return np.stack(list(vectors.values()), axis=1)
