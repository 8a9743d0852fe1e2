"""A command's result as a JSON file: checked before the work begins, written whole or not at all."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.ledger import write_rows


def check_writable(option: str, path: Path) -> None:
    """Try the folder, so that no result is measured and then lost. Raises ValueError that names the option."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path}: not a regular file")
    try:
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{option} {path}: cannot be written: {error.strerror}") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one line of JSON; a reader sees the old file or the new one."""
    write_rows(path, [value])
