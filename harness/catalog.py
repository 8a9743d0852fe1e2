"""Names to objects: the tasks, engines, draft shapes and rules that a study may name.

Imports what a name stands for on demand: nothing here loads torch or pandas before an engine is opened.
"""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from engines.contract import Engine, Rule, Shape
from tasks.contract import Task


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a name's class is, and one line on what it is."""

    module: str
    attribute: str
    about: str

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
    "reference": Entry("engines.reference", "ReferenceEngine", "torch, one sequence at a time: the loop to read"),
}
SHAPES: dict[Shape, str] = {
    "chain": "one draft: the most likely token at every place of the window",
    "iid": "num_drafts drafts drawn from the drafter's marginals, the most likely chain among them",
}
RULES: dict[Rule, str] = {
    "walk": "draw from the target at each node of the drafts' trie, descend while a draft carries the token",
    "paper": "choose the draft with the longest expected streak, then walk it (SpecDiff-2)",
}
ARM_SETTINGS = {
    "drafter": "model of a diffusion drafter (embedded:NAME or a directory); without it the arm decodes token by token",
    "window": "tokens drafted per round (default 16)",
    "shape": "shape of the drafts (default chain)",
    "num_drafts": "number of drafts of shape iid",
    "draft_temperature": "temperature at which shape iid draws its drafts (default 1)",
    "rule": "verification rule (default walk)",
    "number_format": "float32 or bfloat16, for the target (default: the study's, else float32)",
    "drafter_format": "the same for the drafter (default: the target's)",
    "threads": "CPU threads (default: the study's, else 1)",
    "temperatures": "list of sampling temperatures (default: the study's)",
}


def entry(kind: str, table: Mapping[str, Entry], name: str) -> Entry:
    """The entry of a name. Raises ValueError with the known names."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(table)}")
    return table[name]


def build_task(name: str, options: Mapping[str, object]) -> Task:
    """A task with the options of its [task] table; nothing is loaded yet.

    Raises:
        ValueError: unknown task, unknown key, or a value that the task refuses.
    """
    task_class = entry("task", TASKS, name).load()
    known = inspect.signature(task_class).parameters
    for key in options:
        if key not in known:
            raise ValueError(f"unknown key {key!r} in [task]; known keys of {name}: {', '.join(sorted(known))}")
    return cast(Task, task_class(**options))


def build_engine(name: str, model: str, settings: Mapping[str, object]) -> Engine:
    """An open engine. Raises ValueError or OSError where a model is missing or does not fit."""
    return cast(Engine, entry("engine", ENGINES, name).load()(model, **settings))
