"""`streak audit`: a broken engine is found, a tie is no violation, and what cannot be compared is said."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analysis.goodness import Fit
from engines.contract import Request
from fake_engine import FakeEngine, failure, fake_engines
from harness.audit_law import LawCheck
from harness.audit_study import compare_group, generate_arms, group_cells, undeadlined
from harness.cli import app
from harness.commands import audit as command
from harness.study import read_study
from results.records import Completion
from small_study import Doubling, use_fakes, write_study

BOTH = ("[0.0]", "[0.0, 1.0]")
BLOCK = '[arm.block]\ndrafter = "fake-drafter"\nrule = "block"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a study may be written; engine and task are the fakes, and no law is checked."""
    use_fakes(monkeypatch)
    law_checks(monkeypatch)
    return tmp_path / "doubling"


def law_checks(monkeypatch: pytest.MonkeyPatch, *p_values: float) -> None:
    fits = [Fit(draws=2500, cells=40, p_value=p, tv=0.1, expected_tv=0.1) for p in p_values]
    checks = [LawCheck(rule="walk", shape="tree", tau=0.5, fit=fit) for fit in fits]
    monkeypatch.setattr(command, "check_laws", lambda: iter(checks))


def break_engine(
    monkeypatch: pytest.MonkeyPatch, temperature: float, change: Callable[[Request, Completion], Completion]
) -> None:
    """Change what the arm with a drafter answers at a temperature."""
    answer = FakeEngine.answer

    def broken(self: FakeEngine, request: Request) -> Completion:
        completion = answer(self, request)
        hit = self.speculation and request.sampling.temperature == temperature
        return change(request, completion) if hit else completion

    monkeypatch.setattr(FakeEngine, "answer", broken)


def third_token(request: Request, completion: Completion) -> Completion:
    tokens = completion.token_ids
    return replace(completion, token_ids=(*tokens[:2], 7, *tokens[3:]))


def let_gaps_be(monkeypatch: pytest.MonkeyPatch, gap: float) -> None:
    monkeypatch.setattr(FakeEngine, "token_gap", lambda *_: gap)


def audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def said(result: Result) -> str:
    """What was printed, columns closed up."""
    return " ".join(result.stdout.split())


def test_a_lossless_study_has_no_violation(folder: Path) -> None:
    result = audit(write_study(folder, BOTH))

    assert result.exit_code == 0, result.output
    assert "fast T=0 float32: 4 compared with vanilla, 4 identical, 0 ties, 0 violations" in said(result)
    assert "fast T=1 float32: 4 compared with vanilla, 4 identical" in said(result)
    assert result.stdout.splitlines()[-1] == "no violation"


def test_a_wide_divergence_at_temperature_0_is_a_violation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_engine(monkeypatch, 0.0, third_token)
    let_gaps_be(monkeypatch, 3.5)
    result = audit(write_study(folder))

    assert result.exit_code == 1
    assert "4 compared with vanilla, 0 identical, 0 ties, 4 violations" in said(result)
    assert "the first: double/1, position 2: token 7 for token" in said(result)
    assert result.stdout.splitlines()[-1] == "4 violations"


def test_a_tie_is_no_violation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_engine(monkeypatch, 0.0, third_token)
    let_gaps_be(monkeypatch, 2e-5)
    result = audit(write_study(folder))

    assert result.exit_code == 0
    assert "0 identical, 4 ties (widest 2e-05, allowed 0.001), 0 violations" in said(result)


def test_other_tokens_for_one_seed_are_a_violation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_engine(monkeypatch, 1.0, third_token)
    let_gaps_be(monkeypatch, 3.5)
    result = audit(write_study(folder, BOTH))

    assert result.exit_code == 1
    assert "fast T=0 float32: 4 compared with vanilla, 4 identical" in said(result)
    assert "fast T=1 float32: 4 compared with vanilla, 0 identical, 0 ties, 4 violations" in said(result)


def test_a_gap_of_scores_over_temperature_is_told_in_logits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_engine(monkeypatch, 0.5, third_token)
    let_gaps_be(monkeypatch, 0.0015)
    result = audit(write_study(folder, ("[0.0]", "[0.5]")))

    assert "4 ties (widest 0.00075" in said(result)


def test_an_answer_that_ends_early_is_a_violation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_engine(monkeypatch, 0.0, lambda request, whole: replace(whole, token_ids=whole.token_ids[:3]))
    result = audit(write_study(folder))

    assert result.exit_code == 1
    assert "position 3: its end for token" in said(result)


def test_a_rule_that_weighs_the_draft_law_is_compared_at_temperature_0_alone(folder: Path) -> None:
    result = audit(write_study(folder, BOTH, more=BLOCK))

    assert "block T=0 float32: 4 compared" in said(result)
    assert "block T=1 not compared: rule block draws on its own coins: by law only" in said(result)


def test_a_failed_request_is_counted_and_violates_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_once(request: Request, completion: Completion) -> Completion:
        return failure(request) if "3 + 3" in request.messages[-1]["content"] else completion

    break_engine(monkeypatch, 0.0, fail_once)
    result = audit(write_study(folder))

    assert result.exit_code == 0
    assert "fast: 4 requests made, 1 failed, the first: the prompt does not fit" in said(result)
    assert "3 compared with vanilla, 3 identical, 0 ties, 0 violations, 1 failed" in said(result)
    assert result.stdout.splitlines()[-1] == "no violation; answers not compared, since a request failed: 1"


def test_the_lack_of_an_arm_without_drafts_is_said(folder: Path) -> None:
    other = '[arm.other]\ndrafter = "other-drafter"\n'
    result = audit(write_study(folder, ("[arm.vanilla]\n", ""), more=other))

    assert result.exit_code == 0
    assert "other T=0 float32: 4 compared with fast" in said(result)
    assert "fast T=0 not compared: no arm without drafts at this temperature in float32" in said(result)


def test_a_study_with_nothing_to_compare_is_one_line(folder: Path) -> None:
    result = audit(write_study(folder, ("[arm.vanilla]\n", "")))

    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("streak: study 'doubling': no two arms whose tokens can be compared")


def test_a_missing_study_is_one_line(tmp_path: Path) -> None:
    result = audit(tmp_path / "nowhere")

    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "nowhere: no such study" in line


def test_a_law_that_does_not_hold_is_a_violation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law_checks(monkeypatch, 0.3, 1e-9)
    result = audit(write_study(folder))

    assert result.exit_code == 1
    assert "walk x tree n 2500, tau 0.50, chi-square p 1e-09 (40 cells)" in said(result)
    assert result.stdout.splitlines()[-1] == "1 violation"


def test_an_interrupt_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(request: Request, completion: Completion) -> Completion:
        raise KeyboardInterrupt

    break_engine(monkeypatch, 0.0, interrupt)
    result = audit(write_study(folder))

    assert (result.exit_code, result.stderr) == (130, "streak: interrupted; the same command starts again\n")


def test_fewer_problems_can_be_asked_for(folder: Path) -> None:
    assert "2 compared with vanilla" in audit(write_study(folder), "--problems", 2).stdout


def test_an_audit_makes_only_requests_that_it_compares_and_lets_them_end(folder: Path) -> None:
    study = undeadlined(read_study(write_study(folder, BOTH, more=BLOCK)))
    groups, _ = group_cells(study)
    log: list[Request] = []
    cells = [cell for group in groups for cell in group.cells]
    made = [len(own) for _, own in generate_arms(study, Doubling().problems(), cells, fake_engines(log))]

    assert made == [8, 8, 4]
    assert {request.budget_seconds for request in log} == {float("inf")}


def test_no_engine_is_opened_where_all_tokens_are_equal(folder: Path) -> None:
    study = undeadlined(read_study(write_study(folder)))
    (group,), _ = group_cells(study)
    problems = Doubling().problems()
    rows = [g for _, own in generate_arms(study, problems, group.cells, fake_engines()) for g in own]

    (found,) = compare_group(study, problems, rows, group, open_engine=lambda *_: pytest.fail("opened"))

    assert found.identity.identical == 4


def test_the_bundled_audit_compares_every_shape_and_both_kinds_of_rules() -> None:
    groups, by_law = group_cells(read_study(command.AUDIT_STUDY))

    assert [[cell.arm.name for cell in group.cells] for group in groups] == [
        ["vanilla", "chain", "iid-paper", "iid-walk", "tree", "ngram", "block", "traversal"],
        ["vanilla", "chain", "iid-paper", "iid-walk", "tree", "ngram"],
    ]
    assert [each.cell.label for each in by_law] == ["block T=1", "traversal T=1"]
