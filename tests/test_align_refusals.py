"""What `streak align` refuses: damaged states and checkpoints, other settings, mistakes in its file, a full disc."""

import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engines.alignment.trainer import STATE_FILE
from small_alignment import align, aligned, refused, write_alignment, write_config
from tiny_models import TINY, sharpened, write_decoder, write_drafter, write_model, write_other_tokens


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


def test_more_questions_than_there_are_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.align_prompts.MOST_AGAIN", 3)
    monkeypatch.setattr("tasks.arithmetic.draw_side", lambda rng, events, held_out: SimpleNamespace(question="Why?"))
    made = 'source = "arithmetic-training"\nnum = 2\nmax_events = 1'

    assert "num = 2 of source" in refused(align(write_alignment(tmp_path, ('file = "problems.jsonl"', made))))


def test_a_child_does_not_pass_for_one_of_a_parent_that_was_trained_anew(tmp_path: Path) -> None:
    objective = 'objective = "log_streak"\n'
    second = '[drafter.second]\nparent = "first"\nobjective = "ce"\n'
    work = aligned(write_alignment(tmp_path, (objective, objective + second)))
    for name in ("first", "first-training"):
        shutil.rmtree(work / name)
    config = write_config(tmp_path, (objective, objective + "learning_rate = 2e-2\n" + second))

    assert "second/alignment.json: parent_digest was" in refused(align(config))
