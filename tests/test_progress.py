"""The display of a session."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from fake_engine import fake_engines
from harness.generate import Session
from harness.grade import Grader
from harness.progress import Allowance, SessionProgress
from harness.study import Study, read_study
from small_study import Doubling, use_fakes, write_study


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    use_fakes(monkeypatch)
    return read_study(write_study(tmp_path / "doubling"))


def shown(study: Study, folder: Path, *, terminal: bool) -> str:
    """What a whole session shows; engines take real time, so that live grades are within their allowance."""
    sink = io.StringIO()
    console = Console(file=sink, force_terminal=terminal, width=120)
    progress = SessionProgress(study, Grader(Doubling()), "last", console)
    with Session(study, Doubling().problems(), folder, fake_engines(pause_seconds=0.02)) as session:
        session.run(progress)
    return sink.getvalue()


def test_a_log_ends_with_one_plain_line_of_all_arms(study: Study, tmp_path: Path) -> None:
    (line,) = shown(study, tmp_path, terminal=False).splitlines()

    assert line.startswith("8 of 8 requests")
    assert "vanilla T=0: " in line
    assert "tokens/s" in line
    assert "\x1b" not in line


def test_a_terminal_shows_live_accuracy_and_speed_of_every_arm(study: Study, tmp_path: Path) -> None:
    text = shown(study, tmp_path, terminal=True)

    assert "vanilla T=0" in text
    assert "fast T=0" in text
    assert "8 of 8 requests" in text
    assert "% of " in text


def test_side_work_stops_when_it_has_taken_its_share() -> None:
    allowance = Allowance()
    with allowance.spend():
        sum(range(100_000))

    assert not allowance.permits(0.0)
    assert allowance.permits(1e6)
