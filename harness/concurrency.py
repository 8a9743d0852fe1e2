"""Tokens per second of an arm by the number of requests that are served side by side.

Each level is an engine of its own, warmed up at that level: memory and batches depend on it. A level's seconds go from
the first request sent to the last answer's end, the tail with fewer requests under way included. Keeps no run.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from engines.contract import Engine, RoundSums
from harness import catalog
from harness.arms import Arm, window_of
from harness.bench_result import known
from harness.generate import WARM_UP_PROBLEMS
from harness.plan import plan_jobs
from harness.stamps import stamp
from harness.study import Study
from results.acceptance import acceptance
from tasks.contract import Problem

OpenAt = Callable[[Study, Arm, int], Engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """An arm at one temperature and level; tau over its rounds after the prefill, NaN where there was none.

    rounds: those that all `concurrency` requests shared, where the engine counts them
    error:  of the first request that failed, empty where none did
    stamp:  what must be said of its drafter beside these numbers (harness/stamps.py)
    """

    arm: str
    temperature: float
    concurrency: int
    requests: int
    failed: int
    error: str
    tokens: int
    seconds: float
    tau: float
    rounds: RoundSums
    settled: bool
    stamp: str

    @property
    def tokens_per_second(self) -> float:
        """Of all requests together."""
        return self.tokens / self.seconds

    @property
    def round_ms(self) -> dict[str, float]:
        """Milliseconds of such a round: forwards of drafter and target, and everything else; NaN without a round."""
        sums, count = self.rounds, self.rounds.rounds
        parts = {"draft": sums.draft_seconds, "verify": sums.verify_seconds}
        parts["other"] = sums.seconds - sum(parts.values())
        return {part: 1000 * seconds / count if count else math.nan for part, seconds in parts.items()}

    def other_over(self, measured: Iterable["Throughput"], arm: str) -> float:
        """Time of a round besides both forwards, over that of `arm` at the same temperature and level; NaN without."""
        place = (arm, self.temperature, self.concurrency)
        others = [each for each in measured if (each.arm, each.temperature, each.concurrency) == place]
        theirs = others[0].round_ms["other"] if others else math.nan
        return self.round_ms["other"] / theirs if theirs else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        ms = {part: known(value) for part, value in self.round_ms.items()}
        derived = {"tau": known(self.tau), "tokens_per_second": self.tokens_per_second}
        return asdict(self) | derived | {"rounds": self.rounds.rounds, "ms": ms}


def open_at(study: Study, arm: Arm, concurrency: int) -> Engine:
    """The arm's engine for so many requests. Raises ValueError that names study and arm."""
    settings = study.engine_settings(arm) | {"concurrency": concurrency}
    try:
        return catalog.build_engine(study.engine, study.located(study.model), settings)
    except (OSError, ValueError) as error:
        raise ValueError(f"study {study.name!r}, [arm.{arm.name}], concurrency {concurrency}: {error}") from error


def throughputs(
    study: Study, problems: Sequence[Problem], levels: Sequence[int], open_at: OpenAt = open_at
) -> Iterator[Throughput]:
    """Every arm at every level, as soon as it is measured; without the study's deadlines.

    Raises ValueError for whatever is wrong with a model.
    """
    jobs = plan_jobs(replace(study, budgets=(float("inf"),)), problems)
    for arm in study.arms:
        for level in levels:
            with closing(open_at(study, arm, level)) as engine:
                own = [job for job in jobs if job.cell.arm == arm]
                warm = engine.warm_up([job.request for job in own[: max(level, WARM_UP_PROBLEMS)]])
                for temperature in arm.temperatures:
                    requests = [job.request for job in own if job.cell.temperature == temperature]
                    before = engine.round_sums().get(level, RoundSums())
                    begun = time.perf_counter()
                    answers = list(engine.stream(requests))
                    seconds = time.perf_counter() - begun
                    fine = [answer for answer in answers if answer.finish_reason != "error"]
                    yield Throughput(
                        arm=arm.name,
                        temperature=temperature,
                        concurrency=level,
                        requests=len(answers),
                        failed=len(answers) - len(fine),
                        error=next((answer.error for answer in answers if answer.error), ""),
                        tokens=sum(len(answer.token_ids) for answer in fine),
                        seconds=seconds,
                        tau=acceptance([answer.rounds for answer in fine], window_of(arm, fine)).tau,
                        rounds=engine.round_sums().get(level, RoundSums()).minus(before),
                        settled=warm.settled,
                        stamp=stamp([{"arms": [arm.name], "describe": engine.describe()}]),
                    )
