"""What an engine is to Streak: requests in, completions with per-round times out; plain values only, no tensors.

Knows no task and no study. The engines that are there: engines/reference.py and engines/sglang_engine.py.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from engines.sampling import Sampling, require
from results.records import Completion

NumberFormat = Literal["float32", "bfloat16"]
NUMBER_FORMATS: tuple[NumberFormat, ...] = get_args(NumberFormat)
MOST_THREADS = 1024
LARGEST_CONCURRENCY = 4096


class EngineError(OSError):
    """The engine itself cannot go on, as where its server dies; no request is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One chat to continue until it stops or its wall-clock budget is spent (clock `service`: prefill counts)."""

    request_id: str
    messages: Sequence[Mapping[str, str]]
    sampling: Sampling
    budget_seconds: float = math.inf

    def __post_init__(self) -> None:
        require(self.budget_seconds > 0, "budget_seconds", self.budget_seconds, "a number of seconds > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What it took until the step time settled: the median of 20 rounds moves by < 3 %, at most 200 rounds."""

    rounds: int
    settled: bool
    median_round_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BareForwards:
    """Seconds of a round's forwards timed apart, nothing else in between: medians of repeated calls.

    draft_seconds is 0 where drafting takes no forward.
    """

    draft_seconds: float
    verify_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSums:
    """Rounds of a batch that followed one another without a prefill or a pause: how many, and sums of their seconds.

    seconds: from round to round; draft_seconds and verify_seconds are the models' forwards in them
    """

    rounds: int = 0
    seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def minus(self, earlier: "RoundSums") -> "RoundSums":
        """The rounds since then."""
        return RoundSums(
            rounds=self.rounds - earlier.rounds,
            seconds=self.seconds - earlier.seconds,
            draft_seconds=self.draft_seconds - earlier.draft_seconds,
            verify_seconds=self.verify_seconds - earlier.verify_seconds,
        )


class Engine(Protocol):
    """Serves one arm: a target, and possibly a drafter, held in memory."""

    def warm_up(self, requests: Iterable[Request]) -> WarmUp:
        """Decode the requests until the step time settles; nothing of it is kept."""
        ...

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Completions as they finish; a request that fails is one with finish_reason `error`, not an exception.

        Raises EngineError where the engine itself cannot go on; what was under way is lost.
        """
        ...

    def token_gap(self, request: Request, prefix: Sequence[int], first: int, second: int) -> float:
        """How near a tie was: distance of two tokens' scores after prompt and prefix, in float32.

        At temperature 0 the target's logits; above, what a seeded draw compares: logits over temperature, plus noise;
        or, where it is smaller, how near one of them is to the border of top-k, top-p or min-p.
        """
        ...

    def bare_forwards(self, context: int, nodes: int) -> BareForwards | None:
        """Time drafting, and verifying `nodes` drafted tokens (0: a plain step), after `context` tokens.

        None where the engine cannot time them apart. Raises ValueError, naming the limit, where they do not fit.
        """
        ...

    def round_sums(self) -> Mapping[int, RoundSums]:
        """Rounds since the engine was opened by the number of requests that shared them; empty where it cannot tell."""
        ...

    def describe(self) -> dict[str, Any]:
        """Everything resolved that could change outcome or speed: digests, formats, threads, chat template."""
        ...

    def close(self) -> None:
        """Free what the engine holds; safe to call twice."""
        ...
