"""The plan of a study: every request in its order, and which of them a run folder already answers.

Knows no engine and no grade. The order interleaves the arms A B B A over the problems, so that a machine that drifts
favours none of them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.contract import Request
from engines.sampling import Sampling
from harness.study import Cell, Study
from results.ledger import read_generations
from results.provenance import digest_of
from results.records import Completion, Generation
from tasks.contract import Problem

GENERATIONS_FILE = "generations.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request of a study."""

    cell: Cell
    problem: Problem
    sample: int
    prompt_id: str
    request: Request

    def generation(self, completion: Completion) -> Generation:
        """The completion at its place in the study."""
        return Generation(
            arm=self.cell.arm.name,
            arm_id=self.cell.arm_id,
            temperature=self.cell.temperature,
            problem_id=self.problem.problem_id,
            sample=self.sample,
            prompt_id=self.prompt_id,
            budget_seconds=self.request.budget_seconds,
            completion=completion,
            option_order=option_order(self.problem),
        )


def option_order(problem: Problem) -> str | None:
    """The order in which a problem shows its options; None where it has none."""
    order = problem.data.get("option_order")
    return None if order is None else str(order)


def request_seed(study_seed: int, problem_id: str, sample: int) -> int:
    """The seed of a problem's sample: the same for every arm, machine and order (63 bits)."""
    text = f"{study_seed}/{problem_id}/{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def plan_jobs(study: Study, problems: Sequence[Problem]) -> list[Job]:
    """All requests of a study, in the order in which they are made.

    Raises:
        ValueError: two problems with one id, whose answers could not be told apart.
    """
    cells = study.cells
    jobs: list[Job] = []
    seen: set[str] = set()
    for problem in problems:
        if problem.problem_id in seen:
            raise ValueError(f"task {study.task!r}: two problems have the id {problem.problem_id!r}")
        seen.add(problem.problem_id)
        prompt_id = digest_of([dict(message) for message in problem.messages])
        for sample in range(study.samples):
            turn = [make_job(study, cell, problem, sample, prompt_id) for cell in cells]
            is_second = (len(jobs) // len(cells)) % 2 == 1
            jobs.extend(reversed(turn) if is_second else turn)
    return jobs


def make_job(study: Study, cell: Cell, problem: Problem, sample: int, prompt_id: str) -> Job:
    """The request of one problem's sample to one cell."""
    sampling = Sampling(
        temperature=cell.temperature,
        max_tokens=study.max_tokens,
        stop=study.stop,
        seed=request_seed(study.seed, problem.problem_id, sample),
        **study.law,
    )
    request = Request(
        request_id=f"{cell.arm_id}/{problem.problem_id}/{sample}",
        messages=problem.messages,
        sampling=sampling,
        budget_seconds=study.deadline_seconds,
    )
    return Job(cell=cell, problem=problem, sample=sample, prompt_id=prompt_id, request=request)


def read_run(folder: Path) -> Iterator[Generation]:
    """Every generation of a run folder; none where nothing ran yet. Raises ValueError for a row that cannot be read."""
    path = folder / GENERATIONS_FILE
    if path.exists():
        yield from read_generations(path)


class Measured:
    """The generations of a run folder by what they answer; of several for one job, the one with the latest deadline."""

    def __init__(self, generations: Iterable[Generation]) -> None:
        self._longest: dict[tuple[str, str, int, str], Generation] = {}
        for generation in generations:
            key = (*generation.key, generation.prompt_id)
            known = self._longest.get(key)
            if known is None or deadline_of(generation) > deadline_of(known):
                self._longest[key] = generation

    def find(self, job: Job) -> Generation | None:
        """The job's generation, whatever its deadline was."""
        return self._longest.get((job.cell.arm_id, job.problem.problem_id, job.sample, job.prompt_id))

    def answers(self, job: Job) -> bool:
        """Whether nothing is left to generate: there is one, and no deadline before the job's own cut it off."""
        found = self.find(job)
        if found is None:
            return False
        return found.completion.finish_reason != "budget" or deadline_of(found) >= job.request.budget_seconds


def deadline_of(generation: Generation) -> float:
    """Seconds after which the generation was ended; infinite without a deadline."""
    return float("inf") if generation.budget_seconds is None else generation.budget_seconds
