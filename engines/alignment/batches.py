"""Batches of about equal texts, by padded tokens: a function of the seed and the batch's number alone."""

import random
from collections.abc import Callable, Sequence
from itertools import cycle

from engines.alignment.examples import Example


def fill_batch(draw: Callable[[], Example], tokens: int) -> list[Example]:
    """Examples until one more would pass `tokens` padded tokens."""
    batch: list[Example] = []
    width = 0
    while True:
        example = draw()
        width = max(width, len(example))
        if batch and width * (len(batch) + 1) > tokens:
            return batch
        batch.append(example)


def rollout_batch(rollouts: Sequence[Example], step: int, seed: int, tokens: int) -> list[Example]:
    """The batch of a step from rollouts sorted by length: a run of neighbours from a random place."""
    rng = random.Random(f"{seed}/{step}")
    at = rng.randrange(len(rollouts))
    order = cycle([*rollouts[at:], *rollouts[:at]])
    return fill_batch(lambda: next(order), tokens)
