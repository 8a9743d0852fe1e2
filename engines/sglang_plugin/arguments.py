"""SGLang's server arguments, held against what SPECDIFF2 can do, and its two models against each other.

Reads no SGLang: its arguments come as an object with attributes of their names. Every complaint is one line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from engines.chat import TOKENIZER_FILE
from engines.checkpoints import CONFIG_FILE, DrafterConfig, read_drafter_settings
from engines.drafters.loading import words
from engines.json_object import JsonObject
from engines.sglang_plugin.settings import ATTENTION, NAME, Arm

WINDOW_ATTENTION = ("triton", ATTENTION)
"""Backends that take a forward's own keys from the forward: the drafter's window has no slots in the cache."""


def refuse_features(args: Any) -> None:
    """Raise ValueError for what SPECDIFF2 was not made for, or not tested with."""
    backend = args.speculative_draft_attention_backend or (args.attention_backend if args.device == "cpu" else "triton")
    allowed: Mapping[str, tuple[object, tuple[object, ...]]] = {
        "page_size": (args.page_size, (None, 1)),
        "pp_size": (args.pp_size, (1,)),
        "dp_size": (args.dp_size, (1,)),
        "enable_dp_attention": (args.enable_dp_attention, (False,)),
        "disaggregation_mode": (args.disaggregation_mode, ("null",)),
        "enable_hierarchical_cache": (args.enable_hierarchical_cache, (False,)),
        "enable_lora": (args.enable_lora, (None, False)),
        "enable_two_batch_overlap": (args.enable_two_batch_overlap, (False,)),
        "disable_cuda_graph": (args.disable_cuda_graph, (True,)),
        "speculative_draft_attention_backend": (backend, WINDOW_ATTENTION),
    }
    for name, (value, values) in allowed.items():
        if value not in values:
            listed = ", ".join(map(repr, values))
            raise ValueError(f"{NAME}: {name} = {value!r} is not supported; supported: {listed}")


def refuse_other_models(args: Any, arm: Arm) -> None:
    """Raise ValueError where the drafter is none, or its tokens or context are not the target's."""
    place, other = args.speculative_draft_model_path, args.model_path
    target, drafter = configuration(other), configuration(place)
    read_drafter(drafter, arm)
    sizes = [config.whole("vocab_size", least=1) for config in (drafter, target)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{place}: the drafter's vocabulary has {sizes[0]} entries, that of the target {other} has {sizes[1]}; "
            "they must be the same"
        )
    files = [Path(path) / TOKENIZER_FILE for path in (place, other)]
    if all(file.is_file() for file in files) and words(files[0].parent) != words(files[1].parent):
        raise ValueError(f"{place}: the drafter's tokens are not those of the target {other}; they must be the same")
    own = drafter.whole("max_position_embeddings", least=1)
    context = args.context_length or target.whole("max_position_embeddings", least=1)
    if own < context:
        raise ValueError(
            f"{place}: the drafter's context of {own} tokens is shorter than the target's {context}; set "
            "context_length to the smaller one"
        )


def configuration(path: str) -> JsonObject:
    """A model's config.json, local or from the hub.

    Raises:
        ValueError: there is none.
    """
    try:
        raw, _ = PretrainedConfig.get_config_dict(path)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: no model directory, and no model of this name: {reason}") from error
    return JsonObject(Path(path) / CONFIG_FILE, raw)


def read_drafter(config: JsonObject, arm: Arm) -> DrafterConfig:
    """Mask token and shift of a drafter, those of the arm before those of its config.json.

    Raises:
        ValueError: the model is no drafter.
    """
    settings = JsonObject(config.path, {**config.values, **arm.further.of_drafter})
    return read_drafter_settings(settings, config.whole("vocab_size", least=1))
