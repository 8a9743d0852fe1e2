"""Keeping a run beside its study, grading it again from there, and data files named on the command line."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harness.cli import app
from harness.study import read_study
from results.ledger import read_generations
from small_study import use_fakes, write_study

STUDIES = Path(__file__).parents[1] / "results/studies"


def streak(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of the fakes that was run and kept; its run folder is gone."""
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path / "doubling")
    assert streak("run", study).exit_code == 0
    shutil.copytree("runs", "first")
    assert streak("keep", study).exit_code == 0
    shutil.rmtree("runs")
    return study


def test_a_kept_study_answers_the_arms_of_its_own_file() -> None:
    for study in sorted(STUDIES.glob("*/generations.jsonl.gz")):
        kept = {generation.arm_id for generation in read_generations(study)}

        assert kept == {cell.arm_id for cell in read_study(study.parent).cells}, study.parent.name


def test_a_kept_study_holds_what_a_regrade_and_a_reader_need(kept: Path) -> None:
    names = {path.name for path in kept.iterdir()}

    assert names == {"study.toml", "generations.jsonl.gz", "records.jsonl.gz", "sessions.jsonl", "figures"}


def test_a_kept_study_is_graded_without_a_run(kept: Path) -> None:
    result = streak("grade", kept)

    assert result.exit_code == 0, result.output
    assert Path("runs/doubling/records.jsonl").read_bytes() == Path("first/doubling/records.jsonl").read_bytes()


def test_keeping_twice_gives_the_same_bytes(kept: Path) -> None:
    before = (kept / "generations.jsonl.gz").read_bytes()
    streak("grade", kept)
    streak("keep", kept)

    assert (kept / "generations.jsonl.gz").read_bytes() == before


def test_a_study_that_was_not_run_cannot_be_kept(kept: Path) -> None:
    result = streak("keep", write_study(kept.parent / "other"))

    assert result.exit_code == 2
    assert "generations.jsonl: not there; run and grade the study before keeping it" in result.stderr


MATH_STUDY = """
[task]
name = "math500"
[model]
path = "fake"
[sampling]
temperatures = [0.0]
[budgets]
seconds = [1.0]
[arm.vanilla]
"""


def test_a_data_file_may_be_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(MATH_STUDY)
    Path("two.jsonl").write_text('{"problem": "1+1?", "answer": "2", "unique_id": "a"}\n')

    study = read_study(Path("study.toml"), Path("two.jsonl"))

    assert [problem.gold for problem in study.build_task().problems()] == ["2"]
    assert study.to_json()["task_options"] == {"source": "two.jsonl"}


def test_a_figures_folder_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path / "doubling")
    streak("run", study)
    shutil.rmtree("runs/doubling/figures")
    Path("runs/doubling/figures").write_text("in the way")

    result = streak("grade", study)

    assert result.exit_code == 2
    assert "runs/doubling/figures" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_study_file_may_begin_with_a_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    path = write_study(tmp_path / "doubling") / "study.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert read_study(path).title == "Doubling"
