"""`streak align`: from prompts to checkpoints with their records, resumed after a kill; overlaps with evaluations."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from engines.alignment.stages import EVALUATIONS_FILE, LOSSES_FILE
from engines.alignment.trainer import STATE_FILE
from engines.checkpoints import load_decoder, model_digest
from results.alignment import AlignmentRecord, read_alignment
from results.ledger import read_rows
from small_alignment import QUESTIONS, align, aligned, refused, write_alignment, write_config, write_problems

ROOT = Path(__file__).parents[1]


def record_of(folder: Path) -> AlignmentRecord:
    record = read_alignment(folder)
    assert record is not None
    return record


def out_weight(folder: Path) -> torch.Tensor:
    weight: torch.Tensor = load_decoder(folder, torch.float32).state_dict()["layers.0.out.weight"]
    return weight


def losses(work: Path, name: str = "first") -> list[float]:
    return [row["loss"] for row in read_rows(work / f"{name}-training" / LOSSES_FILE)]


def test_a_checkpoint_carries_what_it_cost_and_where_it_comes_from(tmp_path: Path) -> None:
    work = aligned(write_alignment(tmp_path))

    record = record_of(work / "first")

    assert (record.objective, record.steps, record.step, record.contamination) == ("log_streak", 4, 4, "clean")
    assert record.parent_digest == model_digest(tmp_path / "parent")
    assert record.verifier_digest == model_digest(tmp_path / "verifier")
    assert record.data_texts == 2 * len(QUESTIONS)
    assert record.training_windows > 0
    assert record.training_flops > 6 * record.training_rows * 1000
    assert record.all_training_flops == record.training_flops + record.data_flops


def test_complete_checkpoints_are_published_where_a_study_looks_for_them(tmp_path: Path) -> None:
    config = write_alignment(tmp_path, ('objective = "log_streak"', 'objective = "log_streak"\nkeep_at = [2]'))
    place = tmp_path / "drafters"
    (place / "first").mkdir(parents=True)

    work = aligned(config, "--publish", str(place))

    assert sorted(path.name for path in place.iterdir()) == ["first", "first-000002"]
    for name in ("first", "first-000002"):
        assert model_digest(place / name) == model_digest(work / name)
        assert record_of(place / name) == record_of(work / name)


def test_flops_are_those_of_the_processed_rows(tmp_path: Path) -> None:
    work = aligned(write_alignment(tmp_path, ("evaluate_every = 2", "on_policy = 0.5")))

    record = record_of(work / "first")

    per_row = 32 * (2 * 32 + 2 * 16) + 3 * 32 * 48 + 512 * 32  # one layer of the tiny model, and its head
    assert record.training_flops == per_row * (6 * record.training_rows + 2 * record.training_forward_rows)
    assert 0 < record.training_forward_rows < record.training_rows


def test_a_child_counts_the_training_of_its_parent(tmp_path: Path) -> None:
    second = '[drafter.second]\nparent = "first"\nobjective = "distillspec"\n'
    work = aligned(write_alignment(tmp_path, ('objective = "log_streak"\n', 'objective = "log_streak"\n' + second)))

    assert record_of(work / "second").parent_flops == record_of(work / "first").training_flops


@pytest.mark.parametrize(
    "objective",
    [
        '"streak"',
        '"streak_ce"',
        '"tree_streak"',
        '"exp_ce"',
        '"ce"',
        '"masked_diffusion"',
        '"distillspec"',
        '"ar_distillation"',
        '"tv"',
        "{log_streak = 1.0, ce = [[0, 1.0], [3, 0.1]]}",
    ],
)
def test_every_objective_trains_a_drafter(tmp_path: Path, objective: str) -> None:
    work = aligned(write_alignment(tmp_path, ('"log_streak"', objective), ("evaluate_every = 2\n", "nodes = 6\n")))

    before, after = (
        load_decoder(folder, torch.float32).state_dict() for folder in (tmp_path / "parent", work / "first")
    )

    assert not torch.equal(before["layers.0.out.weight"], after["layers.0.out.weight"])


def test_checkpoints_are_kept_at_the_steps_that_are_named(tmp_path: Path) -> None:
    edit = ('objective = "log_streak"', 'objective = "log_streak"\nkeep_at = [1, 3]')
    work = aligned(write_alignment(tmp_path, edit))

    steps = [record_of(work / name).step for name in ("first-000001", "first-000003", "first")]

    assert steps == [1, 3, 4]
    assert len({model_digest(work / name) for name in ("first-000001", "first-000003", "first")}) == 3


def test_held_out_texts_judge_the_drafter_while_it_is_trained(tmp_path: Path) -> None:
    work = aligned(write_alignment(tmp_path))

    rows = list(read_rows(work / "first-training" / EVALUATIONS_FILE))

    assert [row["step"] for row in rows] == [2, 4]
    assert [each["temperature"] for each in rows[0]["temperatures"]] == [0.0, 1.0]
    assert all(each["rounds"] > 0 and len(each["alpha"]) == 4 for each in rows[0]["temperatures"])


def test_a_finished_alignment_does_nothing_more(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    weights = (aligned(config) / "first" / "model.safetensors").stat().st_mtime_ns

    assert (aligned(config) / "first" / "model.safetensors").stat().st_mtime_ns == weights


def test_a_training_that_was_killed_gives_the_loss_curve_of_one_that_was_not(tmp_path: Path) -> None:
    long = (
        ("steps = 4", "steps = 60"),
        ("evaluate_every = 2\n", ""),
        ("save_every = 2", "save_every = 7"),
        ('parent = "parent"', 'parent = "verifier"\nlayers = [1]'),
    )
    at_once = losses(aligned(write_alignment(tmp_path / "once", *long)))
    config = write_alignment(tmp_path / "killed", *long)
    work = config.parent / "work"
    program = "from harness.cli import main; main()"
    command = [sys.executable, "-c", program, "align", str(config), "--work", str(work)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    state = work / "first-training" / STATE_FILE
    while not state.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = losses(work)

    after = losses(aligned(config))

    assert 0 < len(before) < 60
    assert after == pytest.approx(at_once, rel=1e-4)


def test_adapters_are_added_to_the_weights_of_the_checkpoint(tmp_path: Path) -> None:
    work = aligned(write_alignment(tmp_path, ("save_every = 2", "save_every = 2\nlora_rank = 2")))

    change = out_weight(work / "first") - out_weight(tmp_path / "parent")
    assert 1 <= int((torch.linalg.svdvals(change) > 0.02).sum()) <= 2
    record = record_of(work / "first")
    assert record.training_flops < 5 * record.training_rows * (32 * 96 + 3 * 32 * 48 + 512 * 32)


def test_overlap_with_an_evaluation_problem_is_refused(tmp_path: Path) -> None:
    line = refused(align(contaminated_config(tmp_path)))

    assert "1 of 5 training prompts overlap with evaluation problems" in line
    assert "problems.jsonl/000001 with arithmetic/0/0000" in line
    assert not (tmp_path / "work" / "corpus").exists()


def contaminated_config(folder: Path, *edits: tuple[str, str]) -> Path:
    from tasks.arithmetic import Arithmetic

    config = write_alignment(folder, *edits)
    asked = Arithmetic(num_problems=1).problems()[0].messages[0]["content"]
    write_problems(folder / "problems.jsonl", (asked, *QUESTIONS[1:]))
    return config


def test_overlapping_prompts_are_left_out_where_the_file_says_so(tmp_path: Path) -> None:
    edit = ("[evaluation.arithmetic]", "[evaluation]\ndrop_overlaps = true\n[evaluation.arithmetic]")
    work = aligned(contaminated_config(tmp_path, edit))

    record = record_of(work / "first")

    assert (record.contamination, record.dropped, record.data_texts) == ("clean", 1, 2 * (len(QUESTIONS) - 1))


def test_a_contaminated_training_is_stamped_and_so_is_its_child(tmp_path: Path) -> None:
    work = aligned(contaminated_config(tmp_path), "--allow-contaminated")
    child = write_config(tmp_path, ('"parent"', f'"{work / "first"}"'), ("drafter.first", "drafter.child"))
    write_problems(tmp_path / "problems.jsonl", QUESTIONS)
    aligned(child)

    assert record_of(work / "first").contamination == "contaminated"
    assert record_of(work / "first").overlapping == 1
    assert record_of(work / "child").contamination == "contaminated"


WITHOUT_EVALUATION = ('[evaluation.arithmetic]\ntask = "arithmetic"\nnum_problems = 4\n', "")


def test_an_alignment_without_evaluation_tasks_is_refused(tmp_path: Path) -> None:
    line = refused(align(write_alignment(tmp_path, WITHOUT_EVALUATION)))

    assert "no [evaluation.NAME]: name the tasks" in line


def test_the_child_of_an_unchecked_training_is_unchecked(tmp_path: Path) -> None:
    work = aligned(write_alignment(tmp_path, WITHOUT_EVALUATION), "--allow-contaminated")
    aligned(write_config(tmp_path, ('"parent"', f'"{work / "first"}"'), ("drafter.first", "drafter.child")))

    assert record_of(work / "child").contamination == "not_checked"


def test_a_training_shows_loss_streak_and_the_seconds_left(tmp_path: Path) -> None:
    result = align(write_alignment(tmp_path))

    assert re.search(r"first: loss -?\d+\.\d{4}, streak \d\.\d\d, step 4 of 4, \d+ s, 0 s left", result.stdout)
    assert re.search(r"first: step 4: tau \d\.\d\d at T=0 \(\d+ rounds\), .* expected streak \d", result.stdout)


def test_the_report_of_overlaps_counts_all_and_names_the_first_ones(tmp_path: Path) -> None:
    refused(align(contaminated_config(tmp_path)))

    report = json.loads((tmp_path / "work" / "contamination.json").read_text())

    assert (report["training_prompts"], report["overlapping_prompts"]) == (5, 1)
    assert report["listed"][0]["evaluation"] == "arithmetic/0/0000"
