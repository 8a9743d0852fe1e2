"""Rows of a benchmark: from a hub id (hub.py), or from a local file that a study names.

Knows no benchmark: a task asks a row for the texts it needs, and a row knows where it stands, so that an error can
name file and row. No row is dropped. Local files pass through a throw-away cache; hub files stay in the user's own.
"""

import csv
import gzip
import json
import random
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.archives import unpacked
from tasks.contract import Problem
from tasks.hub import load_hub, reason

BUILDERS = {".jsonl": "json", ".jsonl.gz": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SILENT = 100  # above every level of the logging module


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a benchmark; `where` names its source and its number, from 1, for errors."""

    where: str
    number: int
    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """The text in column `key`, as it stands; a number as text. Raises ValueError if it is missing or blank."""
        value = self.values.get(key)
        if value is None or value == "" or (isinstance(value, str) and value.isspace()):
            filled = ", ".join(repr(name) for name, other in self.values.items() if other not in (None, ""))
            raise ValueError(f"{self.where}: nothing in column {key!r}; columns with a value: {filled}")
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise ValueError(f"{self.where}: column {key!r} holds {value!r}, which is no text")
        return str(value)


def load_rows(
    source: str,
    *,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
    gated: bool = False,
    password: str | None = None,
    quiet: bool = True,
) -> list[Row]:
    """All rows of `source` in their order.

    A local file has one of the suffixes of BUILDERS, or is a .zip with one of them (of several, the one named after
    `config`); `split` and `revision` do not matter to it. Anything of the form org/name that is no file is a data set
    on the hub, `gated` where it is known to be so. `quiet` keeps progress bars and warnings of the libraries off the
    terminal.

    Raises:
        OSError: a file that is missing or cannot be opened; a hub that cannot be reached or refuses.
        ValueError: a source of neither kind, an unreadable row, an unknown config or split, no rows at all.
    """
    path = Path(source).expanduser()
    builder = builder_of(path)
    if path.is_file() and path.suffix.lower() == ".zip":
        with (
            libraries_silent(quiet),
            unpacked(path, config=config, suffixes=tuple(BUILDERS), password=password) as found,
        ):
            source, values = f"{source}/{found[0]}", load_file(found[1], builder_of(found[1]) or "")
    elif path.is_file():
        if builder is None:
            raise ValueError(f"{source}: unknown kind of file; allowed suffixes: {', '.join(BUILDERS)}, .zip")
        with libraries_silent(quiet):
            values = load_file(path, builder)
    elif builder is None and HUB_ID.fullmatch(source):
        with libraries_silent(quiet):
            otherwise = f"set source to a local copy ({', '.join(BUILDERS)})"
            values = load_hub(source, config, split, revision=revision, gated=gated, otherwise=otherwise)
    elif builder is not None or path.suffix.lower() == ".zip" or path.is_absolute() or source.startswith((".", "~")):
        raise FileNotFoundError(f"{source}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    else:
        raise ValueError(f"{source}: neither a file ({', '.join(BUILDERS)}) nor a data set on the hub (org/name)")
    if not values:
        raise ValueError(f"{source}: no rows")
    return [Row(where=f"{source}, row {i}", number=i, values=row) for i, row in enumerate(values, start=1)]


def builder_of(path: Path) -> str | None:
    """The builder of `datasets` that reads a file of this name, or None."""
    return next((builder for suffix, builder in BUILDERS.items() if path.name.lower().endswith(suffix)), None)


@contextmanager
def libraries_silent(quiet: bool) -> Iterator[None]:
    """Keeps the loaders' progress bars and log lines off the terminal; what went wrong is in our own error."""
    import datasets
    import huggingface_hub.utils.logging as hub_logging

    if not quiet:
        yield
        return
    bars, level, hub_level = (
        datasets.are_progress_bars_disabled(),
        datasets.logging.get_verbosity(),
        hub_logging.get_verbosity(),
    )
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(SILENT)
    hub_logging.set_verbosity(SILENT)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if not bars:
            datasets.enable_progress_bars()


def load_file(path: Path, builder: str) -> list[dict[str, Any]]:
    """The rows of a local file. Raises as `load_rows`."""
    import datasets

    if path.stat().st_size == 0:
        return []
    # Values stay as written. A column of both texts and numbers is an error (by default "007" would become 7), and the
    # cells of a CSV file are texts: no number is reformatted, and an answer "NA" or "None" is no missing value.
    options: dict[str, Any] = {"on_mixed_types": None} if builder == "json" else {}
    if builder == "csv":
        columns = {name: datasets.Value("string") for name in csv_columns(path)}
        options = {"features": datasets.Features(columns), "keep_default_na": False}
    with tempfile.TemporaryDirectory(prefix="streak-rows-") as cache:
        # Under a plain name: the loaders take brackets, stars and colons of a path for patterns and addresses.
        plain = Path(cache, "rows" + next(suffix for suffix in BUILDERS if path.name.lower().endswith(suffix)))
        plain.symlink_to(path.resolve())
        try:
            table = datasets.load_dataset(
                builder,
                data_files=str(plain),
                split="train",
                cache_dir=cache,
                keep_in_memory=True,
                **options,
            )
            return list(table.to_list())
        except StopIteration:  # what the json builder raises where nothing is to be read
            return []
        except (datasets.exceptions.DatasetsError, OSError, EOFError, zlib.error, ValueError) as error:
            if "corresponds to no data" in str(error):
                return []
            raise ValueError(f"{path}: {bad_line(path) or reason(error)}") from error


def csv_columns(path: Path) -> list[str]:
    """The column names of a CSV file. Raises ValueError for a row of another width: pandas would shift its cells."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            for number, cells in enumerate((row for row in rows if row), start=1):
                if len(cells) != len(header):
                    raise ValueError(f"row {number} has {len(cells)} cells, but the header names {len(header)} columns")
    except (csv.Error, ValueError) as error:  # a ValueError also for bytes that are not UTF-8
        raise ValueError(f"{path}: {error}") from error
    return header


def bad_line(path: Path) -> str | None:
    """What is wrong with the first bad line of a JSON lines file, or None; the builder's own error counts otherwise."""
    if builder_of(path) != "json" or path.suffix == ".json":
        return None
    opener = gzip.open if path.suffix == ".gz" else open
    kinds: dict[str, str] = {}
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate((line for line in file if line.strip()), start=1):
                if problem := line_problem(line, kinds):
                    return f"row {number}: {problem}"
    except (OSError, EOFError, zlib.error) as error:
        return f"damaged: {error}"
    return None


def line_problem(line: bytes, kinds: dict[str, str]) -> str | None:
    """What is wrong with one line, if anything; `kinds` holds what each column held in the lines above."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # of the JSON, its depth or its encoding
        return str(error)
    if not isinstance(row, dict):
        return "not a JSON object"
    for key, value in row.items():
        kind = "number" if isinstance(value, int | float) else type(value).__name__
        if value is not None and kinds.setdefault(key, kind) != kind:
            return f"column {key!r} holds a {kind} but a {kinds[key]} in the rows above; one kind is allowed"
    return None


def select(rows: Sequence[Row], *, source: str, limit: int | None, seed: int | None) -> list[Row]:
    """The first `limit` rows, after a shuffle where there is a `seed`; a larger limit only adds rows at the end.

    Raises ValueError if there are fewer rows than `limit`.
    """
    if limit is not None and limit > len(rows):
        raise ValueError(f"{source}: limit = {limit}, but there are only {len(rows)} rows")
    chosen = list(rows)
    if seed is not None:
        random.Random(seed).shuffle(chosen)
    return chosen[:limit]


def check_unique(problems: Sequence[Problem], source: str) -> tuple[Problem, ...]:
    """The problems as they are. Raises ValueError if two have one id, since records are told apart by it."""
    seen: set[str] = set()
    for number, problem in enumerate(problems, start=1):
        if problem.problem_id in seen:
            raise ValueError(f"{source}: problem id {problem.problem_id!r} occurs again in problem {number}")
        seen.add(problem.problem_id)
    return tuple(problems)


def check_text(key: str, value: object) -> None:
    """Raises ValueError unless `value` is a text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} = {value!r} is not allowed; it must be a text")


def check_whole(key: str, value: object, *, least: int, optional: bool = False) -> None:
    """Raises ValueError unless `value` is a whole number from `least` on (or None where it is optional)."""
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{key} = {value!r} is not allowed; it must be a whole number from {least} on")
