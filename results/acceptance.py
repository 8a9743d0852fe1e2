"""Acceptance of drafts from counts: tau with and without the bonus token, and acceptance by position of the window.

Knows rounds as results.records has them; no engine, no clock. Words: docs/NOTATION.md.

Censoring. A position has been tested if the target's token there is part of the answer: then the draft held that token
(accepted) or it did not (rejected). After an end token, a stop string, the token cap or a deadline nothing is kept, and
whether the positions behind would have been accepted is not known: they count neither way. So a round that kept k
tokens tested the first k positions, as far as its draft went. The bonus token is a test too: it stands where the
draft's next token was refused.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from results.records import Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One place of the window: rounds that tested it (all places before it were accepted), and that accepted it."""

    tested: int
    accepted: int

    @property
    def alpha(self) -> float:
        """Acceptance given that all positions before were accepted; NaN where no round came so far."""
        return self.accepted / self.tested if self.tested else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Sums over rounds after the prefill, and the places of the window from the first on."""

    rounds: int
    kept: int
    accepted: int
    positions: tuple[Position, ...]

    @property
    def tau(self) -> float:
        """Accepted draft tokens per round, as a ratio of sums; NaN without a round."""
        return self.accepted / self.rounds if self.rounds else math.nan

    @property
    def tau_with_bonus(self) -> float:
        """Tokens kept per round, as a ratio of sums; NaN without a round."""
        return self.kept / self.rounds if self.rounds else math.nan

    @property
    def alpha(self) -> tuple[float, ...]:
        """Conditional acceptance by position."""
        return tuple(position.alpha for position in self.positions)

    @property
    def survival(self) -> tuple[float, ...]:
        """Probability that a position is reached and accepted: the product of alpha up to it.

        The product and not a share of all rounds, which would take a censored round for a rejected one (Kaplan and
        Meier, 1958). Its sum over positions is the tau of rounds that nothing cuts short. Behind a position that was
        never accepted it is 0, though no round was left to test there.
        """
        return tuple(accumulate(self.alpha, lambda survived, alpha: survived and survived * alpha))


def acceptance(answers: Iterable[Sequence[Round]], window: int) -> Acceptance:
    """Pool the rounds of answers, the first round of each being its prefill.

    A round does not record how deep its draft was, only its number of nodes; depth is taken as the smaller of window
    and nodes. That is exact for a chain, and for whatever contains a chain of the whole window (`iid`, `tree`). Where
    a tree's branch ends before the window does, the place behind it counts as tested and not accepted.

    Args:
        answers: rounds of each answer
        window: places of the draft; 0 for plain decoding

    Raises:
        ValueError: a negative window.
    """
    if window < 0:
        raise ValueError(f"window = {window} is not allowed; allowed: a whole number >= 0")
    rounds = [each for answer in answers for each in answer[1:]]
    depths = [min(window, each.drafted) for each in rounds]
    tested = [min(depth, each.kept, each.accepted + 1) for each, depth in zip(rounds, depths, strict=True)]
    accepted = [min(depth, each.accepted) for each, depth in zip(rounds, depths, strict=True)]
    return Acceptance(
        rounds=len(rounds),
        kept=sum(each.kept for each in rounds),
        accepted=sum(each.accepted for each in rounds),
        positions=tuple(
            Position(tested=came, accepted=passed)
            for came, passed in zip(_at_least(tested, window), _at_least(accepted, window), strict=True)
        ),
    )


def _at_least(lengths: Iterable[int], window: int) -> list[int]:
    """How many lengths are at least 1, 2, ... window."""
    counts = Counter(lengths)
    return list(accumulate(counts[length] for length in range(window, 0, -1)))[::-1]
