"""A study of doubling numbers for tests of the harness: its file, its task, and a silent display."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from harness import catalog
from harness.plan import Job
from results.records import Generation, Grade, Policy
from tasks.answers import grade_boxed_integer
from tasks.contract import Problem

STUDY = """
title = "Doubling"
[task]
name = "arithmetic"
num_problems = 4
[model]
path = "fake"
[sampling]
temperatures = [0.0]
max_tokens = 100
[budgets]
seconds = [0.05, 0.1, 0.2]
[arm.vanilla]
[arm.fast]
drafter = "fake-drafter"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubling:
    """What is N + N? `hint` is part of every prompt."""

    name: ClassVar[str] = "arithmetic"
    default_policy: ClassVar[Policy] = "last"
    num_problems: int = 4
    hint: str = ""

    def problems(self) -> Sequence[Problem]:
        numbers = range(1, self.num_problems + 1)
        return [
            Problem(
                problem_id=f"double/{n}",
                messages=({"role": "user", "content": f"{self.hint}What is {n} + {n}?"},),
                gold=str(2 * n),
            )
            for n in numbers
        ]

    def grade(self, problem: Problem, response: str) -> Grade:
        return grade_boxed_integer(response, problem.gold)


class Silent:
    """A display that shows nothing."""

    def start(self, todo: Sequence[Job], done_before: int) -> None: ...

    def note(self, job: Job, generation: Generation, engine_seconds: float) -> None: ...

    def close(self) -> None: ...


def install_fakes() -> None:
    """Let the names `arithmetic` and `reference` stand for the fakes, for the rest of the process."""
    catalog.TASKS["arithmetic"] = catalog.Entry("small_study", "Doubling", "doubling")
    catalog.ENGINES["reference"] = catalog.Entry("fake_engine", "FakeEngine", "scripted")


def use_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for one test."""
    monkeypatch.setitem(catalog.TASKS, "arithmetic", catalog.Entry("small_study", "Doubling", "doubling"))
    monkeypatch.setitem(catalog.ENGINES, "reference", catalog.Entry("fake_engine", "FakeEngine", "scripted"))


def write_study(folder: Path, *edits: tuple[str, str], more: str = "") -> Path:
    """Write the study's file with some texts replaced, and return the study's folder."""
    text = STUDY + more
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{old!r} is not in the study")
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return folder
