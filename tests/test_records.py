"""The records: what is written is what is read, and another schema is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from results.ledger import Ledger, read_generations, read_records, write_rows
from results.records import SCHEMA, Completion, Generation, Grade, Record, Round

GENERATION = Generation(
    arm="diffusion",
    arm_id="0123456789ab",
    temperature=0.6,
    problem_id="math500/7",
    sample=2,
    completion=Completion(
        request_id="r1",
        text="so \\boxed{42}",
        token_ids=(5, 6, 7, 8),
        prompt_tokens=31,
        finish_reason="stop",
        rounds=(
            Round(seconds=0.25, kept=1, chars=2),
            Round(seconds=0.5, kept=3, chars=13, drafted=16, accepted=2, draft_seconds=0.0625, verify_seconds=0.125),
        ),
        queue_seconds=0.125,
    ),
)
RECORD = Record(
    arm="diffusion",
    arm_id="0123456789ab",
    temperature=0.6,
    problem_id="math500/7",
    sample=2,
    budget_seconds=5.0,
    clock="service",
    policy="last",
    verdict="correct",
    answer="42",
    reason="equal as numbers",
    tokens=4,
    cut=False,
)


def test_a_generation_comes_back_through_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"

    with Ledger(path) as ledger:
        ledger.append(GENERATION.to_json())

    assert list(read_generations(path)) == [GENERATION]


def test_a_record_comes_back_through_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"

    write_rows(path, [RECORD.to_json()])

    assert list(read_records(path)) == [RECORD]


def test_records_of_one_generation_at_several_budgets_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records = [replace(RECORD, budget_seconds=budget) for budget in (1.0, 2.0, 5.0)]

    write_rows(path, [record.to_json() for record in records])

    assert list(read_records(path)) == records


def test_a_failed_generation_without_rounds_comes_back(tmp_path: Path) -> None:
    completion = replace(GENERATION.completion, finish_reason="error", rounds=(), token_ids=(), error="out of memory")
    generation = replace(GENERATION, completion=completion)

    assert Generation.from_json(json.loads(json.dumps(generation.to_json()))) == generation


def test_rounds_are_stored_as_one_list_per_field() -> None:
    rounds = GENERATION.to_json()["completion"]["rounds"]

    assert rounds["kept"] == [1, 3]


def test_a_generation_of_another_schema_is_refused() -> None:
    row = GENERATION.to_json() | {"schema": SCHEMA + 1}

    with pytest.raises(ValueError, match=f"generation of schema {SCHEMA + 1}; this version reads schema {SCHEMA}"):
        Generation.from_json(row)


def test_a_record_of_another_schema_is_refused() -> None:
    row = RECORD.to_json() | {"schema": SCHEMA + 1}

    with pytest.raises(ValueError, match=f"record of schema {SCHEMA + 1}; this version reads schema {SCHEMA}"):
        Record.from_json(row)


WRONG_FIELDS = [
    ({"arm": 5}, "arm = 5 is not allowed; allowed: a text"),
    ({"temperature": "0"}, "temperature = '0' is not allowed; allowed: a finite number"),
    ({"temperature": float("nan")}, "temperature = nan is not allowed"),
    ({"temperature": 10**400}, "is not allowed; allowed: a finite number"),
    ({"sample": True}, "sample = True is not allowed; allowed: a whole number"),
    ({"budget_seconds": "1"}, "budget_seconds = '1' is not allowed; allowed: a finite number or null"),
    ({"arms": 5}, "unknown field 'arms'; known fields: arm, arm_id, "),
    ({"completion": [1]}, "completion = [1] is not allowed; allowed: an object"),
    ({"completion.finish_reason": "done"}, "finish_reason = 'done' is not allowed; allowed: stop, length, budget, err"),
    ({"completion.token_ids": [1, "2"]}, "token_ids = [1, '2'] is not allowed; allowed: a list, each a whole number"),
    ({"completion.token_ids": 5}, "token_ids = 5 is not allowed"),
    ({"completion.error": 5}, "error = 5 is not allowed; allowed: a text or null"),
    ({"completion.text": ...}, "field 'text' is missing"),
    ({"completion.rounds": []}, "the rounds = [] is not allowed; allowed: an object with a list per field"),
    ({"completion.rounds": {"seconds": [1]}}, "the rounds' fields = ['seconds'] is not allowed; allowed: seconds, k"),
    ({"completion.rounds.seconds": ["1", 2]}, "seconds = ['1', 2] is not allowed; allowed: a list, each a finite"),
    ({"completion.rounds.kept": [1.5, 2]}, "kept = [1.5, 2] is not allowed; allowed: a list, each a whole number"),
    ({"completion.rounds.kept": [1]}, "allowed: the same everywhere"),
    ({"completion.rounds.kept": 1}, "an object with a list per field"),
]


def changed(row: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """The row with other values at some dotted places; `...` takes a field away."""
    copy: dict[str, Any] = json.loads(json.dumps(row))
    for place, value in changes.items():
        *folders, name = place.split(".")
        inner = copy
        for folder in folders:
            inner = inner[folder]
        inner[name] = value
        if value is ...:
            del inner[name]
    return copy


@pytest.mark.parametrize(("changes", "message"), WRONG_FIELDS)
def test_a_wrong_field_of_a_generation_is_named_with_file_and_line(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "generations.jsonl"
    rows = [GENERATION.to_json(), changed(GENERATION.to_json() | {"sample": 3}, changes)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    with pytest.raises(ValueError, match=f"^{path}:2: not a generation: ") as caught:
        list(read_generations(path))

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "right"}, "verdict = 'right' is not allowed; allowed: correct, incorrect, no_answer"),
        ({"cut": 1}, "cut = 1 is not allowed; allowed: true or false"),
        ({"answer": 42}, "answer = 42 is not allowed; allowed: a text or null"),
        ({"tokens": ...}, "field 'tokens' is missing"),
    ],
)
def test_a_wrong_field_of_a_record_is_named_with_file_and_line(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(changed(RECORD.to_json(), changes)) + "\n")

    with pytest.raises(ValueError, match=f"^{path}:1: not a record: ") as caught:
        list(read_records(path))

    assert message in str(caught.value)


@pytest.mark.parametrize("changes", [{"arm_id": ...}, {"problem_id": [1]}])
def test_a_row_without_a_key_is_named_with_file_and_line(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "generations.jsonl"
    path.write_text(json.dumps(changed(GENERATION.to_json(), changes)) + "\n")

    with pytest.raises(ValueError, match=f"^{path}:1: "):
        list(read_generations(path))
    with pytest.raises(ValueError, match=f"^{path}:1: "):
        Ledger(path)


def test_a_generation_of_before_a_field_was_added_is_read(tmp_path: Path) -> None:
    row = changed(GENERATION.to_json(), {"completion.cached_tokens": ...})

    assert Generation.from_json(row) == GENERATION


def test_an_unknown_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="verdict 'right' is not allowed; allowed: correct, incorrect"):
        Grade(verdict="right", answer=None, reason="")  # type: ignore[arg-type]


def test_the_clocks_start_at_arrival_at_admission_and_at_the_first_token() -> None:
    offsets = [GENERATION.completion.clock_offset(clock) for clock in ("request", "service", "decode")]

    assert offsets == [0.0, 0.125, 0.25]
