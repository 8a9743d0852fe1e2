"""What an arm adds to the accuracy of a baseline at every budget, paired by problem; a table, no figure.

Two arms may have bands that overlap and yet differ surely: problems that both solve, or both miss, say nothing of their
difference, and pairing takes them out. Reads a records frame; knows no engine and no task.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.accuracy import select_cells, solved_shares
from analysis.intervals import difference_curve
from analysis.tables import write_csv
from results.records import Clock, Policy


def difference_table(
    records: pd.DataFrame,
    *,
    baseline: str,
    clock: Clock | None = None,
    policy: Policy | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy of every arm minus the baseline's at each budget, with a 95 % interval over the problems of both.

    Samples of a problem are averaged first. An arm has no rows at a temperature where the baseline was not run, or
    where they have no problem in common. Raises ValueError as accuracy_table does.
    """
    cells = {place: solved_shares(rows, place[0]) for place, rows in select_cells(records, clock=clock, policy=policy)}
    parts = []
    for (arm, temperature), ours in cells.items():
        theirs = cells.get((baseline, temperature))
        if arm == baseline or theirs is None:
            continue
        shared, budgets = ours.index.intersection(theirs.index), ours.columns.intersection(theirs.columns)
        if shared.empty or budgets.empty:
            continue
        first, second = (each.loc[shared, budgets].to_numpy() for each in (ours, theirs))
        curve = difference_curve(first, second, np.random.default_rng(seed))
        parts.append(
            pd.DataFrame(
                {
                    "arm": arm,
                    "baseline": baseline,
                    "temperature": temperature,
                    "budget_seconds": budgets.to_numpy(),
                    "difference": [point.value for point in curve],
                    "low": [point.low for point in curve],
                    "high": [point.high for point in curve],
                    "n": len(shared),
                }
            )
        )
    columns = ["arm", "baseline", "temperature", "budget_seconds", "difference", "low", "high", "n"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def write_differences(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Write differences.csv, unless there is nothing to write; returns the paths of what was written."""
    return [] if table.empty else [write_csv(table, folder / "differences.csv")]
