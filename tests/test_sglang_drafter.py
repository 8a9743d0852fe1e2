"""The drafter's prefix cache inside SGLang is exact: its argmax drafts are those of a forward over the whole text."""

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import sglang_spy
from engines import tiny
from engines.alignment.drafting import drafter_from_verifier
from engines.checkpoints import load_decoder, read_drafter_config
from engines.drafters.diffusion import DiffusionDrafter
from sglang_runs import MODELS, Answer, continued, needs_sglang, run
from sglang_runs import request as asked
from tiny_models import TINY, write_decoder

pytestmark = needs_sglang
WINDOW = 6
ASKED, TOKENS, MORE = 6, 36, 20
ARM = {
    "speculative_algorithm": "SPECDIFF2",
    "speculative_num_steps": WINDOW,
    "chunked_prefill_size": 16,
    "max_running_requests": 4,
}


class Pair(NamedTuple):
    """Two model directories."""

    target: Path
    drafter: Path


def renamed(folder: Path, model_type: str, architecture: str) -> Path:
    """A model directory under another architecture's name."""
    file = folder / "config.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(raw | {"model_type": model_type, "architectures": [architecture]}), encoding="utf-8")
    return folder


def embedded(folder: Path) -> Pair:
    """The bundled models, of Qwen2's architecture."""
    del folder
    return Pair(MODELS / "verifier", MODELS / "aligned")


def dream(folder: Path) -> Pair:
    """The bundled drafter as Dream and DiffuCoder name theirs."""
    copied = Path(shutil.copytree(MODELS / "aligned", folder / "dream"))
    return Pair(MODELS / "verifier", renamed(copied, "Dream", "DreamModel"))


def llama(folder: Path) -> Pair:
    """A random Llama, and its first layer as DiffuLLaMA is one."""
    target = tiny.sharpened(replace(TINY, attention_bias=False), 0, 12.0)
    masked = {"mask_token_id": 4, "logits_shift": 1}
    write_decoder(folder / "target", target)
    write_decoder(folder / "drafter", drafter_from_verifier(target, 1), extra=masked)
    return Pair(*(renamed(folder / name, "llama", "LlamaForCausalLM") for name in ("target", "drafter")))


ARCHITECTURES: dict[str, Callable[[Path], Pair]] = {"Qwen2": embedded, "Dream": dream, "Llama": llama}


class Round(NamedTuple):
    """The text up to and with the bonus token, and what was drafted after it."""

    text: list[int]
    drafted: list[int]


class Watched(NamedTuple):
    """Rounds of all requests, those of requests that went on where others had ended, and the answers to these."""

    models: Pair
    rounds: list[Round]
    resumed: list[Round]
    answers: list[Answer]
    texts: list[list[int]]


def read_rounds(file: Path, texts: dict[str, list[int]], prompts: dict[str, int]) -> dict[str, list[Round]]:
    """What was drafted after a whole prompt; before it is whole there is no bonus token."""
    found: dict[str, list[Round]] = {rid: [] for rid in texts}
    for line in file.read_text(encoding="utf-8").splitlines():
        note = json.loads(line)
        rid, length = note["rid"], note["length"]
        text = texts[rid][: length + 1]
        # An overlapping round may follow a request's last one: its tokens are nobody's.
        if prompts[rid] <= length < len(texts[rid]):
            assert text[-1] == note["bonus"]
            found[rid].append(Round(text, note["drafted"]))
    return found


@pytest.fixture(scope="module", params=ARCHITECTURES)
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Prompts of which some begin alike; then each whole text, a few tokens longer, as a prompt (seed 1)."""
    folder, plugin = tmp_path_factory.mktemp("watched"), tmp_path_factory.mktemp("plugin")
    models = ARCHITECTURES[request.param](folder)
    sglang_spy.install(plugin)
    file = folder / "rounds.jsonl"
    rng = random.Random(1)
    shared = [rng.randrange(5, 500) for _ in range(25)]
    first = [shared[: 5 + 4 * n] + [rng.randrange(5, 500) for _ in range(n)] for n in range(ASKED)]
    more = [[rng.randrange(5, 500) for _ in range(3)] for _ in range(ASKED)]
    batches = [
        [asked(prompt, TOKENS, rid=f"first-{n}") for n, prompt in enumerate(first)],
        [continued(0, n, extra, MORE, f"resumed-{n}") for n, extra in enumerate(more)],
    ]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(plugin), str(Path(__file__).parent)]),
        "SGLANG_PLUGINS": "streak,spy",
        "SPY_FILE": str(file),
    }
    arm = ARM | {"model_path": str(models.target), "speculative_draft_model_path": str(models.drafter)}
    answers = run(folder, arm, batches, environment=environment).answers
    ended = [prompt + answer.ids for prompt, answer in zip(first, answers[0], strict=True)]
    prompts = {f"first-{n}": prompt for n, prompt in enumerate(first)}
    prompts |= {f"resumed-{n}": ended[n] + more[n] for n in range(ASKED)}
    given = [answer.ids for batch in answers for answer in batch]
    texts = {rid: prompt + tokens for (rid, prompt), tokens in zip(prompts.items(), given, strict=True)}
    rounds = read_rounds(file, texts, {rid: len(prompt) for rid, prompt in prompts.items()})
    resumed = [each for rid, found in rounds.items() if rid.startswith("resumed") for each in found]
    return Watched(models, [each for found in rounds.values() for each in found], resumed, answers[1], ended)


@pytest.fixture(scope="module")
def drafter(watched: Watched) -> DiffusionDrafter:
    """The same drafter in the reference engine, without any cache; inside SGLang every drafter's prefix is causal."""
    folder = watched.models.drafter
    config = replace(read_drafter_config(folder), prefix="causal")
    return DiffusionDrafter(load_decoder(folder, torch.float32), config, WINDOW, 96, prefix_cache=False)


def different(rounds: list[Round], drafter: DiffusionDrafter) -> int:
    """Rounds whose drafts are not those of a forward over the whole text."""
    with torch.inference_mode():
        return sum(drafter.marginals([each.text])[0].argmax(-1).tolist() != each.drafted for each in rounds)


def test_enough_rounds_were_watched(watched: Watched) -> None:
    assert len(watched.rounds) >= 150


def test_every_draft_is_that_of_a_forward_over_the_whole_text(watched: Watched, drafter: DiffusionDrafter) -> None:
    assert different(watched.rounds, drafter) == 0


def test_later_prompts_hit_the_last_tokens_of_finished_requests(watched: Watched) -> None:
    """Only the very last token may be missing: where no round followed it has been in no cache."""
    missing = [len(text) - answer.cached for answer, text in zip(watched.answers, watched.texts, strict=True)]

    assert set(missing) <= {0, 1}


def test_rounds_after_such_hits_were_watched_too(watched: Watched) -> None:
    assert len(watched.resumed) >= ASKED * MORE // (WINDOW + 1)
