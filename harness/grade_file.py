"""Responses from anywhere: a file of them, read and checked whole, and graded in parallel into a ledger of verdicts.

Knows the tasks' contract, no study and no engine. A row has `id` and `response`, and says what it answers: the task's
own problem by `problem_id` (or `task_id`), or a `gold` beside it, or for multiple choice `options`, letter to text.
Every row is checked before the first is graded; ids that have a verdict already are not graded again.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.parallel_grading import grade_all
from results.ledger import Ledger
from results.records import Grade
from tasks.contract import Problem, TakesGold, Task

KEY = ("id",)
PROBLEM_KEYS = ("problem_id", "task_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response to grade. A problem without a gold gets its answer read, and no verdict on it."""

    response_id: str
    text: str
    problem: Problem


def read_responses(path: Path, task: Task) -> list[Response]:
    """All responses of a file (.jsonl or .jsonl.gz). Raises ValueError or OSError with one line that names the row."""
    known: dict[str, Problem] = {}
    places: dict[str, str] = {}
    responses = []
    for where, row in read_lines(path):
        response_id = as_text(row, "id", where)
        if response_id in places:
            raise ValueError(f"{where}: id {response_id!r} stands in {places[response_id]} already")
        places[response_id] = where
        if not isinstance(row.get("response"), str):
            raise ValueError(f"{where}: response = {row.get('response')!r} is not allowed; it must be a text")
        key = next((key for key in PROBLEM_KEYS if row.get(key) is not None), None)
        if key is not None and row.get("gold") is None:
            known = known or {problem.problem_id: problem for problem in task.problems()}
            problem_id = as_text(row, key, where)
            if problem_id not in known:
                raise ValueError(f"{where}: {task.name} has no problem {problem_id!r}")
            problem = known[problem_id]
        else:
            problem = given_problem(row, task, where)
        responses.append(Response(response_id=response_id, text=row["response"], problem=problem))
    if not responses:
        raise ValueError(f"{path}: no rows")
    return responses


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and content of each row. Raises ValueError that names file and line."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"{path}:{number}: no JSON: {error}") from None
                if not isinstance(row, dict):
                    raise ValueError(f"{path}:{number}: not a JSON object")
                yield f"{path}:{number}", row
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: damaged gzip file: {error}") from None


def as_text(row: Mapping[str, Any], key: str, where: str) -> str:
    """A text or whole number of a row, as text."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"{where}: {key} = {value!r} is not allowed; it must be a text or a whole number")
    return str(value)


def given_problem(row: Mapping[str, Any], task: Task, where: str) -> Problem:
    """The problem that a row brings along: its gold, its options, or both."""
    if not isinstance(task, TakesGold):
        raise ValueError(f"{where}: {task.name} needs one of {', '.join(PROBLEM_KEYS)}")
    options = row.get("options")
    if row.get("gold") is None and "options" not in row:
        raise ValueError(f"{where}: needs one of {', '.join((*PROBLEM_KEYS, 'gold', 'options'))}")
    if options is not None and not is_options(options):
        raise ValueError(f"{where}: options = {options!r} is not allowed; it must be an object, letter to text")
    gold = ""
    if row.get("gold") is not None:
        gold = as_text(row, "gold", where)
        try:
            task.check_gold(gold)
            if options and gold not in options:
                raise ValueError(f"the gold {gold!r} is none of the options {', '.join(options)}")
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    return Problem(problem_id=where, messages=(), gold=gold, data={"options": options} if options else {})


def is_options(value: object) -> bool:
    """Whether a value is a mapping of single letters to texts."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(len(letter) == 1 and letter.isupper() and isinstance(text, str) for letter, text in value.items())
    )


def grade_responses(
    task: Task, responses: Sequence[Response], ledger: Ledger, *, workers: int, done: Callable[[], None]
) -> None:
    """Grade what has no verdict in the ledger yet, and append each verdict as it comes; `done` is called for each."""
    todo = [response for response in responses if (response.response_id,) not in ledger]

    def append(place: int, grade: Grade, seconds: float) -> None:
        response = todo[place]
        if not response.problem.gold and grade.verdict == "incorrect":
            grade = replace(grade, verdict="grader_error", reason="no gold to compare with")
        ledger.append(
            {
                "id": response.response_id,
                "verdict": grade.verdict,
                "answer": grade.answer,
                "seconds": round(seconds, 4),
                "reason": " ".join(grade.reason.split()),
            }
        )
        done()

    grade_all(task, [(response.problem, response.text) for response in todo], workers=workers, done=append)
