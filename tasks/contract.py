"""What a benchmark is to Streak: problems with a prompt and a gold, and a grade for a response.

Knows no model and no engine: a task gives chat messages, the engine applies the chat template and tokenizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from results.records import Grade, Policy

Message: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question of a benchmark.

    `messages` is the chat to continue; `gold` is what the grader compares with; `data` holds what else the
    grader needs (tests of a program, shuffled options) as plain values that JSON can carry.
    """

    problem_id: str
    messages: tuple[Message, ...]
    gold: str
    data: Mapping[str, object] = field(default_factory=dict)


class Task(Protocol):
    """A benchmark: loads its problems, and grades a response to one of them.

    A task is a frozen dataclass whose constructor keywords are the keys of a study's [task] table. Constructing one
    checks them and touches neither disk nor network.
    """

    @property
    def name(self) -> str:
        """Short name of the benchmark, as in a study."""
        ...

    @property
    def default_policy(self) -> Policy:
        """Cut-off policy of the headline figure (see harness/budgets.py)."""
        ...

    def problems(self) -> Sequence[Problem]:
        """The problems, loaded anew. Raises ValueError or OSError with one line that names file and row on bad data."""
        ...

    def grade(self, problem: Problem, response: str) -> Grade:
        """Verdict on the text that a budget kept. Never raises for anything that a model may write."""
        ...


@runtime_checkable
class TakesGold(Protocol):
    """A task that can grade a response against a gold alone, from wherever it comes."""

    def check_gold(self, gold: str) -> None:
        """Raises ValueError with what is wrong unless the grader can compare with `gold`."""
        ...


@runtime_checkable
class Pooled(Protocol):
    """A task that sets hard answers aside, and so takes more of them at a time than it works on."""

    def open_pool(self, workers: int) -> int:
        """Sets how many answers are worked on at a time; returns how many threads have to ask for that."""
        ...

    def close_pool(self) -> None:
        """Ends the work at hand: who waits for a grade gets `grader_error`."""
        ...
