"""The published numbers of SpecDiff-2 (results/paper/*.csv), to lay beside our own.

Facts only; results/paper/README.md says where each table comes from. Every row keeps its `kind`: `printed` in the
paper, or `read` off a figure to about two digits. Source: arXiv 2511.00606.
"""

import csv
from importlib import resources
from typing import TypeAlias

Cell: TypeAlias = str | float | None

KINDS = ("printed", "read")
TABLES = (
    "acceptance_by_position",
    "accuracy_vs_budget",
    "accuracy_vs_compute",
    "drafter_latency",
    "memory_flops",
    "self_selection",
    "speedup",
    "streak_vs_steps",
)


def published(table: str) -> list[dict[str, Cell]]:
    """Rows of one table: numbers as float, an empty cell as None, the rest as text.

    Raises ValueError for a name that is not in TABLES, and for a row whose kind is neither `printed` nor `read`.
    """
    if table not in TABLES:
        raise ValueError(f"no published table {table!r}; known tables: {', '.join(TABLES)}")
    text = (resources.files("results") / "paper" / f"{table}.csv").read_text(encoding="utf-8")
    rows = [{name: _cell(value) for name, value in row.items()} for row in csv.DictReader(text.splitlines())]
    for number, row in enumerate(rows, start=2):
        if row.get("kind") not in KINDS:
            raise ValueError(f"{table}.csv:{number}: kind {row.get('kind')!r}; allowed: {', '.join(KINDS)}")
    return rows


def _cell(value: str) -> Cell:
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        return value
