"""What a checkpoint's record does where the drafter is served: templates must match, contamination shows everywhere."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engines.compute import network_of
from engines.reference import ReferenceEngine
from engines.speculation import Speculation
from harness.align_config import read_align
from harness.cli import app
from harness.study import read_study
from results.alignment import RECORD_FILE, AlignmentRecord, read_alignment, worst
from results.costs import Network, training_flops
from tiny_models import TINY, write_drafter, write_model

LADDER = Path(__file__).parents[1] / "results/studies/ladder"
PARENT = "embedded:unaligned"
RECORD = AlignmentRecord(
    name="drafter",
    objective="log_streak",
    step=4,
    steps=4,
    verifier_digest="0" * 12,
    chat_template="0" * 12,
    thinking=None,
    parent="parent",
    parent_digest="0" * 12,
    parent_flops=7,
    parent_seconds=1.0,
    corpus_digest="0" * 12,
    top_logs=0,
    left_over=0.0,
    contamination="clean",
    overlapping=0,
    dropped=0,
    data_texts=1,
    data_left_out=0,
    data_tokens=10,
    data_seconds=1.0,
    data_flops=11,
    training_windows=1,
    training_tokens=1,
    training_rows=1,
    training_forward_rows=0,
    training_seconds=1.0,
    training_flops=13,
    gpu_seconds=0.0,
    settings={"steps": 4},
)
STUDY = """
[task]
name = "gsm8k"
source = "problems.jsonl"
[model]
path = "verifier"
[sampling]
temperatures = [0.0]
max_tokens = 8
[budgets]
seconds = [60]
[arm.vanilla]
[arm.drafting]
drafter = "drafter"
window = 4
"""


def write_record(folder: Path, **changes: Any) -> None:
    (folder / RECORD_FILE).write_text(json.dumps(replace(RECORD, **changes).to_json()))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_model(tmp_path / "verifier")
    write_drafter(tmp_path / "drafter")
    return tmp_path


def template_of(models: Path) -> str:
    return str(ReferenceEngine(str(models / "verifier")).describe()["chat_template"])


def served(models: Path, thinking: bool | None = None) -> Mapping[str, Any]:
    speculation = Speculation(drafter=str(models / "drafter"), window=4)
    return ReferenceEngine(str(models / "verifier"), speculation=speculation, thinking=thinking).describe()


def test_a_drafter_is_served_under_the_template_that_it_was_aligned_under(models: Path) -> None:
    write_record(models / "drafter", chat_template=template_of(models))

    assert "contaminated_drafters" not in served(models)


def test_a_drafter_is_not_served_under_another_template(models: Path) -> None:
    write_record(models / "drafter")

    with pytest.raises(ValueError, match="aligned under chat template 000000000000 with thinking = None, the target"):
        served(models)


def test_a_drafter_is_not_served_under_another_thinking_flag(models: Path) -> None:
    write_record(models / "drafter", chat_template=template_of(models), thinking=True)

    with pytest.raises(ValueError, match=r"with thinking = True, the target .* with thinking = None"):
        served(models)
    assert served(models, thinking=True)["thinking"] is True


WORDS = {
    "contaminated": "drafter trained on evaluation problems",
    "not_checked": "drafter trained on prompts that were not compared with evaluation problems",
}


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (["bench"], "contaminated"),
        (["bench", "--concurrency", "1"], "contaminated"),
        (["run"], "contaminated"),
        (["run"], "not_checked"),
    ],
)
def test_results_of_a_drafter_that_is_not_clean_say_so(models: Path, command: list[str], verdict: str) -> None:
    write_record(models / "drafter", chat_template=template_of(models), contamination=verdict)
    study = models / "study"
    study.mkdir()
    (study / "study.toml").write_text(STUDY.replace('"verifier"', f'"{models / "verifier"}"'))
    text = (study / "study.toml").read_text().replace('"drafter"', f'"{models / "drafter"}"')
    (study / "study.toml").write_text(text)
    (study / "problems.jsonl").write_text(json.dumps({"question": "Mia has 42 coins.", "answer": "#### 42"}) + "\n")
    out = ["--out", str(models / "runs")] if command == ["run"] else []

    result = CliRunner().invoke(app, [command[0], str(study), *command[1:], *out])

    assert result.exit_code == 0, result.output
    assert f"{WORDS[verdict]}: drafting" in " ".join(result.output.split())
    if command == ["run"]:
        assert "evaluation" in (models / "runs/study/figures/accuracy.svg").read_text()


def test_a_forecast_of_a_drafter_that_is_not_clean_says_so(models: Path) -> None:
    write_record(models / "drafter", chat_template=template_of(models), contamination="contaminated")
    rows = [{"question": word, "answer": "#### 1"} for word in ("Mia", "has", "coins")]
    (models / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = ["--task", "gsm8k", "--source", str(models / "problems.jsonl"), "--temperature", "0"]
    size = ["--window", "4", "--max-tokens", "20", "--no-measure", "--problems", "3"]

    result = CliRunner().invoke(
        app, ["forecast", str(models / "drafter"), "--against", str(models / "verifier"), *data, *size]
    )

    assert result.exit_code == 0, result.output
    assert "drafter trained on evaluation problems: " in " ".join(result.output.split())


def test_the_worst_verdict_of_a_line_of_trainings_holds() -> None:
    assert worst("clean", "not_checked") == "not_checked"
    assert worst("contaminated", "not_checked", "clean") == "contaminated"
    assert worst("clean", "clean") == "clean"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path)

    assert read_alignment(tmp_path) == RECORD
    assert RECORD.all_training_flops == 7 + 11 + 13


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"steps": "four"}, "steps = 'four' is not allowed; allowed: a whole number"),
        ({"contamination": "perhaps"}, "allowed: clean, contaminated, not_checked"),
        ({"schema": 9}, "schema 9; this version reads schema 1"),
        ({"settings": 3}, "settings = 3 is not allowed"),
    ],
)
def test_a_damaged_record_is_one_line_with_its_file(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    (tmp_path / RECORD_FILE).write_text(json.dumps({**RECORD.to_json(), **change}))

    with pytest.raises(ValueError, match=RECORD_FILE) as error:
        read_alignment(tmp_path)
    assert part in str(error.value)


def test_a_trained_row_costs_six_flops_a_weight_and_one_under_adapters_four_and_theirs() -> None:
    network = Network(matmul_parameters=100)

    assert training_flops(network, 3) == 3 * 6 * 100
    assert training_flops(network, 3, adapter_parameters=10) == 3 * (4 * 100 + 6 * 10)


def test_the_weights_that_are_counted_are_those_of_the_matrices() -> None:
    assert network_of(TINY).matmul_parameters == 2 * (32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 48) + TINY.vocab_size * 32


def test_the_drafters_of_the_ladder_differ_in_their_objective_alone() -> None:
    drafters = read_align(LADDER / "align.toml").drafters

    assert len({each.training for each in drafters}) == 1
    assert {each.parent for each in drafters} == {PARENT}
    assert len({each.objective_text for each in drafters}) == len(drafters)


def test_every_arm_of_the_ladder_is_a_checkpoint_of_its_recipe_and_names_objective_and_steps() -> None:
    config, study = read_align(LADDER / "align.toml"), read_study(LADDER)
    made = {each.name: (each, each.training.steps) for each in config.drafters}
    made |= {f"{each.name}-{step:06d}": (each, step) for each in config.drafters for step in each.keep_at}

    _, parent, *others = study.arms
    assert parent.speculation is not None
    assert (parent.name, parent.speculation.drafters[0]) == ("masked_diffusion-0", PARENT)
    for arm in others:
        assert arm.speculation is not None
        drafter, steps = made[arm.speculation.drafters[0].removeprefix("drafters/")]
        assert arm.name == f"{drafter.objective_text}-{steps}"
