"""Rounds behind the chunks of a streamed answer: a server that is behind sends several rounds as one chunk.

Knows numbers of tokens. A server counts, for every answer, how many rounds accepted 0, 1, 2 ... drafts; that histogram
comes with the last chunk, and says which chunks were several rounds. Without speculation a round is a token.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement

MOST_MERGED = 4
"""Rounds in one chunk that are told apart exactly; more are cut into equal parts."""


def rounds_of(chunks: Sequence[int], histogram: Sequence[int] | None) -> list[list[int]]:
    """Tokens of the rounds in every chunk after the prefill, bonus tokens counted.

    The last round may have more than its chunk still holds: an end token or the token cap cut it.

    Args:
        chunks:    tokens of each chunk
        histogram: how many rounds accepted so many drafts; None without speculation
    """
    if histogram is None:
        return [[1] * size for size in chunks]
    counted = Counter({accepted + 1: rounds for accepted, rounds in enumerate(histogram) if rounds})
    sizes = list(chunks)
    if sizes:
        sizes[-1] += max(0, sum(size * rounds for size, rounds in counted.items()) - sum(sizes))
    if counted.total() <= len(sizes):
        return [[size] for size in sizes]
    left = counted - Counter(sizes)
    spare = Counter(sizes) - counted
    found: list[list[int]] = []
    for size in sizes:
        parts = [size]
        if spare[size] > 0:
            spare[size] -= 1
            parts = split(size, left)
            left -= Counter(parts)
        found.append(parts)
    return even_out(found, counted.total())


def split(size: int, left: Counter[int]) -> list[int]:
    """Some of the rounds that are left, with so many tokens together; the size itself where none fit."""
    for count in range(2, MOST_MERGED + 1):
        for parts in combinations_with_replacement(sorted(left), count):
            if sum(parts) == size and not Counter(parts) - left:
                return list(parts)
    return [size]


def even_out(found: list[list[int]], rounds: int) -> list[list[int]]:
    """Cut the largest rounds in two until there are as many as were counted."""
    while (missing := rounds - sum(map(len, found))) > 0:
        largest = max(max(parts) for parts in found)
        if largest < 2:
            break
        for parts in found:
            if missing and largest in parts:
                parts.remove(largest)
                parts += [largest // 2, largest - largest // 2]
                missing -= 1
    return found
