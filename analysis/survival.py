"""How far drafts live: places behind the middle of the window, of one arm over another's.

Knows generations as results.records has them; touches no file.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from analysis.intervals import UNKNOWN, Interval, rate_ratio
from results.records import Generation


def late_ratio(arm: Iterable[Generation], other: Iterable[Generation], half: int, *, seed: int = 0) -> Interval:
    """Accepted places behind place `half` per round of an arm, over that of another on the same problems.

    The mean of the survivals of these places over the other arm's, with a 95 % interval over problems. Unknown (NaN)
    where the two have no problem with rounds in common, or the other arm came so far in none.
    """
    ours, theirs = late_sums(arm, half), late_sums(other, half)
    shared = sorted(ours.keys() & theirs.keys())
    table = np.array([[*ours[problem], *theirs[problem]] for problem in shared], dtype=float).reshape(-1, 4)
    if not table[:, 2].sum():
        return UNKNOWN
    late, rounds, other_late, other_rounds = table.T
    return rate_ratio(late, rounds, other_late, other_rounds, np.random.default_rng(seed))


def late_sums(generations: Iterable[Generation], half: int) -> dict[str, tuple[int, int]]:
    """By problem: accepted places behind place `half`, and rounds after the prefill; failed generations left out."""
    late, rounds = Counter[str](), Counter[str]()
    for generation in generations:
        if generation.completion.finish_reason != "error":
            after = generation.completion.rounds[1:]
            late[generation.problem_id] += sum(max(0, each.accepted - half) for each in after)
            rounds[generation.problem_id] += len(after)
    return {problem: (late[problem], count) for problem, count in rounds.items() if count}
