"""Tables as files: one form of CSV for everything that is drawn or printed."""

from pathlib import Path

import pandas as pd


def write_csv(table: pd.DataFrame, path: Path) -> Path:
    """Write a table with six significant digits, in a folder that is made where it is missing; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, lineterminator="\n", float_format="%.6g")
    return path
