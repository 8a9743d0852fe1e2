r"""GSM8K: 1,319 grade-school word problems (test split) whose answer is a whole number.

    Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. ...
    gold: 72 (after #### at the end of the worked answer)

Source: Cobbe et al. (2021), Training Verifiers to Solve Math Word Problems, arXiv:2110.14168. Rows: question, answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from results.records import Grade, Policy
from tasks.answers import final_answer
from tasks.contract import Problem
from tasks.loading import Row, check_text, check_unique, check_whole, load_rows, select

INSTRUCTION = r"Think step by step, and put the final answer, a number, within \boxed{}."
LONGEST = 200  # characters of an answer; what is longer is no number, and would be slow to search
FRACTION = re.compile(r"\\[dt]?frac\s*\{(\d{1,18})\}\s*\{(\d{1,18})\}")
NUMBER = re.compile(r"(?<!\d)(?<!\d[.,])-?(?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{1,18})?(?![\d,.]*\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gsm8k:
    """GSM8K from the hub or from a local file with the same columns."""

    name: ClassVar[str] = "gsm8k"
    default_policy: ClassVar[Policy] = "last"

    source: str = "openai/gsm8k"
    config: str | None = "main"
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
        """The chosen problems. Raises as `tasks.loading.load_rows`, and ValueError for an answer without a number."""
        rows = load_rows(self.source, config=self.config, split=self.split, revision=self.revision)
        chosen = select(rows, source=self.source, limit=self.limit, seed=self.seed)
        return check_unique([problem_of(row) for row in chosen], self.source)

    def grade(self, problem: Problem, response: str) -> Grade:
        """Verdict on the last complete answer, as a number."""
        answer = final_answer(response)
        if answer is None:
            return Grade(verdict="no_answer", answer=None, reason="no complete box and no 'the answer is'")
        value = number_in(answer)
        if value is None:
            return Grade(verdict="incorrect", answer=answer, reason="not one number")
        right = value == number_in(problem.gold)
        return Grade(verdict="correct" if right else "incorrect", answer=answer, reason=f"gold is {problem.gold}")

    def check_gold(self, gold: str) -> None:
        """Raises ValueError for a gold that is not one number."""
        if number_in(gold) is None:
            raise ValueError(f"the gold {gold!r} is not one number")


def problem_of(row: Row) -> Problem:
    """The problem in a row; the gold stands behind the last ####."""
    _, mark, gold = row.text("answer").rpartition("####")
    if not mark or number_in(gold) is None:
        raise ValueError(f"{row.where}: no number behind '####' in column 'answer'")
    return Problem(
        problem_id=f"gsm8k/{row.number:04d}",
        messages=({"role": "user", "content": f"{row.text('question')}\n\n{INSTRUCTION}"},),
        gold=gold.strip(),
    )


def number_in(text: str) -> Decimal | None:
    r"""The only number in a text such as '\$1,200', '18 dollars' or 'x = -3.50'; None for none or several."""
    if len(text) > LONGEST:
        return None
    if fraction := FRACTION.search(text):
        below = Decimal(fraction[2])
        return Decimal(fraction[1]) / below if below and not NUMBER.search(FRACTION.sub("", text)) else None
    numbers = NUMBER.findall(re.sub(r"\\[!,;: ]|[{}]", "", text))
    return Decimal(numbers[0].replace(",", "")) if len(numbers) == 1 else None
