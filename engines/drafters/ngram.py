"""Prompt lookup: the draft is what followed the last tokens where they stood before in the text. No model.

Source: Saxena (2023), prompt lookup decoding. The longest ending that stood before counts, and of its places the last.
"""

from collections.abc import Sequence

from engines.drafters.contract import Draft, Prefix
from engines.speculative.drafts import NO_DRAFT, DraftTree, trie

LONGEST = 4
"""Tokens of the longest ending that is looked up."""


class NgramDrafting:
    """Per lane, where every short sequence of tokens last stood."""

    def __init__(self, window: int, lanes: int) -> None:
        self.window = window
        self.after: list[dict[tuple[int, ...], int]] = [{} for _ in range(lanes)]
        self.indexed = [0] * lanes

    def start(self, prefix: Prefix) -> None:
        """A new sequence takes its lane."""
        self.clear(prefix.lane)

    def move(self, source: int, target: int) -> None:
        """A lane's sequence goes on in another lane."""
        self.after[target], self.indexed[target] = self.after[source], self.indexed[source]

    def clear(self, lane: int) -> None:
        """Forget a lane."""
        self.after[lane], self.indexed[lane] = {}, 0

    def propose(self, prefixes: Sequence[Prefix]) -> list[Draft]:
        """What followed each text's ending before; an empty draft where nothing did."""
        return [Draft(self.look_up(prefix.lane, prefix.text)) for prefix in prefixes]

    def look_up(self, lane: int, text: list[int]) -> DraftTree:
        """The draft for one text."""
        after = self.after[lane]
        # Endings of the text itself are left out, so that an ending found is an earlier one.
        for end in range(max(1, self.indexed[lane]), len(text)):
            for length in range(1, min(LONGEST, end) + 1):
                after[tuple(text[end - length : end])] = end
        self.indexed[lane] = len(text)
        for length in range(min(LONGEST, len(text) - 1), 0, -1):
            place = after.get(tuple(text[-length:]))
            if place is not None:
                return trie([text[place : place + self.window]])
        return NO_DRAFT

    def rehearse(self, context: int) -> None:
        """There is no forward to time."""
