"""What an alignment's TOML file may say: verifier, prompts, corpus, decontamination, and the drafters to train.

Knows keys, types and ranges; opens no model and loads no problem. Relative paths begin at the file's folder.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from engines.alignment.schedule import Optimizer, Shape
from engines.contract import NUMBER_FORMATS, NumberFormat
from harness import catalog
from harness.toml_table import Table, is_whole, read_toml

TABLES = ("title", "verifier", "prompts", "heldout", "corpus", "evaluation", "training", "drafter")
SOURCES = ("arithmetic-training", "file", "task")
DRAFTER_NAME = re.compile(r"(?!(corpus|heldout)$)(?!.*(-training|-\d{6})$)\w[\w.-]*", re.ASCII)
"""Names of folders beside those that an alignment keeps in its work folder, and never outside it."""
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
FROM_ZERO = ("seed", "evaluate_every", "lora_rank", "mask_token_id")


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


def read_align(path: Path) -> AlignConfig:
    """Read and check an alignment's file.

    Raises:
        ValueError, OSError: one line that names the file, the key and the value.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; CONFIG is the TOML file of an alignment")
    top = Table(path, "", read_toml(path), TABLES)
    training = table(top, "training", TRAINING_KEYS)
    evaluation = table(top, "evaluation", None)
    drop = evaluation.flag("drop_overlaps", default=False)
    tasks = {label: values for label, values in evaluation.values.items() if label != "drop_overlaps"}
    name = path.resolve().parent.name if path.stem == "align" else path.stem
    return AlignConfig(
        path=path,
        name=name,
        title=top.text("title", name),
        verifier=read_verifier(table(top, "verifier", tuple(f.name for f in fields(VerifierConfig)))),
        prompts=read_prompts(table(top, "prompts", None)),
        heldout=read_prompts(table(top, "heldout", None)) if "heldout" in top else None,
        corpus=read_corpus(table(top, "corpus", tuple(f.name for f in fields(CorpusConfig)))),
        drop_overlaps=drop,
        evaluation=tuple(read_task(Table(path, f"evaluation.{label}", tasks[label], None)) for label in tasks),
        drafters=read_drafters(top, training),
    )


def table(top: Table, name: str, known: tuple[str, ...] | None) -> Table:
    """A table of the file; a missing one is empty."""
    return Table(top.path, name, top.values.get(name, {}), known)


def read_verifier(verifier: Table) -> VerifierConfig:
    """[verifier]."""
    return VerifierConfig(
        path=verifier.text("path"),
        engine=verifier.choice("engine", tuple(catalog.ENGINES), "reference"),
        number_format=verifier.choice("number_format", NUMBER_FORMATS, "float32"),
        threads=verifier.whole("threads", 1, 1),
        concurrency=verifier.whole("concurrency", 16, 1),
        max_context=verifier.whole("max_context", 1, 1) if "max_context" in verifier else None,
        thinking=verifier.flag("thinking", default=False) if "thinking" in verifier else None,
    )


def read_prompts(prompts: Table) -> PromptsConfig:
    """[prompts] or [heldout]."""
    named = [key for key in ("source", "file", "task") if key in prompts]
    if len(named) != 1:
        raise ValueError(f"{prompts.path}: [{prompts.label}] needs one of source, file, task; it has {named or 'none'}")
    task: tuple[str, Mapping[str, object]] = read_task(prompts) if named == ["task"] else ("", {})
    if named != ["task"]:
        known = ("source", "file", "num", "seed", "min_events", "max_events", "column", "instruction")
        prompts = Table(prompts.path, prompts.label, prompts.values, known)
    made = named == ["source"]
    least = prompts.whole("min_events", 1, 1) if made else 1
    return PromptsConfig(
        source=prompts.choice("source", SOURCES[:1]) if made else named[0],
        num=prompts.whole("num", 1024, 1) if named != ["task"] else 0,
        seed=prompts.whole("seed", 0, 0) if made else 0,
        min_events=least,
        max_events=prompts.whole("max_events", 8, least) if made else 8,
        file=prompts.path.parent / prompts.text("file") if named == ["file"] else None,
        column=prompts.text("column", "problem") if named == ["file"] else "",
        instruction=prompts.text("instruction") if "instruction" in prompts and named == ["file"] else "",
        task=task[0],
        options=task[1],
    )


def read_task(found: Table) -> tuple[str, Mapping[str, object]]:
    """A task and its options."""
    options = {key: value for key, value in found.values.items() if key != "task"}
    source = options.get("source")
    if isinstance(source, str) and (found.path.parent / source).is_file():
        options["source"] = str(found.path.parent / source)
    return found.choice("task", tuple(catalog.TASKS)), options


def read_corpus(corpus: Table) -> CorpusConfig:
    """[corpus]."""
    allowed = "a list of 0 or numbers above, each larger than the one before"
    top_p = corpus.number("top_p", 1.0)
    if not 0 < top_p <= 1:
        raise corpus.refuse("top_p", "a number above 0, at most 1")
    return CorpusConfig(
        temperatures=corpus.rising_numbers("temperatures", allowed, zero=True),
        top_p=top_p,
        per_prompt=corpus.whole("per_prompt", 1, 1),
        max_tokens=corpus.whole("max_tokens", 1024, 1),
        seed=corpus.whole("seed", 0, 0),
        top_logs=corpus.whole("top_logs", 0, 0),
    )


def read_drafters(top: Table, training: Table) -> tuple[DrafterConfig, ...]:
    """All [drafter.NAME], in the order of the file."""
    drafters = table(top, "drafter", None)
    if not drafters.values:
        raise ValueError(f"{top.path}: no drafter; an alignment needs at least one table [drafter.NAME]")
    for name in drafters.values:
        if not DRAFTER_NAME.fullmatch(name):
            raise ValueError(
                f"{top.path}: [drafter.{name}]: name {name!r} is not allowed; allowed: letters, digits, '_', '-' and "
                "'.', a letter, digit or '_' first, but not corpus, heldout, or an end like -training or -000100"
            )
    known = ("parent", "layers", "objective", "keep_at", *TRAINING_KEYS)
    return tuple(
        read_drafter(Table(top.path, f"drafter.{name}", values, known), name, training)
        for name, values in drafters.values.items()
    )


def read_drafter(drafter: Table, name: str, training: Table) -> DrafterConfig:
    """One [drafter.NAME]."""
    settings = {key: read_setting(drafter if key in drafter else training, key) for key in TRAINING_KEYS}
    whole = TrainingConfig(**settings)
    objective, noise = read_objective(drafter)
    keep = drafter.values.get("keep_at", [])
    steps: list[Any] = keep if isinstance(keep, list) else [keep]
    if not all(is_whole(step) and 1 <= step < whole.steps for step in steps) or sorted(set(steps)) != steps:
        raise drafter.refuse("keep_at", f"a rising list of whole numbers from 1 to {whole.steps - 1}")
    return DrafterConfig(
        name=name,
        parent=drafter.text("parent"),
        layers=read_layers(drafter),
        objective=objective,
        noise=noise,
        training=whole,
        keep_at=tuple(steps),
    )


def read_layers(drafter: Table) -> tuple[int, ...] | None:
    """Numbers of the parent's layers that are kept; None for all."""
    if "layers" not in drafter:
        return None
    given = drafter.values["layers"]
    if not isinstance(given, list) or not given or not all(is_whole(layer) and layer >= 0 for layer in given):
        raise drafter.refuse("layers", "a list of layers by number, from 0")
    return tuple(given)


def read_objective(drafter: Table) -> tuple[Mapping[str, Any], bool]:
    """Weights by name, and whether masked diffusion's noise is wanted; names and weights are checked where they act."""
    given = drafter.values.get("objective")
    if given == OBJECTIVE_WORDS:
        return {"ce": 1.0}, True
    if isinstance(given, str) and given:
        return {given: 1.0}, False
    if isinstance(given, Mapping) and given:
        return dict(given), False
    raise drafter.refuse("objective", f"{OBJECTIVE_WORDS!r}, the name of an objective, or a table of names to weights")


def read_setting(where: Table, key: str) -> Any:
    """A key of [training], or what it is when left out."""
    default = TrainingConfig.__dataclass_fields__[key].default
    if key not in where:
        return default
    if key in CHOICES:
        return where.choice(key, CHOICES[key])
    if isinstance(default, float):
        value = where.number(key, default)
        if not 0 <= value < math.inf:
            raise where.refuse(key, "a number >= 0")
        return value
    return where.whole(key, 0, 0 if key in FROM_ZERO else 1)
