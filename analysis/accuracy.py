"""The figure of a study: accuracy against seconds of wall clock, one panel per temperature, one line per arm.

Every point says how many answers its budget cut off (the lower strip); every line has a 95 % band over problems.
Reads a records frame, knows no engine and no task.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.frames import arms_of, require_one_identity, select
from analysis.intervals import mean_curve
from analysis.layout import canvas, name_ends
from analysis.tables import write_csv
from results.records import Clock, Policy

MOST_NAMES = 10  # more do not fit beside a panel


def accuracy_table(
    records: pd.DataFrame, *, clock: Clock | None = None, policy: Policy | None = None, seed: int = 0
) -> pd.DataFrame:
    """Accuracy of every arm at every temperature and budget, with a 95 % interval over problems.

    `n` is the number of problems, `samples` the mean number of samples of a problem, `share_cut` the share of answers
    that the budget ended before the model did. Samples of a problem are averaged first.
    Raises ValueError for an ambiguous choice of records (see analysis.frames) or a problem without some budget.
    """
    chosen = select_cells(records, clock=clock, policy=policy)
    first = chosen[0][1].iloc[0]
    table = pd.concat([_curve(rows, *place, seed) for place, rows in chosen], ignore_index=True)
    return table.assign(clock=first["clock"], policy=first["policy"])


def select_cells(
    records: pd.DataFrame, *, clock: Clock | None, policy: Policy | None
) -> list[tuple[tuple[str, float], pd.DataFrame]]:
    """The records of one clock and policy by arm and temperature, never empty.

    Raises ValueError for an ambiguous choice of records (see analysis.frames).
    """
    chosen = select(records, clock=clock, policy=policy)
    require_one_identity(chosen)
    return list(chosen.groupby(["arm", "temperature"], sort=False))


def solved_shares(rows: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Share of right answers by problem (rows) and budget (columns), over a problem's samples.

    Raises ValueError for a problem without some budget.
    """
    correct = _problem_means(rows, "correct")
    if correct.isna().to_numpy().any():
        lacking = correct.index[correct.isna().any(axis=1)][0]
        raise ValueError(f"arm {arm!r}: problem {lacking!r} has no record at some budget; grade the study again")
    return correct


def _problem_means(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    return rows.pivot_table(index="problem_id", columns="budget_seconds", values=column, aggfunc="mean")


def _curve(rows: pd.DataFrame, arm: str, temperature: float, seed: int) -> pd.DataFrame:
    correct = solved_shares(rows, arm)
    # Equal seeds: arms with the same problems see the same resamples.
    curve = mean_curve(correct.to_numpy(), np.random.default_rng(seed))
    return pd.DataFrame(
        {
            "arm": arm,
            "temperature": temperature,
            "budget_seconds": correct.columns.to_numpy(),
            "accuracy": [point.value for point in curve],
            "low": [point.low for point in curve],
            "high": [point.high for point in curve],
            "n": len(correct),
            "samples": len(rows) / correct.size,
            "share_cut": _problem_means(rows, "cut").mean(axis=0).to_numpy(),
        }
    )


def draw_accuracy(
    records: pd.DataFrame,
    folder: Path,
    *,
    clock: Clock | None = None,
    policy: Policy | None = None,
    title: str = "",
    arms: Sequence[str] | None = None,
    name: str = "accuracy",
    seed: int = 0,
) -> list[Path]:
    """Write <name>.png, <name>.svg and <name>.csv into the folder and return their paths.

    `arms` chooses the arms and their order, and with it their colours. Raises ValueError as accuracy_table does.
    """
    order = arms_of(records, arms)
    table = accuracy_table(records[records["arm"].isin(order)], clock=clock, policy=policy, seed=seed)
    with style.look():
        files = style.save(_figure(table, order, title), folder, name)
    return [*files, write_csv(table, folder / f"{name}.csv")]


def _figure(table: pd.DataFrame, order: Sequence[str], title: str) -> Figure:
    temperatures = sorted(table["temperature"].unique())
    last = table[table["temperature"] == temperatures[-1]]
    beside = len(order) <= MOST_NAMES and set(order) == set(last["arm"])
    figure, panels = canvas(
        len(temperatures),
        title=title or "Accuracy within a wall-clock budget",
        caption=caption(table),
        names=order,
        names_beside=beside,
    )
    for temperature, (upper, lower) in zip(temperatures, panels, strict=True):
        rows = table[table["temperature"] == temperature]
        for position, arm in enumerate(order):
            _line(upper, lower, rows[rows["arm"] == arm], position)
        for axes in (upper, lower):
            style.seconds_axis(axes, sorted(rows["budget_seconds"].unique()))
            axes.tick_params(labelbottom=axes is lower, labelleft=upper is panels[0][0])
        style.percent_axis(upper, *percent_limits(table))
        style.percent_axis(lower, -0.06, 1.06)
        lower.set_yticks([0, 1])
        lower.set_xlabel("Seconds (logarithmic)")
        upper.set_title(f"Temperature {temperature:g}")
    panels[0][0].set_ylabel("Accuracy")
    panels[0][1].set_ylabel("Cut off")
    if beside:
        ends = last.sort_values("budget_seconds").groupby("arm")["accuracy"].last()
        name_ends(panels[-1][0], {arm: ends[arm] for arm in order})
    return figure


def _line(upper: Axes, lower: Axes, line: pd.DataFrame, position: int) -> None:
    """One arm: accuracy with its band above, the share cut off below."""
    seconds = line["budget_seconds"].to_numpy()
    look: dict[str, Any] = {"color": style.colour(position), "marker": style.marker(position)}
    low, high = line["low"].to_numpy(), line["high"].to_numpy()
    upper.fill_between(seconds, low, high, color=style.colour(position), alpha=style.BAND_OPACITY, linewidth=0)
    if len(seconds) == 1:  # a band of no width would not be seen
        upper.vlines(seconds, low, high, color=style.colour(position), alpha=0.5)
    upper.plot(seconds, line["accuracy"].to_numpy(), **look)
    lower.plot(seconds, line["share_cut"].to_numpy(), **look, linewidth=1.2, markersize=3.5)


def percent_limits(table: pd.DataFrame) -> tuple[float, float]:
    """Whole tens of percent around all bands, at least one, from zero where that is near; room for edge markers."""
    low, high = np.floor(table["low"].min() * 10) / 10, np.ceil(table["high"].max() * 10) / 10
    low = 0.0 if low <= 0.3 else low
    high = max(high, low + 0.1)
    margin = 0.02 * min(1.0, 2 * (high - low))
    return float(low - margin), float(high + margin)


def caption(table: pd.DataFrame) -> tuple[str, ...]:
    """What the numbers of an accuracy table are, in parts: clock, policy, problems and samples, bands, strip."""
    return (
        f"clock: {table['clock'].iloc[0]}",
        f"cut-off policy: {table['policy'].iloc[0]}",
        f"n = {_range(table['n'])} problems",
        f"samples per problem: {_range(table['samples'])}",
        "bands: 95 %, over problems, pointwise",
        "strip: answers that the budget cut off",
    )


def _range(values: pd.Series) -> str:
    low, high = values.min(), values.max()
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
