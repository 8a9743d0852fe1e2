"""Replay: what a completion had written by a wall-clock budget, on each of the three clocks.

A completion runs once, to the largest budget; for decoding that does not look at the budget, its text by a smaller
budget is the text of that moment. One round is the granularity: a round that ends after the budget is not kept.
Knows seconds and text; what a text is worth is for grade.py.
"""

from dataclasses import dataclass

from results.records import Clock, Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a budget kept of a completion.

    text, tokens: all that was there when the budget ran out
    cut:          whether the budget ended the text before the model did: a later round is not kept, or the engine
                  itself stopped at the deadline. Not cut: the model stopped, failed, or reached the token limit in time
    finished:     whether the answer is complete: the model stopped by itself within the budget
    """

    text: str
    tokens: int
    cut: bool
    finished: bool


def replay(completion: Completion, budget_seconds: float, clock: Clock) -> Kept:
    """What `completion` had written `budget_seconds` after `clock` started."""
    limit = completion.clock_offset(clock) + budget_seconds
    kept = [r for r in completion.rounds if r.seconds <= limit]
    is_whole = len(kept) == len(completion.rounds)
    return Kept(
        text=completion.text[: kept[-1].chars] if kept else "",
        tokens=sum(r.kept for r in kept),
        cut=not is_whole or completion.finish_reason == "budget",
        finished=is_whole and completion.finish_reason == "stop",
    )
