"""The bundled models: ordinary directories that any loader reads, and what they can do."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engines.checkpoints import read_drafter_config
from engines.contract import Request
from engines.embedded import recipe
from engines.models import embedded_folder, embedded_models, resolve_model
from engines.reference import ReferenceEngine
from engines.speculation import Speculation
from harness import embedded, model_card
from results.provenance import digest_file
from tasks.arithmetic import Arithmetic

DRAFTERS = ("unaligned", "aligned")
TASK = Arithmetic(num_problems=12, seed=4, max_events=6)


def test_a_verifier_and_three_drafters_are_bundled() -> None:
    assert embedded_models() == ["aligned", "causal", "unaligned", "verifier"]


def test_all_weights_together_stay_small() -> None:
    total = sum(path.stat().st_size for path in embedded_folder().rglob("*.safetensors"))

    assert total < 80e6


@torch.inference_mode()
@pytest.mark.parametrize("name", ["verifier", "causal", *DRAFTERS])
def test_a_bundled_model_is_a_qwen2_directory_to_transformers(name: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(resolve_model(f"embedded:{name}"))

    assert model.config.model_type == "qwen2"
    assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, model.config.vocab_size)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_names_its_mask_token_as_its_tokenizer_does(name: str) -> None:
    folder = resolve_model(f"embedded:{name}")

    assert read_drafter_config(folder).mask_token_id == AutoTokenizer.from_pretrained(folder).mask_token_id


@pytest.mark.parametrize("name", ["verifier", "causal", *DRAFTERS])
def test_the_card_states_the_weights_that_are_bundled(name: str) -> None:
    card = (embedded_folder() / model_card.CARD_FILE).read_text()

    assert digest_file(resolve_model(f"embedded:{name}") / "model.safetensors") in card


def requests(temperature: float) -> list[Request]:
    return model_card.requests(TASK.problems(), temperature)


def test_the_verifier_solves_held_out_problems_of_every_length() -> None:
    answers = ReferenceEngine("embedded:verifier").stream(requests(0.0))

    verdicts = [
        TASK.grade(problem, answer.text).verdict for problem, answer in zip(TASK.problems(), answers, strict=True)
    ]

    assert verdicts.count("correct") >= 10


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_in_float32_a_drafter_changes_no_token_of_the_verifier(name: str, temperature: float) -> None:
    few = requests(temperature)[::3]
    plain = ReferenceEngine("embedded:verifier").stream(few)
    drafted = ReferenceEngine("embedded:verifier", speculation=Speculation(drafter=f"embedded:{name}")).stream(few)

    assert [answer.token_ids for answer in drafted] == [answer.token_ids for answer in plain]


def test_alignment_lengthens_the_accepted_streak() -> None:
    def tau(name: str) -> float:
        speculation = Speculation(drafter=f"embedded:{name}")
        answers = ReferenceEngine("embedded:verifier", speculation=speculation).stream(requests(0.0))
        rounds = [each for answer in answers for each in answer.rounds[1:]]
        return sum(each.accepted for each in rounds) / len(rounds)

    assert tau("aligned") > 1.2 * tau("unaligned")


def test_the_recipe_makes_batches_from_the_step_alone(tmp_path: Path) -> None:
    chat = recipe.make_tokenizer(tmp_path, embedded.sample_texts())
    schedule = recipe.UNALIGNED_SCHEDULE

    one, again = (embedded.story_batch(chat, 7, schedule, 3, 900) for _ in range(2))

    assert one == again
    assert one != embedded.story_batch(chat, 8, schedule, 3, 900)


def test_a_config_says_what_its_directory_is() -> None:
    config = json.loads((resolve_model("embedded:aligned") / "config.json").read_text())

    assert (config["architectures"], config["logits_shift"]) == (["Qwen2ForCausalLM"], 1)
