"""Throughput by concurrency: every arm at every level, on an engine that was opened for it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.contract import Engine, Request
from fake_engine import FakeEngine, failure
from harness.arms import Arm
from harness.cli import app
from harness.concurrency import throughputs
from harness.study import Study, read_study
from small_study import Doubling, use_fakes, write_study


def test_every_arm_is_measured_at_every_level_on_an_engine_of_its_own(tmp_path: Path) -> None:
    opened: list[tuple[str, int]] = []

    def open_at(study: Study, arm: Arm, concurrency: int) -> Engine:
        opened.append((arm.name, concurrency))
        return FakeEngine(study.model, speculation=arm.speculation)

    measured = list(throughputs(read_study(write_study(tmp_path)), Doubling().problems(), [1, 4], open_at))

    assert [(each.arm, each.concurrency) for each in measured] == opened
    assert opened == [("vanilla", 1), ("vanilla", 4), ("fast", 1), ("fast", 4)]


def test_all_requests_of_a_level_are_made_at_once_and_without_a_deadline(tmp_path: Path) -> None:
    log: list[Request] = []
    study = read_study(write_study(tmp_path))
    list(throughputs(study, Doubling().problems(), [2], lambda *_: FakeEngine("fake", log=log)))

    assert len(log) == 2 * 4
    assert {each.budget_seconds for each in log} == {float("inf")}


def test_tau_of_a_level_is_the_scripted_one(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    _, fast = throughputs(
        study, Doubling().problems(), [1], lambda study, arm, _: FakeEngine("fake", speculation=arm.speculation)
    )

    assert 2.5 < fast.tau <= 3


def test_a_levels_rounds_are_those_that_all_its_requests_share(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    found = list(throughputs(study, Doubling().problems(), [1, 2, 4], lambda *_: FakeEngine("fake")))[:3]

    assert [(each.concurrency, each.rounds.rounds) for each in found] == [(1, 1), (2, 0), (4, 10)]
    assert found[2].round_ms == pytest.approx({"draft": 2.0, "verify": 6.0, "other": 2.0})


def test_what_is_no_forward_is_held_against_that_of_another_arm_at_the_same_level(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    found = list(throughputs(study, Doubling().problems(), [2, 4], lambda *_: FakeEngine("fake")))
    slow = replace(found[1], arm="slow", rounds=replace(found[1].rounds, seconds=found[1].rounds.seconds + 0.02))

    assert slow.other_over(found, "vanilla") == pytest.approx(2.0)
    assert math.isnan(found[0].other_over(found, "nobody"))


def test_failed_requests_count_apart(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    found = next(throughputs(study, Doubling().problems(), [1], lambda *_: FakeEngine("fake", fails_on="2 + 2")))

    assert (found.requests, found.failed, found.error) == (4, 1, "the prompt does not fit")


def test_levels_without_an_answer_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    monkeypatch.setattr("fake_engine.FakeEngine.answer", lambda _, request: failure(request))
    result = CliRunner().invoke(app, ["bench", str(write_study(tmp_path / "study")), "--concurrency", "1,4"])

    assert result.exit_code == 2
    assert result.stderr == "streak: study 'study': no request was answered; the first: the prompt does not fit\n"


def test_failed_requests_of_a_level_are_told_with_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    answer = FakeEngine.answer
    monkeypatch.setattr(
        "fake_engine.FakeEngine.answer",
        lambda engine, request: failure(request) if engine.speculation else answer(engine, request),
    )
    result = CliRunner().invoke(app, ["bench", str(write_study(tmp_path / "study")), "--concurrency", "1,4"])

    assert result.exit_code == 0, result.output
    assert result.stderr == "8 requests failed and count in no number, the first: the prompt does not fit\n"


def test_the_bench_prints_a_table_by_concurrency_and_writes_its_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fakes(monkeypatch)
    arguments = [
        "bench",
        str(write_study(tmp_path / "study")),
        "--concurrency",
        "4,1",
        "--against",
        "fast",
        "--json",
        str(tmp_path / "out.json"),
    ]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.output
    assert "Throughput by concurrency" in result.output
    assert "Rounds by concurrency" in result.output
    assert "other / fast" in result.output
    rows = json.loads((tmp_path / "out.json").read_text())["throughput"]
    assert [(row["arm"], row["concurrency"]) for row in rows] == [
        ("vanilla", 1),
        ("vanilla", 4),
        ("fast", 1),
        ("fast", 4),
    ]
    assert rows[3]["other_ratio"] == 1.0


def test_a_concurrency_that_is_none_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", str(write_study(tmp_path)), "--concurrency", "0"])

    assert result.exit_code == 2
    assert "--concurrency = '0' is not allowed" in result.stderr
