"""The demo's arms as SGLang ran them: the kept texts are those that the reference engine writes."""

from pathlib import Path

import pytest

from engines.reference import ReferenceEngine
from engines.speculation import Speculation
from harness.plan import GENERATIONS_FILE, plan_jobs
from harness.study import read_study
from results.ledger import read_generations
from results.records import Generation

STUDY = Path(__file__).parents[1] / "results/studies/embedded_sglang"
COMPARED = 12


@pytest.fixture(scope="module")
def kept() -> dict[str, list[Generation]]:
    """Generations by arm."""
    by_arm: dict[str, list[Generation]] = {}
    for generation in read_generations(STUDY / f"{GENERATIONS_FILE}.gz"):
        by_arm.setdefault(generation.arm, []).append(generation)
    return by_arm


def test_every_arm_answered_every_problem(kept: dict[str, list[Generation]]) -> None:
    study = read_study(STUDY)

    assert {arm: len(own) for arm, own in kept.items()} == {arm.name: 84 for arm in study.arms}
    assert {own.completion.finish_reason for each in kept.values() for own in each} == {"stop"}


def test_all_arms_wrote_the_same_texts(kept: dict[str, list[Generation]]) -> None:
    texts = [{own.problem_id: own.completion.token_ids for own in each} for each in kept.values()]

    assert all(each == texts[0] for each in texts)


def test_the_texts_are_those_of_the_reference_engine(kept: dict[str, list[Generation]]) -> None:
    """A dozen of them, by the chain: it keeps vanilla's texts, and is faster."""
    jobs = plan_jobs(read_study(STUDY), list(read_study(STUDY).build_task().problems())[:COMPARED])
    chain = Speculation(drafter="embedded:aligned", window=12)
    engine = ReferenceEngine("embedded:verifier", number_format="float32", speculation=chain)
    texts = {own.problem_id: own.completion.token_ids for own in kept["vanilla"]}

    asked = {job.request.request_id: job for job in jobs if job.cell.arm.name == "vanilla"}
    for answer in engine.stream([job.request for job in asked.values()]):
        assert answer.token_ids == texts[asked[answer.request_id].problem.problem_id]
