"""The recipe of the bundled models, made tiny: from nothing to model directories, in stages or at once."""

import dataclasses
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from engines.alignment.schedule import Schedule
from engines.checkpoints import WEIGHTS_FILE, load_decoder, read_drafter_config
from engines.embedded import recipe
from harness import embedded
from harness.cli import app
from results.ledger import read_rows
from results.provenance import digest_file

MODELS = ("verifier", "unaligned", "aligned", "causal")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of a few thousand parameters and three steps a training."""
    small = dataclasses.replace(recipe.VERIFIER, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=8)
    monkeypatch.setattr(recipe, "VERIFIER", small)
    schedules = ("VERIFIER", "LONG", "UNALIGNED", "ALIGNED", "CAUSAL")
    for name in (f"{which}_SCHEDULE" for which in schedules):
        monkeypatch.setattr(recipe, name, Schedule(steps=3, learning_rate=1e-3))
    monkeypatch.setattr(recipe, "DRAFTER_LAYERS", (1,))
    monkeypatch.setattr(recipe, "ROLLOUT_TOKENS", 24)
    monkeypatch.setattr(embedded, "ROLLOUTS_PER_TEMPERATURE", 3)
    monkeypatch.setattr(embedded, "TOKENIZER_STORIES", 30)
    monkeypatch.setattr(embedded, "VERIFIER_BATCH_TOKENS", 300)
    monkeypatch.setattr(embedded, "DRAFTER_BATCH_TOKENS", 300)


def digests(work: Path) -> list[str]:
    return [digest_file(work / name / WEIGHTS_FILE) for name in MODELS]


def build(work: Path, stage_seconds: float) -> bool:
    return embedded.build(work, threads=1, stage_seconds=stage_seconds, listen=lambda name, progress: None)


def test_stages_that_end_after_every_step_give_the_weights_of_one_run(tmp_path: Path) -> None:
    assert build(tmp_path / "once", 1e9)
    stages = 1
    while not build(tmp_path / "staged", 0.0):
        stages += 1

    assert stages > 9
    assert digests(tmp_path / "staged") == digests(tmp_path / "once")


def test_the_result_is_a_verifier_and_drafters_that_fit_it(tmp_path: Path) -> None:
    build(tmp_path, 1e9)

    shapes = {load_decoder(tmp_path / name, torch.float32).config.vocab_size for name in MODELS}
    assert shapes == {recipe.VERIFIER.vocab_size}
    assert read_drafter_config(tmp_path / "aligned").logits_shift == 1


def test_rollouts_hold_both_temperatures_and_are_made_once(tmp_path: Path) -> None:
    build(tmp_path, 1e9)
    before = (tmp_path / "rollouts.jsonl").read_bytes()
    (tmp_path / "aligned" / "config.json").unlink()
    build(tmp_path, 1e9)

    assert [row["temperature"] for row in read_rows(tmp_path / "rollouts.jsonl")] == [0.0] * 3 + [1.0] * 3
    assert (tmp_path / "rollouts.jsonl").read_bytes() == before


def test_the_command_says_that_a_stage_is_over_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "build", lambda *given, **settings: False)

    result = CliRunner().invoke(app, ["embedded", "--work", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert "the same command goes on" in result.output


def test_rollouts_that_were_interrupted_go_on_as_if_they_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "ROLLOUT_BATCH", 2)
    build(tmp_path, 1e9)
    whole = (tmp_path / "rollouts.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "rollouts.jsonl").write_bytes(b"".join(lines[:1]))
    (tmp_path / "aligned" / "config.json").unlink()
    build(tmp_path, 1e9)

    assert (tmp_path / "rollouts.jsonl").read_bytes() == whole
