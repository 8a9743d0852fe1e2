"""`streak embedded`: the recipe of the bundled models, from nothing to model directories and their card."""

from pathlib import Path

import typer

from engines.alignment.trainer import Progress
from harness.commands.exits import INTERRUPTED, plain_errors, refuse_file

STEPS_A_LINE = 25


class Lines:
    """A line of progress every few steps: mean loss since the last line, seconds, and what is left."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def tell(self, name: str, progress: Progress) -> None:
        """Take note of a step."""
        self.losses.append(progress.loss)
        if progress.step % STEPS_A_LINE == 0 or progress.step == progress.steps:
            left = progress.seconds / progress.step * (progress.steps - progress.step)
            loss = sum(self.losses) / len(self.losses)
            typer.echo(
                f"{name}: step {progress.step} of {progress.steps}, loss {loss:.4f}, "
                f"{progress.seconds:.0f} s, about {left:.0f} s left"
            )
            self.losses.clear()


def embedded(work: Path, threads: int, stage_minutes: float) -> None:
    """Go on with the recipe in `work` until it is complete or the minutes are spent."""
    from harness.embedded import build
    from harness.model_card import CARD_FILE, DRAFTERS, write_card

    try:
        with plain_errors():
            refuse_file("--work", work)
            done = build(work, threads=threads, stage_seconds=60 * stage_minutes, listen=Lines().tell)
    except KeyboardInterrupt:
        typer.echo(f"streak: interrupted; {work} keeps what is done; the same command goes on", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if not done:
        typer.echo(f"the stage is over; {work} keeps its state: the same command goes on")
        return
    typer.echo(write_card(work, threads))
    typer.echo(f"to bundle them, copy verifier, {', '.join(DRAFTERS)} and {CARD_FILE} of {work} to engines/embedded")
