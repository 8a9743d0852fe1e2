r"""MATH-500: 500 competition problems of the MATH test set, with answers in LaTeX.

    Convert the point $(0,3)$ in rectangular coordinates to polar coordinates. ...
    gold: \left( 3, \frac{\pi}{2} \right)

Source: Hendrycks et al. (2021), Measuring Mathematical Problem Solving With the MATH Dataset, arXiv:2103.03874; the
subset is of Lightman et al. (2023), Let's Verify Step by Step, arXiv:2305.20050. Rows: problem, answer, unique_id.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from results.records import Grade, Policy
from tasks.answers import final_answer
from tasks.contract import Problem
from tasks.equivalence import MathChecker
from tasks.loading import Row, check_text, check_unique, check_whole, load_rows, select

INSTRUCTION = r"Think step by step, and put the final answer within \boxed{}."
CHECKER = MathChecker()  # one for all; its processes start when it is first asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Math500:
    """MATH-500 from the hub or from a local file with the same columns."""

    name: ClassVar[str] = "math500"
    default_policy: ClassVar[Policy] = "last"

    source: str = "HuggingFaceH4/MATH-500"
    config: str | None = None
    split: str = "test"
    revision: str | None = None  # commit of the hub's data set; None is its newest
    limit: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        check_text("source", self.source)
        check_text("split", self.split)
        check_whole("limit", self.limit, least=1, optional=True)
        check_whole("seed", self.seed, least=0, optional=True)

    def problems(self) -> Sequence[Problem]:
        """The chosen problems. Raises as `tasks.loading.load_rows`, and ValueError for a gold that is no maths."""
        rows = load_rows(self.source, config=self.config, split=self.split, revision=self.revision)
        chosen = select(rows, source=self.source, limit=self.limit, seed=self.seed)
        return check_unique([problem_of(row, self.check_gold) for row in chosen], self.source)

    def grade(self, problem: Problem, response: str) -> Grade:
        """Verdict on the last complete answer."""
        answer = final_answer(response)
        if answer is None:
            return Grade(verdict="no_answer", answer=None, reason="no complete box and no 'the answer is'")
        return CHECKER.grade(problem.gold, answer)

    def check_gold(self, gold: str) -> None:
        """Raises ValueError for a gold that the grader cannot parse."""
        if not CHECKER.parses(gold):
            raise ValueError(f"the grader cannot parse the gold {gold!r}")

    def open_pool(self, workers: int) -> int:
        """Grades `workers` answers at a time; returns how many threads have to ask for that."""
        CHECKER.workers = workers
        return CHECKER.askers

    def close_pool(self) -> None:
        """Ends the work at hand."""
        CHECKER.close()


def problem_of(row: Row, check_gold: Callable[[str], None]) -> Problem:
    """The problem in a row. Raises ValueError, naming the row, for a gold that the grader cannot parse."""
    gold = row.text("answer").strip()
    try:
        check_gold(gold)
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}") from error
    return Problem(
        problem_id=row.text("unique_id"),
        messages=({"role": "user", "content": f"{row.text('problem')}\n\n{INSTRUCTION}"},),
        gold=gold,
    )
