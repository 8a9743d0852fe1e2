"""Low-rank adapters in place of full training (LoRA, Hu et al., 2022), by the optional package peft.

Knows a decoder. What is kept of a training is a whole model with the adapters added to its weights.
"""

import copy
import importlib.util

import torch

from engines.cache import DecoderConfig
from engines.decoder import Decoder

TARGETS = ["qkv", "out", "gate_up", "down"]


def require_peft() -> None:
    """Raise ValueError where the package is not there."""
    if importlib.util.find_spec("peft") is None:
        raise ValueError("lora_rank needs the package peft; run: pip install peft, or set lora_rank = 0")


def refuse_rank(rank: int, shape: DecoderConfig) -> None:
    """Raise ValueError for a rank that some matrix does not have, or where the package is not there."""
    require_peft()
    most = min(shape.hidden_size, shape.num_attention_heads * shape.head_dim, shape.intermediate_size)
    if not 1 <= rank <= most:
        raise ValueError(f"lora_rank = {rank} is not allowed; allowed: 0, or at most {most}, the rank of its matrices")


def add_adapters(decoder: Decoder, rank: int, *, alpha: int, seed: int) -> Decoder:
    """Freeze the weights and put adapters of `rank` beside the layers' matrices; the same decoder, changed in place."""
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    decoder.requires_grad_(False)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=TARGETS), decoder)
    return decoder


def adapter_parameters(decoder: Decoder) -> int:
    """Number of weights that are trained."""
    return sum(p.numel() for p in decoder.parameters() if p.requires_grad)


def merged(decoder: Decoder) -> Decoder:
    """A copy with the adapters added to the weights they stand beside."""
    from peft.tuners.lora import LoraLayer

    whole = copy.deepcopy(decoder)
    for name, module in list(whole.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            place, _, own = name.rpartition(".")
            setattr(whole.get_submodule(place), own, module.get_base_layer())
    return whole
