"""The settings of an alignment: verifier, prompts, corpus, decontamination, and the drafters to train.

Plain values; harness/align_config.py reads them from a TOML file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from engines.alignment.examples import SHORTEST_CONTEXT
from engines.alignment.schedule import Optimizer, Shape
from engines.contract import NumberFormat
from engines.speculation import LARGEST_NODES, LARGEST_WINDOW
from harness.toml_table import LARGEST_WHOLE, Range

OBJECTIVE_WORDS = "masked_diffusion"
"""An objective that is `ce` with masked diffusion's noise on every second window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierConfig:
    """The frozen model that writes the corpus, and how it is opened for that."""

    path: str
    engine: str
    number_format: NumberFormat
    threads: int
    concurrency: int
    max_context: int | None
    thinking: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsConfig:
    """Which prompts: source `arithmetic-training` (num, seed, events), a `file` of JSON lines, or a `task`."""

    source: str
    num: int
    seed: int
    min_events: int
    max_events: int
    file: Path | None
    column: str
    instruction: str
    task: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """How the verifier continues the prompts; top_logs: most likely tokens kept of its laws, 0 for none."""

    temperatures: tuple[float, ...]
    top_p: float
    per_prompt: int
    max_tokens: int
    seed: int
    top_logs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """One drafter to train: a parent and an objective, and [training] with what the drafter says otherwise."""

    name: str
    parent: str
    layers: tuple[int, ...] | None
    objective: Mapping[str, Any]
    noise: bool
    training: "TrainingConfig"
    keep_at: tuple[int, ...]

    @property
    def objective_text(self) -> str:
        """The objective in words."""
        if self.noise:
            return OBJECTIVE_WORDS
        return " + ".join(name if weight == 1 else f"{weight} {name}" for name, weight in self.objective.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """How a drafter is trained; field by field the keys of [training] and what they are when left out."""

    steps: int = 1000
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    schedule: Shape = "cosine"
    decay_from: float = 0.3
    rest: float = 0.03
    weight_decay: float = 0.0
    optimizer: Optimizer = "muon"
    adamw_ratio: float = 0.5
    clip_norm: float = 1.0
    accumulate: int = 1
    window: int = 16
    anchors: int = 24
    on_policy: float = 0.0
    batch_tokens: int = 2400
    context: int | None = None
    seed: int = 0
    save_every: int = 100
    evaluate_every: int = 0
    decay: float = 0.8
    drafts: int = 8
    nodes: int = 64
    softness: float = 1.0
    draft_temperature: float = 1.0
    lora_rank: int = 0
    lora_alpha: int = 16
    mask_token_id: int | None = None
    device: str = "auto"


TRAINING_KEYS = tuple(field.name for field in fields(TrainingConfig))
CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": get_args(Shape),
    "optimizer": get_args(Optimizer),
    "device": ("auto", "cpu", "cuda"),
}
WHOLE_NUMBERS: Mapping[str, tuple[int, int]] = {
    "steps": (1, 10_000_000),
    "warmup_steps": (1, 10_000_000),
    "accumulate": (1, 4096),
    "window": (1, LARGEST_WINDOW),
    "anchors": (1, 4096),
    "batch_tokens": (SHORTEST_CONTEXT, LARGEST_WHOLE),
    "context": (SHORTEST_CONTEXT, LARGEST_WHOLE),
    "seed": (0, LARGEST_WHOLE),
    "save_every": (1, LARGEST_WHOLE),
    "evaluate_every": (0, LARGEST_WHOLE),
    "drafts": (1, LARGEST_NODES),
    "nodes": (1, LARGEST_NODES),
    "lora_rank": (0, LARGEST_WHOLE),
    "lora_alpha": (1, 4096),
    "mask_token_id": (0, LARGEST_WHOLE),
}
"""Smallest and largest value by key. Those that depend on a model are held against it before any text is written."""
NUMBERS: Mapping[str, Range] = {
    "learning_rate": Range(1e-9, 1),
    "decay_from": Range(0, 1, below=True),
    "rest": Range(0, 1),
    "weight_decay": Range(0, 10),
    "adamw_ratio": Range(0, 100),
    "clip_norm": Range(1e-6, 1e6),
    "on_policy": Range(0, 1),
    "decay": Range(1e-3, 1),
    "softness": Range(1e-3, 1e3),
    "draft_temperature": Range(1e-3, 1e3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignConfig:
    """The whole file; `drafters` in its order, a parent among them before its children."""

    path: Path
    name: str
    title: str
    verifier: VerifierConfig
    prompts: PromptsConfig
    heldout: PromptsConfig | None
    corpus: CorpusConfig
    drop_overlaps: bool
    evaluation: tuple[tuple[str, Mapping[str, object]], ...]
    drafters: tuple[DrafterConfig, ...]

    def located(self, model: str) -> str:
        """A model's name as engines take it: a path where the file's folder has such a directory or file."""
        path = self.path.parent / model
        return str(path) if path.exists() else model
