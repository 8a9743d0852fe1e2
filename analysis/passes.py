"""pass@k: the chance that one of k answers to a problem is right, where a study has several samples a problem.

Reads a records frame; knows no engine and no task. Source of the estimate: analysis/intervals.py.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.accuracy import select_cells
from analysis.intervals import mean_curve, pass_at_k
from analysis.tables import write_csv
from results.records import Clock, Policy

COLUMNS = ("arm", "temperature", "budget_seconds", "k", "pass_at_k", "low", "high", "n", "samples")


def pass_table(
    records: pd.DataFrame, *, clock: Clock | None = None, policy: Policy | None = None, seed: int = 0
) -> pd.DataFrame:
    """pass@k of every arm, temperature and budget for k = 1, 2, 4, ... samples, with a 95 % interval over problems.

    An arm with a problem of one sample has no rows. Raises ValueError for an ambiguous choice of records.
    """
    parts = []
    for (arm, temperature), rows in select_cells(records, clock=clock, policy=policy):
        counts = rows.groupby(["budget_seconds", "problem_id"])["correct"].agg(["sum", "count"])
        samples = int(counts["count"].min())
        if samples < 2:
            continue
        sizes = [k for k in (2**power for power in range(samples.bit_length())) if k <= samples]
        for budget, own in counts.groupby(level="budget_seconds"):
            chances = np.stack([pass_at_k(own["sum"], own["count"], k) for k in sizes], axis=1)
            for k, point in zip(sizes, mean_curve(chances, np.random.default_rng(seed)), strict=True):
                estimate = (point.value, point.low, point.high)
                parts.append((arm, temperature, budget, k, *estimate, len(own), samples))
    return pd.DataFrame(parts, columns=list(COLUMNS))


def write_passes(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Write pass_at_k.csv, unless there is nothing to write; returns the paths of what was written."""
    return [] if table.empty else [write_csv(table, folder / "pass_at_k.csv")]
