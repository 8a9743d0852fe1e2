"""GPQA: graduate-level multiple choice in biology, physics and chemistry, with four options.

    (our own, in GPQA's layout) Which base pairs with adenine in DNA?
    Correct Answer: thymine; Incorrect Answer 1-3: uracil, guanine, cytosine

The data set is gated, and its authors ask that no example be shown in plain text: accept the terms on the hub, or name
a local copy of its CSV. Options are shuffled by a seed and the problem's id alone, and the right letters are balanced
in blocks of four, so that no letter is worth guessing and a larger limit moves no key. The order (which column of the
data stands under A, B, C, D: 0 is the right answer) lies in the problem's data and goes into each generation, without
the texts: a regrade is held to the key that the model saw.
Source: Rein et al. (2023), GPQA: A Graduate-Level Google-Proof Q&A Benchmark, arXiv:2311.12022, CC BY 4.0.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from results.records import Grade, Policy
from tasks.contract import Problem
from tasks.letters import final_letter
from tasks.loading import Row, check_text, check_unique, check_whole, load_rows, select

GATED_SOURCE = "Idavidrein/gpqa"
LETTERS = "ABCD"
CONFIGS = ("gpqa_diamond", "gpqa_main", "gpqa_extended")
RIGHT = "Correct Answer"
WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
COLUMNS = (RIGHT, *WRONG)
INSTRUCTION = r"Think step by step, and put the letter of the right option within \boxed{}, such as \boxed{A}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpqa:
    """GPQA from the hub (gated), or from a local file with the same columns or the authors' .zip with its `password`.

    `config` says which set is meant on the hub and in a .zip, `revision` which commit of the hub.
    """

    name: ClassVar[str] = "gpqa"
    default_policy: ClassVar[Policy] = "last"

    source: str = GATED_SOURCE
    config: str = "gpqa_diamond"
    split: str = "train"
    revision: str | None = None
    password: str | None = None
    limit: int | None = None
    seed: int | None = None
    option_seed: int = 0

    def __post_init__(self) -> None:
        check_text("source", self.source)
        check_text("split", self.split)
        check_whole("limit", self.limit, least=1, optional=True)
        check_whole("seed", self.seed, least=0, optional=True)
        check_whole("option_seed", self.option_seed, least=0)
        if self.config not in CONFIGS:
            raise ValueError(f"config = {self.config!r} is not allowed; allowed: {', '.join(CONFIGS)}")

    def problems(self) -> Sequence[Problem]:
        """The chosen problems, options shuffled. Raises as `tasks.loading.load_rows`."""
        rows = load_rows(
            self.source,
            config=self.config,
            split=self.split,
            revision=self.revision,
            gated=self.source == GATED_SOURCE,
            password=self.password,
        )
        chosen = select(rows, source=self.source, limit=self.limit, seed=self.seed)
        golds = balanced_letters(len(chosen), self.option_seed)
        problems = [self.problem_of(row, gold) for row, gold in zip(chosen, golds, strict=True)]
        return check_unique(problems, self.source)

    def problem_of(self, row: Row, gold: str) -> Problem:
        """The problem in a row, its right option under the letter `gold`."""
        problem_id = row.text("Record ID") if "Record ID" in row.values else f"gpqa/{row.number:04d}"
        columns = list(WRONG)
        random.Random(f"options/{self.option_seed}/{problem_id}").shuffle(columns)
        columns.insert(LETTERS.index(gold), RIGHT)
        options = {letter: row.text(column).strip() for letter, column in zip(LETTERS, columns, strict=True)}
        if len(set(options.values())) < len(options):
            raise ValueError(f"{row.where}: two options have the same text")
        listed = "\n".join(f"{letter}) {text}" for letter, text in options.items())
        message = f"{row.text('Question').strip()}\n\n{listed}\n\n{INSTRUCTION}"
        return Problem(
            problem_id=problem_id,
            messages=({"role": "user", "content": message},),
            gold=gold,
            data={"options": options, "option_order": "".join(str(COLUMNS.index(column)) for column in columns)},
        )

    def grade(self, problem: Problem, response: str) -> Grade:
        """Verdict on the letter, or the text of the option, that the response chooses."""
        options = options_of(problem)
        letter = final_letter(response, "".join(options) or LETTERS, options)
        if letter is None:
            return Grade(verdict="no_answer", answer=None, reason="no single letter is chosen")
        right = letter == problem.gold
        return Grade(verdict="correct" if right else "incorrect", answer=letter, reason=f"gold is {problem.gold}")

    def check_gold(self, gold: str) -> None:
        """Raises ValueError for a gold that is no letter of an option."""
        if gold not in tuple(LETTERS):
            raise ValueError(f"the gold {gold!r} is no letter; allowed: {', '.join(LETTERS)}")


def options_of(problem: Problem) -> dict[str, str]:
    """The text under each letter; empty where it is not known."""
    options = problem.data.get("options")
    return {str(letter): str(text) for letter, text in options.items()} if isinstance(options, Mapping) else {}


def gold_counts(problems: Iterable[Problem]) -> str:
    """How often each letter is right, for people: a key that favours one would reward a habit."""
    counts = Counter(problem.gold for problem in problems)
    return "gold letters: " + ", ".join(f"{letter} {counts[letter]}" for letter in sorted(counts))


def balanced_letters(count: int, seed: int) -> list[str]:
    """`count` letters: each four in a row are all four letters, in an order drawn from `seed`."""
    rng = random.Random(f"letters/{seed}")
    return [letter for _ in range(0, count, 4) for letter in rng.sample(LETTERS, 4)][:count]
