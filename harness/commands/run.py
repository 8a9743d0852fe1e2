"""`streak run`: generates what is missing of a study, then grades and draws it."""

from pathlib import Path

import typer
from rich.console import Console

from engines.contract import EngineError
from harness.commands.exits import BAD_INPUT, INTERRUPTED, RUNS, one_line, plain_errors, refuse_file
from harness.commands.grade import grade_and_report
from harness.dry_run import dry_lines, refuse_laws
from harness.generate import Session, SessionResult, parts
from harness.grade import Graded, Grader, headline_policy
from harness.progress import SessionProgress
from harness.report import Report
from harness.study import Study, read_study
from tasks.contract import Problem, Task


def run(study_path: Path, out: Path, source: Path | None, *, dry_run: bool) -> None:
    """Run a study into its folder below `out`; what is there already is kept. A dry run only says what it would do."""
    with plain_errors():
        study = read_study(study_path, source)
        if dry_run:
            for line in dry_lines(study):
                typer.echo(line)
            return
        refuse_laws(study)
        refuse_file("--out", out / study.name)
    where = "" if out == RUNS else f" --out {out}"
    where += f" --source {source}" if source else ""
    run_study(study, out / study.name, again=f"streak run {study_path}{where}")


def run_study(study: Study, folder: Path, *, again: str) -> tuple[list[Problem], Graded, Report]:
    """Generate, grade and report. `again` is the command that goes on after an interrupt."""
    try:
        with plain_errors():
            task = study.build_task()
            problems = list(task.problems())
        for part in parts(study):
            generate(part, task, problems, folder)
        return problems, *grade_and_report(study, task, problems, folder)
    except KeyboardInterrupt:
        typer.echo(f"streak: interrupted; what is finished lies in {folder}; go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except EngineError as error:
        typer.echo(f"streak: {one_line(error)}; what is finished lies in {folder}; go on with: {again}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def generate(study: Study, task: Task, problems: list[Problem], folder: Path) -> None:
    """The measured half, with its display."""
    console = Console()
    with plain_errors():
        session = Session(study, problems, folder)
    with session:
        if session.todo:
            arms = ", ".join(dict.fromkeys(job.cell.arm.name for job in session.todo))
            typer.echo(f"{len(session.todo)} requests to make ({arms}); opening and warming up the engines")
            with plain_errors():
                session.prepare()
            progress = SessionProgress(study, Grader(task), headline_policy(study, task), console)
            typer.echo(overhead(session.run(progress)))
        else:
            typer.echo(f"nothing to generate: all {session.done_before} generations are in {folder}")


def overhead(result: SessionResult) -> str:
    """What the harness added to the engines' time."""
    ratio = "" if result.overhead is None else f": harness wall / engine wall = {result.overhead:.4f}"
    walls = f"{result.completed} generations in {result.wall_seconds:.1f} s, engines {result.engine_seconds:.1f} s"
    return walls + ratio
