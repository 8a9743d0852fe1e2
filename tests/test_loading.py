"""Rows from files and from the hub: as they stand, none lost, and errors that name file and row."""

import gzip
import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pandas as pd
import pytest
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import hf_raise_for_status, httpx  # type: ignore[attr-defined]  # no list of exports

from tasks.contract import Problem
from tasks.gpqa import Gpqa
from tasks.hub import GATED, UNREACHABLE, refusal
from tasks.loading import Row, check_unique, load_rows, select

ROWS = [{"problem": "1+1", "answer": "2"}, {"problem": "café", "answer": "007"}, {"problem": "x", "answer": "NA"}]


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")


def write_gz(path: Path, rows: list[Any]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_json(path: Path, rows: list[Any]) -> None:
    path.write_text(json.dumps(rows), encoding="utf-8")


WRITERS: dict[str, Callable[[Path, list[Any]], None]] = {
    ".jsonl": write_jsonl,
    ".jsonl.gz": write_gz,
    ".json": write_json,
    ".csv": lambda path, rows: pd.DataFrame(rows).to_csv(path, index=False),
    ".parquet": lambda path, rows: pd.DataFrame(rows).to_parquet(path),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_rows_come_as_they_stand_from_every_kind_of_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows [of] a*::{suffix}"
    WRITERS[suffix](path, ROWS)

    rows = load_rows(str(path))

    assert [dict(row.values) for row in rows] == ROWS
    assert [row.number for row in rows] == [1, 2, 3]
    assert rows[1].where == f"{path}, row 2"


def test_a_local_file_leaves_nothing_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    load_rows(str(tmp_path / "rows.jsonl"))

    assert not cache.exists()


def test_a_row_without_the_wanted_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": " "}, {"problem": "c"}])
    rows = load_rows(str(path))

    for number, row in enumerate(rows[1:], start=2):
        with pytest.raises(ValueError, match=rf"rows\.jsonl, row {number}: nothing in column 'answer'"):
            row.text("answer")


def test_a_number_is_a_text_and_a_list_is_not() -> None:
    row = Row(where="here, row 1", number=1, values={"level": 5, "tags": ["a"]})

    assert row.text("level") == "5"
    with pytest.raises(ValueError, match=r"here, row 1: column 'tags' holds \['a'\], which is no text"):
        row.text("tags")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.jsonl", b'{"a": "1"}\n\n{"a":\n', r"bad\.jsonl: row 2: Expecting value"),
        ("mixed.jsonl", b'{"a": "007"}\n{"a": 2}\n', r"mixed\.jsonl: row 2: column 'a' holds a number but a str"),
        ("latin.jsonl", b'{"a": "1"}\n{"a": "caf\xe9"}\n', r"latin\.jsonl: row 2: 'utf-8' codec"),
        ("torn.jsonl.gz", b"\x1f\x8b\x08\x00", r"torn\.jsonl\.gz: damaged: "),
        ("bad.json", b"[1, ", r"bad\.json: "),
        ("wide.csv", b"a,b\n1,2\n1,2,3\n", r"wide\.csv: row 2 has 3 cells, but the header names 2 columns"),
        ("latin.csv", b"a,b\n1,\xe9\n", r"latin\.csv: 'utf-8' codec"),
        ("bad.parquet", b"zz", r"bad\.parquet: Parquet file size is 2 bytes"),
        ("empty.jsonl", b"", r"empty\.jsonl: no rows"),
        ("blank.jsonl", b"\n\n", r"blank\.jsonl: no rows"),
        ("head.csv", b"a,b\n", r"head\.csv: no rows"),
        ("rows.txt", b"a", r"rows\.txt: unknown kind of file; allowed suffixes: \.jsonl, "),
    ],
)
def test_a_bad_file_gives_one_line_that_names_it(
    name: str, content: bytes, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(ValueError, match=message) as caught:
        load_rows(str(path))

    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("source", ["/no/such.jsonl", "data/rows.jsonl", "./rows", "~/rows.csv"])
def test_a_missing_file_is_not_looked_for_on_the_hub(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("the hub was asked"))

    with pytest.raises(FileNotFoundError, match="no such file"):
        load_rows(source)


@pytest.mark.parametrize("source", ["rows", "a/b/c", ""])
def test_a_source_of_neither_kind_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="neither a file"):
        load_rows(source)


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request goes out: the hub would give every data set."""
    monkeypatch.setattr("tasks.hub.refusal", lambda source: None)


def hub_that_raises(error: Exception) -> Callable[..., None]:
    def load_dataset(*_: object, **__: object) -> None:
        raise error

    return load_dataset


@pytest.mark.usefixtures("reachable")
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            datasets.exceptions.DatasetNotFoundError("Dataset 'o/d' is a gated dataset on the Hub.\nVisit the page."),
            OSError,
            r"o/d \(config c, split test\): gated on the hub; accept its terms at https://huggingface\.co/datasets/o/d",
        ),
        (ConnectionError("Couldn't reach 'o/d' on the Hub"), OSError, "Couldn't reach .* local copy"),
        (datasets.exceptions.DatasetNotFoundError("Dataset 'o/d' doesn't exist"), OSError, "doesn't exist"),
        (ValueError("Unknown split 'test'. Should be one of ['train']."), ValueError, "Unknown split 'test'"),
    ],
)
def test_a_refusal_of_the_hub_is_one_line_with_what_to_do(
    error: Exception, kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", hub_that_raises(error))

    with pytest.raises(kind, match=message) as caught:
        load_rows("o/d", config="c", split="test")

    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("reachable")
def test_a_refusal_of_the_hub_names_no_config_where_none_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", hub_that_raises(ConnectionError("no route")))

    with pytest.raises(OSError, match=r"^o/d \(split test\): no route"):
        load_rows("o/d", split="test")


@pytest.mark.usefixtures("reachable")
def test_the_hub_is_asked_for_config_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def load_dataset(*args: object, **options: object) -> datasets.Dataset:
        asked.append((args, options))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows = load_rows("openai/gsm8k", config="main", split="test")

    assert asked == [(("openai/gsm8k", "main"), {"split": "test", "revision": None})]
    assert rows[2].where == "openai/gsm8k, row 3"


def answer_of_the_hub(status: int, code: str) -> Exception:
    """The error that the hub's answer becomes."""
    request = httpx.Request("HEAD", "https://huggingface.co/datasets/o/d/resolve/main/README.md")
    response = httpx.Response(status, headers={"X-Error-Code": code}, request=request)
    with pytest.raises(HfHubHTTPError) as caught:
        hf_raise_for_status(response)
    return caught.value


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (httpx.ConnectError("no route to host"), UNREACHABLE),
        (httpx.ConnectTimeout("too slow"), UNREACHABLE),
        (OfflineModeIsEnabled("HF_HUB_OFFLINE is set"), UNREACHABLE),
        (answer_of_the_hub(401, "GatedRepo"), GATED),
        (answer_of_the_hub(403, "GatedRepo"), GATED),
        (answer_of_the_hub(404, "EntryNotFound"), None),
        (answer_of_the_hub(503, ""), None),
    ],
)
def test_one_request_tells_whether_the_hub_refuses(
    error: Exception, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", hub_that_raises(error))

    assert refusal("o/d") == message


@pytest.mark.parametrize(
    ("gated", "obstacle", "parts"),
    [
        (True, UNREACHABLE, ["it is gated: accept its terms at https://huggingface.co/datasets/o/d and set HF_TOKEN"]),
        (False, GATED, ["gated on the hub; accept its terms at https://huggingface.co/datasets/o/d and set HF_TOKEN"]),
        (
            False,
            UNREACHABLE,
            ["the hub cannot be reached, and no copy is in the cache; check the network, or set source"],
        ),
    ],
)
def test_where_the_hub_refuses_only_the_cache_is_asked(
    gated: bool, obstacle: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_dataset(*_: object, **__: object) -> None:
        assert datasets.config.HF_HUB_OFFLINE
        raise ConnectionError("Couldn't reach 'o/d' on the Hub (OfflineModeIsEnabled)")

    monkeypatch.setattr("tasks.hub.refusal", lambda source: obstacle)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(OSError, match="set source to a local copy") as caught:
        load_rows("o/d", config="c", gated=gated)

    assert all(part in str(caught.value) for part in parts)
    assert not datasets.config.HF_HUB_OFFLINE


def test_a_gated_benchmark_says_so_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.hub.refusal", lambda source: UNREACHABLE)
    monkeypatch.setattr(datasets, "load_dataset", hub_that_raises(ConnectionError("Couldn't reach the Hub")))

    with pytest.raises(OSError, match=r"it is gated: accept its terms at \S+/Idavidrein/gpqa and set HF_TOKEN"):
        Gpqa().problems()


def test_the_libraries_speak_again_afterwards(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    before = datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    load_rows(str(tmp_path / "rows.jsonl"))

    assert (datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()) == before
    assert datasets.logging.get_verbosity() <= logging.ERROR


def some_rows(count: int) -> list[Row]:
    return [Row(where=f"rows, row {i}", number=i, values={}) for i in range(1, count + 1)]


def test_without_a_seed_the_first_rows_are_chosen() -> None:
    assert [row.number for row in select(some_rows(9), source="rows", limit=3, seed=None)] == [1, 2, 3]


def test_a_larger_limit_only_adds_rows() -> None:
    few = select(some_rows(50), source="rows", limit=10, seed=7)
    more = select(some_rows(50), source="rows", limit=20, seed=7)

    assert more[:10] == few
    assert few != select(some_rows(50), source="rows", limit=10, seed=8)


def test_a_limit_beyond_the_benchmark_names_both_numbers() -> None:
    with pytest.raises(ValueError, match="rows: limit = 6, but there are only 5 rows"):
        select(some_rows(5), source="rows", limit=6, seed=None)


def test_a_repeated_problem_id_is_refused() -> None:
    twins = [Problem(problem_id="a", messages=(), gold="1")] * 2

    with pytest.raises(ValueError, match="rows: problem id 'a' occurs again in problem 2"):
        check_unique(twins, "rows")


def zipped(path: Path, members: dict[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return str(path)


def test_the_data_file_of_a_zip_is_read(tmp_path: Path) -> None:
    source = zipped(tmp_path / "data.zip", {"set/rows.csv": "a,b\n1,x\n", "readme.txt": "hello"})
    (row,) = load_rows(source)

    assert (dict(row.values), row.where) == ({"a": "1", "b": "x"}, f"{source}/set/rows.csv, row 1")


def test_the_config_chooses_among_the_files_of_a_zip(tmp_path: Path) -> None:
    source = zipped(tmp_path / "data.zip", {"main.csv": "a\n1\n", "diamond.csv": "a\n2\n"})

    assert load_rows(source, config="diamond")[0].text("a") == "2"
    with pytest.raises(ValueError, match=r"data\.zip: one file of .* is needed .* found: main\.csv, diamond\.csv"):
        load_rows(source, config="extended")


def test_a_file_that_is_no_zip_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_text("no archive", encoding="utf-8")

    with pytest.raises(ValueError, match=r"data\.zip: damaged zip file"):
        load_rows(str(tmp_path / "data.zip"))


def test_a_revision_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def load_dataset(*_: object, revision: object, **__: object) -> datasets.Dataset:
        asked.append(revision)
        return datasets.Dataset.from_list([{"a": 1}])

    monkeypatch.setattr("tasks.hub.refusal", lambda source: None)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    load_rows("o/d", revision="abc123")

    assert asked == ["abc123"]
