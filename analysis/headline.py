"""The headline table: what an arm is worth, and why, in one row per arm and temperature.

Tokens per second, speed-up over a baseline arm on the same problems, accepted tokens per round, where a round's time
goes, accuracy at three budgets and what it is above the baseline's, and pass@k. Reads the frames of analysis/frames.py;
touches no file. How people read it is in analysis/headline_text.py.

Failed generations (finish_reason `error`) have no place in a speed: they are counted in `errors`. Generations that
ended within the prefill have no time after the first token. A problem left with nothing else, in the arm or in the
baseline, is missing from `problems_timed`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.accuracy import accuracy_table
from analysis.differences import difference_table
from analysis.frames import arms_of, require_one_identity
from analysis.intervals import UNKNOWN, Interval, median, rate, rate_ratio
from analysis.passes import pass_table
from results.costs import break_even_tau
from results.records import CLOCKS, Clock, Policy

PARTS = ("draft_seconds", "verify_seconds", "other_seconds")
SUMMED = ("amount", "seconds", "seconds_decode", "rounds", "kept", "accepted", *PARTS)
PLACE = ["arm", "temperature"]


def headline(
    generations: pd.DataFrame,
    records: pd.DataFrame | None = None,
    *,
    baseline: str,
    clock: Clock = "decode",
    policy: Policy | None = None,
    accuracy_clock: Clock | None = None,
    budgets: Sequence[float] | None = None,
    arms: Sequence[str] | None = None,
    against: str | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per arm and temperature; an estimate `x` with a 95 % interval over problems has columns x, x_low, x_high.

    problems, generations, errors: what was run; generations that failed
    problems_timed:      problems behind all speeds: timed in the arm and in the baseline at that temperature
                         (in the arm alone where the baseline was not run)
    tokens_per_second:   ratio of sums on `clock`; on `decode` tokens after the first over seconds after the first
    speedup:             ratio of this ratio to the baseline's; median_speedup: median of the ratio of each problem
    tau, tau_with_bonus: accepted draft tokens, and all tokens kept, per round after the prefill
    break_even:          tau_with_bonus at which the arm would be as fast as the baseline on clock `decode`
    draft_ms, verify_ms, other_ms: mean milliseconds of a round after the prefill, whatever the clock
    tau_ratio:           tau over that of the arm `against`, where one is given, on the problems of both
    accuracy_<b>s:       accuracy at budget b, where records are given; budgets: the smallest, the middle, the largest
    difference_<b>s:     the same minus the baseline's, paired by problem
    pass_at_<k>:         pass@k at the largest budget, where every problem of an arm has several samples
    What cannot be computed is NaN. Raises ValueError for an arm, baseline, clock, policy or budget that is not there.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock {clock!r} is not allowed; allowed: {', '.join(CLOCKS)}")
    order = arms_of(generations, arms)
    arms_of(generations, [baseline, *([against] if against else [])])
    require_one_identity(generations)
    cells = dict(list(generations.groupby(["temperature", "arm"])))
    rows = []
    for temperature in sorted(generations["temperature"].unique()):
        base = _per_problem(cells.get((temperature, baseline)), clock)
        for arm in order:
            if (temperature, arm) in cells:
                cell = cells[temperature, arm]
                place = {"arm": arm, "temperature": temperature, "clock": clock, "baseline": baseline}
                sums = _per_problem(cell, clock)
                rows.append(place | _counts(cell) | _speeds(sums, base, seed))
                if against:
                    rows[-1] |= _tau_ratio(sums, _per_problem(cells.get((temperature, against)), clock), seed)
    table = pd.DataFrame(rows)
    if records is None:
        return table
    records = records[records["arm"].isin([*order, baseline])]
    chosen: dict[str, Any] = {"clock": accuracy_clock, "policy": policy, "seed": seed}
    accuracy = accuracy_table(records, **chosen)
    difference = difference_table(records, baseline=baseline, **chosen)
    at = _chosen_budgets(accuracy, budgets)
    names = {"clock": "accuracy_clock", "policy": "accuracy_policy"}
    how_graded = accuracy.groupby(PLACE, sort=False)[list(names)].first().rename(columns=names)
    for part in (
        how_graded,
        _at_budgets(accuracy, "accuracy", at),
        _at_budgets(difference, "difference", at),
        _passes(pass_table(records, **chosen)),
    ):
        table = table if part.empty else table.merge(part, on=PLACE, how="left")
    return table


def _counts(cell: pd.DataFrame) -> dict[str, Any]:
    return {
        "problems": cell["problem_id"].nunique(),
        "generations": len(cell),
        "errors": int((cell["finish_reason"] == "error").sum()),
    }


def _per_problem(cell: pd.DataFrame | None, clock: Clock) -> pd.DataFrame:
    """Sums over each problem's timed samples; `amount` tokens in `seconds` on this clock."""
    if cell is None:
        return pd.DataFrame(columns=list(SUMMED), dtype=float)
    amount = cell["kept" if clock == "decode" else "tokens"]
    cell = cell.assign(amount=amount, seconds=cell[f"seconds_{clock}"])
    timed = (cell["finish_reason"] != "error") & (cell["kept"] > 0) & (cell["seconds_decode"] > 0)
    sums: pd.DataFrame = cell[timed].groupby("problem_id")[list(SUMMED)].sum()
    return sums


def _speeds(arm: pd.DataFrame, base: pd.DataFrame, seed: int) -> dict[str, Any]:
    shared = arm.index if base.empty else arm.index.intersection(base.index)
    arm, base = arm.loc[shared], base.reindex(shared)
    ours, theirs = (arm["amount"], arm["seconds"]), (base["amount"], base["seconds"])
    total, base_total = arm.sum(), base.sum()
    return {
        "problems_timed": len(shared),
        **_named("tokens_per_second", _estimate(rate, *ours, seed=seed)),
        **_named("speedup", _estimate(rate_ratio, *ours, *theirs, seed=seed)),
        **_named("median_speedup", _estimate(median, (ours[0] / ours[1]) / (theirs[0] / theirs[1]), seed=seed)),
        **_named("tau", _estimate(rate, arm["accepted"], arm["rounds"], seed=seed)),
        **_named("tau_with_bonus", _estimate(rate, arm["kept"], arm["rounds"], seed=seed)),
        "break_even": _break_even(total, base_total),
        **{part.replace("_seconds", "_ms"): _ratio(1000 * total[part], total["rounds"]) for part in PARTS},
    }


def _tau_ratio(arm: pd.DataFrame, other: pd.DataFrame, seed: int) -> dict[str, float]:
    """Paired by problem; unknown where the other arm was not run, or accepted nothing."""
    shared = arm.index.intersection(other.index)
    ours, theirs = arm.loc[shared], other.loc[shared]
    columns = [ours["accepted"], ours["rounds"], theirs["accepted"], theirs["rounds"]]
    known = theirs["accepted"].sum() > 0
    return _named("tau_ratio", _estimate(rate_ratio, *columns, seed=seed) if known else UNKNOWN)


def _break_even(total: pd.Series, base_total: pd.Series) -> float:
    """With the bonus token, hence 1 more than the accepted tokens; NaN without a round or a baseline."""
    round_seconds = _ratio(total["seconds_decode"], total["rounds"])
    step_seconds = _ratio(base_total["seconds_decode"], base_total["kept"])
    return 1 + break_even_tau(step_seconds=step_seconds, round_seconds=round_seconds)


def _ratio(amount: float, of: float) -> float:
    return float(amount / of) if of else np.nan


def _estimate(statistic: Callable[..., Interval], *sums: pd.Series, seed: int) -> Interval:
    """The statistic, or unknown where no problem was timed or the baseline was not run."""
    if any(column.empty or column.isna().any() for column in sums):
        return UNKNOWN
    return statistic(*(column.to_numpy() for column in sums), np.random.default_rng(seed))


def _named(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _chosen_budgets(accuracy: pd.DataFrame, budgets: Sequence[float] | None) -> list[float]:
    """The budgets asked for, else the smallest, the middle and the largest that there are."""
    present = sorted(accuracy["budget_seconds"].unique())
    for budget in budgets or ():
        if budget not in present:
            known = ", ".join(f"{each:g}" for each in present)
            raise ValueError(f"no records at a budget of {budget:g} s; budgets there: {known}")
    return list(budgets or sorted({present[0], present[len(present) // 2], present[-1]}))


def _at_budgets(table: pd.DataFrame, name: str, budgets: Sequence[float]) -> pd.DataFrame:
    """One row per arm and temperature, with columns <name>_<b>s, <name>_<b>s_low, <name>_<b>s_high."""
    wide = table[PLACE].drop_duplicates().set_index(PLACE)
    for budget in budgets:
        point = table[table["budget_seconds"] == budget].set_index(PLACE)
        for column, suffix in ((name, ""), ("low", "_low"), ("high", "_high")):
            wide[f"{name}_{budget:g}s{suffix}"] = point[column]
    return wide


def _passes(table: pd.DataFrame) -> pd.DataFrame:
    """One row per arm and temperature, with columns pass_at_<k>, _low and _high at the largest budget."""
    last = table[table["budget_seconds"] == table["budget_seconds"].max()]
    wide = last[PLACE].drop_duplicates().set_index(PLACE)
    for k, rows in last.groupby("k"):
        point = rows.set_index(PLACE)
        for column, suffix in (("pass_at_k", ""), ("low", "_low"), ("high", "_high")):
            wide[f"pass_at_{k}{suffix}"] = point[column]
    return wide
