"""The ledger of a study: append-only JSON lines that survive a killed process.

Every row is one write and one fsync, so at worst the last line is torn: a writer cuts it on opening, a reader passes
over it. Rows with a key that is already there are ignored, so resuming is a set difference on keys. One writer at a
time.
Knows nothing of what a row means, except for the two readers that return Generations and Records.
"""

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeAlias, TypeVar

from results.records import Generation, Record

Scalar: TypeAlias = str | int | float | bool | None
Key: TypeAlias = tuple[Scalar, ...]
Row = TypeVar("Row", Generation, Record)

ANSWER_KEY = ("arm_id", "problem_id", "sample")
# A prompt that was edited and a deadline that was raised ask for a new answer: both are part of a generation's key.
GENERATION_KEY = (*ANSWER_KEY, "prompt_id", "budget_seconds")
RECORD_KEY = (*ANSWER_KEY, "budget_seconds", "clock", "policy")


class Ledger:
    """The one writer of a ledger file; a context manager, for one thread.

    Opening creates the file and its folders, takes the lock, cuts a torn last line and reads the keys.
    Raises BlockingIOError while another writer holds the file, ValueError naming file and line for a corrupt line.
    """

    def __init__(self, path: Path | str, key: Sequence[str] = GENERATION_KEY) -> None:
        self.path = Path(path)
        self._key = tuple(key)
        self._keys: set[Key] = set()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock()
            self._end = self._recover()
        except (OSError, ValueError):
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"{self.path}: another process writes this ledger; wait for it or stop it") from None
        if not self.path.exists() or not os.path.samestat(os.fstat(self._descriptor), self.path.stat()):
            # A session that recorded nothing took its empty file away just now; a row would go with it.
            raise BlockingIOError(f"{self.path}: another process just closed this ledger; start again")

    def _recover(self) -> int:
        """Collect the keys and cut what follows the last whole line; returns the length of the file in bytes."""
        end = 0
        with self.path.open("rb") as stream:
            for number, row, end in _whole_rows(stream, self.path):  # noqa: B007 (the last end is the result)
                self._keys.add(_key_of(row, self._key, f"{self.path}:{number}"))
        if end < self.path.stat().st_size:
            os.ftruncate(self._descriptor, end)
        os.fsync(self._descriptor)
        _sync_folder(self.path.parent)
        return end

    @property
    def keys(self) -> frozenset[Key]:
        """The keys on disk."""
        return frozenset(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self.path, self._key)

    def append(self, row: Mapping[str, Any]) -> bool:
        """Put a row on disk; False, and nothing written, if its key is already there.

        Raises ValueError for a row without the key's fields or with a value that JSON cannot say, OSError if the disk
        refuses; the ledger is then as it was before.
        """
        key = _key_of(row, self._key, str(self.path))
        if key in self._keys:
            return False
        line = _line(row, self.path)
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):
                raise OSError(f"{self.path}: only {written} of {len(line)} bytes could be written; is the disk full?")
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._end)  # else the next row would continue this half line
            raise
        self._end += len(line)
        self._keys.add(key)
        return True

    def close(self) -> None:
        """Release the lock; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rows(path: Path | str, key: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Rows of a JSON lines file (also .gz); with a key, only the first row of each key.

    Takes no lock: another process may be writing, and its unfinished last line is passed over.
    Raises ValueError naming file and line for a corrupt line before the last.
    """
    for _, row in _numbered_rows(Path(path), key):
        yield row


def _numbered_rows(path: Path, key: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same with the number of each row's line, from 1."""
    seen: set[Key] = set()
    stream: IO[bytes] | gzip.GzipFile
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        try:
            for number, row, _ in _whole_rows(stream, path):
                if key:
                    row_key = _key_of(row, key, f"{path}:{number}")
                    if row_key in seen:
                        continue
                    seen.add(row_key)
                yield number, row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip file: {error}") from None


def read_generations(path: Path | str) -> Iterator[Generation]:
    """Generations of a generations.jsonl. Raises ValueError with file and line for another schema or a corrupt row."""
    yield from _read_as("a generation", Generation.from_json, Path(path), GENERATION_KEY)


def read_records(path: Path | str) -> Iterator[Record]:
    """Records of a records.jsonl. Raises ValueError with file and line for another schema or a corrupt row."""
    yield from _read_as("a record", Record.from_json, Path(path), RECORD_KEY)


def _read_as(name: str, read: Callable[[Mapping[str, Any]], Row], path: Path, key: Sequence[str]) -> Iterator[Row]:
    for number, row in _numbered_rows(path, key):
        try:
            value = read(row)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: not {name}: {error}") from None
        yield value


def write_rows(path: Path | str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a whole derived file at once (also .gz) and return its number of rows.

    A reader sees the old file or the new one, never a part; if a row raises, the old file stays.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with draft.open("wb") as stream:
            # No name and no time inside the gzip file: the same rows are the same bytes.
            sink = gzip.GzipFile("", "wb", fileobj=stream, mtime=0) if path.suffix == ".gz" else stream
            for row in rows:
                sink.write(_line(row, path))
                count += 1
            if sink is not stream:
                sink.close()
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return count


def _whole_rows(stream: Iterable[bytes], path: Path) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Number, row and offset of the end of each line; stops before a torn last one, raises for an unreadable one."""
    end = unreadable = 0
    for number, line in enumerate(stream, start=1):
        if unreadable:
            raise ValueError(f"{path}:{unreadable}: not a JSON object, and not the last line; repair or remove it")
        if not line.endswith(b"\n"):
            return  # reading on could deliver the rest of a line that a writer is finishing just now
        row = _parsed(line)
        if row is None:
            unreadable = number
        else:
            end += len(line)
            yield number, row, end


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _line(row: Mapping[str, Any], path: Path) -> bytes:
    """One line of ASCII: a lone surrogate in a model's text, or an odd line separator, is escaped."""
    try:
        return json.dumps(dict(row), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: a row that JSON cannot say: {error}") from None


def _key_of(row: Mapping[str, Any], key: Sequence[str], where: str) -> Key:
    missing = [name for name in key if name not in row]
    if missing:
        raise ValueError(f"{where}: a row without {missing[0]!r}; its key is {', '.join(key)}")
    values = tuple(row[name] for name in key)
    for name, value in zip(key, values, strict=True):
        if not isinstance(value, Scalar):
            raise ValueError(f"{where}: {name} = {value!r} cannot be part of a key; allowed: text, a number, null")
    return values


def _sync_folder(folder: Path) -> None:
    """Make the file's name durable, not only its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
