"""A scripted engine: answers 'What is N + N?' in words that a seed draws, on a clock that only counts.

A token is a word; a round takes 10 scripted milliseconds, and an arm with a drafter keeps four tokens a round: three
accepted ones of eight drafted, and the bonus token. Bare forwards take half of these milliseconds.
"""

import random
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from engines.contract import BareForwards, Engine, Request, RoundSums, WarmUp
from engines.sampling import require
from engines.speculation import Speculation
from harness.arms import Arm
from harness.study import Study
from results.records import Completion, Round

ROUND_SECONDS = 0.01
DRAFTED, ACCEPTED, LONGEST_CONTEXT = 8, 3, 1024
FILLER = ("well", "so", "now", "then", "we", "add", "both", "numbers")


class FakeEngine:
    """Keeps a log of its requests; may fail on a problem, be interrupted at a call, or take real time."""

    def __init__(
        self,
        model: str,
        *,
        speculation: Speculation | None = None,
        log: list[Request] | None = None,
        fails_on: str = "nothing",
        interrupt_at: int = -1,
        pause_seconds: float = 0.0,
        digest: str = "0",
        **settings: object,
    ) -> None:
        self.model, self.speculation, self.settings = model, speculation, settings
        self.log = [] if log is None else log
        self.fails_on, self.interrupt_at, self.pause_seconds = fails_on, interrupt_at, pause_seconds
        self.digest, self.asked = digest, 0
        self.warmed = self.closed = False

    def warm_up(self, requests: Iterable[Request]) -> WarmUp:
        self.warmed = bool(list(requests))
        return WarmUp(rounds=40, settled=True, median_round_seconds=ROUND_SECONDS)

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        for request in requests:
            if len(self.log) == self.interrupt_at:
                raise KeyboardInterrupt
            self.log.append(request)
            time.sleep(self.pause_seconds)
            failed = self.fails_on in request.messages[-1]["content"]
            yield failure(request) if failed else self.answer(request)

    def answer(self, request: Request) -> Completion:
        words = words_of(request)
        per_round = ACCEPTED + 1 if self.speculation else 1
        rounds: list[Round] = []
        used = 0
        finish = "stop"
        while used < len(words):
            kept = min(per_round if rounds else 1, len(words) - used)
            used += kept
            chars = len(" ".join(words[:used]))
            seconds = round((len(rounds) + 1) * ROUND_SECONDS, 7)
            drafts = self.drafts(kept) if rounds else {}
            rounds.append(Round(seconds=seconds, kept=kept, chars=chars, **drafts))
            if used < len(words) and rounds[-1].seconds >= request.budget_seconds:
                finish = "budget"
                break
        return Completion(
            request_id=request.request_id,
            text=" ".join(words[:used]),
            token_ids=tuple(zlib.crc32(word.encode()) for word in words[:used]),
            prompt_tokens=4,
            finish_reason="budget" if finish == "budget" else "stop",
            rounds=tuple(rounds),
        )

    def drafts(self, kept: int) -> dict[str, Any]:
        """What a round after the prefill says of its draft; a last round may end within the accepted run."""
        if self.speculation is None:
            return {"verify_seconds": 0.008}
        return {
            "drafted": DRAFTED,
            "accepted": min(kept, ACCEPTED),
            "draft_seconds": 0.002,
            "verify_seconds": 0.006,
        }

    def bare_forwards(self, context: int, nodes: int) -> BareForwards:
        require(context <= LONGEST_CONTEXT, "context", context, f"at most {LONGEST_CONTEXT} tokens")
        width = self.speculation.window if self.speculation and nodes else 0
        return BareForwards(draft_seconds=0.0001 * int(width), verify_seconds=0.004 if nodes == 0 else 0.005)

    def token_gap(self, request: Request, prefix: Sequence[int], first: int, second: int) -> float:  # noqa: ARG002
        return 0.0

    def round_sums(self) -> dict[int, RoundSums]:
        """Ten rounds of four requests, and one of a single request, since it was asked last."""
        self.asked += 1
        return {
            size: RoundSums(
                rounds=count * self.asked,
                seconds=count * self.asked * ROUND_SECONDS,
                draft_seconds=count * self.asked * 0.002,
                verify_seconds=count * self.asked * 0.006,
            )
            for size, count in ((1, 1), (4, 10))
        }

    def describe(self) -> dict[str, Any]:
        return {"engine": "fake", "model_digest": self.digest}

    def close(self) -> None:
        self.closed = True


def words_of(request: Request) -> list[str]:
    """Filler, then the answer, which is wrong for 3 + 3; the seed only counts above temperature 0."""
    question = request.messages[-1]["content"]
    found = re.search(r"What is (\d+) \+ (\d+)\?", question)
    total = sum(map(int, found.groups())) if found else 0
    rng = random.Random(question if request.sampling.temperature == 0 else f"{question}{request.sampling.seed}")
    answer = 0 if total == 6 else total
    return [*rng.choices(FILLER, k=rng.randint(5, 40)), f"\\boxed{{{answer}}}"]


def failure(request: Request) -> Completion:
    return Completion(
        request_id=request.request_id,
        text="",
        token_ids=(),
        prompt_tokens=4,
        finish_reason="error",
        rounds=(),
        error="the prompt does not fit",
    )


def fake_engines(log: list[Request] | None = None, **behaviour: Any) -> Callable[[Study, Arm], Engine]:
    """A way to open engines that share one log."""
    shared = [] if log is None else log

    def open_engine(study: Study, arm: Arm) -> Engine:
        return FakeEngine(study.model, speculation=arm.speculation, log=shared, **behaviour)

    return open_engine
