"""Where the time of a server's rounds goes: forwards of target and drafter, and all that is between two rounds.

A round lasts from the start of the target's forward to the start of the next one's, and counts only where that one is a
round too: so a prefill in between, and an idle server, count nowhere. It holds all that SGLang and the drafting do
between two forwards. Sums are kept by the number of requests in the batch, for every way to draft alike, and stand in
`/server_info`. On a CPU alone: on a GPU a forward goes on after it was called.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

STATE_KEY = "streak_rounds"


@dataclass(slots=True)
class RoundTimes:
    """Sums of one server process.

    sums: by number of requests: rounds, their seconds, those of the drafter's forwards, those of the target's
    """

    sums: dict[int, list[float]] = field(default_factory=dict)
    _begun: float = 0.0
    _requests: int = 0
    _draft: float = 0.0
    _verify: float = 0.0

    def begin(self, requests: int, *, is_round: bool) -> None:
        """The target's forward begins; the round before it, if there was one, ends. A prefill is none."""
        now = time.perf_counter()
        if is_round and self._requests:
            sums = self.sums.setdefault(self._requests, [0, 0.0, 0.0, 0.0])
            for place, value in enumerate((1, now - self._begun, self._draft, self._verify)):
                sums[place] += value
        self._begun, self._requests, self._draft, self._verify = now, requests if is_round else 0, 0.0, 0.0

    @contextmanager
    def forward(self, *, is_drafter: bool) -> Iterator[None]:
        """Add a forward's seconds to the round under way."""
        begun = time.perf_counter()
        yield
        seconds = time.perf_counter() - begun
        if is_drafter:
            self._draft += seconds
        else:
            self._verify += seconds


TIMES = RoundTimes()


def timed_forward(forward: Callable[..., Any], runner: Any, batch: Any, *others: Any, **named: Any) -> Any:
    """Around every forward of SGLang's model runner."""
    if not runner.is_draft_worker:
        mode = batch.forward_mode
        TIMES.begin(batch.batch_size, is_round=mode.is_decode() or mode.is_target_verify())
    with TIMES.forward(is_drafter=runner.is_draft_worker):
        return forward(runner, batch, *others, **named)


def with_rounds(answer: Any, *_arguments: object, **_named: object) -> Any:
    """After SGLang's scheduler has told its state: the sums beside it, as lists of plain numbers."""
    answer.internal_state[STATE_KEY] = [[requests, *sums] for requests, sums in sorted(TIMES.sums.items())]
    return answer
