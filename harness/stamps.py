"""What is said beside the numbers of drafters that were trained on evaluation problems, or on unchecked prompts."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.generate import SESSIONS_FILE, engines_of
from results.alignment import STAMPED
from results.ledger import read_rows

WORDS = {
    STAMPED["contaminated"]: "drafter trained on evaluation problems",
    STAMPED["not_checked"]: "drafter trained on prompts that were not compared with evaluation problems",
}


def stamp(engines: Iterable[Mapping[str, Any]]) -> str:
    """The arms of such drafters, by what their engines said of themselves; empty where there are none."""
    told = list(engines)
    found = {
        words: sorted({arm for each in told if each["describe"].get(key) for arm in each["arms"]})
        for key, words in WORDS.items()
    }
    return "; ".join(f"{words}: {', '.join(arms)}" for words, arms in found.items() if arms)


def stamp_of_run(folder: Path) -> str:
    """The same by the sessions of a run folder."""
    path = folder / SESSIONS_FILE
    rows = read_rows(path) if path.is_file() else ()
    engines = [each for row in rows for each in engines_of(row, folder)]
    return stamp(each for each in engines if "describe" in each and "arms" in each)
