"""What of an alignment is refused before any work: one line with file, table, value and what is allowed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.checkpoints import read_config
from harness.align_config import read_align
from harness.align_plan import Limits, Plan
from harness.cli import app
from small_alignment import write_alignment, write_config
from tiny_models import write_drafter

VERIFIER, PROMPTS, HELDOUT = 'path = "verifier"\n', 'file = "problems.jsonl"\n', '[heldout]\nfile = "heldout.jsonl"\n'
CORPUS, TRAINING, OBJECTIVE = "[corpus]\n", "[training]\n", '"log_streak"'
FROM_VERIFIER = 'parent = "verifier"\nlayers = [0]'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and problems of an alignment; every test writes the file anew."""
    made = tmp_path_factory.mktemp("alignment")
    write_alignment(made)
    return made


@pytest.fixture
def work(folder: Path) -> Iterator[Path]:
    """A work folder that nothing may have been written to."""
    yield folder / "work"
    assert not (folder / "work").exists()


def refusal(folder: Path, *edits: tuple[str, str], limits: Limits | None = None) -> str:
    """What the plan of the edited file is refused with."""
    config = write_config(folder, *edits)
    with pytest.raises((ValueError, OSError)) as refused:
        Plan(read_align(config), folder / "work", limits or Limits()).work_to_do()
    line = str(refused.value)
    assert "\n" not in line
    return line


def in_training(setting: str) -> tuple[str, str]:
    return (TRAINING, f"{TRAINING}{setting}\n")


def in_drafter(setting: str) -> tuple[str, str]:
    return (OBJECTIVE, f"{OBJECTIVE}\n{setting}")


NUMBERS = [
    (
        "learning_rate = 1e-2",
        "learning_rate = 1e300",
        "learning_rate = 1e+300 in [training] is not allowed; allowed: a",
    ),
    ("learning_rate = 1e-2", "learning_rate = 0", "learning_rate = 0 in [training] is not allowed; allowed: a number"),
    ("learning_rate = 1e-2", "learning_rate = nan", "learning_rate = nan in [training] is not allowed"),
    ("learning_rate = 1e-2", "learning_rate = inf", "learning_rate = inf in [training] is not allowed"),
    (
        "anchors = 4",
        "anchors = 2147483647",
        "anchors = 2147483647 in [training] is not allowed; allowed: a whole number",
    ),
    (
        "batch_tokens = 300",
        "batch_tokens = 1",
        "batch_tokens = 1 in [training] is not allowed; allowed: a whole number",
    ),
    (
        "window = 4",
        "window = 257",
        "window = 257 in [training] is not allowed; allowed: a whole number >= 1, at most 256",
    ),
    ("window = 4", "window = 4.0", "window = 4.0 in [training] is not allowed"),
    ("window = 4", "window = true", "window = True in [training] is not allowed"),
    ("concurrency = 4", "concurrency = 1000000", "concurrency = 1000000 in [verifier] is not allowed"),
    (
        "concurrency = 4",
        "threads = 1025",
        "threads = 1025 in [verifier] is not allowed; allowed: a whole number >= 1, at",
    ),
    ("max_tokens = 24", "max_tokens = 1", "max_tokens = 1 in [corpus] is not allowed; allowed: a whole number >= 2"),
    ("[0.0, 1.0]", "[1e-9]", "temperatures = [1e-09] in [corpus] is not allowed; allowed: a list of 0 or numbers >="),
    ("top_logs = 16", "top_logs = 513", "[corpus]: top_logs = 513 is not allowed; allowed: at most 512"),
]
SETTINGS = [
    ("rest = 1e300", "rest = 1e+300 in [training] is not allowed; allowed: a number from 0 on, at most 1"),
    ("decay_from = 1", "decay_from = 1 in [training] is not allowed; allowed: a number from 0 on, below 1"),
    ("adamw_ratio = 1e300", "adamw_ratio = 1e+300 in [training] is not allowed"),
    ("weight_decay = 1e30", "weight_decay = 1e+30 in [training] is not allowed"),
    ("clip_norm = 0", "clip_norm = 0 in [training] is not allowed"),
    ("on_policy = 1.5", "on_policy = 1.5 in [training] is not allowed"),
    ("draft_temperature = 0", "draft_temperature = 0 in [training] is not allowed"),
    ("softness = 1e-300", "softness = 1e-300 in [training] is not allowed"),
    ("accumulate = 2147483647", "accumulate = 2147483647 in [training] is not allowed"),
    (
        "nodes = 2147483647",
        "nodes = 2147483647 in [training] is not allowed; allowed: a whole number >= 1, at most 1024",
    ),
    ("context = 3", "context = 3 in [training] is not allowed; allowed: a whole number >= 4"),
    ("context = 97", "[drafter.first]: context = 97 is not allowed; allowed: at most 96, as the parent's context"),
    ("lora_rank = 33", "[drafter.first]: lora_rank = 33 is not allowed; allowed: 0, or at most 32, the rank of its"),
    ("mask_token_id = 5", "[drafter.first]: mask_token_id = 5 is not allowed; allowed: 4, as"),
]


@pytest.mark.parametrize(("before", "after", "part"), NUMBERS)
def test_a_number_out_of_its_range_is_refused(folder: Path, work: Path, before: str, after: str, part: str) -> None:
    assert part in refusal(folder, (before, after))


@pytest.mark.parametrize(("setting", "part"), SETTINGS)
def test_a_setting_out_of_its_range_is_refused(folder: Path, work: Path, setting: str, part: str) -> None:
    assert part in refusal(folder, in_training(setting))


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (
            ("warmup_steps = 2", "warmup_steps = 5"),
            "warmup_steps = 5 in [training] is not allowed; allowed: at most steps",
        ),
        ((HELDOUT, ""), "evaluate_every of [drafter.first] needs the prompts of a table [heldout]"),
        ((PROMPTS, f"{PROMPTS}seed = 1\n"), "unknown key 'seed' in [prompts]; known keys: column, file"),
        ((PROMPTS, 'source = "arithmetic-training"\nmax_events = 11\n'), "max_events = 11 in [prompts] is not allowed"),
        (("heldout.jsonl", "none.jsonl"), "none.jsonl: no such file"),
        (("heldout.jsonl", "problems.jsonl"), "[heldout]: 5 of its prompts are trained on, too, the first: '"),
        (
            (HELDOUT, '[heldout]\ntask = "arithmetic"\nnum = 3\n'),
            "[heldout]: unknown key 'num'; known keys of arithmetic",
        ),
        (("num_problems = 4", "num_problems = 0"), "[evaluation.arithmetic]: num_problems = 0 is not allowed"),
        ((VERIFIER, f"{VERIFIER}max_context = 8\n"), "[prompts]: no prompt leaves room for an answer of 2 tokens"),
        (
            (VERIFIER, f"{VERIFIER}max_context = 12\n"),
            "[heldout]: a prompt has 13 tokens, the verifier's context is 12",
        ),
    ],
)
def test_prompts_that_cannot_be_are_refused(folder: Path, work: Path, edit: tuple[str, str], part: str) -> None:
    assert part in refusal(folder, edit)


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (
            in_drafter("layers = [0, 99]"),
            "[drafter.first]: layers = [0, 99] is not allowed; allowed: numbers from 0 to 0",
        ),
        (in_drafter("layers = [0, 0]"), "layers = [0, 0] in [drafter.first] is not allowed; allowed: a rising list"),
        (('parent = "parent"', 'parent = "verifier"\nlayers = [1, 0]'), "layers = [1, 0] in [drafter.first]"),
        (('parent = "parent"', 'parent = "frist"'), "parent = 'frist' in [drafter.first]: model 'frist': no such"),
        (("[drafter.first]", "[drafter.verifier]"), "name 'verifier' is not allowed"),
        (("[drafter.first]", '[drafter."contamination.json"]'), "name 'contamination.json' is not allowed"),
        (("[drafter.first]", "[drafter.first-1000000]"), "name 'first-1000000' is not allowed"),
        (("[drafter.first]", f"[drafter.{'a' * 101}]"), "is not allowed; allowed: letters"),
        (
            ('parent = "parent"', f"{FROM_VERIFIER}\nmask_token_id = 512"),
            "mask_token_id = 512 is not allowed; a drafter",
        ),
        (
            ('parent = "parent"', f"{FROM_VERIFIER}\nmask_token_id = 1"),
            "and none that ends texts (1): set mask_token_id",
        ),
        (
            ('parent = "parent"', f"{FROM_VERIFIER}\nmask_token_id = 2"),
            "mask_token_id = 2 is not allowed: prompts hold",
        ),
    ],
)
def test_a_drafter_that_cannot_be_is_refused(folder: Path, work: Path, edit: tuple[str, str], part: str) -> None:
    assert part in refusal(folder, edit)


@pytest.mark.parametrize(
    ("objective", "part"),
    [
        (f"{{ce = 1{'0' * 400}}}", "weight of 'ce' must be 0, or a number from 1e-06 to 1e+06, not 1000"),
        ("{ce = 1e-300}", "weight of 'ce' must be 0, or a number from 1e-06 to 1e+06, not 1e-300"),
        ("{ce = true}", "weight of 'ce' is a number or pairs (step, weight), not True"),
        ("{ce = [[0, true]]}", "weight of 'ce' is a number or pairs (step, weight), not [[0, True]]"),
        ("{ce = [['0', '1']]}", "weight of 'ce' is a number or pairs (step, weight), not [['0', '1']]"),
        ("{ce = [[5, 1], [2, 1]]}", "steps of 'ce' must be whole numbers that ascend from 0 or later, not [5, 2]"),
        ("{ce = [[0, 1], [1e300, 1]]}", "steps of 'ce' must be whole numbers that ascend"),
        ("{ce = [[0, 1], [3, 0]]}", "all weights are 0 at step 3: ce"),
    ],
)
def test_weights_that_cannot_be_are_refused(folder: Path, work: Path, objective: str, part: str) -> None:
    assert part in refusal(folder, (OBJECTIVE, objective))


def test_layers_are_counted_along_the_parents_of_the_file(folder: Path, work: Path) -> None:
    second = '\n[drafter.second]\nparent = "first"\nlayers = [1]\nobjective = "ce"\n'

    line = refusal(folder, (OBJECTIVE, f"{OBJECTIVE}\n{second}"))

    assert "[drafter.second]: layers = [1] is not allowed; allowed: numbers from 0 to 0, as first has" in line


def test_a_mask_token_comes_down_from_the_parents_of_the_file(folder: Path, work: Path) -> None:
    second = '\n[drafter.second]\nparent = "first"\nmask_token_id = 7\nobjective = "ce"\n'

    line = refusal(folder, (OBJECTIVE, f"{OBJECTIVE}\n{second}"))

    assert "[drafter.second]: mask_token_id = 7 is not allowed; allowed: 4, as first has, or no such key" in line


def test_batches_that_never_fit_into_memory_are_refused(
    folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.memory.memory_of", lambda device: 2**20)

    line = refusal(folder, ("batch_tokens = 300", "batch_tokens = 100000"))

    assert "[drafter.first]: batches of batch_tokens = 100000 with anchors = 4 and window = 4 take at least" in line


def test_a_verifier_whose_requests_never_fit_into_memory_is_refused(
    folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.memory.memory_of", lambda device: 2**23)

    line = refusal(folder, ("concurrency = 4", "concurrency = 4096"))

    assert "[verifier]: keys and values of 4096 sequences of 97 tokens take at least 0.1 GiB" in line
    assert "lower concurrency or max_context" in line


def test_a_drafter_whose_context_may_be_too_short_for_held_out_texts_is_refused(tmp_path: Path) -> None:
    write_alignment(tmp_path)
    path = write_drafter(tmp_path / "parent") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 30}))
    assert read_config(tmp_path / "parent")[0].max_position_embeddings == 30

    line = refusal(tmp_path)

    assert "[drafter.first]: its context of 30 tokens is shorter than a held-out text may be, 37; lower max_con" in line


def test_a_parent_without_weights_is_refused_before_texts_are_written(tmp_path: Path) -> None:
    write_alignment(tmp_path)
    (tmp_path / "parent" / "model.safetensors").unlink()

    assert "[drafter.first]: " in refusal(tmp_path)
    assert not (tmp_path / "work").exists()


def test_a_drafter_whose_shape_cannot_be_written_is_refused_before_texts_are_written(tmp_path: Path) -> None:
    write_alignment(tmp_path)
    path = tmp_path / "parent" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"head_dim": 16}))

    assert "[drafter.first]: head_dim = 16 cannot be written; allowed: hidden_size /" in refusal(tmp_path)
    assert not (tmp_path / "work").exists()


def test_a_drafter_whose_parent_is_neither_trained_nor_asked_for_is_refused(folder: Path, work: Path) -> None:
    second = '\n[drafter.second]\nparent = "first"\nobjective = "ce"\n'

    line = refusal(folder, (OBJECTIVE, f"{OBJECTIVE}\n{second}"), limits=Limits(only=("second",)))

    assert "--only: the parent of 'second' is 'first', which is not trained; add --only first" in line


def test_an_engine_that_is_not_installed_is_refused_before_anything_is_written(
    folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.align_checks.missing_server", lambda: "package sglang is not installed")

    line = refusal(folder, (VERIFIER, f'{VERIFIER}engine = "sglang"\n'))

    assert "[verifier]: engine 'sglang': package sglang is not installed" in line


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(folder: Path, work: Path) -> None:
    config = write_config(folder)

    result = CliRunner().invoke(app, ["align", str(config), "--work", str(work), "--dry-run"])

    assert result.exit_code == 0, result.output
    assert "corpus: 10 of 10 texts to write" in result.stdout
    assert "heldout: 2 of 2 texts to write" in result.stdout
    assert "first: to be trained\n  parent parent; layers 1, weights in matrices" in result.stdout
    assert "log_streak: 4 steps of 300 tokens, 4 windows of 4 a text, muon, on cpu" in result.stdout


def test_a_dry_run_refuses_what_a_run_refuses(folder: Path, work: Path) -> None:
    config = write_config(folder, in_drafter("layers = [0, 99]"))

    result = CliRunner().invoke(app, ["align", str(config), "--work", str(work), "--dry-run"])

    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "layers = [0, 99] is not allowed" in line
