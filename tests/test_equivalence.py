"""Equality of mathematical answers in a process that is killed when a comparison hangs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.equivalence import MathChecker

ROOT = Path(__file__).parents[1]
HANGS = r"\int_0^1 \frac{x^{7}\sin(x^{3})}{\sqrt{1+x^{5}}} dx"  # sympy looks for a closed form for minutes


@pytest.fixture(scope="module")
def checker() -> Iterator[MathChecker]:
    checker = MathChecker(time_limit_seconds=20.0)
    yield checker
    checker.close()


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{1}{2}", "0.5"),
        (r"\frac{1}{2}", r"\dfrac12"),
        ("x^2+2x+1", "(x+1)^2"),
        (r"\sqrt{8}", r"2\sqrt{2}"),
        ("1000", "1{,}000"),
        ("42", "x = 42"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)"),
        (r"90^\circ", "90"),
    ],
)
def test_equal_answers_are_correct(checker: MathChecker, gold: str, answer: str) -> None:
    assert checker.grade(gold, answer).verdict == "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [(r"\frac{1}{2}", "0.51"), ("x+1", "x-1"), ("(1,2)", "(2,1)"), ("42", "forty"), ("42", ""), ("5", r"\frac{1}{")],
)
def test_other_answers_are_incorrect(checker: MathChecker, gold: str, answer: str) -> None:
    assert checker.grade(gold, answer).verdict == "incorrect"


def test_equal_texts_need_no_child() -> None:
    checker = MathChecker()

    assert checker.grade(r"\text{east}", r" \text{east} ").verdict == "correct"
    assert checker.servers == 0


def test_a_gold_that_is_no_maths_does_not_parse(checker: MathChecker) -> None:
    assert checker.parses(r"\frac{3}{4}")
    assert not checker.parses(r"\frac{")


def test_a_comparison_that_hangs_is_killed_and_the_next_one_is_answered() -> None:
    checker = MathChecker(time_limit_seconds=1.0)
    try:
        hung = checker.grade("1", HANGS)

        assert (hung.verdict, hung.reason) == ("grader_timeout", "no verdict within 1 s of CPU time")
        assert checker.grade("1/2", "0.5").verdict == "correct"
        assert checker.servers == 1  # only the child is gone: nothing is loaded anew
    finally:
        checker.close()


def test_a_number_too_large_to_compute_is_no_hang() -> None:
    checker = MathChecker(time_limit_seconds=20.0)
    try:
        assert checker.grade("1", "9^{9^{9^9}}").verdict == "incorrect"
        assert checker.grade("1", r"\Gamma(1000000)").verdict == "incorrect"
        assert checker.grade("1", "9^{9^{9^9}} - 9^{9^{9^9}} + 1").verdict == "grader_timeout"
    finally:
        checker.close()


def test_threads_may_share_a_checker() -> None:
    checker = MathChecker(time_limit_seconds=20.0, workers=2)
    try:
        with ThreadPoolExecutor(max_workers=checker.askers) as pool:
            grades = list(pool.map(lambda n: checker.grade(rf"\sqrt{{{n}}}", rf"{n}^{{1/2}}"), range(2, 22)))

        assert {grade.verdict for grade in grades} == {"correct"}
        assert checker.servers == 1
    finally:
        checker.close()


def test_python_in_an_answer_is_not_run(checker: MathChecker, tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    for code in (f"open('{marker}','w').write('x')", f"__import__('os').system('touch {marker}')"):
        assert checker.grade("1", code).verdict != "correct"
    assert not marker.exists()


def test_any_text_gets_a_verdict(checker: MathChecker) -> None:
    for answer in ("\ud800", "\0", "\n", "{" * 50, "\\", "%", "\\boxed{", '"', "\u2028"):
        assert checker.grade("1", answer).verdict in {"incorrect", "grader_error"}


def test_a_time_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="time_limit_seconds = 0"):
        MathChecker(time_limit_seconds=0)
