"""The accepted streak of a draft in expectation, from the target's law alone.

Knows tensors only. For rules that follow the target's own draws. What was measured is counted in results/acceptance.py.
"""

from torch import Tensor


def expected_streak(target_logs: Tensor) -> Tensor:
    """Expected number of accepted tokens of each draft when it is walked alone.

    Shapes:
        target_logs: [..., G]; entry j = log P(x_j | prefix, x_<j)
        returns:     [...]; sum over m of the product of the first m probabilities
    Source: SpecDiff-2, Eq. 7.
    """
    return target_logs.cumsum(dim=-1).exp().sum(dim=-1)
