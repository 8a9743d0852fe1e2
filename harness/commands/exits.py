"""What the commands share: where runs lie, and how a command ends when something is wrong.

A bad input is one line on stderr and exit code 2; an interrupt, one line and exit code 130.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from harness import interrupts

BAD_INPUT, INTERRUPTED = 2, interrupts.EXIT_CODE
RUNS = Path("runs")


@contextmanager
def plain_errors() -> Iterator[None]:
    """For set-up: a bad value or file becomes one line without a traceback. What is unexpected keeps its traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"streak: {one_line(error)}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def refuse_file(option: str, folder: Path) -> None:
    """Raise ValueError, naming the option, where a file stands in the way of a folder that is to be written."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"{option}: {there} is a file; it must be a folder, there or not yet")


def one_line(error: Exception) -> str:
    """The error's text without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
