"""Several drafters whose drafts compete in one verification.

Knows drafters only. Their drafts become one tree: the rule `walk` may use all of it, `paper` selects the best draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engines.drafters.contract import Draft, Drafter, Prefix
from engines.speculative.drafts import trie


@dataclass(frozen=True, slots=True)
class Mixture:
    """Drafters that all draft for every sequence."""

    drafters: tuple[Drafter, ...]

    def start(self, prefix: Prefix) -> None:
        """A new sequence takes its lane."""
        for drafter in self.drafters:
            drafter.start(prefix)

    def move(self, source: int, target: int) -> None:
        """A lane's sequence goes on in another lane."""
        for drafter in self.drafters:
            drafter.move(source, target)

    def clear(self, lane: int) -> None:
        """Forget a lane whose scores were not numbers."""
        for drafter in self.drafters:
            drafter.clear(lane)

    def propose(self, prefixes: Sequence[Prefix]) -> list[Draft]:
        """The drafts of all drafters in one tree for each sequence."""
        proposals = [drafter.propose(prefixes) for drafter in self.drafters]
        return [merged(drafts) for drafts in zip(*proposals, strict=True)]

    def rehearse(self, context: int) -> None:
        """One round's forwards after `context` tokens."""
        for drafter in self.drafters:
            drafter.rehearse(context)


def merged(drafts: Sequence[Draft]) -> Draft:
    """Drafts of several drafters as one; the first error counts."""
    failed = [draft for draft in drafts if draft.error]
    if failed:
        return failed[0]
    trees = [draft.tree for draft in drafts]
    return Draft(trie([[tree.tokens[node] for node in tree.path(leaf)] for tree in trees for leaf in tree.leaves]))
