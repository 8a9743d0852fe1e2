"""The ledger: nothing written is lost, nothing half written is read."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from results.ledger import Ledger, read_generations, read_records, read_rows, write_rows

ROOT = Path(__file__).resolve().parents[1]


def row(sample: int, text: str = "x") -> dict[str, Any]:
    return {"arm_id": "a1", "problem_id": "p", "sample": sample, "prompt_id": "q", "budget_seconds": 1, "text": text}


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "generations.jsonl"


def test_rows_come_back_as_they_were_appended(path: Path) -> None:
    rows = [row(0, "line one\nline two\u2028"), row(1, "half a pair \ud83d"), row(2, "Ünïcode ∑")]

    with Ledger(path) as ledger:
        for each in rows:
            ledger.append(each)

    assert list(read_rows(path)) == rows


def test_a_row_is_on_disk_when_append_returns(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.append(row(0))

        assert list(read_rows(path)) == [row(0)]


def test_the_first_row_of_a_key_wins_on_append(path: Path) -> None:
    with Ledger(path) as ledger:
        answers = [ledger.append(row(0, "first")), ledger.append(row(0, "second"))]

        assert (answers, list(ledger)) == ([True, False], [row(0, "first")])


def test_keys_of_an_earlier_run_are_known(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.append(row(0))

    with Ledger(path) as ledger:
        assert ledger.keys == {("a1", "p", 0, "q", 1)}
        assert ("a1", "p", 0, "q", 1) in ledger
        assert len(ledger) == 1
        assert not ledger.append(row(0, "again"))


def test_the_first_row_of_a_key_wins_on_reading(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row(0, text)) + "\n" for text in ("first", "second")))

    assert list(read_rows(path, ("arm_id", "problem_id", "sample"))) == [row(0, "first")]


def test_a_last_line_torn_at_any_byte_is_cut_on_open(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.append(row(0))
        whole = path.read_bytes()
        ledger.append(row(1))
    both = path.read_bytes()

    for end in range(len(whole), len(both)):
        path.write_bytes(both[:end])
        with Ledger(path) as ledger:
            assert ledger.keys == {("a1", "p", 0, "q", 1)}
        assert path.read_bytes() == whole


def test_a_last_line_of_rubbish_with_a_newline_is_cut_on_open(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.append(row(0))
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\0\0\n")

    with Ledger(path) as ledger:
        ledger.append(row(1))

    assert list(read_rows(path)) == [row(0), row(1)]


def test_a_reader_passes_over_the_line_that_is_being_written(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.append(row(0))
        with path.open("ab") as other:
            other.write(b'{"arm_id": "a1", "prob')

        assert list(read_rows(path)) == [row(0)]


def test_a_corrupt_line_in_the_middle_is_an_error_with_file_and_line(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(f"{json.dumps(row(0))}\nnot json\n{json.dumps(row(1))}\n")

    with pytest.raises(ValueError, match=rf"{path}:2: not a JSON object"):
        Ledger(path)
    with pytest.raises(ValueError, match=rf"{path}:2: not a JSON object"):
        list(read_rows(path))
    assert "not json" in path.read_text()


def test_a_failed_open_leaves_no_lock_behind(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(f"not json\n{json.dumps(row(1))}\n")
    with pytest.raises(ValueError, match="not a JSON object"):
        Ledger(path)
    path.write_text("")

    with Ledger(path) as ledger:
        assert ledger.append(row(0))


def test_a_writer_killed_in_the_middle_of_a_line_loses_only_that_line(path: Path) -> None:
    program = """
        import os, signal, sys
        from results.ledger import Ledger
        ledger = Ledger(sys.argv[1])
        row = {"arm_id": "a1", "problem_id": "p", "prompt_id": "q", "budget_seconds": 1, "text": "x"}
        ledger.append(row | {"sample": 0})
        write = os.write
        def half(descriptor, data):
            write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        os.write = half
        ledger.append(row | {"sample": 1})
    """
    killed = run_python(program, str(path))
    torn = path.read_bytes()

    with Ledger(path) as ledger:
        resumed = [ledger.append(row(sample)) for sample in (0, 1)]

    assert killed.returncode == -signal.SIGKILL
    assert not torn.endswith(b"\n")
    assert resumed == [False, True]
    assert [each["sample"] for each in read_rows(path)] == [0, 1]


def test_a_writer_killed_at_any_time_leaves_whole_rows_in_order(path: Path) -> None:
    program = """
        import itertools, sys
        from results.ledger import Ledger
        row = {"arm_id": "a1", "problem_id": "p", "prompt_id": "q", "budget_seconds": 1}
        with Ledger(sys.argv[1]) as ledger:
            for sample in itertools.count():
                ledger.append(row | {"sample": sample, "text": "x" * 50_000})
                print(sample, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        writer.kill()

    with Ledger(path) as ledger:
        samples = [each["sample"] for each in ledger]

    assert len(samples) >= 20
    assert samples == list(range(len(samples)))


def test_a_second_writer_is_refused_in_one_line_that_names_the_file(path: Path) -> None:
    with Ledger(path), pytest.raises(BlockingIOError, match=f"{path}: another process writes this ledger"):
        Ledger(path)


def test_a_second_process_is_refused_until_the_first_has_closed(path: Path) -> None:
    program = "import sys; from results.ledger import Ledger; Ledger(sys.argv[1]).close()"

    with Ledger(path):
        refused = run_python(program, str(path))
    allowed = run_python(program, str(path))

    assert "BlockingIOError" in refused.stderr
    assert allowed.returncode == 0, allowed.stderr


def test_a_ledger_that_is_taken_away_while_it_is_opened_is_not_written_to(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def take_away(descriptor: int, how: int) -> None:
        path.unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", take_away)

    with pytest.raises(BlockingIOError, match=f"{path}: another process just closed this ledger"):
        Ledger(path)


def test_a_full_disk_leaves_the_ledger_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    with Ledger(path) as ledger:
        ledger.append(row(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:9]))
            with pytest.raises(OSError, match="is the disk full"):
                ledger.append(row(1))

        assert ledger.append(row(1))
        assert list(ledger) == [row(0), row(1)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"arm_id": "a1", "sample": 0}, "a row without 'problem_id'"),
        (row(0) | {"sample": [1]}, r"sample = \[1\] cannot be part of a key"),
        (row(0) | {"seconds": float("inf")}, "a row that JSON cannot say"),
        (row(0) | {"text": Path()}, "a row that JSON cannot say"),
    ],
)
def test_a_bad_row_is_refused_and_nothing_is_written(path: Path, bad: dict[str, Any], message: str) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(ValueError, match=message):
            ledger.append(bad)

        assert path.read_bytes() == b""


@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
def test_a_derived_file_is_replaced_as_a_whole(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / name, [row(0), row(1)])
    count = write_rows(tmp_path / name, [row(2)])

    assert (count, list(read_rows(tmp_path / name))) == (1, [row(2)])
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_derived_file_survives_a_row_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    write_rows(path, [row(0)])

    with pytest.raises(ValueError, match="JSON cannot say"):
        write_rows(path, [row(1), row(2) | {"text": Path()}])

    assert list(read_rows(path)) == [row(0)]
    assert [each.name for each in tmp_path.iterdir()] == ["records.jsonl"]


def test_a_gzipped_file_is_the_same_bytes_for_the_same_rows(tmp_path: Path) -> None:
    first, second = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"

    write_rows(first, [row(0)])
    write_rows(second, [row(0)])

    assert first.read_bytes() == second.read_bytes()


def test_a_damaged_gzip_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    write_rows(path, [row(sample) for sample in range(100)])
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(ValueError, match=f"{path}: damaged gzip file"):
        list(read_rows(path))


def test_rows_that_are_no_generations_or_records_are_errors_that_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, [row(0) | {"budget_seconds": 1, "clock": "service", "policy": "last"}])

    with pytest.raises(ValueError, match=f"{path}:1: not a generation: generation of schema None"):
        list(read_generations(path))
    with pytest.raises(ValueError, match=f"{path}:1: not a record: record of schema None"):
        list(read_records(path))
