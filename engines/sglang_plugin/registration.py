"""Makes SPECDIFF2 known to the SGLang process that loads it, if that is the SGLang it was made for.

SGLang's plugin interface is not stable. So the version must be the tested one, and every name that the plugin touches
must be there; SGLang logs what a plugin raises and goes on without it.
"""

import os
import pkgutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from engines.sglang_plugin.requests import refuse_inexact
from engines.sglang_plugin.round_times import timed_forward, with_rounds
from engines.sglang_plugin.settings import NAME

TESTED_VERSION = "0.5.23"
# Cheap to import, and the ones that other releases have moved or renamed; the worker's own imports say what it misses.
TOUCHED = (
    "sglang.srt.arg_groups.choices:add_attention_backend_choices",
    "sglang.srt.arg_groups.choices:add_draft_attention_backend_choices",
    "sglang.srt.arg_groups.choices:add_deterministic_attention_backend_choices",
    "sglang.srt.arg_groups.choices:add_radix_supported_deterministic_attention_backend_choices",
    "sglang.srt.layers.attention.attention_registry:ATTENTION_BACKENDS",
    "sglang.srt.models.registry:ModelRegistry.models",
    "sglang.srt.plugins.hook_registry:HookRegistry.register",
    "sglang.srt.plugins.hook_registry:HookType.REPLACE",
    "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.register",
    "sglang.srt.speculative.spec_registry:CustomSpecAlgo.handle_server_args",
)


def register_algorithm() -> None:
    """Register the algorithm with its drafters, its attention, and what a CPU needs.

    Raises:
        RuntimeError: another SGLang than the tested one.
    """
    refuse_other_sglang()
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from engines.sglang_plugin.algorithm import SpecDiff2
    from engines.sglang_plugin.attention import register_attention

    register: Callable[..., Any] = SpeculativeAlgorithm.register
    register(NAME, supports_overlap=True, spec_class=SpecDiff2)(worker_class)
    register_attention()
    register_drafters()
    register_hooks()


def refuse_other_sglang() -> None:
    """Raise RuntimeError where SGLang is not the tested one, or lacks a name."""
    found = version("sglang")
    if found != TESTED_VERSION:
        raise RuntimeError(f"{NAME} needs SGLang {TESTED_VERSION}, found {found}; pip install sglang=={TESTED_VERSION}")
    for name in (*TOUCHED, VALIDATION, FORWARD, STATE, *CPU_FUNCTIONS):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            raise RuntimeError(f"{NAME}: SGLang {found} has no {name}: {error}") from error


def worker_class(server_args: Any) -> Any:
    """The worker, imported in the process that runs it, together with Dream's architecture."""
    del server_args
    from sglang.srt.models.registry import ModelRegistry

    from engines.sglang_plugin.models.dream import DreamModel
    from engines.sglang_plugin.worker import SpecDiff2Worker

    ModelRegistry.models[DreamModel.__name__] = DreamModel
    return SpecDiff2Worker


def register_drafters() -> None:
    """Dream's configuration, which is Qwen2's with a mask token."""
    from transformers import AutoConfig, Qwen2Config

    class DreamConfig(Qwen2Config):
        """Without trust_remote_code."""

        model_type = "Dream"

    AutoConfig.register("Dream", DreamConfig, exist_ok=True)


def register_hooks() -> None:
    """Functions of SGLang that are extended, or on a CPU replaced by torch, by SGLang's own means."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(VALIDATION.replace(":", "."), refuse_inexact, HookType.BEFORE)
    if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
        for name, function in CPU_FUNCTIONS.items():
            HookRegistry.register(name.replace(":", "."), function, HookType.REPLACE)
        HookRegistry.register(FORWARD.replace(":", "."), timed_forward, HookType.AROUND)
        HookRegistry.register(STATE.replace(":", "."), with_rounds, HookType.AFTER)


def relayed(rows: Any, numbers: Any, tokens: Any, bonus: Any, hidden: Any) -> tuple[Any, ...]:
    """What the relay between overlapping rounds holds for some rows; SGLang's own is a triton kernel."""
    return numbers[rows], tokens[rows], bonus[rows], None if hidden is None else hidden[rows]


def already_invariant(*_arguments: object, **_options: object) -> None:
    """Torch on one CPU thread needs no kernels whose results do not depend on the batch; SGLang's are CUDA's."""


VALIDATION = "sglang.srt.managers.tokenizer_manager:TokenizerManager._validate_one_request"
FORWARD = "sglang.srt.model_executor.model_runner:ModelRunner.forward"
STATE = "sglang.srt.managers.scheduler_components.internal_state:SchedulerInternalStateController.get_internal_state"
CPU_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sglang.srt.managers.overlap_utils:gather_spec_extras": relayed,
    "sglang.srt.batch_invariant_ops:enable_batch_invariant_mode": already_invariant,
}
