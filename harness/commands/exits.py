"""What the commands share: where runs lie, and how a command ends when something is wrong.

A bad input is one line on stderr and exit code 2; an interrupt, one line and exit code 130.
"""

import os
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


def refuse_file(option: str, folder: Path) -> Path:
    """The folder, or what of its path is there. Raises ValueError, naming the option, where that is no folder."""
    # A link to nothing is in the way, too.
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        kind = "a file" if there.exists() else "a link to nothing"
        raise ValueError(f"{option}: {there} is {kind}; it must be a folder, there or not yet")
    return there


def one_line(error: Exception) -> str:
    """The error's text without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
