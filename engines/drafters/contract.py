"""What a drafter is to the decode loop: live sequences in, a draft for each out.

Knows no target and no clock. Sequence i of those handed in always holds lane i.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from engines.draws import Draws
from engines.speculative.drafts import NO_DRAFT, DraftTree


class Prefix(Protocol):
    """What a drafter sees of a sequence: its lane, and its tokens, the last of which is the bonus token."""

    lane: int
    draws: Draws
    prompt: list[int]

    @property
    def messages(self) -> Sequence[Mapping[str, str]]:
        """The chat that the prompt is made of."""
        ...

    @property
    def text(self) -> list[int]:
        """Prompt and answer so far."""
        ...


class Draft(NamedTuple):
    """Candidates for one round.

    laws:  [G, V] probabilities that the tokens were drawn from; None for rules that do not weigh them
    learn: to be called with the accepted nodes, where the size of later drafts depends on them
    error: why there is none
    """

    tree: DraftTree
    laws: Tensor | None = None
    learn: Callable[[list[int]], None] | None = None
    error: str | None = None


NOTHING = Draft(NO_DRAFT)
NOT_NUMBERS = Draft(NO_DRAFT, error="the drafter's scores are not numbers")


class Drafter(Protocol):
    """Drafts for the live sequences; keeps what it needs of each, lane by lane."""

    def start(self, prefix: Prefix) -> None:
        """A new sequence takes its lane: read its prompt, as far as the bonus token.

        Raises ValueError where the drafter cannot take it.
        """
        ...

    def move(self, source: int, target: int) -> None:
        """A lane's sequence goes on in another lane."""
        ...

    def clear(self, lane: int) -> None:
        """Forget a lane whose scores were not numbers, with all that lies in it."""
        ...

    def propose(self, prefixes: Sequence[Prefix]) -> list[Draft]:
        """A draft for each sequence."""
        ...

    def rehearse(self, context: int) -> None:
        """Do the forwards of one round after `context` tokens of no meaning, to be timed."""
        ...
