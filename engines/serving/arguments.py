"""How an arm is started: its settings as arguments and environment of the server that is to serve it.

Plain values in and out: nothing is started and no model is opened here. Names of arguments are SGLang's own, with
underscores. What a study writes under [engine.server] and [arm.NAME.server] is passed through, and wins over ours.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from engines.contract import NumberFormat
from engines.sampling import Sampling, require
from engines.sglang_plugin.cpu import cpu_environment
from engines.sglang_plugin.requests import NEUTRAL
from engines.sglang_plugin.settings import ATTENTION, NAME, SETTINGS_VARIABLE
from engines.sglang_plugin.settings import RULES as PLUGIN_RULES
from engines.speculation import AUTO, Drafting, Speculation

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = get_args(Device)
Value = str | int | float | bool
ALGORITHM, DRAFTER = "speculative_algorithm", "speculative_draft_model_path"
ALGORITHMS: Mapping[Drafting, str] = {"diffusion": NAME, "autoregressive": "STANDALONE", "ngram": "NGRAM"}
ALIASES = {"NEXTN": "EAGLE"}
GPU_ONLY = ("STANDALONE", "EAGLE", "EAGLE3", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP")
"""Algorithms of SGLang's own that its CPU engine cannot run: no tree attention for their drafters there."""
OURS = ("model_path", "host", "port", "incremental_streaming_output")
"""Arguments that a study cannot set: the engine would lose its server, or the sense of its answers."""
OF_THE_ARM = (
    ALGORITHM,
    DRAFTER,
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
"""Arguments that the keys of an arm with a way to draft already say: others would be used than are recorded."""
ARGUMENT = re.compile(r"[a-z][a-z0-9_]*")
SPARE_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArm:
    """What one server serves; its fields are an arm's settings, with models located and the device known.

    model, drafter:  directories, or names on a hub; a drafter may also be named by a server argument in `more`
    context:         tokens of prompt and answer; `limited` if that is less than the model's own
    seeds:           whether requests bring seeds that count
    more:            server arguments of the study
    """

    model: str
    drafter: str | None = None
    speculation: Speculation | None = None
    number_format: NumberFormat = "float32"
    device: Device = "cpu"
    threads: int = 1
    concurrency: int = 1
    context: int
    limited: bool = False
    seeds: bool = False
    more: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.more:
            require(bool(ARGUMENT.fullmatch(key)), "server argument", key, "SGLang's names, with _ for -")
        for key in OURS:
            require(key not in self.more, f"server argument {key!r}", self.more.get(key), "nothing: the engine sets it")
        if self.speculation:
            check_speculation(self.speculation, self.device)
            for key in OF_THE_ARM:
                allowed = "nothing: the arm's own keys say it"
                require(key not in self.more, f"server argument {key!r}", self.more.get(key), allowed)
        on_gpu = self.device == "cuda" or self.algorithm not in GPU_ONLY
        require(on_gpu, "algorithm", self.algorithm, f"{NAME} and NGRAM on a CPU; this one needs a GPU")

    @property
    def algorithm(self) -> str | None:
        """SGLang's name of the way to draft; None for plain decoding."""
        if self.speculation is None:
            named = self.more.get(ALGORITHM)
            return None if named is None else ALIASES.get(str(named).upper(), str(named).upper())
        return ALGORITHMS[self.speculation.drafting]

    @property
    def tokens(self) -> int:
        """Tokens that a cache needs for all requests at once, with twice a round's nodes, which are reserved."""
        nodes = self.speculation.most_nodes if self.speculation else 0
        return self.concurrency * (self.context + 2 * (nodes + 1)) + SPARE_TOKENS

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set before the server's first process starts."""
        found = {"SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS": "0"}  # else a crashed server takes a minute to go
        if self.device == "cpu":
            found |= cpu_environment() | {"OMP_NUM_THREADS": str(self.threads)}
        if self.speculation and self.algorithm == NAME:
            found[SETTINGS_VARIABLE] = json.dumps(plugin_settings(self.speculation))
        return found

    @property
    def arguments(self) -> dict[str, Value]:
        """Server arguments, without host and port."""
        found: dict[str, Value] = {
            "model_path": self.model,
            "device": self.device,
            "dtype": self.number_format,
            "max_running_requests": self.concurrency,
            "random_seed": 0,
            "incremental_streaming_output": True,
            "enable_metrics": True,  # queue times come with it
            "skip_server_warmup": True,
            "log_level_http": "warning",
        }
        if self.limited:
            found["context_length"] = self.context
        if self.seeds:
            found["enable_deterministic_inference"] = True
        found |= self._drafting() | self._device_arguments()
        if self.seeds and self.device == "cuda" and "sampling_backend" not in found:
            found["sampling_backend"] = "pytorch"
        return found | dict(self.more)

    def _drafting(self) -> dict[str, Value]:
        speculation = self.speculation
        if speculation is None:
            return {}
        found: dict[str, Value] = {ALGORITHM: str(self.algorithm)}
        if self.drafter:
            found[DRAFTER] = self.drafter
        if self.algorithm == "NGRAM":
            return found | {"speculative_num_draft_tokens": speculation.most_nodes + 1}
        found |= {"speculative_num_steps": int(speculation.window), "speculative_eagle_topk": speculation.num_drafts}
        if self.algorithm == "STANDALONE":
            found["speculative_num_draft_tokens"] = speculation.most_nodes + 1
        elif self.device == "cuda":
            found["disable_cuda_graph"] = True
        return found

    def _device_arguments(self) -> dict[str, Value]:
        if self.device == "cuda":
            return {}
        return {
            "attention_backend": ATTENTION,
            "sampling_backend": "pytorch",
            "disable_cuda_graph": True,
            "max_total_tokens": self.tokens,
            "sleep_on_idle": True,  # servers of other arms would take the core from the one that works
        }

    @property
    def command_line(self) -> list[str]:
        """The arguments as SGLang's launcher takes them; a flag that is false is left out."""
        return list(flags(self.arguments))


def device_of(server: Mapping[str, Value]) -> tuple[Device, dict[str, Value]]:
    """The device that a study's server arguments name, else `cuda` where torch sees a GPU, and the other arguments.

    Raises ValueError for another device.
    """
    more = dict(server)
    named = more.pop("device", None)
    for device in DEVICES:
        if named == device:
            return device, more
    require(named is None, "server argument 'device'", named, ", ".join(DEVICES))
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu"), more


def flags(arguments: Mapping[str, Value]) -> Iterator[str]:
    """--name value, and --name alone for true."""
    for name, value in arguments.items():
        if value is False:
            continue
        yield f"--{name.replace('_', '-')}"
        if value is not True:
            yield str(value)


def plugin_settings(speculation: Speculation) -> dict[str, Any]:
    """What SGLang has no argument for, as engines/sglang_plugin reads it."""
    settings = {
        "shape": speculation.shape,
        "rule": speculation.rule,
        "nodes": speculation.nodes,
        "draft_temperature": speculation.draft_temperature,
    }
    return {key: value for key, value in settings.items() if value is not None}


def check_speculation(speculation: Speculation, device: Device) -> None:
    """Raise ValueError for what only the reference engine can do."""
    here = "for engine 'sglang'"
    require(AUTO not in (speculation.window, speculation.nodes), "window or nodes", AUTO, f"whole numbers {here}")
    require(len(speculation.drafters) <= 1, "drafter", speculation.drafter, f"one model {here}")
    require(speculation.rule in PLUGIN_RULES, "rule", speculation.rule, f"{', '.join(PLUGIN_RULES)} {here}")
    require(speculation.steps == 1, "steps", speculation.steps, f"1 {here}")
    require(not speculation.branches, "branches", speculation.branches, f"0 {here}")
    require(speculation.prefix_cache, "prefix_cache", False, f"true {here}")
    require(not speculation.cross_tokenizer, "cross_tokenizer", True, f"false {here}")
    fine = speculation.drafting != "autoregressive" or device == "cuda"
    require(fine, "drafting", speculation.drafting, f"diffusion, ngram {here} on a CPU")


def refusal_of(arm: ServerArm, sampling: Sampling) -> str | None:
    """Why this server cannot serve such a request without changing its law in silence; None where it can."""
    if sampling.temperature > 0 and arm.device == "cpu" and arm.algorithm == "NGRAM":
        return f"temperature = {sampling.temperature:g}: SGLang's own NGRAM is greedy on a CPU; allowed: 0"
    if sampling.min_p > 0 and sampling.temperature > 0 and arm.seeds:
        return f"min_p = {sampling.min_p:g}: SGLang has no seeded draws with it; allowed: 0, or [engine] seeds = false"
    for name, neutral in NEUTRAL.items() if arm.algorithm == NAME else ():
        value = getattr(sampling, name, neutral)
        if value != neutral:
            return f"{name} = {value:g}: drafts of {NAME} are not exact with it; allowed: {neutral:g}"
    return None
