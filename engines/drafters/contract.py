"""What a drafter is to the decode loop: live sequences in, a draft for each out.

Knows no target and no clock. Sequence i of those handed in always holds lane i.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from engines.draws import Draws
from engines.pace import Pace
from engines.speculation import MOST_AUTO_NODES, Speculation
from engines.speculative.distributions import are_numbers
from engines.speculative.drafts import NO_DRAFT, DraftTree, draft_chain, draft_samples, draft_tree, ranked_chain


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


def shape_draft(marginals: Tensor, speculation: Speculation, draws: Draws) -> Draft:
    """The draft of an arm's shape from the marginals [G, V] of a window."""
    weighs, shape = speculation.weighs_draft_law, speculation.shape
    if not are_numbers(marginals):
        return NOT_NUMBERS
    if shape == "tree" and isinstance(speculation.nodes, int):
        return Draft(draft_tree(marginals, speculation.nodes).tree)
    if shape == "chain" and not weighs and speculation.drafting_temperature(draws.sampling.temperature) == 0:
        return Draft(draft_chain(marginals))
    laws = draws.draft_laws(marginals, speculation)
    argmax = marginals if shape == "iid" and not weighs else None
    tree = draft_samples(laws, speculation.num_drafts, draws.generator, argmax=argmax)
    return Draft(tree, laws if weighs else None)


def choose_draft(marginals: Tensor, speculation: Speculation, pace: Pace, temperature: float) -> Draft:
    """For `auto`: as much of the chain or tree that marginals [G, V] make as pays for its verification."""
    if not are_numbers(marginals):
        return NOT_NUMBERS
    if speculation.shape == "tree":
        ranked = draft_tree(marginals, MOST_AUTO_NODES, floor=pace.floor(temperature))
    else:
        ranked = ranked_chain(marginals[:MOST_AUTO_NODES])
    nodes = pace.choose(ranked.path_logs, temperature)
    verified = ranked.path_logs[:nodes]
    return Draft(ranked.tree.first(nodes), learn=lambda accepted: pace.learn(verified, accepted, temperature))
