"""`streak doctor`: what can run here, and what is missing; exit code 1 if what was asked for cannot run."""

from itertools import groupby

import typer

from harness.commands.exits import plain_errors
from harness.doctor import asked, findings

CANNOT_RUN = 1


def doctor(names: list[str]) -> None:
    """Print one line each on what was asked for, or on everything."""
    with plain_errors():
        found = asked(names) if names else findings()
    width = max((len(each.name) for each in found), default=0)
    for section, own in groupby(found, key=lambda each: each.section):
        typer.echo(f"{section}:")
        for each in own:
            typer.echo(each.line(width))
    if names and any(each.missing for each in found):
        raise typer.Exit(CANNOT_RUN)
