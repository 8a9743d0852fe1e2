"""`streak grade-file`: verdicts on responses from anywhere, one line each. Needs no engine."""

import re
from collections import Counter, deque
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness import catalog
from harness.commands.exits import plain_errors
from harness.grade_file import KEY, grade_responses, read_responses
from results.ledger import Ledger, read_rows
from results.provenance import usable_cores
from results.records import VERDICTS
from tasks.gpqa import gold_counts

ROW_BEGINS = re.compile(rb'\{"id":"(?:[^"\\]|\\.)*"')


def grade_file(task_name: str, path: Path, out: Path, source: Path | None, workers: int | None) -> None:
    """Grade all responses of a file that have no verdict in `out` yet."""
    with plain_errors():
        check_out(path, out)
        task = catalog.build_task(task_name, {"source": str(source)} if source else {})
        responses = read_responses(path, task)
        ledger = Ledger(out, KEY)
    with ledger, plain_errors():
        before = sum((response.response_id,) in ledger for response in responses)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True), disable=not Console(stderr=True).is_terminal) as bar:
            shown = bar.add_task("grading", total=len(responses), completed=before)
            responses_at_once = workers or usable_cores()
            grade_responses(task, responses, ledger, workers=responses_at_once, done=partial(bar.advance, shown))
    golds = [response.problem for response in responses if response.problem.gold]
    if task_name == "gpqa" and golds:
        typer.echo(gold_counts(golds))
    typer.echo(summary(out, {response.response_id for response in responses}, before))


def check_out(path: Path, out: Path) -> None:
    """Raise ValueError where the verdicts would go over the responses, or nowhere."""
    if out.exists() and (not out.is_file() or (path.exists() and out.samefile(path))):
        raise ValueError(f"--out {out}: must be a file of its own, there or not yet")
    if out.suffix == ".gz":
        raise ValueError(f"--out {out}: verdicts are not compressed; give it another end than .gz")
    # A ledger cuts a torn last line. In a file of another kind that would be somebody's text.
    if out.exists() and not holds_verdicts(out):
        raise ValueError(f"--out {out}: holds something else than verdicts; it must be a file of its own")


def holds_verdicts(path: Path) -> bool:
    """Whether a file is empty or what a grading left behind, be its last line torn."""
    with path.open("rb") as file:
        last = deque(file, maxlen=1).pop() if path.stat().st_size else b""
    begun = ROW_BEGINS.match(last)
    rest, expected = (last[begun.end() :], b',"verdict":"') if begun else (last, b'{"id":"')
    return expected.startswith(rest[: len(expected)]) and all(row.get("verdict") in VERDICTS for row in read_rows(path))


def summary(out: Path, ids: set[str], before: int) -> str:
    """How many of each verdict, of all responses of the file; what could not be graded is counted apart."""
    counts = Counter(row["verdict"] for row in read_rows(out, KEY) if row["id"] in ids)
    told = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS)
    earlier = f" ({before} of them graded before)" if before else ""
    return f"{len(ids)} responses{earlier}: {told}; verdicts: {out}"
