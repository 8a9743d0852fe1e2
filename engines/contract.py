"""What an engine is to Streak: requests in, completions with per-round times out; plain values only, no tensors.

Knows no task and no study. Engines: engines/reference.py (torch, readable), engines/sglang_engine.py (SGLang).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from results.records import Completion

Shape = Literal["chain", "iid"]
Rule = Literal["walk", "paper"]
NumberFormat = Literal["float32", "bfloat16"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
RULES: tuple[Rule, ...] = get_args(Rule)
NUMBER_FORMATS: tuple[NumberFormat, ...] = get_args(NumberFormat)
SMALLEST_TEMPERATURE = 1e-3
"""Below it scores over temperature leave the range of float32; 0 is argmax and always allowed."""
LARGEST_WINDOW = 256


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise the one-line ValueError of a bad setting: what, its value, what is allowed."""
    if not condition:
        raise ValueError(f"{name} = {value!r} is not allowed; allowed: {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn from the target, and when to stop.

    Temperature 0 is argmax; `seed` makes draws repeatable.
    """

    temperature: float = 0.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        settled = self.temperature == 0 or SMALLEST_TEMPERATURE <= self.temperature < math.inf
        require(settled, "temperature", self.temperature, f"0, or a finite number >= {SMALLEST_TEMPERATURE}")
        require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "a whole number >= 1")
        require(all(self.stop), "stop", self.stop, "non-empty strings")


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
class Speculation:
    """How an arm drafts and verifies; an arm without it decodes token by token.

    drafter:            model name or directory of a diffusion drafter
    window:             tokens drafted per round (gamma)
    shape:              `chain` (one draft: argmax), `iid` (num_drafts drafts, the argmax chain among them)
    draft_temperature:  temperature of the sampled drafts of `iid`
    rule:               `walk` (descend the trie of all drafts) or `paper` (self-selection, then the chosen draft)
    """

    drafter: str
    window: int = 16
    shape: Shape = "chain"
    num_drafts: int = 1
    draft_temperature: float = 1.0
    rule: Rule = "walk"

    def __post_init__(self) -> None:
        require(bool(self.drafter), "drafter", self.drafter, "a model name or directory")
        require(1 <= self.window <= LARGEST_WINDOW, "window", self.window, f"a whole number from 1 to {LARGEST_WINDOW}")
        require(self.shape in SHAPES, "shape", self.shape, ", ".join(SHAPES))
        require(self.rule in RULES, "rule", self.rule, ", ".join(RULES))
        drawable = SMALLEST_TEMPERATURE <= self.draft_temperature < math.inf
        allowed = f"a finite number >= {SMALLEST_TEMPERATURE}"
        require(drawable, "draft_temperature", self.draft_temperature, allowed)
        if self.shape == "chain":
            require(self.num_drafts == 1, "num_drafts", self.num_drafts, "1 for shape 'chain'")
            # The chain is the argmax of every place: a temperature would change the arm's identity and nothing else.
            require(self.draft_temperature == 1, "draft_temperature", self.draft_temperature, "1 for shape 'chain'")
        else:
            require(self.num_drafts >= 2, "num_drafts", self.num_drafts, "a whole number >= 2 for shape 'iid'")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What it took until the step time settled: the median of 20 rounds moves by < 3 %, at most 200 rounds."""

    rounds: int
    settled: bool
    median_round_seconds: float


class Engine(Protocol):
    """Serves one arm: a target, and possibly a drafter, held in memory."""

    def warm_up(self, requests: Iterable[Request]) -> WarmUp:
        """Decode the requests until the step time settles; nothing of it is kept."""
        ...

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Completions as they finish; a request that fails is one with finish_reason `error`, not an exception."""
        ...

    def token_gap(self, request: Request, prefix: Sequence[int], first: int, second: int) -> float:
        """Distance of two tokens' target logits after prompt and prefix, in float32: how near a tie was."""
        ...

    def describe(self) -> dict[str, Any]:
        """Everything resolved that could change outcome or speed: digests, formats, threads, chat template."""
        ...

    def close(self) -> None:
        """Free what the engine holds; safe to call twice."""
        ...
