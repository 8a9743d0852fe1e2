"""One table of a TOML file, read key by key; what is wrong with it becomes one line that names file, key and value.

Knows types and ranges of values; what a key means is the reader's matter.
"""

import itertools
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

Choice = TypeVar("Choice", bound=str)

LARGEST_WHOLE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`; `above` and `below` leave the end of their side out."""

    least: float
    most: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        past_least = value > self.least if self.above else value >= self.least
        return past_least and (value < self.most if self.below else value <= self.most)

    def __str__(self) -> str:
        first = f"above {self.least:g}" if self.above else f"from {self.least:g} on"
        return f"a number {first}, {'below' if self.below else 'at most'} {self.most:g}"


def read_toml(path: Path) -> dict[str, Any]:
    """A file's whole content. Raises OSError, or ValueError that names the file for whatever is no TOML in it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # a whole number too long to read is a plain ValueError
        raise ValueError(f"{path}: not a TOML file: {error}") from None


class Table:
    """A table with the keys it may have (None: any). Every method raises ValueError for a value that is not allowed."""

    def __init__(self, path: Path, label: str, values: object, known: Iterable[str] | None) -> None:
        self.path, self.label = path, label
        if not isinstance(values, Mapping):
            raise ValueError(f"{path}: {label} = {values!r} is not a table; write [{label}] with its keys below")
        self.values: Mapping[str, Any] = values
        allowed = set(values) if known is None else set(known)
        for key in values:
            if key not in allowed:
                where = f"[{label}]" if label else "the file"
                raise ValueError(f"{path}: unknown key {key!r} in {where}; known keys: {', '.join(sorted(allowed))}")

    def __contains__(self, key: object) -> bool:
        return key in self.values

    def table(self, name: str, known: Iterable[str] | None) -> "Table":
        """The table of this name inside of it; a missing one is empty."""
        return Table(self.path, name, self.values.get(name, {}), known)

    def refuse(self, key: str, allowed: str) -> ValueError:
        """The error of a value that is not allowed."""
        where = f" in [{self.label}]" if self.label else ""
        if key not in self.values:
            return ValueError(f"{self.path}: {key!r} is missing{where}; it must be {allowed}")
        return ValueError(f"{self.path}: {key} = {self.values[key]!r}{where} is not allowed; allowed: {allowed}")

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty text; required without a default."""
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.refuse(key, "a non-empty text")
        return value

    def choice(self, key: str, choices: tuple[Choice, ...], default: Choice | None = None) -> Choice:
        """One of `choices`; required without a default."""
        value = self.values.get(key, default)
        for allowed in choices:
            if value == allowed:
                return allowed
        raise self.refuse(key, ", ".join(choices))

    def whole(self, key: str, default: int, minimum: int, most: int = LARGEST_WHOLE) -> int:
        """A whole number of at least `minimum`, and small enough for whoever gets it."""
        value = self.values.get(key, default)
        if not is_whole(value) or not minimum <= value <= most:
            raise self.refuse(key, f"a whole number >= {minimum}, at most {most}")
        return int(value)

    def whole_or(self, key: str, word: str, minimum: int) -> int | str:
        """A whole number of at least `minimum`, or the word; required."""
        value = self.values.get(key)
        if value == word:
            return word
        if value is None or not is_whole(value) or not minimum <= value <= LARGEST_WHOLE:
            raise self.refuse(key, f"a whole number >= {minimum}, or {word!r}")
        return int(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, "true, false")
        return value

    def one_or_several(self, key: str) -> str | tuple[str, ...]:
        """A non-empty text, or a list of them; required."""
        value = self.values.get(key)
        return self.texts(key) if isinstance(value, list) else self.text(key)

    def number(self, key: str, default: float, within: Range | None = None) -> float:
        """A finite number, in the range if one is given."""
        value = self.values.get(key, default)
        if not is_number(value) or (within and value not in within):
            raise self.refuse(key, str(within or "a number"))
        return float(value)

    def plain(self, key: str) -> str | int | float | bool:
        """A text, a number, true or false; required."""
        value = self.values.get(key)
        if isinstance(value, str | bool) or is_number(value):
            return value
        raise self.refuse(key, "a text, a number, true, false")

    def token_numbers(self, key: str) -> tuple[tuple[int, float], ...]:
        """A table of token ids to numbers, such as {17 = -2.5}; required."""
        value = self.values.get(key)
        if not isinstance(value, Mapping) or not all(t.isdecimal() and is_number(n) for t, n in value.items()):
            raise self.refuse(key, "a table of token ids to numbers, such as {17 = -2.5}")
        return tuple(sorted((int(token), float(number)) for token, number in value.items()))

    def rising_numbers(self, key: str, allowed: str, *, zero: bool) -> tuple[float, ...]:
        """A list of numbers > 0 (>= 0 with `zero`), each larger than the one before; required, never empty."""
        value = self.values.get(key)
        if not isinstance(value, list) or not value or not all(is_number(item) for item in value):
            raise self.refuse(key, allowed)
        in_order = all(later > earlier for earlier, later in itertools.pairwise(value))
        if not in_order or value[0] < 0 or (value[0] == 0 and not zero):
            raise self.refuse(key, allowed)
        return tuple(float(item) for item in value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of non-empty texts; empty by default."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.refuse(key, "a list of non-empty texts")
        return tuple(value)

    def choices(self, key: str, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
        """Some of `choices`, in their order; all of them by default."""
        value = self.values.get(key, list(choices))
        if not isinstance(value, list) or not value or not all(item in choices for item in value):
            raise self.refuse(key, f"a list of {', '.join(choices)}")
        return tuple(allowed for allowed in choices if allowed in value)


def is_whole(value: object) -> bool:
    """Whether a TOML value is a whole number (a boolean is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a TOML value is a finite number (a boolean is not)."""
    # Compared, not converted: a whole number of 400 digits has no float. A NaN compares as false.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
