"""Golds against themselves and each other, and real outputs with the verdicts that others recorded."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tasks.answer_equality import can_be_read, same_answer
from tasks.answers import final_answer
from tasks.contract import Problem
from tasks.gsm8k import Gsm8k

SHARED = Path(__file__).parents[2] / "shared"
pytestmark = pytest.mark.skipif(not (SHARED / "outputs").is_dir(), reason="the outputs of ../shared are not here")
# Different golds of MATH-500 that are called equal: other spellings of one number, units and names that an answer may
# leave out (docs/GRADING.md), and one set of two numbers in two orders.
COLLISIONS = {
    ("-2,1", "1,-2"),
    (r"10,\!080", "10080"),
    ("120", r"120^\circ"),
    ("15", r"15\mbox{ cm}^2"),
    (r"2 \sqrt{5}", r"2\sqrt{5}"),
    ("30", r"30^\circ"),
    ("36", r"36^\circ"),
    ("36", r"\$36"),
    ("40", "40_9"),
    ("5", "x=5"),
    ("90", r"90^\circ"),
    (r"\frac14", r"\frac{1}{4}"),
}
# Verdicts that differ from the recorded ones; each is explained in docs/GRADING.md.
DISAGREEMENTS = {
    "math_qwen25math_cot100x8.jsonl": {f"qwen25math/math_cot_100/3/{n}" for n in range(8)}
    | {"qwen25math/math_cot_100/72/7"},
    "math500_gemma4_31b_preds.jsonl": set(),
    "math500_qwen25_1.5b_bestofn.jsonl": set(),
}
# Samples without a verdict whose answer was extracted otherwise.
OTHER_ANSWERS = {"qwen2.5-1.5b/test/intermediate_algebra/1217.json/sample6"}
RECORDED = {True: True, False: False, "correct": True, "wrong": False}


def rows(folder: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHARED / folder / name).read_text(encoding="utf-8").splitlines()]


def is_correct(gold: str, answer: str | None) -> bool:
    return answer is not None and (gold.strip() == answer.strip() or same_answer(gold, answer))


def answer_in(row: dict[str, Any]) -> str | None:
    return (row["pred"] or None) if "pred" in row else final_answer(row["response"])


def test_every_gold_of_math500_can_be_read() -> None:
    assert [row["answer"] for row in rows("data", "math500.jsonl") if not can_be_read(row["answer"])] == []


def test_every_gold_of_math500_is_equal_to_itself() -> None:
    golds = [row["answer"] for row in rows("data", "math500.jsonl")]

    # A space that does not show makes the texts differ, so that they are compared.
    assert sum(same_answer(gold, rf"{gold}\!") for gold in golds) == 500


def test_every_reference_solution_of_math500_is_right() -> None:
    solved = rows("data", "math500.jsonl")

    assert sum(is_correct(row["answer"], final_answer(row["solution"])) for row in solved) == 500


def test_only_these_golds_of_math500_are_called_equal() -> None:
    golds = sorted({row["answer"] for row in rows("data", "math500.jsonl")})

    assert {pair for pair in itertools.combinations(golds, 2) if same_answer(*pair)} == COLLISIONS


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_verdicts_differ_from_the_recorded_ones_only_where_that_is_explained(name: str) -> None:
    recorded = [row for row in rows("outputs", name) if row["recorded"] is not None]
    differ = {row["id"] for row in recorded if is_correct(row["gold"], answer_in(row)) != RECORDED[row["recorded"]]}

    assert differ == DISAGREEMENTS[name]


def test_answers_are_extracted_as_recorded_where_there_is_no_verdict() -> None:
    samples = [row for row in rows("outputs", "math500_qwen25_1.5b_bestofn.jsonl") if row["recorded"] is None]
    differ = {
        row["id"]
        for row in samples
        if is_correct(row["gold"], answer_in(row)) != is_correct(row["gold"], row["recorded_extracted"])
        or (answer_in(row) is None) != (row["recorded_extracted"] is None)
    }

    assert differ == OTHER_ANSWERS


def test_gsm8k_verdicts_are_the_recorded_ones() -> None:
    task = Gsm8k()
    counts = Counter(
        (row["recorded"], task.grade(Problem(problem_id="p", messages=(), gold=row["gold"]), row["response"]).verdict)
        for row in rows("outputs", "gsm8k_openai_example_solutions.jsonl")
    )

    assert counts == {(True, "correct"): 198, (False, "incorrect"): 367, (False, "no_answer"): 3}
