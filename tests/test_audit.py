"""Identity token for token: what counts as the same answer, and which divergences are ties."""

from dataclasses import replace
from pathlib import Path

import pytest

from fake_engine import fake_engines
from harness.audit import Divergence, Explained, Violation, explain, identity
from harness.demo import identity_lines
from harness.generate import Session
from harness.plan import read_run
from harness.study import Study, read_study
from results.records import Completion, FinishReason, Generation
from small_study import Doubling, Silent, use_fakes, write_study


def generation(arm_id: str, *tokens: int, finish: FinishReason = "stop", problem: str = "p") -> Generation:
    completion = Completion(request_id="r", text="", token_ids=tokens, prompt_tokens=1, finish_reason=finish, rounds=())
    return Generation(arm=arm_id, arm_id=arm_id, temperature=0.0, problem_id=problem, sample=0, completion=completion)


def divergence(first: int | None, second: int | None) -> Divergence:
    return Divergence(problem_id="p", sample=0, position=0, baseline_token=first, arm_token=second, prefix=())


def test_equal_tokens_are_identical() -> None:
    (found,) = identity([generation("base", 1, 2, 3), generation("fast", 1, 2, 3)], "base")

    assert (found.arm_id, found.compared, found.identical, found.divergences) == ("fast", 1, 1, ())


def test_the_first_divergence_names_its_place_and_both_tokens() -> None:
    (found,) = identity([generation("base", 1, 2, 3), generation("fast", 1, 7, 3)], "base")

    assert found.identical == 0
    assert found.divergences == (
        Divergence(problem_id="p", sample=0, position=1, baseline_token=2, arm_token=7, prefix=(1,)),
    )


def test_an_answer_that_a_budget_cut_is_compared_as_far_as_it_goes() -> None:
    (found,) = identity([generation("base", 1, 2, finish="budget"), generation("fast", 1, 2, 3)], "base")

    assert found.identical == 1


def test_an_answer_that_stopped_early_diverges_at_its_end() -> None:
    (found,) = identity([generation("base", 1, 2), generation("fast", 1, 2, 3)], "base")

    assert [(d.position, d.baseline_token, d.arm_token) for d in found.divergences] == [(2, None, 3)]


def test_failed_requests_are_counted_and_unanswered_problems_left_out() -> None:
    rows = [
        generation("base", 1),
        generation("fast", 1),
        generation("base", 2, problem="q"),
        generation("fast", problem="q", finish="error"),
        generation("fast", 3, problem="only"),
    ]
    (found,) = identity(rows, "base")

    assert (found.compared, found.identical, found.failed) == (1, 1, 1)


def test_a_tie_is_a_divergence_within_epsilon() -> None:
    gaps = {1: 0.1, 2: 0.2, 3: 0.9}
    found = explain([divergence(n, 0) for n in gaps], lambda _, first, second: gaps[first], 0.2)

    assert found == Explained(ties=2, widest_tie=0.2, violations=(Violation(divergence(3, 0), 0.9),))


def test_an_answer_that_ended_early_is_never_a_tie() -> None:
    found = explain([divergence(None, 1)], lambda *_: 0.0, 1.0)

    assert found == Explained(ties=0, widest_tie=0.0, violations=(Violation(divergence(None, 1), float("inf")),))


def test_a_gap_that_is_no_number_is_never_a_tie() -> None:
    found = explain([divergence(1, 2)], lambda *_: float("nan"), 1.0)

    assert (found.ties, len(found.violations)) == (0, 1)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    use_fakes(monkeypatch)
    return read_study(write_study(tmp_path / "doubling"))


def run(study: Study, folder: Path) -> list[Generation]:
    with Session(study, Doubling().problems(), folder, fake_engines()) as session:
        session.run(Silent())
    return list(read_run(folder))


def test_the_demo_says_how_many_texts_are_identical(study: Study, tmp_path: Path) -> None:
    lines = list(identity_lines(study, Doubling().problems(), run(study, tmp_path), fake_engines()))

    assert lines == ["T=0, float32: 4 of 4 texts of fast are token for token those of vanilla"]


def test_the_demo_counts_divergences_and_looks_each_up(study: Study, tmp_path: Path) -> None:
    rows = run(study, tmp_path)
    last = rows[-1]
    changed = replace(last, completion=replace(last.completion, token_ids=(0, *last.completion.token_ids[1:])))
    lines = list(identity_lines(study, Doubling().problems(), [*rows[:-1], changed], fake_engines()))

    assert lines == [
        "T=0, float32: 3 of 4 texts of fast are token for token those of vanilla",
        "  fast: 1 first divergences, 1 of them ties (target logits at most 0.001 apart; the widest 0), 0 unexplained",
    ]


def test_arms_are_compared_within_one_number_format(study: Study, tmp_path: Path) -> None:
    mixed = replace(study, arms=(study.arms[0], replace(study.arms[1], number_format="bfloat16")))

    assert list(identity_lines(mixed, Doubling().problems(), run(mixed, tmp_path), fake_engines())) == []
