"""Many texts graded at once."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from harness.parallel_grading import grade_all
from results.records import Grade
from small_study import Doubling
from tasks.contract import Problem

PROBLEM = Problem(problem_id="p", messages=(), gold="2")
TEXTS = [(PROBLEM, rf"\boxed{{{n}}}") for n in range(8)]


@dataclass(frozen=True, kw_only=True)
class Watched(Doubling):
    """Calls `first` with each text before it grades it."""

    first: Callable[[str], object]

    def grade(self, problem: Problem, response: str) -> Grade:
        self.first(response)
        return Doubling().grade(problem, response)


@dataclass(frozen=True, kw_only=True)
class HasPool(Watched):
    """Has three threads for each worker, and notes what it was told."""

    told: list[object] = field(default_factory=list)

    def open_pool(self, workers: int) -> int:
        self.told.append(workers)
        return 3 * workers

    def close_pool(self) -> None:
        self.told.append("closed")


def nothing(*_: object) -> None: ...


def test_each_grade_comes_with_the_place_of_its_text() -> None:
    graded: dict[int, Grade] = {}
    grade_all(Doubling(), TEXTS, workers=3, done=lambda place, grade, _: graded.update({place: grade}))

    assert {place: grade.answer for place, grade in graded.items()} == {place: str(place) for place in range(8)}


def test_as_many_texts_as_there_are_workers_are_graded_at_once() -> None:
    meeting = threading.Barrier(4, timeout=60)

    grade_all(Watched(first=lambda _: meeting.wait()), TEXTS, workers=4, done=nothing)


def test_a_task_with_a_pool_says_how_many_threads_ask() -> None:
    meeting = threading.Barrier(6, timeout=60)
    task = HasPool(first=lambda _: meeting.wait())
    grade_all(task, TEXTS[:6], workers=2, done=nothing)

    assert task.told == [2]


def test_after_an_interrupt_the_pool_is_closed_and_no_text_is_begun() -> None:
    begun: list[str] = []

    def begin(text: str) -> None:
        begun.append(text)
        time.sleep(0.01)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    task = HasPool(first=begin)
    with pytest.raises(KeyboardInterrupt):
        grade_all(task, TEXTS * 100, workers=1, done=interrupt)

    assert task.told == [1, "closed"]
    assert len(begun) < len(TEXTS) * 100


def test_an_error_of_a_task_is_raised() -> None:
    def fail(_: str) -> None:
        raise OSError("no sandbox")

    with pytest.raises(OSError, match="no sandbox"):
        grade_all(Watched(first=fail), TEXTS, workers=2, done=nothing)
