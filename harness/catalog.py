"""Names to objects: the tasks, engines, draft shapes and rules that a study may name.

Imports what a name stands for on demand: nothing here loads torch or pandas before an engine is opened.
"""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from engines.contract import Engine
from engines.speculation import Drafting, Rule, Shape
from tasks.contract import Task


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a name's class is, and one line on what it is; `served`: an engine whose arms have servers."""

    module: str
    attribute: str
    about: str
    served: bool = False

    def load(self) -> Any:
        """The class itself."""
        return getattr(importlib.import_module(self.module), self.attribute)


TASKS = {
    "math500": Entry("tasks.math500", "Math500", "MATH-500: competition mathematics, graded by mathematical equality"),
    "humaneval": Entry("tasks.humaneval", "HumanEval", "HumanEval: Python functions, graded by running their tests"),
    "gpqa": Entry("tasks.gpqa", "Gpqa", "GPQA: graduate science questions with four options (gated data)"),
    "gsm8k": Entry("tasks.gsm8k", "Gsm8k", "GSM8K: grade-school word problems with a number for an answer"),
    "arithmetic": Entry("tasks.arithmetic", "Arithmetic", "made-up word problems of the embedded models"),
}
ENGINES = {
    "reference": Entry("engines.reference", "ReferenceEngine", "torch on the CPU: the loop to read"),
    "sglang": Entry(
        "engines.sglang_engine", "SglangEngine", "a SGLang server, started or running, on a GPU or the CPU", served=True
    ),
}
DRAFTINGS: dict[Drafting, str] = {
    "diffusion": "a masked-diffusion model: the whole window in one denoising forward",
    "autoregressive": "a small causal model: one forward per drafted token (SpS)",
    "ngram": "prompt lookup: what followed the last tokens where they stood before; no model",
}
SHAPES: dict[Shape, str] = {
    "chain": "one draft",
    "iid": "num_drafts drafts drawn from the drafter's marginals",
    "tree": "the most likely chain, then best-first by the product of marginals up to `nodes` nodes",
}
RULES: dict[Rule, str] = {
    "walk": "draw from the target at each node of the drafts' trie, descend while a draft carries the token; any shape",
    "paper": "choose the draft with the longest expected streak, then walk it (SpecDiff-2); any shape",
    "leviathan": "accept with min(1, p/q), else draw from what p has above q; chain",
    "block": "the same for a whole draft at once, from its end (block verification); chain",
    "specinfer": "recursive rejection over drafts drawn from q (SpecInfer); chain, iid",
    "traversal": "from the leaves up (traversal verification); chain, iid",
}
ARM_SETTINGS = {
    "drafter": "drafter's model (embedded:NAME or a directory), or a list of them; without it the arm decodes plainly",
    "drafting": "diffusion (default), autoregressive or ngram (needs no drafter)",
    "window": "tokens drafted per round (default 16), or 'auto'",
    "shape": "shape of the drafts (default chain)",
    "num_drafts": "number of drafts of shape iid",
    "nodes": "number of nodes of shape tree, or 'auto'",
    "draft_temperature": "temperature of the drafts, 0 being the most likely tokens (default: by shape and rule)",
    "rule": "verification rule (default walk)",
    "steps": "denoising forwards per window (default 1)",
    "branches": "nodes of a tree whose path the drafter reads before it drafts anew what follows (default 0)",
    "prefix_cache": "false: the drafter computes its whole prefix anew every round (default true)",
    "cross_tokenizer": "true: the drafter has its own tokenizer, its text is tokenized anew",
    "number_format": "float32 or bfloat16, for the target (default: the study's, else float32)",
    "drafter_format": "the same for the drafter (default: the target's)",
    "threads": "CPU threads (default: the study's, else 1)",
    "temperatures": "list of sampling temperatures (default: the study's)",
}
SERVED_SETTINGS = {
    "server": "engine sglang: [arm.NAME.server], SGLang's own arguments, such as speculative_algorithm = 'EAGLE3'",
    "url": "engine sglang: a server that runs already, http://HOST:PORT, instead of one that is started",
}
"""Keys of arms that engines with servers have beside ARM_SETTINGS."""


def entry(kind: str, table: Mapping[str, Entry], name: str) -> Entry:
    """The entry of a name. Raises ValueError with the known names."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(table)}")
    return table[name]


def build_task(name: str, options: Mapping[str, object]) -> Task:
    """A task with the options that a TOML file gives it; nothing is loaded yet.

    Raises:
        ValueError: unknown task, unknown key, or a value that the task refuses.
    """
    task_class = entry("task", TASKS, name).load()
    known = inspect.signature(task_class).parameters
    for key in options:
        if key not in known:
            raise ValueError(f"unknown key {key!r}; known keys of {name}: {', '.join(sorted(known))}")
    return cast(Task, task_class(**options))


def build_engine(name: str, model: str, settings: Mapping[str, object]) -> Engine:
    """An open engine. Raises ValueError or OSError where a model is missing or does not fit."""
    return cast(Engine, entry("engine", ENGINES, name).load()(model, **settings))
