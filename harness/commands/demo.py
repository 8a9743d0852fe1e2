"""`streak demo`: the bundled study on the bundled models, and what it shows."""

from pathlib import Path

import typer

from harness.commands.exits import plain_errors, refuse_file
from harness.commands.run import run_study
from harness.demo import DEMO_STUDY, identity_lines
from harness.study import read_study


def demo(out: Path) -> None:
    """Run the demo's study into its folder below `out`."""
    with plain_errors():
        study = read_study(DEMO_STUDY)
        refuse_file("--out", out / study.name)
    problems, graded, _ = run_study(study, out / study.name, again="streak demo")
    for line in identity_lines(study, problems, graded.generations):
        typer.echo(line)
