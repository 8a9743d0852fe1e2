"""The bench: a study's arms on the same prompts, timed in memory, and what their seconds say of speculation.

Grades nothing and writes nothing. All engines are open and warm; requests are made one by one in the plan's order
(A B B A), or arm by arm where a study says that its engines do not fit side by side. Beside each answer the forwards of
its mean round are timed alone: what is left between them and the measured seconds is not the models'. Clock `decode`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from engines.contract import BareForwards, Engine
from harness.arms import Arm, window_of
from harness.bench_result import ArmResult, Bare
from harness.generate import (
    WARM_UP_PROBLEMS,
    OpenEngine,
    Progress,
    complete,
    engine_id,
    open_engine,
    open_named,
    parts,
)
from harness.plan import plan_jobs
from harness.study import Cell, Study
from results.acceptance import acceptance
from results.provenance import collect_provenance
from results.records import Clock, Completion, Generation
from tasks.contract import Problem

BENCH_STUDY = Path(__file__).with_name("bench.toml")
CLOCK: Clock = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Forwards timed beside one answer, at the mean context and number of drafted nodes of its rounds."""

    context: int
    nodes: int
    rounds: int
    forwards: BareForwards


class Bench:
    """The engines of a study's arms and what they are asked; a context manager. Arms with equal settings share one."""

    def __init__(self, study: Study, problems: Sequence[Problem], open_engine: OpenEngine = open_engine) -> None:
        self.study = study
        # Without the study's deadlines: a bench times whole answers, of slow arms and fast ones alike.
        undeadlined = replace(study, budgets=(math.inf,))
        self.jobs = [job for part in parts(undeadlined) for job in plan_jobs(part, problems)]
        self.facts: dict[str, dict[str, Any]] = {}
        self._open_engine = open_engine
        self._names = {arm.name: engine_id(study, arm) for arm in study.arms}
        self._engines: dict[str, Engine] = {}
        self._bare: dict[str, list[Timed]] = defaultdict(list)
        self._stack = ExitStack()

    def prepare(self) -> None:
        """Open and warm up the engines that stand side by side. Raises ValueError for what is wrong with a model."""
        if self.study.interleave:
            self._open(self.study.arms)

    def _open(self, arms: Sequence[Arm]) -> None:
        for arm in arms:
            name = self._names[arm.name]
            if name not in self._engines:
                engine = self._engines[name] = open_named(self.study, arm, self._open_engine)
                self._stack.callback(engine.close)
                self.facts[name] = {"engine_id": name, "arms": [], "describe": engine.describe()}
            self.facts[name]["arms"].append(arm.name)
        for name, engine in self._engines.items():
            own = [job.request for job in self.jobs if self._names[job.cell.arm.name] == name]
            self.facts[name]["warm_up"] = asdict(engine.warm_up(own[:WARM_UP_PROBLEMS]))

    def _turn_to(self, arm: Arm) -> Engine:
        """The arm's engine; where engines do not fit side by side, in place of the last one."""
        if self._names[arm.name] not in self._engines:
            self._stack.close()
            self._engines.clear()
            self._open([arm])
        return self._engines[self._names[arm.name]]

    def run(self, progress: Progress) -> list[Generation]:
        """Make all requests, in the plan's order, or arm by arm. Raises ValueError as `prepare`, EngineError."""
        generations: list[Generation] = []
        engine_seconds = 0.0
        progress.start(self.jobs, 0)
        try:
            for job in self.jobs:
                engine = self._turn_to(job.cell.arm)
                completion = complete(engine, job)
                engine_seconds += completion.seconds
                generations.append(job.generation(completion))
                # Beside the request that they are held against: a machine's speed drifts within seconds.
                timed = time_bare(engine, completion) if len(completion.rounds) > 1 else None
                if timed:
                    self._bare[job.cell.arm_id].append(timed)
                progress.note(job, generations[-1], engine_seconds)
        finally:
            progress.close()
        return generations

    def results(self, generations: Sequence[Generation], against: str | None = None) -> list[ArmResult]:
        """Speeds, acceptance and bare forwards of every cell; tau over that of the arm `against`, if one is named.

        Raises ValueError where every request failed.
        """
        from analysis.frames import generations_frame
        from analysis.headline import headline

        completions = [generation.completion for generation in generations]
        if all(completion.finish_reason == "error" for completion in completions):
            first = completions[0].error if completions else "there is none"
            raise ValueError(f"study {self.study.name!r}: no request was answered; the first: {first}")
        table = headline(generations_frame(generations), baseline=self.study.baseline, clock=CLOCK, against=against)
        rows = {(row["arm"], row["temperature"]): row for row in table.to_dict("records")}
        results = [
            self._result(cell, rows[cell.arm.name, cell.temperature], answers_of(cell, generations))
            for cell in self.study.cells
        ]
        return [self._with_late(each, generations, against) for each in results] if against else results

    @staticmethod
    def _with_late(result: ArmResult, generations: Sequence[Generation], against: str) -> ArmResult:
        """The result with the survival of the window's second half over that of the arm `against`."""
        from analysis.survival import late_ratio

        at = [each for each in generations if each.temperature == result.cell.temperature]
        own = [each for each in at if each.arm == result.cell.arm.name]
        other = [each for each in at if each.arm == against]
        late = late_ratio(own, other, result.half)
        columns = {"late_ratio": late.value, "late_ratio_low": late.low, "late_ratio_high": late.high}
        return replace(result, speeds={**result.speeds, **columns})

    def _result(self, cell: Cell, speeds: Mapping[str, Any], answers: Sequence[Completion]) -> ArmResult:
        found = acceptance([answer.rounds for answer in answers], window_of(cell.arm, answers))
        baseline = next((each for each in self.study.cells if is_plain_baseline(self.study, each, cell)), None)
        steps = self._bare[baseline.arm_id] if baseline else []
        bare = mean_bare(self._bare[cell.arm_id], steps) if steps and self._bare[cell.arm_id] else None
        return ArmResult(cell=cell, speeds=speeds, acceptance=found, bare=bare)

    def to_json(self, results: Iterable[ArmResult], against: str | None = None) -> dict[str, Any]:
        """Plain values: `arms` by name, or by `NAME T=1` where the study has several temperatures, and provenance.

        against: the arm behind `tau_ratio` and `late_ratio`
        """
        several = len({cell.temperature for cell in self.study.cells}) > 1
        arms = {(each.cell.label if several else each.cell.arm.name): each.to_json() for each in results}
        facts = {"clock": CLOCK, "study": self.study.to_json(), "engines": list(self.facts.values())}
        return {"arms": arms, "against": against, "provenance": collect_provenance(facts)}

    def close(self) -> None:
        """Close the engines; safe to call twice."""
        self._stack.close()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_plain_baseline(study: Study, cell: Cell, other: Cell) -> bool:
    """Whether a cell is the baseline of another one, and decodes plainly: a limit is over plain steps alone."""
    return cell.arm.name == study.baseline and not cell.arm.drafts and cell.temperature == other.temperature


def time_bare(engine: Engine, completion: Completion) -> Timed | None:
    """Time the forwards of an answer's mean round, where the engine can."""
    context = round(fmean(contexts_of([completion])))
    nodes = round(fmean(each.drafted for each in completion.rounds[1:]))
    forwards = engine.bare_forwards(context, nodes)
    if forwards is None:
        return None
    return Timed(context=context, nodes=nodes, rounds=len(completion.rounds) - 1, forwards=forwards)


def mean_bare(timed: Sequence[Timed], steps: Sequence[Timed]) -> Bare:
    """Means over all rounds of an arm, and over those of its baseline."""

    def mean(values: Iterable[float], over: Sequence[Timed]) -> float:
        return fmean(values, weights=[each.rounds for each in over])

    forwards = BareForwards(
        draft_seconds=mean((each.forwards.draft_seconds for each in timed), timed),
        verify_seconds=mean((each.forwards.verify_seconds for each in timed), timed),
    )
    return Bare(
        context=round(mean((each.context for each in timed), timed)),
        nodes=round(mean((each.nodes for each in timed), timed)),
        step_seconds=mean((each.forwards.verify_seconds for each in steps), steps),
        forwards=forwards,
    )


def answers_of(cell: Cell, generations: Iterable[Generation]) -> list[Completion]:
    """The cell's completions that did not fail."""
    own = [generation.completion for generation in generations if generation.arm_id == cell.arm_id]
    return [completion for completion in own if completion.finish_reason != "error"]


def contexts_of(answers: Iterable[Completion]) -> Iterable[int]:
    """Tokens before each round after the prefill."""
    for answer in answers:
        context = answer.prompt_tokens
        for before, _ in zip(answer.rounds, answer.rounds[1:], strict=False):
            context += before.kept
            yield context
