"""Which arms of a run drafted with a model that was trained on evaluation problems, for whoever shows the results."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.generate import SESSIONS_FILE, engines_of
from results.ledger import read_rows


def contaminated_arms(engines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the arms, sorted, by what their engines said of themselves."""
    return sorted({arm for each in engines if each["describe"].get("contaminated_drafters") for arm in each["arms"]})


def contaminated_in(folder: Path) -> list[str]:
    """The same by the sessions of a run folder."""
    path = folder / SESSIONS_FILE
    rows = read_rows(path) if path.is_file() else ()
    engines = [each for row in rows for each in engines_of(row, folder)]
    return contaminated_arms(each for each in engines if "describe" in each and "arms" in each)


def stamp(arms: Iterable[str]) -> str:
    """What is said beside every number of such arms; empty where there are none."""
    named = ", ".join(arms)
    return f"drafter trained on evaluation problems: {named}" if named else ""
