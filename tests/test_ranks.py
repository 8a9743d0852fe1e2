"""Training on several ranks (torchrun, gloo on the CPU): the loss curve and the weights of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from engines.alignment import ranks
from engines.alignment.stages import LOSSES_FILE
from engines.checkpoints import load_decoder
from harness.cli import app
from results.ledger import read_rows
from small_alignment import write_alignment

ROOT = Path(__file__).parents[1]
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def losses(work: Path) -> list[float]:
    return [row["loss"] for row in read_rows(work / "first-training" / LOSSES_FILE)]


def align(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["align", str(config), "--work", str(config.parent / "work"), *arguments])


def align_on_two_ranks(config: Path) -> subprocess.CompletedProcess[str]:
    program = "from harness.cli import main\nmain()\n"
    return on_two_ranks(config.parent, program, "align", str(config), "--work", str(config.parent / "work"))


def on_two_ranks(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(text)
    command = [*LAUNCH, str(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


ADAMW = (("steps = 4", 'steps = 3\noptimizer = "adamw"'), ("evaluate_every = 2\n", ""))


def trained_both_ways(folder: Path, *edits: tuple[str, str]) -> tuple[Path, Path]:
    """Work folders of one process with two batches a step and of two ranks, whose losses and weights are the same."""
    one = write_alignment(folder / "one", *ADAMW, *edits, ("anchors = 4", "anchors = 4\naccumulate = 2"))
    two = write_alignment(folder / "two", *ADAMW, *edits)
    assert align(one).exit_code == 0
    assert align(two, "--corpus-only").exit_code == 0
    done = align_on_two_ranks(two)
    assert done.returncode == 0, done.stderr
    works = folder / "one/work", folder / "two/work"
    assert losses(works[1]) == pytest.approx(losses(works[0]), rel=2e-3)
    first, second = (load_decoder(work / "first", torch.float32).state_dict() for work in works)
    assert torch.allclose(first["layers.0.out.weight"], second["layers.0.out.weight"], atol=5e-3)
    return works


def test_two_ranks_make_the_steps_of_one_process_with_two_batches_a_step(tmp_path: Path) -> None:
    works = trained_both_ways(tmp_path)

    counted = [json.loads((work / "first/alignment.json").read_text()) for work in works]
    assert counted[0]["training_rows"] == counted[1]["training_rows"]


def test_adapters_are_trained_on_two_ranks_as_in_one_process(tmp_path: Path) -> None:
    trained_both_ways(tmp_path, ("save_every = 2", "save_every = 2\nlora_rank = 2"))


STAGED = """
import json, math, sys
from pathlib import Path
from engines.alignment import ranks
from engines.alignment.losses import WindowLoss
from engines.alignment.schedule import Schedule
from engines.alignment.trainer import train
from test_alignment import DRAFTER, PLAN, fresh_drafter, some_examples

def curve(folder, stage_seconds):
    losses, done = [], False
    while not done:
        decoder = ranks.shard(fresh_drafter().train())
        loss_at = WindowLoss(decoder=decoder, drafter=DRAFTER, plan=PLAN, batch_at=lambda n: some_examples(2, n))
        schedule = Schedule(steps=4, learning_rate=1e-2, optimizer="adamw", adamw_ratio=0.5, weight_decay=0.1)
        listen = lambda progress: losses.append(progress.loss)
        done = train(decoder, loss_at, schedule, folder, stage_seconds=stage_seconds, listen=listen)
        ranks.wait()
    return losses

ranks.join()
folder = Path(sys.argv[1])
curves = [curve(folder / "once", math.inf), curve(folder / "staged", 0.0)]
if ranks.rank() == 0:
    (folder / "curves.json").write_text(json.dumps(curves))
ranks.leave()
"""


def test_a_training_on_two_ranks_goes_on_with_the_loss_curve_that_it_would_have_had(tmp_path: Path) -> None:
    done = on_two_ranks(tmp_path, STAGED, str(tmp_path))

    assert done.returncode == 0, done.stderr
    at_once, staged = json.loads((tmp_path / "curves.json").read_text())
    assert len(at_once) == 4
    assert staged == pytest.approx(at_once, rel=1e-5)


def test_several_ranks_do_not_write_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "count", lambda: 2)

    result = align(write_alignment(tmp_path, ("save_every = 2", 'save_every = 2\noptimizer = "adamw"')))

    assert result.exit_code == 2
    assert "12 texts are missing; write them first: streak align --corpus-only" in result.stderr


def test_the_last_line_is_the_first_ranks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_alignment(tmp_path)
    assert "complete" in align(config).stdout
    parted: list[bool] = []
    monkeypatch.setattr(ranks, "leave", lambda: parted.append(True))
    monkeypatch.setattr(ranks, "rank", lambda: 0 if parted else 1)

    assert "complete" not in align(config).stdout
