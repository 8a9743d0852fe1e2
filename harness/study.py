"""A study: arms of one engine on one task under wall-clock budgets, as its study.toml says.

Knows what may be written there, and the identity of what it names (`arm_id`); opens no engine and loads no problem.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from engines.contract import NUMBER_FORMATS, NumberFormat
from engines.sampling import SMALLEST_TEMPERATURE, Sampling
from engines.speculation import AUTO, DRAFTINGS, RULES, SHAPES, Speculation
from harness import catalog
from harness.toml_table import Table
from results.provenance import digest_of
from results.records import CLOCKS, POLICIES, Clock, Policy
from tasks.contract import Task

STUDY_FILE = "study.toml"
TABLES = ("title", "study", "task", "model", "sampling", "budgets", "engine", "arm")
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".gz")
SPECULATION_KEYS = tuple(field.name for field in fields(Speculation))
LAW_KEYS = ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias")
FORMAT_KEYS = ("number_format", "drafter_format", "threads")
BUDGETS_ALLOWED = "a list of numbers of seconds > 0, each larger than the one before"
TEMPERATURES_ALLOWED = f"a list of 0 or numbers >= {SMALLEST_TEMPERATURE}, each larger than the one before"
# A request's deadline counts from admission, the clock `decode` only from the first token; the prefill lies between.
PREFILL_ALLOWANCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to decode; without `speculation`, token by token."""

    name: str
    speculation: Speculation | None
    number_format: NumberFormat
    drafter_format: NumberFormat | None
    threads: int
    temperatures: tuple[float, ...]

    @property
    def engine_settings(self) -> dict[str, object]:
        """What an engine is opened with; arms with equal settings share one."""
        return {
            "speculation": self.speculation,
            "number_format": self.number_format,
            "drafter_format": self.drafter_format,
            "threads": self.threads,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An arm at one temperature; `arm_id` changes with everything that could change its answers or its seconds."""

    arm: Arm
    temperature: float
    arm_id: str

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.arm.name} T={self.temperature:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What to run. `folder` is where relative paths of models and data begin; seconds are on `clock`."""

    name: str
    folder: Path
    title: str
    task: str
    task_options: Mapping[str, object]
    engine: str
    model: str
    thinking: bool | None
    max_context: int | None
    max_tokens: int
    stop: tuple[str, ...]
    law: Mapping[str, Any]
    samples: int
    seed: int
    budgets: tuple[float, ...]
    clock: Clock
    policies: tuple[Policy, ...]
    arms: tuple[Arm, ...]
    baseline: str

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Arms side by side at each temperature."""
        temperatures = sorted({t for arm in self.arms for t in arm.temperatures})
        return tuple(
            Cell(arm=arm, temperature=t, arm_id=self._arm_id(arm, t))
            for t in temperatures
            for arm in self.arms
            if t in arm.temperatures
        )

    @property
    def deadline_seconds(self) -> float:
        """Deadline of every request, on the clock `service`: long enough for the largest budget."""
        return self.budgets[-1] + (PREFILL_ALLOWANCE_SECONDS if self.clock == "decode" else 0.0)

    def _arm_id(self, arm: Arm, temperature: float) -> str:
        """Names are as written, not resolved, so that a study keeps its identity on another machine.

        Budgets and the number of samples are left out: they add answers, they change none. So are the task's options:
        each generation carries the digest of its own prompt.
        """
        settings = arm.engine_settings
        settings["speculation"] = arm.speculation.settings if arm.speculation else None
        return digest_of(
            settings
            | {"task": self.task, "engine": self.engine, "model": self.model, "max_context": self.max_context}
            | {"temperature": temperature, "max_tokens": self.max_tokens, "stop": self.stop, "seed": self.seed}
            | dict(self.law)
            | self.template_flags
        )

    @property
    def template_flags(self) -> dict[str, bool]:
        """The chat template's thinking flag, where the study sets it."""
        return {} if self.thinking is None else {"thinking": self.thinking}

    def located(self, model: str) -> str:
        """A model's name as engines take it: a path where the study's folder has such a directory or file."""
        path = self.folder / model
        return str(path) if path.exists() else model

    def build_task(self) -> Task:
        """The task, nothing loaded yet. Raises ValueError for options that it refuses."""
        options = dict(self.task_options)
        source = options.get("source")
        if isinstance(source, str) and source.endswith(DATA_SUFFIXES):
            options["source"] = str(self.folder / source)
        return catalog.build_task(self.task, options)

    def engine_settings(self, arm: Arm) -> dict[str, object]:
        """What the arm's engine is opened with, names located."""
        settings = arm.engine_settings | {"max_context": self.max_context} | self.template_flags
        if arm.speculation:
            drafter = arm.speculation.drafter
            located = self.located(drafter) if isinstance(drafter, str) else tuple(map(self.located, drafter))
            settings["speculation"] = replace(arm.speculation, drafter=located)
        return settings

    def to_json(self) -> dict[str, Any]:
        """The study as read, with the identities of its cells; plain values."""
        row = asdict(self)
        row["folder"] = self.folder.name
        source = self.task_options.get("source")
        if isinstance(source, str) and Path(source).is_absolute():
            row["task_options"]["source"] = Path(source).name  # where it lies on this machine is nobody's business
        row["arm_ids"] = {cell.label: cell.arm_id for cell in self.cells}
        return row


def study_path(study: Path) -> Path:
    """The study's file, given that file or its folder. Raises FileNotFoundError."""
    path = study / STUDY_FILE if study.is_dir() else study
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such study; STUDY is a folder with a {STUDY_FILE}, or such a file")
    return path


def read_study(study: Path, source: Path | None = None) -> Study:
    """Read and check a study.

    Args:
        study: folder with a study.toml, or the file itself
        source: data file in place of the one that the study's [task] names

    Raises:
        ValueError, OSError: one line that names the file, the key and the value.
    """
    path = study_path(study)
    try:
        top = Table(path, "", tomllib.loads(path.read_text(encoding="utf-8-sig")), TABLES)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None
    name = path.resolve().parent.name if path.name == STUDY_FILE else path.stem
    sampling = table(top, "sampling", ("temperatures", "max_tokens", "samples", "seed", "stop", *LAW_KEYS))
    budgets = table(top, "budgets", ("seconds", "clock", "policies"))
    engine = table(top, "engine", ("name", "max_context", *FORMAT_KEYS))
    model = table(top, "model", ("path", "thinking"))
    task = dict(table(top, "task", None).values)
    if source is not None:
        task["source"] = str(source.resolve())
    arms = read_arms(top, engine, sampling)
    read = Study(
        name=name,
        folder=path.parent,
        title=top.text("title", name),
        task=table(top, "task", None).text("name"),
        task_options={key: value for key, value in task.items() if key != "name"},
        engine=engine.choice("name", tuple(catalog.ENGINES), "reference"),
        model=model.text("path"),
        thinking=model.flag("thinking", default=False) if "thinking" in model else None,
        max_context=engine.whole("max_context", 1, 1) if "max_context" in engine else None,
        max_tokens=sampling.whole("max_tokens", 1024, 1),
        stop=sampling.texts("stop"),
        law=read_law(sampling),
        samples=sampling.whole("samples", 1, 1),
        seed=sampling.whole("seed", 0, 0),
        budgets=budgets.rising_numbers("seconds", BUDGETS_ALLOWED, zero=False),
        clock=budgets.choice("clock", CLOCKS, "service"),
        policies=budgets.choices("policies", POLICIES),
        arms=arms,
        baseline=read_baseline(top, [arm.name for arm in arms]),
    )
    try:
        read.build_task()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return read


def table(top: Table, name: str, known: tuple[str, ...] | None) -> Table:
    """A table of the study; a missing one is empty."""
    return Table(top.path, name, top.values.get(name, {}), known)


def read_baseline(top: Table, names: list[str]) -> str:
    """The arm that others are compared with: as [study] says, else `vanilla`, else the first."""
    default = "vanilla" if "vanilla" in names else names[0]
    return table(top, "study", ("baseline",)).choice("baseline", tuple(names), default)


def read_arms(top: Table, engine: Table, sampling: Table) -> tuple[Arm, ...]:
    """All arms in the order of the file; formats and temperatures default to the study's."""
    arms = table(top, "arm", None)
    if not arms.values:
        raise ValueError(f"{top.path}: no arm; a study needs at least one table [arm.NAME]")
    read: dict[str, Arm] = {}
    for name, values in arms.values.items():
        arm = read_arm(Table(top.path, f"arm.{name}", values, catalog.ARM_SETTINGS), name, engine, sampling)
        for other in read.values():
            if replace(arm, name=other.name) == other:
                raise ValueError(f"{top.path}: [arm.{name}] has the same settings as [arm.{other.name}]")
        read[name] = arm
    return tuple(read.values())


def read_arm(arm: Table, name: str, engine: Table, sampling: Table) -> Arm:
    """One [arm.NAME]."""
    formats = {key: arm if key in arm else engine for key in FORMAT_KEYS}
    temperatures = arm if "temperatures" in arm else sampling
    rising = temperatures.rising_numbers("temperatures", TEMPERATURES_ALLOWED, zero=True)
    if any(0 < temperature < SMALLEST_TEMPERATURE for temperature in rising):
        raise temperatures.refuse("temperatures", TEMPERATURES_ALLOWED)
    drafter_format = formats["drafter_format"]
    has_drafter_format = "drafter_format" in drafter_format
    return Arm(
        name=name,
        speculation=read_speculation(arm),
        number_format=formats["number_format"].choice("number_format", NUMBER_FORMATS, "float32"),
        drafter_format=drafter_format.choice("drafter_format", NUMBER_FORMATS) if has_drafter_format else None,
        threads=formats["threads"].whole("threads", 1, 1),
        temperatures=rising,
    )


def read_law(sampling: Table) -> dict[str, Any]:
    """What [sampling] says of the target's law beside its temperature; only what is there."""
    law: dict[str, Any] = {}
    for key in LAW_KEYS:
        if key not in sampling:
            continue
        if key == "logit_bias":
            law[key] = sampling.token_numbers(key)
        else:
            law[key] = sampling.whole(key, 0, 0) if key == "top_k" else sampling.number(key, 0.0)
    try:
        Sampling(**law)
    except ValueError as error:
        raise ValueError(f"{sampling.path}: [{sampling.label}]: {error}") from None
    return law


def read_speculation(arm: Table) -> Speculation | None:
    """How the arm drafts and verifies, or None for plain decoding."""
    if "drafter" not in arm and "drafting" not in arm:
        for key in SPECULATION_KEYS:
            if key in arm:
                raise ValueError(
                    f"{arm.path}: {key!r} in [{arm.label}] needs a 'drafter' there (or drafting = 'ngram')"
                )
        return None
    readers: dict[str, Callable[[str], object]] = {
        "drafter": arm.one_or_several,
        "drafting": lambda key: arm.choice(key, DRAFTINGS),
        "window": lambda key: arm.whole_or(key, AUTO, 1),
        "shape": lambda key: arm.choice(key, SHAPES),
        "num_drafts": lambda key: arm.whole(key, 1, 1),
        "nodes": lambda key: arm.whole_or(key, AUTO, 1),
        "draft_temperature": lambda key: arm.number(key, 0.0),
        "rule": lambda key: arm.choice(key, RULES),
        "steps": lambda key: arm.whole(key, 1, 1),
        "prefix_cache": lambda key: arm.flag(key, default=True),
        "cross_tokenizer": lambda key: arm.flag(key, default=False),
    }
    settings: dict[str, Any] = {key: read(key) for key, read in readers.items() if key in arm}
    try:
        return Speculation(**settings)
    except ValueError as error:
        raise ValueError(f"{arm.path}: [{arm.label}]: {error}") from None
