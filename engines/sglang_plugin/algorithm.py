"""SPECDIFF2 as SGLang sees it: which of its branches it takes, and its server arguments, checked once.

It counts as `standalone`, SGLang's family of drafters that are models with a cache of their own and read nothing of the
target's hidden states: SGLang then makes room for the drafter's keys and values and relays what travels between rounds
(engines/sglang_plugin/state.py). Three methods that SGLang 0.5.23 calls are missing in its own class for registered
algorithms: create_future_map, need_topk and carries_draft_hidden_states.
"""

from pathlib import Path
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from engines.chat import TOKENIZER_FILE
from engines.checkpoints import DrafterConfig, read_drafter_settings
from engines.drafters.loading import words
from engines.json_object import JsonObject
from engines.sglang_plugin.settings import ATTENTION, NAME, TREE_BRANCHES, Arm, read_arm

DEFAULT_RUNNING = 48
"""Requests at a time: each reserves twice the nodes of a round in the cache."""
WINDOW_ATTENTION = ("triton", ATTENTION)
"""Backends that take a forward's own keys from the forward: the drafter's window has no slots in the cache."""


class SpecDiff2(CustomSpecAlgo):  # type: ignore[misc]
    """The registered algorithm."""

    def is_standalone(self) -> bool:
        """Its family."""
        return True

    def create_future_map(self, device: Any, pool: Any, *options: Any, **named: Any) -> Any:
        """SGLang's relay between overlapping rounds."""
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, pool, *options, **named)

    def need_topk(self) -> bool:
        """The relay carries the drafts in a field of this name."""
        return True

    def carries_draft_hidden_states(self) -> bool:
        """Drafts need none."""
        return False

    def handle_server_args(self, server_args: Any) -> None:
        """Check the server's arguments and derive those that follow from them; SGLang records what is assigned.

        Raises:
            ValueError: an argument is missing or not allowed.
        """
        args = server_args
        arm = read_arm(args.speculative_draft_model_path, args.speculative_num_steps, args.speculative_eagle_topk)
        refuse_features(args)
        refuse_other_models(args, arm)
        is_tree = arm.speculation.shape == "tree"
        args.speculative_eagle_topk = TREE_BRANCHES if is_tree else arm.speculation.num_drafts
        args.speculative_num_draft_tokens = 1 + arm.nodes
        args.enable_mixed_chunk = False
        if args.max_running_requests is None:
            args.max_running_requests = DEFAULT_RUNNING
        if args.device != "cpu" and args.speculative_draft_attention_backend is None:
            args.speculative_draft_attention_backend = "triton"


def refuse_features(args: Any) -> None:
    """Raise ValueError for what SPECDIFF2 was not made for or not tested with."""
    backend = args.speculative_draft_attention_backend or (args.attention_backend if args.device == "cpu" else "triton")
    allowed = {
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
    target, drafter = configuration(args.model_path, args), configuration(args.speculative_draft_model_path, args)
    place, other = args.speculative_draft_model_path, args.model_path
    drafter_settings(drafter, arm, place)
    if drafter.vocab_size != target.vocab_size:
        raise ValueError(
            f"{place}: the drafter's vocabulary has {drafter.vocab_size} entries, that of the target {other} has "
            f"{target.vocab_size}; they must be the same"
        )
    files = [Path(path) / TOKENIZER_FILE for path in (place, other)]
    if all(file.is_file() for file in files) and words(files[0].parent) != words(files[1].parent):
        raise ValueError(f"{place}: the drafter's tokens are not those of the target {other}; they must be the same")
    context = args.context_length or target.max_position_embeddings
    if drafter.max_position_embeddings < context:
        raise ValueError(
            f"{place}: the drafter's context of {drafter.max_position_embeddings} tokens is shorter than the target's "
            f"{context}; set context_length to the smaller one"
        )


def configuration(path: str, args: Any) -> Any:
    """A model's config.json, local or from the hub, as transformers reads it."""
    from sglang.srt.utils.hf_transformers_utils import get_config

    try:
        return get_config(path, trust_remote_code=args.trust_remote_code)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: no model directory, and no model of this name: {str(error).splitlines()[0]}"
        ) from error


def drafter_settings(config: Any, arm: Arm, place: str) -> DrafterConfig:
    """Mask token and shift of a drafter, those of the arm before those of its config.json.

    Raises:
        ValueError: the model is no drafter.
    """
    raw = config.to_dict() | {"model_type": config.model_type} | arm.further.of_drafter
    return read_drafter_settings(JsonObject(Path(place) / "config.json", raw), config.vocab_size)
