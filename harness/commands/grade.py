"""`streak grade`: grades a run anew from its generations, and draws its figures and table. Needs no engine."""

from pathlib import Path

import typer

from harness.commands.exits import plain_errors, refuse_file
from harness.grade import Graded, grade_run, headline_policy
from harness.keep import restore_run
from harness.report import Report, draw_report
from harness.study import Study, read_study
from tasks.contract import Problem, Task
from tasks.gpqa import gold_counts


def grade(study_path: Path, out: Path, source: Path | None) -> None:
    """Grade a study's run folder; one that is not there yet comes from the kept study."""
    with plain_errors():
        study = read_study(study_path, source)
        refuse_file("--out", out / study.name)
        if restore_run(study.folder, out / study.name):
            typer.echo(f"{study.folder}: generations taken from the kept study")
        task = study.build_task()
        problems = task.problems()
    grade_and_report(study, task, list(problems), out / study.name)


def grade_and_report(study: Study, task: Task, problems: list[Problem], folder: Path) -> tuple[Graded, Report]:
    """Grade, draw, and print the table and where the figure is."""
    with plain_errors():
        graded = grade_run(study, task, problems, folder)
        report = draw_report(study, graded, headline_policy(study, task), folder)
    typer.echo(f"\n{study.title}\n\n{report.headline}\n")
    typer.echo(coverage(graded))
    if any("option_order" in problem.data for problem in problems):
        typer.echo(gold_counts(problems))
    typer.echo(f"figure: {report.figure}")
    return graded, report


def coverage(graded: Graded) -> str:
    """Which problems stand behind the numbers."""
    line = f"{graded.problems} problems, {graded.records} records"
    if graded.problems < graded.all_problems:
        line += f"; {graded.all_problems - graded.problems} problems are left out: not every arm has answered them yet"
    failed = [g.completion.error for g in graded.generations if g.completion.finish_reason == "error"]
    if failed:
        line += f"; {len(failed)} requests failed and count as no answer, the first: {failed[0]}"
    return line
