"""The headline table as people read it: in parts, on a terminal, in markdown, and as the files of a report.

Reads what analysis/headline.py computed; touches no file but the ones it writes.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.tables import write_csv


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
AT_BUDGET = re.compile(r"(accuracy|difference)_(\d.*)s")
PASS_AT = re.compile(r"pass_at_(\d+)")


def cells(table: pd.DataFrame) -> list[dict[str, str]]:
    """The table as people read it: one dict of heading to text per row, intervals in brackets, percent for accuracy."""
    blocks = _blocks(table)
    return [{key: text for block in blocks.values() for key, text in block[at].items()} for at in range(len(table))]


def _blocks(table: pd.DataFrame) -> dict[str, list[dict[str, str]]]:
    """The same in parts narrow enough for a page; each begins with arm and temperature."""
    budgets = {name: found for name in table.columns if (found := AT_BUDGET.fullmatch(name))}
    passes = {name: found for name in table.columns if (found := PASS_AT.fullmatch(name))}
    graded = {
        "Accuracy": {
            name: Column(f"at {found[2]} s", ".1%", interval=True)
            for name, found in budgets.items()
            if found[1] == "accuracy"
        },
        f"Accuracy over {table['baseline'].iloc[0]}": {
            name: Column(f"gain at {found[2]} s", "+.1%", interval=True)
            for name, found in budgets.items()
            if found[1] == "difference" and table[name].notna().any()
        },
        "pass@k": {name: Column(f"pass@{found[1]}", ".1%", interval=True) for name, found in passes.items()},
    }
    rows = table.to_dict("records")
    blocks = {
        "Speed": [_texts(row, SPEED) | {"n": _timed(row), "errors": str(row["errors"])} for row in rows],
        "Rounds": [_texts(row, ROUNDS) for row in rows],
    }
    return blocks | {title: [_texts(row, columns) for row in rows] for title, columns in graded.items() if columns}


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
        how = f"Clock {clock}; cut-off policy {policy}; [95 % interval over problems]."
        texts["Accuracy"] = how
        texts[f"Accuracy over {baseline}"] = f"Difference in points on the same problems, paired. {how}"
        texts["pass@k"] = f"Chance that one of k answers is right, at the largest budget. {how}"
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
    numbers, text = write_csv(table, folder / f"{name}.csv"), folder / f"{name}.md"
    text.write_text(as_markdown(table) + "\n", encoding="utf-8")
    return [numbers, text]
