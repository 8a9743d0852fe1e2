"""Several processes that train one model (torchrun, FSDP2): weights sharded over ranks, states gathered whole.

Without torchrun there is one rank and everything here is plain. Knows modules and optimizers; no loss and no file. The
backend is gloo on CPUs and NCCL on GPUs. A whole state is the same for any number of ranks above one.
"""

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from engines.decoder import Decoder


def join() -> None:
    """Take part in the group that torchrun set up; nothing without it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if on_gpu else "gloo")


def leave() -> None:
    """Leave the group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def count() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """This process's place among them."""
    return dist.get_rank() if dist.is_initialized() else 0


def wait() -> None:
    """Wait until all ranks are here."""
    if count() > 1:
        dist.barrier()


def mean(value: Tensor) -> float:
    """Mean of a scalar over ranks."""
    if count() == 1:
        return float(value)
    whole_sum = value.detach().double().clone()
    dist.all_reduce(whole_sum)
    return float(whole_sum) / count()


def total(value: float) -> float:
    """Sum of a number over ranks."""
    device = "cuda" if count() > 1 and dist.get_backend() == "nccl" else "cpu"
    return mean(torch.tensor(float(value), dtype=torch.float64, device=device)) * count()


def shard(decoder: Decoder) -> Decoder:
    """Spread the weights over the ranks, layer by layer; the same decoder, changed in place."""
    if count() > 1:
        for layer in decoder.layers:
            fully_shard(layer)
        # The output head is used after the root's forward: its weights stay whole until the backward is through.
        fully_shard(decoder, reshard_after_forward=False)
    return decoder


def refuse_unsharded(optimizer: str) -> None:
    """Raise ValueError for an optimizer that needs whole matrices, where these are spread over ranks."""
    if count() > 1 and optimizer == "muon":
        raise ValueError(f"optimizer = 'muon' needs whole matrices; with {count()} processes set optimizer = 'adamw'")


def whole(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> tuple[Any, Any]:
    """States of model and optimizers as if one rank held them all; complete on the first rank only."""
    if count() == 1:
        return model.state_dict(), [optimizer.state_dict() for optimizer in optimizers]
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, states = get_state_dict(model, list(optimizers), options=options)
    return weights, [states]


def load_whole(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], weights: Any, states: Any) -> None:
    """Take up what `whole` gave. Raises ValueError where one process left it and several go on, or the reverse."""
    if (count() == 1) != is_plain(states[0]):
        raise ValueError("one process cannot go on with the training state of several, nor several with that of one")
    if count() == 1:
        model.load_state_dict(weights)
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        return
    options = StateDictOptions(full_state_dict=True)
    set_state_dict(model, list(optimizers), model_state_dict=weights, optim_state_dict=states[0], options=options)


def is_plain(state: dict[str, Any]) -> bool:
    """Whether parameters are named by number, as a single optimizer's own state names them."""
    return all(isinstance(key, int) for key in state["state"])
