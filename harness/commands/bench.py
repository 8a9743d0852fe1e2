"""`streak bench`: how fast the arms of a study are on the same prompts, and why; or a drafter's milliseconds alone."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from engines.contract import LARGEST_CONCURRENCY
from engines.speculation import LARGEST_WINDOW
from harness.bench import BENCH_STUDY, Bench
from harness.bench_result import ArmResult, known
from harness.commands.bench_tables import (
    alpha_table,
    latency_table,
    needed_table,
    ratio_table,
    rounds_table,
    shared_rounds_table,
    speed_table,
    throughput_table,
)
from harness.commands.exits import INTERRUPTED, plain_errors
from harness.commands.json_file import check_writable, write_json
from harness.concurrency import Throughput, throughputs
from harness.drafter_latency import latencies
from harness.plan import Job
from harness.stamps import stamp
from harness.study import Study, at_temperature, read_study
from results.provenance import collect_provenance
from results.records import Generation

WIDTH = 100
LARGEST_CONTEXT = 10_000_000


def bench(
    study_path: Path | None,
    source: Path | None,
    *,
    temperature: float | None,
    problems: int | None,
    against: str | None,
    json_file: Path | None,
    contexts: str | None,
    windows: str | None,
    concurrency: str | None,
) -> None:
    """Measure, print, and write the JSON file if one is named; nothing else is written."""
    with plain_errors():
        if json_file:
            check_writable("--json", json_file)
        at_contexts = whole_numbers("--context", contexts, LARGEST_CONTEXT)
        at_windows = whole_numbers("--window", windows, LARGEST_WINDOW)
        at_levels = whole_numbers("--concurrency", concurrency, LARGEST_CONCURRENCY)
        refuse_together(against, at_levels, [*at_contexts, *at_windows])
        study = read_study(study_path or BENCH_STUDY, source)
        if temperature is not None:
            study = at_temperature(study, temperature)
        check_against(study, against)
    console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, highlight=False)
    try:
        if at_levels:
            found = bench_levels(study, problems, at_levels, against, console)
        elif at_contexts or at_windows:
            found = bench_drafters(study, at_contexts, at_windows, console)
        else:
            found = bench_arms(study, problems, against, console)
        if json_file:
            with plain_errors():
                write_json(json_file, found)
    except KeyboardInterrupt:
        typer.echo("streak: interrupted; a bench keeps nothing", err=True)
        raise typer.Exit(INTERRUPTED) from None


def refuse_together(against: str | None, levels: Sequence[int], drafters: Sequence[int]) -> None:
    """Raise ValueError for options of two different benches, of which one would be passed over."""
    named = {"--against": against is not None, "--concurrency": bool(levels), "--context or --window": bool(drafters)}
    given = [option for option, is_given in named.items() if is_given]
    if drafters and len(given) > 1:
        raise ValueError(f"{', '.join(given)}: not together; each is a bench of its own")


def check_against(study: Study, against: str | None) -> None:
    """Raise ValueError unless the arm that others are held against is one of the study's, and drafts."""
    drafting = [arm.name for arm in study.arms if arm.speculation]
    if against is not None and against not in drafting:
        raise ValueError(
            f"--against = {against!r} is not allowed; allowed: an arm of study {study.name!r} that drafts: "
            f"{', '.join(drafting) or 'there is none'}"
        )


def bench_arms(study: Study, most_problems: int | None, against: str | None, console: Console) -> dict[str, Any]:
    """The arms on the same prompts: four tables a temperature, five where an arm is named to hold them against."""
    with plain_errors():
        problems = list(study.build_task().problems())[:most_problems]
        measured = Bench(study, problems)
    with measured:
        typer.echo(f"{study.title}: {len(measured.jobs)} requests to make; opening and warming up the engines")
        with plain_errors():
            measured.prepare()
        warning = stamp(measured.facts.values())
        if warning:
            console.print(warning)
        with plain_errors():
            generations = measured.run(RequestBar())
            results = measured.results(generations, against)
        for temperature in sorted({each.cell.temperature for each in results}):
            show(study, [each for each in results if each.cell.temperature == temperature], against, console)
        failed = [each.completion.error for each in generations if each.completion.finish_reason == "error"]
        if failed:
            say_failed(len(failed), failed[0])
        return measured.to_json(results, against)


def bench_levels(
    study: Study, most_problems: int | None, levels: Sequence[int], against: str | None, console: Console
) -> dict[str, Any]:
    """Every arm at several concurrencies: one table, or two where rounds are counted, and a line for each arm."""
    measured: list[Throughput] = []
    with plain_errors():
        problems = list(study.build_task().problems())[:most_problems]
        typer.echo(f"{study.title}: {len(problems)} problems at concurrency {', '.join(map(str, levels))}")
        for each in throughputs(study, problems, levels):
            measured.append(each)
            failed = f", {each.failed} failed" if each.failed else ""
            place = f"{each.arm} T={each.temperature:g}, {each.concurrency}"
            typer.echo(f"  {place}: {each.tokens_per_second:.1f} tokens/s{failed}")
        if all(each.failed == each.requests for each in measured):
            raise ValueError(f"study {study.name!r}: no request was answered; the first: {measured[0].error}")
    for warning in filter(None, dict.fromkeys(each.stamp for each in measured)):
        console.print(warning)
    console.print()
    console.print(throughput_table(measured))
    timed = [each for each in measured if each.rounds.rounds]
    if timed:
        console.print()
        console.print(shared_rounds_table(timed, against))
    failures = [each for each in measured if each.failed]
    if failures:
        say_failed(sum(each.failed for each in failures), failures[0].error)
    facts = {"study": study.to_json()}
    found = [each.to_json() | other_ratio(each, measured, against) for each in measured]
    return {"throughput": found, "against": against, "provenance": collect_provenance(facts)}


def say_failed(count: int, first: str | None) -> None:
    """One line on requests that failed where others were answered."""
    typer.echo(f"{count} requests failed and count in no number, the first: {first}", err=True)


def other_ratio(each: Throughput, measured: Sequence[Throughput], against: str | None) -> dict[str, float | None]:
    """What is neither draft nor target in a round, over that of an arm, where one is named."""
    return {"other_ratio": known(each.other_over(measured, against))} if against else {}


def show(study: Study, results: Sequence[ArmResult], against: str | None, console: Console) -> None:
    """The tables of one temperature."""
    for table in (
        speed_table(results, study.baseline),
        rounds_table(results),
        *([ratio_table(results, against)] if against else []),
        alpha_table(results),
        needed_table(results),
    ):
        console.print()
        console.print(table)


def bench_drafters(study: Study, contexts: Sequence[int], windows: Sequence[int], console: Console) -> dict[str, Any]:
    """Drafters alone. What an engine refuses is one line; where it refuses everything, that is bad input."""
    typer.echo(f"{study.title}: timing bare forwards of the drafters")
    with plain_errors():
        found = list(latencies(study, contexts, windows))
        refused = [each for each in found if each.refused]
        if len(refused) == len(found):
            raise ValueError(f"[arm.{refused[0].arm}], --{refused[0].against}: {refused[0].refused}")
    for against in ("context", "window"):
        timed = [each for each in found if each.against == against and not each.refused]
        if timed:
            console.print()
            console.print(latency_table(timed, against))
    if refused:
        places = ", ".join(f"{each.drafter} after {each.context} with window {each.window}" for each in refused)
        typer.echo(f"left out: {places}: {refused[0].refused}", err=True)
    facts = {"study": study.to_json()}
    return {"drafters": [each.to_json() for each in found], "provenance": collect_provenance(facts)}


def whole_numbers(option: str, text: str | None, largest: int) -> list[int]:
    """Rising whole numbers of a comma-separated list; none where the option is not given."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part[:20]) <= largest for part in parts):
        raise ValueError(
            f"{option} = {text!r} is not allowed; allowed: whole numbers from 1 to {largest}, separated by commas"
        )
    return sorted({int(part) for part in parts})


class RequestBar:
    """How many requests are made. Drawn between two of them: a thread that draws would take time from an engine."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._shown = console.is_terminal  # a log would get an empty line for a bar
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("requests", total=None)

    def start(self, todo: Sequence[Job], done_before: int) -> None:
        """An empty bar."""
        self._bar.update(self._task, total=len(todo) + done_before, completed=done_before)
        if self._shown:
            self._bar.start()

    def note(self, job: Job, generation: Generation, engine_seconds: float) -> None:  # noqa: ARG002 (the protocol's)
        """One more."""
        self._bar.update(self._task, advance=1, description=job.cell.label)
        if self._shown:
            self._bar.refresh()

    def close(self) -> None:
        """Take the bar away."""
        if self._shown:
            self._bar.stop()
