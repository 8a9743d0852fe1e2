"""An object of a JSON file that others wrote, read key by key; what is wrong is one line with file, key and value.

Knows types and ranges of values; what a key means is the reader's matter. A null counts as a missing key, as
transformers takes it.
"""

import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: holds a {type(value).__name__}, not an object")
    return value


class JsonObject:
    """An object and where it stands. Every method raises ValueError for a value that is not allowed."""

    def __init__(self, path: Path, values: Mapping[str, Any], label: str = "") -> None:
        self.path, self.values, self.label = path, values, label

    def refuse(self, key: str, allowed: str) -> ValueError:
        """The error of a value that is not allowed."""
        value = reprlib.repr(self.values.get(key))
        return ValueError(f"{self.path}: {self.label}{key} = {value} is not allowed; it must be {allowed}")

    def get(self, key: str, default: object = None) -> Any:
        """A value of any type."""
        value = self.values.get(key)
        return default if value is None else value

    def whole(self, key: str, *, least: int, most: int | None = None, default: int | None = None) -> int:
        """A whole number from `least` to `most`; required without a default."""
        value = self.get(key, default)
        if not is_whole(value) or value < least or (most is not None and value > most):
            raise self.refuse(key, f"a whole number from {least} {'on' if most is None else f'to {most}'}")
        return int(value)

    def positive(self, key: str, default: float) -> float:
        """A finite number above 0."""
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.refuse(key, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def nested(self, key: str) -> "JsonObject":
        """The object under a key; empty where there is none."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(key, "an object")
        return JsonObject(self.path, value, f"{self.label}{key}.")

    def token_ids(self, key: str, vocab_size: int | None) -> list[int]:
        """One token id or a list of them, of a vocabulary where its size is known; empty where there is none."""
        value = self.get(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(is_whole(token) and token >= 0 and (vocab_size is None or token < vocab_size) for token in ids):
            up_to = "on" if vocab_size is None else f"to {vocab_size - 1}"
            raise self.refuse(key, f"a whole number from 0 {up_to}, or a list of such")
        return list(ids)


def is_whole(value: object) -> bool:
    """Whether a JSON value is a whole number (a boolean is not)."""
    return isinstance(value, int) and not isinstance(value, bool)
