"""What the commands share: where runs lie, and how a command ends when something is wrong.

A bad input is one line on stderr and exit code 2; an interrupt, one line and exit code 130.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

BAD_INPUT, INTERRUPTED = 2, 130
RUNS = Path("runs")


@contextmanager
def plain_errors() -> Iterator[None]:
    """For set-up: a bad value or file becomes one line without a traceback. What is unexpected keeps its traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"streak: {one_line(error)}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def one_line(error: Exception) -> str:
    """The error's text without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
