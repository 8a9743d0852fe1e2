"""Tensor parallelism: what is drawn at random is drawn on every rank, and the first rank's is what counts.

Knows torch.distributed; a group of one needs nothing. Everything else of a round follows from these tensors in whole
numbers, so it is the same on every rank.
"""

import torch
from torch import Tensor


def as_on_first_rank(group: torch.distributed.ProcessGroup | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The first rank's values of tensors of whole numbers, in one broadcast; `group` None: there is one rank."""
    if group is None:
        return tensors
    packed = torch.cat([tensor.reshape(-1).long() for tensor in tensors])
    torch.distributed.broadcast(packed, group_src=0, group=group)
    parts = packed.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True))
