"""Without seeds SPECDIFF2's texts follow the target's exact law, on a vocabulary where that law can be written down."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.goodness import Fit, goodness_of_fit
from harness.audit_law import ALPHA, LENGTH, MESSAGES, WINDOW
from sglang_runs import Answer, needs_sglang, request, run

pytestmark = needs_sglang
SAMPLES = 3000
ARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "paper": ({"speculative_eagle_topk": 3}, {"shape": "iid", "rule": "paper"}),
    "walk": ({}, {"shape": "tree", "nodes": 6}),
}


@pytest.fixture(scope="module", params=ARMS)
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """SAMPLES answers to one prompt at temperature 1, 64 at a time."""
    return sampled(request.param, tmp_path_factory.mktemp("law"))


def sampled(rule: str, folder: Path) -> list[Answer]:
    from engines.chat import ChatTokenizer
    from engines.tiny import write_tiny_models

    models = write_tiny_models(folder)
    prompt = ChatTokenizer(models.target).prompt_ids(MESSAGES)
    engine, further = ARMS[rule]
    arm = {
        "model_path": str(models.target),
        "speculative_algorithm": "SPECDIFF2",
        "speculative_draft_model_path": str(models.drafter),
        "speculative_num_steps": WINDOW,
        "max_running_requests": 64,
        "random_seed": 7,
    }
    asked = [request(prompt, LENGTH, temperature=1.0, ignore_eos=False) for _ in range(SAMPLES)]
    return run(folder, arm | engine, [asked], further=further).answers[0]


def fit_of(answers: list[Answer], folder: Path) -> Fit:
    from engines.tiny import exact_law, write_tiny_models

    law = exact_law(write_tiny_models(folder).target, MESSAGES, LENGTH)
    drawn = Counter(tuple(answer.ids) for answer in answers)
    texts = sorted(law.keys() | drawn.keys())
    return goodness_of_fit([drawn[text] for text in texts], [law.get(text, 0.0) for text in texts])


def test_sampled_texts_follow_the_targets_law(answers: list[Answer], tmp_path: Path) -> None:
    """Drawn without seeds; a rule that is right falls below the limit once in 10,000 runs."""
    assert fit_of(answers, tmp_path).p_value > ALPHA


def test_some_drafts_were_kept_and_some_were_not(answers: list[Answer]) -> None:
    tokens, rounds = sum(len(answer.ids) - 1 for answer in answers), sum(answer.rounds for answer in answers)

    assert 1 < tokens / rounds < 1 + WINDOW
