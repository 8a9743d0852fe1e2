"""`streak keep`: puts a graded run beside its study.toml, to be committed."""

from pathlib import Path

import typer

from harness.commands.exits import plain_errors, refuse_file
from harness.keep import keep_run
from harness.study import read_study


def keep(study_path: Path, out: Path) -> None:
    """Copy generations, records, sessions and figures of a run into the study's folder."""
    with plain_errors():
        study = read_study(study_path)
        refuse_file("--out", out / study.name)
        for path in keep_run(out / study.name, study.folder):
            typer.echo(f"kept {path}")
