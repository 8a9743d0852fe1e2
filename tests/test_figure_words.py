"""Other people's words in figures: names and titles that the font cannot draw, or that matplotlib would misread."""

from pathlib import Path

import pytest

from analysis.accuracy import draw_accuracy
from analysis.frames import records_frame
from analysis.style import drawable
from results.records import Record

ODD_NAMES = ("中文", "日本", "🙂 fast", "_hidden", "$x^2$", "two\nlines", "tab\there", "bell\a", "é → Ω", "")


def record(arm: str, budget: float) -> Record:
    return Record(
        arm=arm,
        arm_id=f"{arm}-id",
        temperature=0.0,
        problem_id="a",
        sample=0,
        budget_seconds=budget,
        clock="service",
        policy="last",
        verdict="correct",
        answer=None,
        reason="",
        tokens=1,
        cut=False,
    )


def test_what_the_font_lacks_is_written_as_its_code_point() -> None:
    assert drawable("é → Ω 中🙂") == "é → Ω <U+4E2D><U+1F642>"


def test_breaks_and_tabs_become_spaces() -> None:
    assert drawable(" two\nlines\tof\r\ntext ") == "two lines of text"


def test_names_that_differ_stay_different() -> None:
    assert len({drawable(name) for name in ODD_NAMES}) == len(ODD_NAMES)


@pytest.mark.parametrize("arms", [ODD_NAMES[:4], (*ODD_NAMES, "one more", "and another")], ids=["beside", "legend"])
def test_odd_names_and_titles_are_drawn_without_a_warning(tmp_path: Path, arms: tuple[str, ...]) -> None:
    records = records_frame([record(arm, budget) for arm in arms for budget in (1.0, 5.0)])

    files = draw_accuracy(records, tmp_path, arms=arms, title="研究 🙂 of $1 and _more_")

    assert all(path.stat().st_size for path in files)
