"""`streak grade-file`: verdicts on responses from anywhere."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from harness.cli import app

SHARED = Path(__file__).parents[2] / "shared"
needs_cases = pytest.mark.skipif(not (SHARED / "cases").is_dir(), reason="the grading cases of ../shared are not here")
needs_data = pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the benchmark files of ../shared are not here")
ROW = {"id": "a", "response": r"\boxed{0.5}", "gold": r"\frac{1}{2}"}


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def grade_file(task: str, file: Path, out: Path, *more: object) -> Result:
    return CliRunner().invoke(app, ["grade-file", "--task", task, str(file), "--out", str(out), *map(str, more)])


def verdicts(out: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, out.read_text(encoding="utf-8").splitlines())}


def test_a_verdict_has_five_fields(tmp_path: Path) -> None:
    result = grade_file("math500", write(tmp_path / "in.jsonl", [ROW]), tmp_path / "out.jsonl")

    assert result.exit_code == 0, result.output
    assert set(verdicts(tmp_path / "out.jsonl")["a"]) == {"id", "verdict", "answer", "seconds", "reason"}


def test_verdicts_are_counted_at_the_end(tmp_path: Path) -> None:
    rows = [ROW, ROW | {"id": "b", "response": r"\boxed{2}"}, ROW | {"id": "c", "response": "who knows"}]
    result = grade_file("math500", write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")

    assert "3 responses: correct 1, incorrect 1, no_answer 1, grader_timeout 0, grader_error 0" in result.stdout


def test_a_second_call_grades_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    grade_file("math500", write(tmp_path / "in.jsonl", [ROW]), out)
    before = out.read_text(encoding="utf-8")
    result = grade_file("math500", write(tmp_path / "in.jsonl", [ROW, ROW | {"id": "b"}]), out)

    assert out.read_text(encoding="utf-8").startswith(before)
    assert "2 responses (1 of them graded before)" in result.stdout


def test_a_torn_last_verdict_is_graded_again(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text('{"id":"a","verd', encoding="utf-8")
    grade_file("math500", write(tmp_path / "in.jsonl", [ROW]), out)

    assert verdicts(out)["a"]["verdict"] == "correct"


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(ROW).encode() + b"\n"))

    assert grade_file("math500", file, tmp_path / "out.jsonl").exit_code == 0


def test_options_are_letters_and_the_letter_is_the_answer(tmp_path: Path) -> None:
    options = {"A": "iron", "B": "gold", "C": "lead"}
    rows = [
        {"id": "letter", "response": "The answer is (B).", "gold": "B", "options": options},
        {"id": "text", "response": "Answer: gold", "gold": "B", "options": options},
        {"id": "not offered", "response": "Answer: D", "gold": "B", "options": options},
        {"id": "no gold", "response": "Answer: C", "options": options},
    ]
    result = grade_file("gpqa", write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    told = {key: (row["verdict"], row["answer"]) for key, row in verdicts(tmp_path / "out.jsonl").items()}

    assert "gold letters: B 3" in result.stdout
    assert told == {
        "letter": ("correct", "B"),
        "text": ("correct", "B"),
        "not offered": ("no_answer", None),
        "no gold": ("grader_error", "C"),
    }


@needs_data
def test_a_problem_is_found_by_its_id(tmp_path: Path) -> None:
    row = {"id": 1, "problem_id": "test/precalculus/807.json", "response": r"\boxed{(3, \pi/2)}"}
    source = SHARED / "data" / "math500.jsonl"
    grade_file("math500", write(tmp_path / "in.jsonl", [row]), tmp_path / "out.jsonl", "--source", source)

    assert verdicts(tmp_path / "out.jsonl")["1"]["verdict"] == "correct"


@pytest.mark.parametrize(
    ("task", "row", "part"),
    [
        ("math500", ROW | {"id": None}, "in.jsonl:2: id = None is not allowed"),
        ("math500", ROW | {"id": "b", "response": 3}, "in.jsonl:2: response = 3 is not allowed; it must be a text"),
        ("math500", ROW, "in.jsonl:2: id 'a' stands in"),
        ("math500", ROW | {"id": "b", "gold": r"\frac{"}, "in.jsonl:2: the grader cannot parse the gold"),
        ("math500", {"id": "b", "response": "x"}, "in.jsonl:2: needs one of problem_id, task_id, gold, options"),
        ("gsm8k", ROW | {"id": "b", "gold": "many"}, "in.jsonl:2: the gold 'many' is not one number"),
        ("gpqa", {"id": "b", "response": "x", "options": ["x"]}, "in.jsonl:1: the gold"),
        ("humaneval", ROW, "in.jsonl:1: humaneval needs one of problem_id, task_id"),
        ("mathematics", ROW, "unknown task 'mathematics'; known: math500"),
        ("math500", [1], "in.jsonl:2: not a JSON object"),
    ],
)
def test_a_bad_row_is_one_line_and_nothing_is_written(
    tmp_path: Path, task: str, row: Mapping[str, object] | list[int], part: str
) -> None:
    result = grade_file(task, write(tmp_path / "in.jsonl", [ROW, row]), tmp_path / "out.jsonl")

    assert result.exit_code == 2
    assert part in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_the_verdicts_do_not_go_over_the_responses(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [ROW])
    result = grade_file("math500", file, file)

    assert (result.exit_code, "must be a file of its own" in result.stderr) == (2, True)


# Contested cases, and those without box or phrase, that the rules of docs/GRADING.md decide otherwise than their set.
OTHER_TASTE = {
    "without box or phrase": "m0245 m0378 m0435 m0441 m0510 m0511 m0513 m0517 m0541 m0542 m0543 m0544 m0561 m0571",
    "decimals as written": "m0145 m0151 m0558",
    "boxes joined by prose": "m0321 m0625",
    "percent is a unit": "m0221",
    "no order in lists": "m0129",
    "a list is no point": "m0570",
    "the thinking counts": "m0350",
    "the last complete box counts": "m0339",
    "an unfinished box never counts": "m0188",
    "a denied option chooses none": "q146",
}


@needs_cases
@pytest.mark.parametrize(("name", "task"), [("math", "math500"), ("mcq", "gpqa")])
def test_all_settled_cases_are_right(name: str, task: str, tmp_path: Path) -> None:
    lines = (SHARED / "cases" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {case["id"]: case for case in map(json.loads, lines)}
    marker = tmp_path / "marker"
    rows = [
        {
            "id": case["id"],
            "response": case["response"].replace("{MARKER}", str(marker)),
            "options": case.get("options"),
            "gold": case.get("gold") or case.get("letter") or "A",
        }
        for case in cases.values()
    ]
    result = grade_file(task, write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    graded = verdicts(tmp_path / "out.jsonl")
    differ = {key for key, case in cases.items() if not is_right(case, graded[key])}
    settled = {
        key for key, case in cases.items() if not case["contested"] and (task == "gpqa" or case["extract"] != "bare")
    }
    wrong = {key: graded[key] for key in settled if not is_right(cases[key], graded[key])}

    assert result.exit_code == 0, result.output
    assert len(graded) == len(cases)
    assert wrong == {}
    assert differ == {key for keys in OTHER_TASTE.values() for key in keys.split() if key in cases}
    assert not marker.exists()


def is_right(case: Mapping[str, Any], verdict: Mapping[str, Any]) -> bool:
    if "letter" in case:
        return bool(verdict["answer"] == case["letter"])
    return bool((verdict["verdict"] == "correct") == case["expect"] and verdict["verdict"] != "grader_error")


@pytest.mark.parametrize(
    "content", ["my notes", "my notes\n", '{"id":"a","mine":1}\n', '{"id":"a","mine', '{"id": "a"}', "[1]\n"]
)
def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content, encoding="utf-8")
    result = grade_file("math500", write(tmp_path / "in.jsonl", [ROW]), out)

    assert (result.exit_code, out.read_text(encoding="utf-8")) == (2, content)
    assert "holds something else than verdicts" in result.stderr


def test_packed_verdicts_are_refused_before_the_first_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl.gz"
    result = grade_file("math500", write(tmp_path / "in.jsonl", [ROW]), out)

    assert (result.exit_code, out.exists()) == (2, False)


def test_a_row_too_deep_to_read_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id":"a","response":"x","gold":' + "[" * 100_000, encoding="utf-8")
    result = grade_file("math500", file, tmp_path / "out.jsonl")

    assert result.exit_code == 2
    assert "in.jsonl:1: no JSON: " in result.stderr
