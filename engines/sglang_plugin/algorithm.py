"""SPECDIFF2 as SGLang sees it: which of its branches it takes, and its server arguments, checked once.

It counts as `standalone`, SGLang's family of drafters that are models with a cache of their own and read nothing of the
target's hidden states: SGLang then makes room for the drafter's keys and values and relays what travels between rounds
(engines/sglang_plugin/state.py). Three methods that SGLang 0.5.23 calls are missing in its own class for registered
algorithms: create_future_map, need_topk and carries_draft_hidden_states.
"""

from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from engines.sglang_plugin.arguments import refuse_features, refuse_other_models
from engines.sglang_plugin.settings import TREE_BRANCHES, read_arm

DEFAULT_RUNNING = 48
"""Requests at a time: each reserves twice the nodes of a round in the cache."""


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
