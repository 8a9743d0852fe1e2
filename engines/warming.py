"""Warming an engine up: the same for every engine, since all of them stream completions with timed rounds.

Knows streams and seconds. Source of the rule: the median of 20 rounds moves by < 3 %, at most 200 rounds.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice, pairwise

from engines.contract import Request, WarmUp
from results.records import Completion

WINDOW, TOLERANCE, MOST_ROUNDS = 20, 0.03, 200


def warm_up(
    stream: Callable[[Iterable[Request]], Iterator[Completion]], requests: Iterable[Request], concurrency: int
) -> WarmUp:
    """Decode the requests in turn, `concurrency` of them at once, until the median round settles."""
    turns = cycle(requests)
    seconds: list[float] = []
    medians: list[float] = []
    fruitless = 0
    while len(seconds) < MOST_ROUNDS and fruitless < WINDOW:
        completions = list(stream(islice(turns, concurrency)))
        # A prompt without room, or an answer of one token, has no round to time; the study records it as it is.
        fruitless = 0 if any(len(completion.rounds) > 1 for completion in completions) else fruitless + 1
        for completion in completions:
            marks = [r.seconds for r in completion.rounds]
            seconds += [after - before for before, after in pairwise(marks)]
        medians = [statistics.median(seconds[at : at + WINDOW]) for at in range(0, len(seconds) - WINDOW + 1, WINDOW)]
        if len(medians) >= 2 and abs(medians[-1] / medians[-2] - 1) < TOLERANCE:
            return WarmUp(rounds=len(seconds), settled=True, median_round_seconds=medians[-1])
    return WarmUp(
        rounds=len(seconds), settled=False, median_round_seconds=statistics.median(seconds) if seconds else 0.0
    )
