"""The accepted streak in expectation, for each shape its own formula, from the target's law alone.

Knows tensors only. For rules that follow the target's own draws. What was measured is counted in results/acceptance.py.
"""

import torch
from torch import Tensor

from engines.speculative.drafts import DraftTree


def expected_streak(target_logs: Tensor) -> Tensor:
    """Expected number of accepted tokens of each draft when it is walked alone.

    Shapes:
        target_logs: [..., G]; entry j = log P(x_j | prefix, x_<j)
        returns:     [...]; sum over m of the product of the first m probabilities
    Source: SpecDiff-2, Eq. 7.
    """
    return target_logs.cumsum(dim=-1).exp().sum(dim=-1)


def expected_tree_streak(tree: DraftTree, log_laws: Tensor) -> float:
    """Expected number of accepted tokens when the whole tree is walked: over all nodes, the chance to get there.

    Shapes:
        log_laws: [1 + N, V] log-probabilities of the target after the bonus token and after every node
    """
    reached = [1.0]
    probabilities = log_laws[torch.tensor(tree.parents) + 1, torch.tensor(tree.tokens)].exp().tolist()
    for parent, probability in zip(tree.parents, probabilities, strict=True):
        reached.append(reached[parent + 1] * probability)
    return sum(reached[1:])
