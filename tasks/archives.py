"""A data file inside a .zip, for a benchmark that is handed out that way.

Knows no benchmark: of several members the one whose name holds the wanted config is taken. A password is for the old
zip cipher, the only one that Python reads.
"""

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unpacked(
    path: Path, *, config: str | None, suffixes: Sequence[str], password: str | None
) -> Iterator[tuple[str, Path]]:
    """The name of the data file in an archive and a throw-away copy of it.

    Raises ValueError, in one line, for what is no archive, has no such file or several, or needs another password.
    """
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix="streak-zip-") as folder:
            name = chosen(archive.namelist(), path, config, suffixes)
            copy = Path(folder, Path(name).name)
            copy.write_bytes(archive.read(name, pwd=password.encode() if password else None))
            yield name, copy
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged zip file: {error}") from error
    except NotImplementedError as error:
        raise ValueError(f"{path}: cannot be unpacked here ({error}); unpack it and name the file") from error
    except RuntimeError as error:  # what zipfile raises for a missing or wrong password
        raise ValueError(f"{path}: {error}; set password in [task]") from error


def chosen(names: Sequence[str], path: Path, config: str | None, suffixes: Sequence[str]) -> str:
    """The member to read."""
    data = [name for name in names if name.lower().endswith(tuple(suffixes)) and not name.startswith("__MACOSX")]
    fitting = [name for name in data if config and config in Path(name).name] or data
    if len(fitting) != 1:
        found = ", ".join(data) or "none"
        raise ValueError(f"{path}: one file of {', '.join(suffixes)} is needed (config {config}), found: {found}")
    return fitting[0]
