"""`streak align`: from prompts to checkpoints with their records, resumed after a kill, and stopped by bad input."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner, Result

from engines.alignment.stages import EVALUATIONS_FILE, LOSSES_FILE
from engines.alignment.trainer import STATE_FILE
from engines.checkpoints import load_decoder, model_digest
from harness.cli import app
from results.alignment import AlignmentRecord, read_alignment
from results.ledger import read_rows
from small_alignment import QUESTIONS, write_alignment, write_config, write_problems
from tiny_models import TINY, sharpened, write_decoder, write_drafter, write_model, write_other_tokens

ROOT = Path(__file__).parents[1]


def align(config: Path, *arguments: str) -> Result:
    work = config.parent / "work"
    return CliRunner().invoke(app, ["align", str(config), "--work", str(work), *arguments])


def aligned(config: Path, *arguments: str) -> Path:
    result = align(config, *arguments)
    assert result.exit_code == 0, result.output
    return config.parent / "work"


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


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


@pytest.mark.parametrize("damage", [b"", b"no state at all", None])
def test_a_damaged_training_state_is_one_line(tmp_path: Path, damage: bytes | None) -> None:
    config = write_alignment(tmp_path)
    state = aligned(config) / "first-training" / STATE_FILE
    (tmp_path / "work" / "first" / "config.json").unlink()
    state.write_bytes(state.read_bytes()[:-500] if damage is None else damage)

    assert f"{STATE_FILE}: not a whole training state" in refused(align(config))


@pytest.mark.parametrize("key", ["optimizers", "step"])
def test_a_training_state_that_lacks_a_part_is_one_line(tmp_path: Path, key: str) -> None:
    config = write_alignment(tmp_path)
    path = aligned(config) / "first-training" / STATE_FILE
    (tmp_path / "work" / "first" / "config.json").unlink()
    state = torch.load(path)
    del state[key]
    torch.save(state, path)

    assert f"{STATE_FILE}: not a whole training state (no '{key}' in it)" in refused(align(config))


def test_the_training_state_of_another_model_is_one_line(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    path = aligned(config) / "first-training" / STATE_FILE
    (tmp_path / "work" / "first" / "config.json").unlink()
    state = torch.load(path)
    state["model"] = {name: weight[:1] for name, weight in state["model"].items()}
    torch.save(state, path)

    assert f"{STATE_FILE}: not a whole training state (Error" in refused(align(config))


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (('"log_streak"', '"streek"'), "allowed: masked_diffusion, streak, log_streak, "),
        (('"log_streak"', "{streek = 1}"), "[drafter.first]: unknown objective 'streek'"),
        (('"log_streak"', "{masked_diffusion = 1}"), "allowed: masked_diffusion as a name alone, and in a table"),
        (("window = 4", "windows = 4"), "unknown key 'windows' in [training]"),
        (("top_logs = 16", "top_logs = 0"), None),
        (('"log_streak"', '"log_streak"\nkeep_at = [9]'), "keep_at = [9] in [drafter.first]"),
        (('"log_streak"', "{log_streak = -1}"), "weight of 'log_streak' must be 0, or a number from"),
        (('parent = "parent"', 'parent = "nowhere"'), "model 'nowhere': no such directory"),
        (('parent = "parent"', 'parent = "first"'), "does not stand before it"),
        (('path = "verifier"', 'path = "parents"'), "model 'parents': no such directory"),
        (('file = "problems.jsonl"', 'file = "none.jsonl"'), "none.jsonl: no such file"),
        (("[prompts]", '[prompts]\nsource = "arithmetic-training"'), "needs one of source, file, task"),
        (("steps = 4", "steps = 0"), "steps = 0 in [training] is not allowed"),
        (('"log_streak"', '"log_streak"\nlayers = [3]'), "layers = [3] is not allowed; allowed: numbers from 0 to 0"),
        (('"log_streak"', '"log_streak"\nlayers = 1'), "layers = 1 in [drafter.first] is not allowed"),
        (('"problems.jsonl"', '"problems.jsonl"\ninstruction = 5'), "instruction = 5 in [prompts] is not allowed"),
        (("[drafter.first]", '[drafter."../first"]'), "name '../first' is not allowed; allowed: letters"),
        (("[drafter.first]", '[drafter.""]'), "name '' is not allowed; allowed: letters"),
        (("[drafter.first]", "[drafter.corpus]"), "name 'corpus' is not allowed; allowed: letters"),
        (("[drafter.first]", "[drafter.first-training]"), "name 'first-training' is not allowed"),
        (("[drafter.first]", "[drafter.first-000100]"), "name 'first-000100' is not allowed"),
        (("window = 4", f"window = {'[' * 5000}"), "align.toml: not a TOML file: "),
        (("window = 4", f"window = {'9' * 5000}"), "align.toml: not a TOML file: "),
        (("save_every = 2", 'device = "cuda"'), "device = 'cuda' is not allowed: torch sees no GPU"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path: Path, edit: tuple[str, str], part: str | None) -> None:
    if part is None:
        edit, part = ('"log_streak"', '"tv"'), "[corpus]: top_logs = 0, but an objective compares"
        config = write_alignment(tmp_path, edit, ("top_logs = 16", "top_logs = 0"))
    else:
        config = write_alignment(tmp_path, edit)

    assert part in refused(align(config))


def test_an_empty_file_of_problems_is_one_line(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    (tmp_path / "problems.jsonl").write_text("")

    assert "problems.jsonl: no rows" in refused(align(config))


def test_a_parent_with_other_tokens_is_one_line(tmp_path: Path) -> None:
    config = write_alignment(tmp_path, ('parent = "parent"', 'parent = "other"'))
    write_other_tokens(tmp_path / "other")

    assert "the drafter's tokens are not those of the target" in refused(align(config))


def test_a_corpus_by_another_verifier_is_one_line(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    aligned(config, "--corpus-only")
    write_model(tmp_path / "verifier", seed=5)

    assert "corpus.json: verifier_digest was" in refused(align(config))


def test_a_corpus_under_another_thinking_flag_is_one_line(tmp_path: Path) -> None:
    aligned(write_alignment(tmp_path), "--corpus-only")
    config = write_config(tmp_path, ('path = "verifier"', 'path = "verifier"\nthinking = true'))

    assert "corpus.json: thinking was None, now it is True" in refused(align(config))


def test_a_checkpoint_that_was_taken_away_is_named(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    (aligned(config) / "first" / "config.json").unlink()

    assert "work/first: missing, though its training is over; remove" in refused(align(config))


def test_a_training_is_not_gone_on_with_under_other_settings(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    aligned(config)
    (tmp_path / "work" / "first" / "config.json").unlink()

    line = refused(align(write_config(tmp_path, ("1e-2", "2e-2"))))

    assert "settings.json: settings.learning_rate was 0.01, now it is 0.02" in line


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (("1e-2", "2e-2"), "settings.learning_rate was 0.01, now it is 0.02"),
        (('"log_streak"', '"ce"'), "settings.objective.ce was None, now it is 1.0"),
        (('parent = "parent"', 'parent = "other"'), "parent_digest was"),
        (('"problems.jsonl"', '"problems.jsonl"\nnum = 3'), "corpus_digest was"),
    ],
)
def test_a_finished_drafter_does_not_pass_for_one_of_other_settings(
    tmp_path: Path, edit: tuple[str, str], part: str
) -> None:
    aligned(write_alignment(tmp_path))
    write_drafter(tmp_path / "other", near=0)

    line = refused(align(write_config(tmp_path, edit), "--publish", str(tmp_path / "drafters")))

    assert f"first/alignment.json: {part}" in line
    assert not (tmp_path / "drafters").exists()


def test_a_finished_drafter_without_its_record_is_one_line(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    (aligned(config) / "first" / "alignment.json").unlink()

    assert "first: no alignment.json, so nothing says how" in refused(align(config, "--dry-run"))


def test_a_damaged_record_of_a_parent_is_said_before_any_work(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    (tmp_path / "parent" / "alignment.json").write_text("{}")

    assert "alignment.json: alignment record of schema None" in refused(align(config, "--dry-run"))


def test_a_loss_that_is_no_number_names_step_and_batch_and_keeps_the_state(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)
    parent = sharpened(TINY, 1)
    parent.norm.weight.data.fill_(math.nan)
    write_decoder(tmp_path / "parent", parent, extra={"mask_token_id": 4})

    line = refused(align(config))

    assert "the loss of step 0 is nan (batch 0" in line
    assert "digest" in line
    assert "the last good state is kept" in line


def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_alignment(tmp_path)
    saves: list[object] = []
    save = torch.save

    def until_full(state: object, path: Path) -> None:
        saves.append(state)
        save(state, "/dev/full" if len(saves) > 1 else path)

    monkeypatch.setattr(torch, "save", until_full)

    line = refused(align(config))

    assert "the checkpoint could not be written, the one before it is intact" in line
    state = torch.load(tmp_path / "work" / "first-training" / STATE_FILE, weights_only=True)
    assert state["step"] == 2


def test_a_disk_that_is_full_from_the_start_promises_no_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save
    monkeypatch.setattr(torch, "save", lambda state, _: save(state, "/dev/full"))

    assert "the checkpoint could not be written: " in refused(align(write_alignment(tmp_path)))


def test_the_report_of_overlaps_counts_all_and_names_the_first_ones(tmp_path: Path) -> None:
    refused(align(contaminated_config(tmp_path)))

    report = json.loads((tmp_path / "work" / "contamination.json").read_text())

    assert (report["training_prompts"], report["overlapping_prompts"]) == (5, 1)
    assert report["listed"][0]["evaluation"] == "arithmetic/0/0000"


def test_more_questions_than_there_are_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.align_prompts.MOST_AGAIN", 3)
    monkeypatch.setattr("tasks.arithmetic.draw_side", lambda rng, events, held_out: SimpleNamespace(question="Why?"))
    made = 'source = "arithmetic-training"\nnum = 2\nmax_events = 1'

    assert "num = 2 of source" in refused(align(write_alignment(tmp_path, ('file = "problems.jsonl"', made))))
