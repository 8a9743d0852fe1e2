"""The `streak` command: its arguments; each command's own module is imported when it is called."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.exits import RUNS

app = typer.Typer(
    help="Accuracy within a wall-clock budget: runs arms of an engine over a task, and grades what each second bought.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder with a study.toml, or the file itself.")]
OutPath = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the run folders.")]
Section = Annotated[str | None, typer.Argument(help="tasks, engines, models, arms, shapes or rules; default: all.")]


@app.command()
def run(study: StudyPath, out: OutPath = RUNS) -> None:
    """Generate what is missing of a study, then grade and draw it."""
    from harness.commands import run as command

    command.run(study, out)


@app.command()
def grade(study: StudyPath, out: OutPath = RUNS) -> None:
    """Grade a run anew and redraw its figures; needs no engine."""
    from harness.commands import grade as command

    command.grade(study, out)


@app.command()
def demo(out: OutPath = RUNS) -> None:
    """Run the bundled study: vanilla and speculative decoding side by side."""
    from harness.commands import demo as command

    command.demo(out)


@app.command("list")
def list_command(section: Section = None) -> None:
    """List what a study may name."""
    from harness.commands import listing

    listing.list_names(section)


def main() -> None:
    """Entry point of `streak`."""
    app()
