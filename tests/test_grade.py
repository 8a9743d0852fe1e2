"""The derived half: records at every budget and policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engines.contract import Request
from fake_engine import fake_engines
from harness.budgets import Kept
from harness.generate import Session
from harness.grade import RECORDS_FILE, Graded, Grader, grade_run, headline_policy
from harness.plan import plan_jobs
from harness.study import Study, read_study
from results.ledger import read_records
from results.records import Completion, Grade, Record, Round
from small_study import Doubling, Silent, use_fakes, write_study
from tasks.contract import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingTask(Doubling):
    """Keeps the texts that it was asked to grade."""

    texts: list[tuple[str, str]] = field(default_factory=list)

    def grade(self, problem: Problem, response: str) -> Grade:
        self.texts.append((problem.problem_id, response))
        return Doubling(num_problems=self.num_problems).grade(problem, response)


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedTask(Doubling):
    """Takes every answer for right."""

    def grade(self, problem: Problem, response: str) -> Grade:  # noqa: ARG002
        return Grade(verdict="correct", answer=response, reason="mended")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    use_fakes(monkeypatch)
    return read_study(write_study(tmp_path / "doubling"))


def generate(study: Study, folder: Path, problems: Sequence[Problem] | None = None, fails_on: str = "nothing") -> None:
    log: list[Request] = []
    engines = fake_engines(log, fails_on=fails_on)
    with Session(study, problems or Doubling().problems(), folder, engines) as session:
        session.run(Silent())


def grade(study: Study, folder: Path, task: Doubling | None = None) -> Graded:
    task = task or Doubling()
    return grade_run(study, task, task.problems(), folder)


def records(folder: Path) -> list[Record]:
    return list(read_records(folder / RECORDS_FILE))


def test_there_is_a_record_for_every_budget_and_policy(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path)
    graded = grade(study, tmp_path)
    keys = {(r.arm, r.problem_id, r.budget_seconds, r.policy) for r in records(tmp_path)}

    assert graded.records == len(records(tmp_path)) == len(keys) == 2 * 4 * 3 * 2


def test_strict_and_last_agree_on_an_answer_that_is_finished(study: Study, tmp_path: Path) -> None:
    longer = replace(study, budgets=(9.0,))
    generate(longer, tmp_path)
    grade(longer, tmp_path)
    by_policy = {
        policy: [(r.arm, r.problem_id, r.verdict) for r in records(tmp_path) if r.policy == policy]
        for policy in longer.policies
    }

    assert by_policy["strict"] == by_policy["last"]
    assert {verdict for _, _, verdict in by_policy["last"]} == {"correct", "incorrect"}


def test_strict_says_that_the_budget_cut_an_answer_off(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path)
    grade(study, tmp_path)
    cut = [r for r in records(tmp_path) if r.cut and r.policy == "strict"]

    assert cut
    assert {(r.verdict, r.answer, r.reason) for r in cut} == {("no_answer", None, "cut off by the budget")}


def test_last_takes_a_complete_answer_from_a_text_that_was_cut(study: Study) -> None:
    problem = Doubling(num_problems=1).problems()[0]
    job = plan_jobs(study, [problem])[0]
    text = r"\boxed{2} or rather"
    generation = job.generation(
        Completion(
            request_id="r",
            text=text,
            token_ids=(1,),
            prompt_tokens=1,
            finish_reason="budget",
            rounds=(Round(seconds=0.01, kept=1, chars=len(text)),),
        )
    )
    kept = Kept(text=text, tokens=1, cut=True, finished=False)
    grader = Grader(Doubling())

    assert grader.grade(problem, generation, kept, "last").verdict == "correct"
    assert grader.grade(problem, generation, kept, "strict").verdict == "no_answer"


def test_a_mended_grader_needs_no_new_generation(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path)
    grade(study, tmp_path, MendedTask())

    assert {r.verdict for r in records(tmp_path) if r.policy == "last"} == {"correct"}


def test_equal_texts_of_a_problem_are_graded_once(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path)
    task = CountingTask()
    grade(study, tmp_path, task)

    assert len(task.texts) == len(set(task.texts)) < len(records(tmp_path))


def test_records_stand_in_the_order_of_the_jobs(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path)
    grade(study, tmp_path)
    order = [(job.cell.arm.name, job.problem.problem_id) for job in plan_jobs(study, Doubling().problems())]

    assert [(r.arm, r.problem_id) for r in records(tmp_path)][:: 3 * 2] == order


def test_a_failed_request_counts_as_no_answer_and_says_why(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path, fails_on="What is 2 ")
    grade(study, tmp_path)
    failed = {(r.verdict, r.reason) for r in records(tmp_path) if r.problem_id == "double/2"}

    assert failed == {("no_answer", "the engine failed: the prompt does not fit")}


def test_only_problems_that_every_arm_has_answered_are_graded(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path, Doubling(num_problems=3).problems())
    graded = grade(study, tmp_path)

    assert (graded.problems, graded.all_problems) == (3, 4)
    assert {r.problem_id for r in records(tmp_path)} == {"double/1", "double/2", "double/3"}


def test_a_run_without_generations_cannot_be_graded(study: Study, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no problem is answered by every arm yet"):
        grade(study, tmp_path)


def test_answers_cut_before_a_new_larger_budget_are_not_graded(study: Study, tmp_path: Path) -> None:
    generate(study, tmp_path)

    with pytest.raises(ValueError, match=r"was cut at 0\.2 s, before the largest budget \(9\.0 s\); run the study"):
        grade(replace(study, budgets=(*study.budgets, 9.0)), tmp_path)


def test_the_headlines_policy_is_the_tasks_where_the_study_has_it(study: Study) -> None:
    assert headline_policy(study, Doubling()) == "last"
    assert headline_policy(replace(study, policies=("strict",)), Doubling()) == "strict"


def test_letters_that_mean_something_else_now_are_refused(study: Study) -> None:
    problem = Problem(problem_id="q", messages=(), gold="B", data={"option_order": "1023"})
    (job, *_) = plan_jobs(study, [problem])
    generation = job.generation(
        Completion(
            request_id="r",
            text="B",
            token_ids=(1,),
            prompt_tokens=1,
            finish_reason="stop",
            rounds=(Round(seconds=0.01, kept=1, chars=1),),
        )
    )
    kept = Kept(text="B", tokens=1, cut=False, finished=True)
    shuffled = replace(problem, data={"option_order": "0123"})

    assert generation.to_json()["option_order"] == "1023"
    with pytest.raises(ValueError, match="shown in the order 1023, and the task now has them in the order 0123"):
        Grader(Doubling()).grade(shuffled, generation, kept, "last")


def test_a_generation_without_options_has_no_word_of_them(study: Study) -> None:
    job = plan_jobs(study, Doubling(num_problems=1).problems())[0]
    generation = job.generation(
        Completion(request_id="r", text="", token_ids=(), prompt_tokens=1, finish_reason="error", rounds=())
    )

    assert "option_order" not in generation.to_json()
