"""A drafter's milliseconds per round against the length of the context, and against the window.

The paper's Table 6 is against the window, after 256 tokens; with an exact prefix cache the context should hardly
matter. Times bare forwards of the engines of a study's arms; makes no request and writes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from engines.contract import Engine
from engines.speculation import Speculation
from harness.arms import Arm
from harness.generate import OpenEngine, engine_id, open_engine, open_named
from harness.study import Study

Against = Literal["context", "window"]
CONTEXT = 256
"""Of the paper's Table 6."""
WINDOW = 16
"""For an arm that leaves its window to the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One drafter's seconds per round; `refused` is the engine's reason where it could not be timed."""

    arm: str
    drafter: str
    against: Against
    context: int
    window: int
    seconds: float | None = None
    ratio: float | None = None
    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        milliseconds = None if self.seconds is None else 1000 * self.seconds
        numbers = {"context": self.context, "window": self.window, "milliseconds": milliseconds, "ratio": self.ratio}
        return {"arm": self.arm, "drafter": self.drafter, "against": self.against} | numbers | {"refused": self.refused}


def latencies(
    study: Study, contexts: Sequence[int], windows: Sequence[int], open_engine: OpenEngine = open_engine
) -> Iterator[Latency]:
    """Every drafter at every context, with and without its prefix cache, and with every window.

    Contexts are timed with the drafter's own window, windows after the first context, or 256.
    A `ratio` is to the first context or window that could be timed.
    Raises ValueError where the study has no diffusion drafter, or for whatever is wrong with a model.
    """

    def timed(arm: Arm, chain: Speculation, against: Against, contexts: Sequence[int]) -> Iterator[Latency]:
        drafting = replace(arm, speculation=chain)
        with closing(open_named(study, drafting, open_engine)) as engine:
            for context in contexts:
                yield time_drafter(engine, arm.name, chain, against, context)

    for arm, chain in drafters(study):
        if contexts:
            yield from in_ratio(timed(arm, chain, "context", contexts))
            yield from in_ratio(timed(arm, replace(chain, prefix_cache=not chain.prefix_cache), "context", contexts))
        chains = [replace(chain, window=window) for window in windows]
        after = contexts[:1] or [CONTEXT]
        yield from in_ratio(latency for each in chains for latency in timed(arm, each, "window", after))


def drafters(study: Study) -> list[tuple[Arm, Speculation]]:
    """The first arm of each diffusion drafter, and a chain of its window: its forward is the same for every shape."""
    unique: dict[str, tuple[Arm, Speculation]] = {}
    for arm in study.arms:
        theirs = arm.speculation
        if theirs is None or theirs.drafting != "diffusion":
            continue
        window = theirs.window if isinstance(theirs.window, int) else WINDOW
        chain = Speculation(
            drafter=theirs.drafter,
            window=window,
            steps=theirs.steps,
            prefix_cache=theirs.prefix_cache,
            cross_tokenizer=theirs.cross_tokenizer,
        )
        alike = replace(arm, speculation=replace(chain, window=WINDOW))
        unique.setdefault(engine_id(study, alike), (arm, chain))
    if not unique:
        raise ValueError(f"study {study.name!r}: no arm has a diffusion drafter, and --context and --window time these")
    return list(unique.values())


def time_drafter(engine: Engine, arm: str, chain: Speculation, against: Against, context: int) -> Latency:
    """One place: the drafter's seconds, or why the engine would not."""
    window = int(chain.window)
    named = ", ".join(chain.drafters) + ("" if chain.prefix_cache else ", no prefix cache")
    place = Latency(arm=arm, drafter=named, against=against, context=context, window=window)
    try:
        forwards = engine.bare_forwards(context, window)
    except ValueError as error:
        return replace(place, refused=str(error))
    if forwards is None:
        return replace(place, refused="this engine does not time its forwards apart")
    return replace(place, seconds=forwards.draft_seconds)


def in_ratio(found: Iterable[Latency]) -> Iterator[Latency]:
    """The same with ratios to the first that was timed."""
    first: float | None = None
    for latency in found:
        first = first or latency.seconds
        yield replace(latency, ratio=latency.seconds / first) if latency.seconds and first else latency
