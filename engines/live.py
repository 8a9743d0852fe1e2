"""A request while it is served: what it was asked, what it has so far, and the lane that it holds.

Knows no model. Everything that decoding, drafters and answers share about one sequence is here.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engines.answer import Answer
from engines.contract import Request
from engines.draws import Draws


@dataclass(slots=True, kw_only=True)
class Live:
    """One sequence in decoding.

    begun:                   when it was admitted, on time.perf_counter
    kept, drafted, accepted: tokens of the last round
    """

    request: Request
    prompt: list[int]
    answer: Answer
    draws: Draws
    lane: int
    begun: float
    kept: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def messages(self) -> Sequence[Mapping[str, str]]:
        """The chat that the prompt is made of."""
        return self.request.messages

    @property
    def text(self) -> list[int]:
        """Prompt and answer so far; the last token is the bonus token, not yet seen by any model."""
        return self.prompt + self.answer.tokens

    def keep(self, run: list[int], *, drafted: int) -> None:
        """Add a round's tokens to the answer, as far as it goes: the accepted drafts, then the bonus token."""
        self.kept = self.answer.keep(run)
        self.drafted, self.accepted = drafted, len(run) - 1
        self.draws.keep(run)

    def note(self, *, draft: float, verify: float) -> None:
        """Record the round that has just ended, and end the answer where its budget is spent."""
        seconds = time.perf_counter() - self.begun
        self.answer.note(
            kept=self.kept,
            drafted=self.drafted,
            accepted=self.accepted,
            draft=draft,
            verify=verify,
            seconds=seconds,
        )
        if self.answer.finish is None and seconds >= self.request.budget_seconds:
            self.answer.finish = "budget"
