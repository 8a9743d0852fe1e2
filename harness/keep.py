"""Keeping a run: what is worth committing of a run folder goes beside the study's own file, and comes back from there.

Knows files only. Generations and records are gzipped, the same rows as the same bytes; figures are copied.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.generate import SESSIONS_FILE
from harness.grade import RECORDS_FILE
from harness.plan import GENERATIONS_FILE
from harness.report import FIGURES_FOLDER
from results.ledger import read_rows, write_rows

PACKED = (GENERATIONS_FILE, RECORDS_FILE)


def keep_run(run: Path, study: Path) -> Iterator[Path]:
    """Copy a graded run into its study's folder; yields what was written.

    Raises:
        FileNotFoundError: something of the run is missing.
    """
    needed = [*PACKED, SESSIONS_FILE, FIGURES_FOLDER]
    missing = [name for name in needed if not (run / name).exists()]
    if missing:
        raise FileNotFoundError(f"{run / missing[0]}: not there; run and grade the study before keeping it")
    for name in PACKED:
        packed = study / f"{name}.gz"
        write_rows(packed, read_rows(run / name))
        yield packed
    shutil.copyfile(run / SESSIONS_FILE, study / SESSIONS_FILE)
    yield study / SESSIONS_FILE
    shutil.copytree(run / FIGURES_FOLDER, study / FIGURES_FOLDER, dirs_exist_ok=True)
    yield study / FIGURES_FOLDER


def restore_run(study: Path, run: Path) -> bool:
    """Bring a kept study's generations back into an empty run folder; True if that was done."""
    packed = study / f"{GENERATIONS_FILE}.gz"
    if (run / GENERATIONS_FILE).exists() or not packed.exists():
        return False
    write_rows(run / GENERATIONS_FILE, read_rows(packed))
    if (study / SESSIONS_FILE).exists():
        shutil.copyfile(study / SESSIONS_FILE, run / SESSIONS_FILE)
    return True
