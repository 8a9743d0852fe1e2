"""`streak align`: a drafter aligned with its verifier, from prompts to checkpoints, as a TOML file says."""

import tempfile
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from engines.alignment import ranks
from engines.alignment.evaluation import Evaluation
from engines.alignment.packing import time_packing
from engines.alignment.publish import copy_checkpoint, refuse_taken
from engines.alignment.stages import checkpoints_of
from engines.alignment.trainer import Progress as StepProgress
from harness.align import Alignment
from harness.align_config import read_align
from harness.align_dry_run import dry_lines
from harness.align_plan import Limits, Plan
from harness.commands.exits import BAD_INPUT, INTERRUPTED, one_line, plain_errors, refuse_file

STEPS_A_LINE, TEXTS_A_LINE = 25, 100


def align(
    config_path: Path,
    work: Path | None,
    runs: Path,
    limits: Limits,
    *,
    publish: Path | None,
    packing: bool,
    dry_run: bool,
) -> None:
    """Do what is missing of an alignment; the same command goes on after an interrupt or an ended stage.

    Complete checkpoints are copied into the folder `publish`, if one is named.

    A dry run only says what is missing; it opens no weights and writes nothing.
    """
    ranks.join()
    shown, is_first = Shown(), ranks.rank() == 0
    try:
        with plain_errors():
            config = read_align(config_path)
            folder = work or runs / "align" / config.name
            refuse_file("--work", folder)
            plan = Plan(config, folder, limits)
            if publish is not None:
                check_publish(plan, publish)
            if packing:
                typer.echo(time_packing(plan.named[0], plan.verifier.folder).describe())
                return
            if dry_run:
                for line in dry_lines(plan):
                    typer.echo(line)
                return
            done = Alignment(plan, shown).run()
            if done and publish is not None:
                publish_all(plan, publish)
    except FloatingPointError as error:
        typer.echo(f"streak: {one_line(error)}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        typer.echo("streak: interrupted; what is done is kept, and the same command goes on", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        shown.close()
        ranks.leave()
    # Asked before the ranks parted: behind that every process is the first.
    if is_first:
        typer.echo(f"{folder}: complete" if done else f"the stage is over; {folder} keeps it: the same command goes on")


def check_publish(plan: Plan, folder: Path) -> None:
    """Raise ValueError, before hours are spent, for a folder that can take no copies, or would lose something."""
    if plan.limits.corpus_only:
        raise ValueError("--publish and --corpus-only: not together; a corpus alone has no checkpoints")
    there = refuse_file("--publish", folder)
    if folder.resolve().is_relative_to(plan.work.resolve()):
        raise ValueError(f"--publish {folder}: it lies in the work folder, {plan.work}; it must be another one")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ValueError(f"--publish {folder}: cannot be written: {error.strerror}") from error
    sources = {plan.verifier.folder.resolve(), *(setup.parent.resolve() for setup in plan.setups)}
    for place in (folder / checkpoint.name for setup in plan.named for checkpoint in checkpoints_of(plan.work, setup)):
        if place.resolve() in sources:
            raise ValueError(f"--publish {folder}: {place} is verifier or parent of a drafter; it is not replaced")
        refuse_taken(place)


def publish_all(plan: Plan, folder: Path) -> None:
    """Copy the checkpoints of the drafters that were asked for; the first rank does."""
    if ranks.rank() != 0:
        return
    for setup in plan.named:
        for checkpoint in checkpoints_of(plan.work, setup):
            typer.echo(str(copy_checkpoint(checkpoint, folder)))


class Shown:
    """A bar on a terminal, with what is left, loss and expected streak; a line now and then elsewhere."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._is_first = ranks.rank() == 0
        self._has_bar = console.is_terminal and self._is_first
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)
        self._what, self._total, self._count = "", 0, 0
        self._losses: list[float] = []
        if self._has_bar:
            self._bar.start()

    def begin(self, what: str, total: int) -> None:
        """Another part of the work."""
        self._what, self._total, self._count = what, total, 0
        self._losses.clear()
        self._bar.reset(self._task, description=what, total=total)
        self.say(f"{what}: {total} to do")

    def text(self) -> None:
        """A text was written or scored."""
        self._count += 1
        self._bar.update(self._task, completed=self._count)
        if self._count % TEXTS_A_LINE == 0:
            self.say(f"{self._what}: {self._count} of {self._total}")

    def step(self, progress: StepProgress, streak: float) -> None:
        """A step was made."""
        self._losses.append(progress.loss)
        mean = sum(self._losses) / len(self._losses)
        words = f"{self._what}: loss {mean:.4f}, streak {streak:.2f}"
        self._bar.update(self._task, completed=progress.step, description=words)
        if progress.step % STEPS_A_LINE == 0 or progress.step == progress.steps:
            left = progress.seconds / progress.step * (progress.steps - progress.step)
            self.say(f"{words}, step {progress.step} of {progress.steps}, {progress.seconds:.0f} s, {left:.0f} s left")
            self._losses.clear()

    def evaluation(self, name: str, found: Evaluation) -> None:
        """A drafter was judged."""
        taus = ", ".join(
            f"tau {each.tau:.2f} at T={temperature:g} ({each.rounds} rounds)"
            for temperature, each in found.by_temperature.items()
        )
        line = f"{name}: step {found.step}: {taus}, expected streak {found.expected_streak:.2f} at uniform places"
        if self._has_bar:
            self._bar.console.print(line, highlight=False)
        self.say(line)

    def say(self, line: str) -> None:
        """A line, where there is no bar."""
        if not self._has_bar and self._is_first:
            typer.echo(line)

    def close(self) -> None:
        """Take the bar away."""
        if self._has_bar:
            self._bar.stop()
