"""What a running server says of itself: whether it serves an arm, and what of it a study records.

Knows the answers of /server_info and /model_info. A failed plugin is only a line in a server's log, so whether the
arm's algorithm is there is looked up here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.contract import RoundSums
from engines.sampling import require
from engines.serving.arguments import ServerArm
from engines.sglang_plugin.registration import TESTED_VERSION
from engines.sglang_plugin.round_times import STATE_KEY
from engines.sglang_plugin.settings import NAME

RECORDED = (
    "version",
    "device",
    "dtype",
    "kv_cache_dtype",
    "quantization",
    "attention_backend",
    "sampling_backend",
    "speculative_draft_attention_backend",
    "tp_size",
    "page_size",
    "context_length",
    "chunked_prefill_size",
    "max_running_requests",
    "max_total_num_tokens",
    "mem_fraction_static",
    "schedule_policy",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "disable_cuda_graph",
    "enable_deterministic_inference",
    "random_seed",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
"""Of some 550 arguments those that change answers or seconds; paths and addresses stay where they are."""
NAMED = ("model_path", "speculative_draft_model_path")


def resolved(info: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded; models by the last part of their path."""
    found = {key: info[key] for key in RECORDED if info.get(key) is not None}
    return found | {key: Path(str(info[key])).name for key in NAMED if info.get(key)}


def read_rounds(info: Mapping[str, Any]) -> dict[int, RoundSums]:
    """The sums of the server's rounds by the number of requests; of the first rank, where there are several."""
    rows = (info.get("internal_states") or [{}])[0].get(STATE_KEY, [])
    return {
        int(requests): RoundSums(rounds=int(rounds), seconds=seconds, draft_seconds=draft, verify_seconds=verify)
        for requests, rounds, seconds, draft, verify in rows
    }


def check_server(arm: ServerArm, info: Mapping[str, Any], served: Mapping[str, Any], url: str) -> None:
    """Raise ValueError where the server does not serve the arm."""
    version = info.get("version")
    if arm.algorithm == NAME and version != TESTED_VERSION:
        raise ValueError(f"{url}: SGLang {version}; {NAME} was tested with {TESTED_VERSION} alone")
    wanted, found = Path(arm.model).name, Path(str(served.get("model_path"))).name
    if wanted != found:
        raise ValueError(f"{url}: the server serves model {found!r}, the study asks for {wanted!r}")
    algorithm = info.get("speculative_algorithm")
    runs = None if algorithm is None else str(algorithm).upper()
    if runs != arm.algorithm:
        remedy = "; is the plugin installed where the server runs?" if arm.algorithm == NAME else ""
        raise ValueError(
            f"{url}: the server drafts by {runs or 'nothing'}, the arm by {arm.algorithm or 'nothing'}{remedy}"
        )
    if arm.seeds and not info.get("enable_deterministic_inference"):
        raise ValueError(
            f"{url}: the server ignores the seeds of requests; start it with --enable-deterministic-inference, or set "
            "seeds = false in [engine]"
        )
    if arm.speculation and arm.algorithm == NAME:
        check_sizes(arm, info, url)


def check_sizes(arm: ServerArm, info: Mapping[str, Any], url: str) -> None:
    """Raise ValueError where a running server drafts in another size than the arm."""
    speculation = arm.speculation
    if speculation is None:
        return
    found = {"window": info.get("speculative_num_steps"), "nodes": int(info["speculative_num_draft_tokens"] or 1) - 1}
    wanted = {"window": speculation.window, "nodes": speculation.most_nodes}
    for name, value in found.items():
        require(value == wanted[name], f"{url}: {name}", value, f"{wanted[name]}, as the arm has it")
