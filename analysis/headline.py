"""The headline table: what an arm is worth, and why, in one row per arm and temperature.

Tokens per second, speed-up over a baseline arm on the same problems, accepted tokens per round, where a round's time
goes, and accuracy at three budgets. Reads the frames of analysis/frames.py; touches no file but the ones it writes.

Failed generations (finish_reason `error`) have no place in a speed: they are counted in `errors`. Generations that
ended within the prefill have no time after the first token. A problem left with nothing else, in the arm or in the
baseline, is missing from `problems_timed`.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.accuracy import accuracy_table
from analysis.frames import arms_of, require_one_identity
from analysis.intervals import Interval, median, rate, rate_ratio
from results.costs import break_even_tau
from results.records import CLOCKS, Clock, Policy

PARTS = ("draft_seconds", "verify_seconds", "other_seconds")
SUMMED = ("amount", "seconds", "seconds_decode", "rounds", "kept", "accepted", *PARTS)
UNKNOWN = Interval(value=np.nan, low=np.nan, high=np.nan)


class Column(NamedTuple):
    """How people read a number of the table: its heading, its format, and whether its interval stands beside it."""

    heading: str
    form: str
    interval: bool = False


SPEED = {
    "tokens_per_second": Column("tokens/s", ".1f"),
    "speedup": Column("speed-up", ".2f", interval=True),
    "median_speedup": Column("median speed-up", ".2f", interval=True),
}
ROUNDS = {
    "tau": Column("tau", ".2f"),
    "tau_with_bonus": Column("tau + bonus", ".2f"),
    "break_even": Column("break-even", ".2f"),
    "draft_ms": Column("draft ms", ".2f"),
    "verify_ms": Column("verify ms", ".2f"),
    "other_ms": Column("other ms", ".2f"),
}
TEXT_WIDTH = 100
AT_BUDGET = re.compile(r"accuracy_(\d.*)s")


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
    accuracy = accuracy_table(records[records["arm"].isin(order)], clock=accuracy_clock, policy=policy, seed=seed)
    return table.merge(_at_budgets(accuracy, budgets), on=["arm", "temperature"], how="left")


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
    """Paired by problem; unknown where the other arm was not run, or accepted nothing in some problem."""
    shared = arm.index.intersection(other.index)
    ours, theirs = arm.loc[shared], other.loc[shared]
    columns = [ours["accepted"], ours["rounds"], theirs["accepted"].where(theirs["accepted"] > 0), theirs["rounds"]]
    return _named("tau_ratio", _estimate(rate_ratio, *columns, seed=seed))


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


def _at_budgets(accuracy: pd.DataFrame, budgets: Sequence[float] | None) -> pd.DataFrame:
    """One row per arm and temperature, with columns accuracy_<b>s, accuracy_<b>s_low, accuracy_<b>s_high."""
    present = sorted(accuracy["budget_seconds"].unique())
    place = ["arm", "temperature"]
    names = {"clock": "accuracy_clock", "policy": "accuracy_policy"}
    wide = accuracy.groupby(place, sort=False)[list(names)].first().rename(columns=names)
    for budget in budgets or sorted({present[0], present[len(present) // 2], present[-1]}):
        if budget not in present:
            known = ", ".join(f"{each:g}" for each in present)
            raise ValueError(f"no records at a budget of {budget:g} s; budgets there: {known}")
        point = accuracy[accuracy["budget_seconds"] == budget].set_index(place)
        for column, suffix in (("accuracy", ""), ("low", "_low"), ("high", "_high")):
            wide[f"accuracy_{budget:g}s{suffix}"] = point[column]
    return wide.reset_index()


def cells(table: pd.DataFrame) -> list[dict[str, str]]:
    """The table as people read it: one dict of heading to text per row, intervals in brackets, percent for accuracy."""
    blocks = _blocks(table)
    return [{key: text for block in blocks.values() for key, text in block[at].items()} for at in range(len(table))]


def _blocks(table: pd.DataFrame) -> dict[str, list[dict[str, str]]]:
    """The same in parts narrow enough for a page; each begins with arm and temperature."""
    budgets = {name: found[1] for name in table.columns if (found := AT_BUDGET.fullmatch(name))}
    accuracy = {name: Column(f"at {seconds} s", ".1%", interval=True) for name, seconds in budgets.items()}
    rows = table.to_dict("records")
    blocks = {
        "Speed": [_texts(row, SPEED) | {"n": _timed(row), "errors": str(row["errors"])} for row in rows],
        "Rounds": [_texts(row, ROUNDS) for row in rows],
    }
    return blocks | ({"Accuracy": [_texts(row, accuracy) for row in rows]} if accuracy else {})


def _texts(row: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, str]:
    numbers = {column.heading: _number(row, name, column) for name, column in columns.items()}
    return {"arm": str(row["arm"]), "T": f"{row['temperature']:g}", **numbers}


def _number(row: Mapping[str, Any], name: str, column: Column) -> str:
    value, form = row[name], column.form
    if np.isnan(value):
        return "-"
    low, high = (row[f"{name}_low"], row[f"{name}_high"]) if column.interval else (value, value)
    return f"{value:{form}} [{low:{form}}, {high:{form}}]" if low < high else f"{value:{form}}"


def _timed(row: Mapping[str, Any]) -> str:
    timed, problems = row["problems_timed"], row["problems"]
    return str(problems) if timed == problems else f"{timed} of {problems}"


def notes(table: pd.DataFrame) -> dict[str, str]:
    """What each part of the printed table holds, by its title."""
    clock, baseline = table["clock"].iloc[0], table["baseline"].iloc[0]
    texts = {
        "Speed": f"Clock {clock}; over {baseline} on the same n problems: ratio of sums, and median of the problems' "
        "ratios; [95 % interval over problems]. Errors: generations that failed, outside every speed.",
        "Rounds": "tau: accepted draft tokens per round; break-even: the tau + bonus that is as fast as the baseline; "
        "milliseconds per round.",
    }
    if "accuracy_clock" in table:
        graded = table.dropna(subset="accuracy_clock").iloc[0]
        clock, policy = graded["accuracy_clock"], graded["accuracy_policy"]
        texts["Accuracy"] = f"Clock {clock}; cut-off policy {policy}; [95 % interval over problems]."
    return texts


def as_text(table: pd.DataFrame) -> str:
    """Aligned columns in parts, each with its title and its notes, for a terminal."""
    told = notes(table)
    return "\n\n".join(
        f"{title}\n{_aligned(rows)}\n{textwrap.fill(told[title], TEXT_WIDTH)}" for title, rows in _blocks(table).items()
    )


def _aligned(rows: Sequence[Mapping[str, str]]) -> str:
    lines = [{heading: heading for heading in rows[0]}, *rows]
    widths = {heading: max(len(line[heading]) for line in lines) for heading in rows[0]}
    texts = [[line[heading].rjust(width) for heading, width in widths.items()] for line in lines]
    for line, text in zip(lines, texts, strict=True):
        text[0] = line["arm"].ljust(widths["arm"])
    return "\n".join("  ".join(text).rstrip() for text in texts)


def as_markdown(table: pd.DataFrame) -> str:
    """Pipe tables in parts, each with its title and its notes, for a README."""
    told = notes(table)
    return "\n\n".join(f"**{title}**\n\n{_piped(rows)}\n\n{told[title]}" for title, rows in _blocks(table).items())


def _piped(rows: Sequence[Mapping[str, str]]) -> str:
    lines = [list(rows[0]), ["---", *["---:"] * (len(rows[0]) - 1)], *([*row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def write_headline(table: pd.DataFrame, folder: Path, name: str = "headline") -> list[Path]:
    """Write <name>.csv with every column and <name>.md as people read it; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers, text = folder / f"{name}.csv", folder / f"{name}.md"
    table.to_csv(numbers, index=False, lineterminator="\n", float_format="%.6g")
    text.write_text(as_markdown(table) + "\n", encoding="utf-8")
    return [numbers, text]
