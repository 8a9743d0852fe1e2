"""The paper's numbers: each with its kind, none without a name."""

from pathlib import Path

import pytest

import results
from results.published import KINDS, TABLES, published


def test_every_table_in_the_folder_has_a_name() -> None:
    folder = Path(results.__file__).parent / "paper"

    assert {path.stem for path in folder.glob("*.csv")} == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_says_whether_it_was_printed_or_read(table: str) -> None:
    kinds = {row["kind"] for row in published(table)}

    assert kinds <= set(KINDS)
    assert kinds


def test_numbers_are_numbers_and_empty_cells_are_none() -> None:
    first = published("speedup")[0]

    assert first == {
        "verifier": "Qwen2.5-72B-Instruct",
        "temperature": 0.0,
        "dataset": "Math500",
        "method": "SpecDiff-2",
        "speedup": 4.62,
        "tau": None,
        "kind": "printed",
    }


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no published table 'speed'; known tables: acceptance_by_position.*speedup"):
        published("speed")
