"""The drafter's window and its drafts as tensors: what its rows see, and marginals to drafts of an arm's shape.

Knows tensors and the arm; drafter.py runs the model.
"""

import torch
from torch import Tensor

from engines.sglang_plugin.settings import Arm
from engines.sglang_plugin.tree import best_first


def window_sees(counts: Tensor, kept: int, width: int) -> Tensor:
    """What the rows of a round's forward see of each other.

    Shapes:
        counts:  [B] tokens just kept, of at most `kept`; behind them the window's `width` rows
        returns: [B, kept + width, kept + width]
    """
    order = torch.arange(kept + width, device=counts.device)
    row, column, count = order.view(1, -1, 1), order.view(1, 1, -1), counts.view(-1, 1, 1)
    sees = (column <= row) | ((row >= count) & (column < count + width))
    return (sees & (row < count + width)) | (row == column)


def propose(marginals: Tensor, arm: Arm) -> Tensor:
    """Drafts of the arm's shape from marginals [B, G, V]: what `state.carried` takes."""
    speculation = arm.speculation
    if speculation.shape == "tree":
        tokens, parents = best_first(marginals, arm.nodes)
        return torch.cat((tokens[:, 1:], parents[:, 1:]), dim=1)
    argmax = marginals.argmax(-1)[:, None]
    temperature = speculation.drafting_temperature(0.0)
    if temperature == 0:
        return argmax[:, 0]
    sampled = speculation.num_drafts - (speculation.shape == "iid")
    batch, window, vocab_size = marginals.shape
    laws = torch.softmax(marginals / temperature, dim=-1).view(-1, vocab_size)
    drawn = torch.multinomial(laws, sampled, replacement=True).view(batch, window, sampled).transpose(1, 2)
    drafts = torch.cat((argmax, drawn), dim=1) if speculation.shape == "iid" else drawn
    return drafts.reshape(batch, -1)
