"""What an alignment's TOML file may say: verifier, prompts, corpus, decontamination, and the drafters to train.

Knows keys, types and ranges; opens no model and loads no problem. Relative paths begin at the file's folder.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from engines.alignment.corpus import SHORTEST_RESPONSE
from engines.alignment.mixed import OBJECTIVES
from engines.contract import LARGEST_CONCURRENCY, MOST_THREADS, NUMBER_FORMATS
from engines.sampling import SMALLEST_TEMPERATURE, SMALLEST_TOP_P
from harness import catalog
from harness.align_settings import (
    CHOICES,
    NUMBERS,
    OBJECTIVE_WORDS,
    TRAINING_KEYS,
    WHOLE_NUMBERS,
    AlignConfig,
    CorpusConfig,
    DrafterConfig,
    PromptsConfig,
    TrainingConfig,
    VerifierConfig,
)
from harness.arms import TEMPERATURES_ALLOWED
from harness.toml_table import Range, Table, is_whole, read_toml
from tasks.arithmetic import MOST_EVENTS

TABLES = ("title", "verifier", "prompts", "heldout", "corpus", "evaluation", "training", "drafter")
SOURCES = ("arithmetic-training", "file", "task")
PROMPT_KEYS = {
    "source": ("source", "num", "seed", "min_events", "max_events"),
    "file": ("file", "num", "column", "instruction"),
}
MOST_PROMPTS, MOST_MADE, MOST_SAMPLES = 10_000_000, 1_000_000, 10_000
DRAFTER_NAME = re.compile(
    r"(?!(corpus|heldout|verifier|contamination\.json)$)(?!.*(-training|-\d{6,})$)\w[\w.-]{0,99}", re.ASCII
)
"""Names of folders beside those that an alignment keeps in its work folder, and never outside it."""


def read_align(path: Path) -> AlignConfig:
    """Read and check an alignment's file.

    Raises:
        ValueError, OSError: one line that names the file, the key and the value.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; CONFIG is the TOML file of an alignment")
    top = Table(path, "", read_toml(path), TABLES)
    training = top.table("training", TRAINING_KEYS)
    evaluation = top.table("evaluation", None)
    drop = evaluation.flag("drop_overlaps", default=False)
    tasks = {label: values for label, values in evaluation.values.items() if label != "drop_overlaps"}
    name = path.resolve().parent.name if path.stem == "align" else path.stem
    drafters = read_drafters(top, training)
    judged = next((drafter.name for drafter in drafters if drafter.training.evaluate_every), None)
    if judged and "heldout" not in top:
        raise ValueError(f"{path}: evaluate_every of [drafter.{judged}] needs the prompts of a table [heldout]")
    return AlignConfig(
        path=path,
        name=name,
        title=top.text("title", name),
        verifier=read_verifier(top.table("verifier", tuple(f.name for f in fields(VerifierConfig)))),
        prompts=read_prompts(top.table("prompts", None)),
        heldout=read_prompts(top.table("heldout", None)) if "heldout" in top else None,
        corpus=read_corpus(top.table("corpus", tuple(f.name for f in fields(CorpusConfig)))),
        drop_overlaps=drop,
        evaluation=tuple(read_task(Table(path, f"evaluation.{label}", tasks[label], None)) for label in tasks),
        drafters=drafters,
    )


def read_verifier(verifier: Table) -> VerifierConfig:
    """[verifier]."""
    return VerifierConfig(
        path=verifier.text("path"),
        engine=verifier.choice("engine", tuple(catalog.ENGINES), "reference"),
        number_format=verifier.choice("number_format", NUMBER_FORMATS, "float32"),
        threads=verifier.whole("threads", 1, 1, MOST_THREADS),
        concurrency=verifier.whole("concurrency", 16, 1, LARGEST_CONCURRENCY),
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
        prompts = Table(prompts.path, prompts.label, prompts.values, PROMPT_KEYS[named[0]])
    made = named == ["source"]
    least = prompts.whole("min_events", 1, 1, MOST_EVENTS) if made else 1
    return PromptsConfig(
        source=prompts.choice("source", SOURCES[:1]) if made else named[0],
        num=prompts.whole("num", 1024, 1, MOST_MADE if made else MOST_PROMPTS) if named != ["task"] else 0,
        seed=prompts.whole("seed", 0, 0) if made else 0,
        min_events=least,
        max_events=prompts.whole("max_events", 8, least, MOST_EVENTS) if made else 8,
        file=prompts.path.parent / prompts.text("file") if named == ["file"] else None,
        column=prompts.text("column", "problem") if named == ["file"] else "",
        instruction=prompts.text("instruction") if "instruction" in prompts and named == ["file"] else "",
        task=task[0],
        options=task[1],
    )


def read_task(found: Table) -> tuple[str, Mapping[str, object]]:
    """A task and its options, which the task has taken; its problems are not loaded."""
    name = found.choice("task", tuple(catalog.TASKS))
    options = {key: value for key, value in found.values.items() if key != "task"}
    source = options.get("source")
    if isinstance(source, str) and (found.path.parent / source).is_file():
        options["source"] = str(found.path.parent / source)
    try:
        catalog.build_task(name, options)
    except ValueError as error:
        raise ValueError(f"{found.path}: [{found.label}]: {error}") from None
    return name, options


def read_corpus(corpus: Table) -> CorpusConfig:
    """[corpus]."""
    temperatures = corpus.rising_numbers("temperatures", TEMPERATURES_ALLOWED, zero=True)
    if any(0 < temperature < SMALLEST_TEMPERATURE for temperature in temperatures):
        raise corpus.refuse("temperatures", TEMPERATURES_ALLOWED)
    return CorpusConfig(
        temperatures=temperatures,
        top_p=corpus.number("top_p", 1.0, Range(SMALLEST_TOP_P, 1)),
        per_prompt=corpus.whole("per_prompt", 1, 1, MOST_SAMPLES),
        max_tokens=corpus.whole("max_tokens", 1024, SHORTEST_RESPONSE),
        seed=corpus.whole("seed", 0, 0),
        top_logs=corpus.whole("top_logs", 0, 0),
    )


def read_drafters(top: Table, training: Table) -> tuple[DrafterConfig, ...]:
    """All [drafter.NAME], in the order of the file."""
    drafters = top.table("drafter", None)
    if not drafters.values:
        raise ValueError(f"{top.path}: no drafter; an alignment needs at least one table [drafter.NAME]")
    for name in drafters.values:
        if not DRAFTER_NAME.fullmatch(name):
            raise ValueError(
                f"{top.path}: [drafter.{name}]: name {name!r} is not allowed; allowed: letters, digits, '_', '-' and "
                "'.', a letter, digit or '_' first, at most 100, not corpus, heldout, verifier, contamination.json, "
                "or an end like -training or -000100"
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
    warming = drafter if "warmup_steps" in drafter else training
    if "warmup_steps" in warming and whole.warmup_steps > whole.steps:
        raise warming.refuse("warmup_steps", f"at most steps, which are {whole.steps} for drafter {name!r}")
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
    numbers = isinstance(given, list) and given and all(is_whole(layer) and layer >= 0 for layer in given)
    if not numbers or sorted(set(given)) != given:
        raise drafter.refuse("layers", "a rising list of layers by number, from 0, each once")
    return tuple(given)


def read_objective(drafter: Table) -> tuple[Mapping[str, Any], bool]:
    """Weights by name, and whether masked diffusion's noise is wanted; names and weights are checked where they act."""
    given = drafter.values.get("objective")
    if given == OBJECTIVE_WORDS:
        return {"ce": 1.0}, True
    if isinstance(given, str):
        if given not in OBJECTIVES:
            raise drafter.refuse("objective", f"{OBJECTIVE_WORDS}, {', '.join(OBJECTIVES)}, or a table of weights")
        return {given: 1.0}, False
    if isinstance(given, Mapping) and OBJECTIVE_WORDS in given:
        raise drafter.refuse("objective", f"{OBJECTIVE_WORDS} as a name alone, and in a table {', '.join(OBJECTIVES)}")
    if isinstance(given, Mapping) and given:
        return dict(given), False
    raise drafter.refuse("objective", "the name of an objective, or a table of names to weights")


def read_setting(where: Table, key: str) -> Any:
    """A key of [training], or what it is when left out."""
    default: Any = TrainingConfig.__dataclass_fields__[key].default
    if key not in where:
        return default
    if key in CHOICES:
        return where.choice(key, CHOICES[key])
    if key in NUMBERS:
        return where.number(key, default, NUMBERS[key])
    return where.whole(key, 0, *WHOLE_NUMBERS[key])
