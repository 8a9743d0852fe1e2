"""From the marginals of a window to the draft of an arm's shape.

Knows an arm's settings and, for `auto`, what verifications take; no model and no clock.
"""

from collections.abc import Mapping

from torch import Tensor

from engines.drafters.contract import Draft
from engines.draws import Draws
from engines.pace import Pace
from engines.speculation import MOST_AUTO_NODES, Speculation
from engines.speculative.drafts import (
    NOWHERE,
    Path,
    RankedTree,
    draft_chain,
    draft_samples,
    draft_tree,
    ranked_chain,
)


def shape_draft(marginals: Tensor, speculation: Speculation, draws: Draws) -> Draft:
    """The chain or the drawn drafts of an arm with fixed sizes. marginals: [G, V] scores."""
    weighs = speculation.weighs_draft_law
    if (
        speculation.shape == "chain"
        and not weighs
        and speculation.drafting_temperature(draws.sampling.temperature) == 0
    ):
        return Draft(draft_chain(marginals))
    laws = draws.draft_laws(marginals, speculation)
    argmax = marginals if speculation.shape == "iid" and not weighs else None
    tree = draft_samples(laws, speculation.num_drafts, draws.generator, argmax=argmax)
    return Draft(tree, laws if weighs else None)


def rank_nodes(
    marginals: Tensor,
    speculation: Speculation,
    pace: Pace | None,
    temperature: float,
    below: Mapping[Path, Tensor] = NOWHERE,
) -> RankedTree:
    """The nodes of a tree, or of a chain that `auto` may cut, with the drafter's probability of each.

    Shapes:
        marginals: [G, V] scores
        below:     [G - len(path), V] scores of the places behind a path
    """
    if speculation.shape == "chain":
        return ranked_chain(marginals[:MOST_AUTO_NODES])
    if isinstance(speculation.nodes, int):
        return draft_tree(marginals, speculation.nodes, below=below)
    floor = pace.floor(temperature) if pace else float("-inf")
    return draft_tree(marginals, MOST_AUTO_NODES, floor=floor, below=below)


def choose_draft(ranked: RankedTree, pace: Pace, temperature: float) -> Draft:
    """For `auto`: as many of the nodes as pay for their verification."""
    nodes = pace.choose(ranked.path_logs, temperature)
    verified = ranked.path_logs[:nodes]
    return Draft(ranked.tree.first(nodes), learn=lambda accepted: pace.learn(verified, accepted, temperature))
