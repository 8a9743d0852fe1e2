"""The derived half: from generations to records, at every budget and under every cut-off policy of a study.

Needs the task, no engine: a mended grader or a smaller budget costs no generation. Policies: `strict` counts only an
answer that the model finished within the budget; `last` takes the last complete answer in the text that a budget kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.budgets import Kept, replay
from harness.parallel_grading import grade_all
from harness.plan import Job, Measured, option_order, plan_jobs, read_run
from harness.study import Study
from results.ledger import write_rows
from results.provenance import usable_cores
from results.records import Generation, Grade, Policy, Record
from tasks.contract import Problem, Task

RECORDS_FILE = "records.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What was graded: problems that every cell has answered, of all problems; their generations; number of records."""

    problems: int
    all_problems: int
    generations: tuple[Generation, ...]
    records: int


class Grader:
    """Grades texts of one task, each text of a problem only once."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._grades: dict[tuple[str, str], Grade] = {}

    def grade(self, problem: Problem, generation: Generation, kept: Kept, policy: Policy) -> Grade:
        """The verdict on what a budget kept."""
        check_order(problem, generation)
        if unread := unread_grade(generation, kept, policy):
            return unread
        key = problem.problem_id, kept.text
        if key not in self._grades:
            self._grades[key] = self.task.grade(problem, kept.text)
        return self._grades[key]

    def grade_ahead(self, study: Study, answered: Sequence[tuple[Job, Generation]], workers: int) -> None:
        """Grade all texts that `records` will ask about, `workers` at a time."""
        wanted: dict[tuple[str, str], Problem] = {}
        for job, generation in answered:
            check_order(job.problem, generation)
            for budget in study.budgets:
                kept = replay(generation.completion, budget, study.clock)
                if any(unread_grade(generation, kept, policy) is None for policy in study.policies):
                    wanted[job.problem.problem_id, kept.text] = job.problem
        keys = [key for key in wanted if key not in self._grades]

        def keep(place: int, grade: Grade, _: float) -> None:
            self._grades[keys[place]] = grade

        grade_all(self.task, [(wanted[key], key[1]) for key in keys], workers=workers, done=keep)

    def records(self, study: Study, job: Job, generation: Generation) -> Iterator[Record]:
        """One record a budget and policy."""
        for budget in study.budgets:
            kept = replay(generation.completion, budget, study.clock)
            for policy in study.policies:
                grade = self.grade(job.problem, generation, kept, policy)
                yield Record(
                    arm=generation.arm,
                    arm_id=generation.arm_id,
                    temperature=generation.temperature,
                    problem_id=generation.problem_id,
                    sample=generation.sample,
                    budget_seconds=budget,
                    clock=study.clock,
                    policy=policy,
                    verdict=grade.verdict,
                    answer=grade.answer,
                    reason=grade.reason,
                    tokens=kept.tokens,
                    cut=kept.cut,
                )


def check_order(problem: Problem, generation: Generation) -> None:
    """Raise ValueError where the letters of a multiple choice mean something else now than the model was shown."""
    shown, now = generation.option_order, option_order(problem)
    if shown is not None and shown != now:
        raise ValueError(
            f"problem {problem.problem_id!r}: its options were shown in the order {shown}, and the task now has them "
            f"in the order {now}; grade with the option_seed of the run"
        )


def unread_grade(generation: Generation, kept: Kept, policy: Policy) -> Grade | None:
    """The verdict on a text that is not looked at; None for one that is."""
    if generation.completion.finish_reason == "error":
        reason = f"the engine failed: {generation.completion.error}"
    elif policy == "strict" and not kept.finished:
        reason = "cut off by the budget" if kept.cut else "cut off by the token limit"
    else:
        return None
    return Grade(verdict="no_answer", answer=None, reason=reason)


def headline_policy(study: Study, task: Task) -> Policy:
    """The task's own cut-off policy where the study grades by it, else the study's first."""
    return task.default_policy if task.default_policy in study.policies else study.policies[0]


def grade_run(study: Study, task: Task, problems: Sequence[Problem], folder: Path) -> Graded:
    """Write records.jsonl anew from generations.jsonl.

    Only problems that every cell has answered are graded, so that all arms are compared on the same ones.

    Raises:
        ValueError: nothing to grade, or answers that a deadline cut before the study's largest budget: leaving these
            out would keep the easy problems, taking them in would grade a text that could have gone on.
    """
    jobs = plan_jobs(study, problems)
    measured = Measured(read_run(folder))
    answered, incomplete = [], set()
    for job in jobs:
        generation = measured.find(job)
        if generation is None:
            incomplete.add(job.problem.problem_id)
        elif not measured.answers(job):
            raise ValueError(
                f"{folder}: {job.cell.label}, problem {job.problem.problem_id!r} was cut at "
                f"{generation.budget_seconds} s, before the largest budget ({study.budgets[-1]} s); run the study first"
            )
        else:
            answered.append((job, replace(generation, arm=job.cell.arm.name)))  # an arm may have been renamed
    whole = [(job, generation) for job, generation in answered if job.problem.problem_id not in incomplete]
    if not whole:
        raise ValueError(f"{folder}: no problem is answered by every arm yet; run the study first")
    grader = Grader(task)
    grader.grade_ahead(study, whole, usable_cores())
    rows = (record.to_json() for job, generation in whole for record in grader.records(study, job, generation))
    return Graded(
        problems=len(problems) - len(incomplete),
        all_problems=len(problems),
        records=write_rows(folder / RECORDS_FILE, rows),
        generations=tuple(generation for _, generation in whole),
    )
