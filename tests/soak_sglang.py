"""A soak of the engine on SGLang, outside the suite: random requests at concurrency 16 for minutes.

    OMP_NUM_THREADS=1 python tests/soak_sglang.py [--seconds 300] [--concurrency 16]

Requests have random temperatures, deadlines, stop strings and lengths. Watched: no error, texts at temperature 0 that
are the reference engine's (its beginnings where a deadline or the token cap ended them), memory of the server's
processes, an idle pool at the end, no process left.
Exit code 1 where one of these fails. Random choices are seeded.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from engines.contract import Request
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.serving import guard
from engines.sglang_engine import SglangEngine
from engines.speculation import Speculation
from results.records import Completion
from tasks.arithmetic import Arithmetic

PROBLEMS = 24
LONGEST = 160
STOPS = ((), ("The answer",), (".",), ("=", "so"))
MOST_GROWTH = 0.03
"""Of the server's memory, from the second quarter of the soak to the last."""


@dataclass(slots=True)
class Watch:
    """What was seen."""

    requests: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    overshoot_seconds: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Share by which memory grew; the first quarter warms up."""
        quarter = max(1, len(self.memory_mib) // 4)
        return (
            median(self.memory_mib[-quarter:]) / median(self.memory_mib[quarter : 2 * quarter] or self.memory_mib) - 1
        )


def random_requests(rng: random.Random, end: float) -> Iterator[Request]:
    """Requests until the time is over."""
    problems = Arithmetic(num_problems=PROBLEMS, seed=7).problems()
    number = 0
    while time.monotonic() < end:
        at = rng.randrange(PROBLEMS)
        sampling = Sampling(
            temperature=rng.choice((0.0, 0.0, 0.7, 1.0)),
            top_p=rng.choice((1.0, 0.9)),
            max_tokens=rng.choice((8, 40, LONGEST)),
            stop=rng.choice(STOPS),
        )
        budget = rng.choice((float("inf"), rng.uniform(0.05, 4.0)))
        yield Request(
            request_id=f"{number}/{at}",
            messages=problems[at].messages,
            sampling=sampling,
            budget_seconds=budget,
        )
        number += 1


def whole_texts() -> list[str]:
    """What the reference engine writes at temperature 0."""
    engine = ReferenceEngine("embedded:verifier")
    asked = [
        Request(request_id=str(at), messages=problem.messages, sampling=Sampling(max_tokens=LONGEST))
        for at, problem in enumerate(Arithmetic(num_problems=PROBLEMS, seed=7).problems())
    ]
    return [engine.complete(request).text for request in asked]


def is_of(whole: str, request: Request, completion: Completion) -> bool:
    """Whether an answer is that text up to its stop string, or its beginning where something else ended it."""
    if completion.finish_reason == "stop":
        stops = [at for at in (whole.find(stop) for stop in request.sampling.stop) if at >= 0]
        return completion.text == whole[: min(stops, default=None)]
    return bool(completion.token_ids) and whole.startswith(completion.text)


def look(watch: Watch, request: Request, completion: Completion, texts: list[str]) -> None:
    """Take note of an answer."""
    watch.requests += 1
    watch.ends[completion.finish_reason] = watch.ends.get(completion.finish_reason, 0) + 1
    if completion.error:
        watch.errors.append(completion.error)
    whole = texts[int(request.request_id.split("/")[1])]
    if request.sampling.temperature == 0 and not is_of(whole, request, completion):
        watch.strays.append(request.request_id)
    if completion.finish_reason == "budget":
        watch.overshoot_seconds.append(completion.seconds - completion.queue_seconds - request.budget_seconds)


def soak(engine: SglangEngine, seconds: float, session: int) -> Watch:
    """Serve for so long."""
    watch, texts = Watch(), whole_texts()
    asked: dict[str, Request] = {}

    def remembered() -> Iterator[Request]:
        for request in random_requests(random.Random(1), time.monotonic() + seconds):
            asked[request.request_id] = request
            yield request

    for completion in engine.stream(remembered()):
        look(watch, asked.pop(completion.request_id), completion, texts)
        watch.memory_mib.append(memory_mib(session))
    engine.flush()
    return watch


def memory_mib(session: int) -> float:
    """Resident memory of the server's processes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in guard.members(session)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    """Run it and print what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--concurrency", type=int, default=16)
    options = parser.parse_args()
    log = Path(tempfile.mkdtemp(prefix="soak-")) / "server.log"
    chain = Speculation(drafter="embedded:aligned", window=12)
    engine = SglangEngine("embedded:verifier", speculation=chain, concurrency=options.concurrency, seeds=False, log=log)
    process = engine.process
    if process is None:
        raise ValueError("the soak needs a server of its own")
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    session = os.getsid(int(child))
    try:
        watch = soak(engine, options.seconds, session)
    finally:
        engine.close()
    left = guard.members(session)
    print(  # noqa: T201 (a script)
        json.dumps(
            {
                "requests": watch.requests,
                "ends": watch.ends,
                "errors": watch.errors[:5],
                "strays": watch.strays[:5],
                "overshoot_seconds": {
                    "median": median(watch.overshoot_seconds or [0.0]),
                    "largest": max(watch.overshoot_seconds, default=0.0),
                },
                "memory_mib": {"first": watch.memory_mib[0], "last": watch.memory_mib[-1], "growth": watch.growth},
                "processes_left": left,
            },
            indent=2,
        )
    )
    fine = not watch.errors and not watch.strays and watch.growth < MOST_GROWTH and not left
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
