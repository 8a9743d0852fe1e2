"""A study: arms of one engine on one task under wall-clock budgets, as its study.toml says.

Knows what may be written there, and the identity of what it names (`arm_id`); opens no engine and loads no problem.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engines.sampling import Sampling
from harness import catalog
from harness.arms import FORMAT_KEYS, Arm, read_arms
from harness.toml_table import Table, read_toml
from results.provenance import digest_of
from results.records import CLOCKS, POLICIES, Clock, Policy
from tasks.contract import Task

STUDY_FILE = "study.toml"
TABLES = ("title", "study", "task", "model", "sampling", "budgets", "engine", "arm")
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".gz")
LAW_KEYS = ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias")
ENGINE_KEYS = ("name", "max_context", "interleave", *FORMAT_KEYS)
SERVED_ENGINE_KEYS = ("server", "seeds")
BUDGETS_ALLOWED = "a list of numbers of seconds > 0, each larger than the one before"
# A request's deadline counts from admission, the clock `decode` only from the first token; the prefill lies between.
PREFILL_ALLOWANCE_SECONDS = 1.0


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
    """What to run. `folder` is where relative paths of models and data begin; seconds are on `clock`.

    interleave: engines of all arms are open at once and take turns; else one arm after the other
    logs:       where servers' own output goes; None: nowhere that stays
    """

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
    interleave: bool = True
    logs: Path | None = None

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
        return digest_of(
            arm.identity
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
        row.pop("logs")
        for arm in row["arms"]:
            serving = arm.pop("serving")
            if serving:
                arm["serving"] = serving | {"url": "given" if serving["url"] else None}
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
    top = Table(path, "", read_toml(path), TABLES)
    name = path.resolve().parent.name if path.name == STUDY_FILE else path.stem
    sampling = top.table("sampling", ("temperatures", "max_tokens", "samples", "seed", "stop", *LAW_KEYS))
    budgets = top.table("budgets", ("seconds", "clock", "policies"))
    engine_name = top.table("engine", None).choice("name", tuple(catalog.ENGINES), "reference")
    served = catalog.ENGINES[engine_name].served
    engine = top.table("engine", ENGINE_KEYS + (SERVED_ENGINE_KEYS if served else ()))
    model = top.table("model", ("path", "thinking"))
    task = dict(top.table("task", None).values)
    if source is not None:
        task["source"] = str(source.resolve())
    arms = read_arms(top.table("arm", None), engine, sampling, served=served)
    read = Study(
        name=name,
        folder=path.parent,
        title=top.text("title", name),
        task=top.table("task", None).text("name"),
        task_options={key: value for key, value in task.items() if key != "name"},
        engine=engine_name,
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
        interleave=engine.flag("interleave", default=True),
    )
    try:
        read.build_task()
    except ValueError as error:
        raise ValueError(f"{path}: [task]: {error}") from None
    return read


def read_baseline(top: Table, names: list[str]) -> str:
    """The arm that others are compared with: as [study] says, else `vanilla`, else the first."""
    default = "vanilla" if "vanilla" in names else names[0]
    return top.table("study", ("baseline",)).choice("baseline", tuple(names), default)


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


def at_temperature(study: Study, temperature: float) -> Study:
    """The study at one of its temperatures. Raises ValueError where its baseline has no such temperature."""
    arms = tuple(replace(arm, temperatures=(temperature,)) for arm in study.arms if temperature in arm.temperatures)
    if study.baseline not in [arm.name for arm in arms]:
        (baseline,) = (arm for arm in study.arms if arm.name == study.baseline)
        allowed = ", ".join(f"{each:g}" for each in baseline.temperatures)
        raise ValueError(
            f"--temperature = {temperature:g} is not allowed; allowed: a temperature of study {study.name!r}, "
            f"[arm.{baseline.name}]: {allowed}"
        )
    return replace(study, arms=arms)
