"""What can run here: engines, devices, ways to draft, tasks and models, and what is missing for the others.

Opens no engine and fetches nothing.
"""

import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from engines.models import EMBEDDED, SMOLLM2, embedded_models, smollm2_file
from engines.serving.arguments import ALGORITHMS, GPU_ONLY, device_of
from engines.serving.presence import gpus, missing_algorithm, missing_server
from engines.sglang_plugin.settings import NAME
from harness import catalog
from harness.arms import ALGORITHM, Arm
from harness.dry_run import arm_lines
from harness.study import Study, read_study
from results.provenance import collect_provenance

SERVED_ENGINE = "sglang"
HUB_TASKS = {"math500": "HuggingFaceH4/MATH-500", "gsm8k": "openai/gsm8k"}
GATED_TASKS = ("gpqa",)
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a study may name. `missing`: why it cannot run here; `note`: what to know where it can."""

    section: str
    name: str
    missing: str | None = None
    note: str = ""

    def line(self, width: int) -> str:
        """For people."""
        state = f"missing: {self.missing}" if self.missing else f"ok{f': {self.note}' if self.note else ''}"
        return f"  {self.name:{width}}  {state}"


def findings() -> list[Finding]:
    """Everything that the catalog names."""
    return [*engine_findings(), *device_findings(), *arm_findings(), *task_findings(), *model_findings()]


def engine_findings() -> Iterator[Finding]:
    """The engines."""
    for name in catalog.ENGINES:
        missing = missing_server() if name == SERVED_ENGINE else None
        note = f"sglang {version('sglang')}" if name == SERVED_ENGINE and not missing else f"torch {version('torch')}"
        yield Finding(section="engines", name=name, missing=missing, note=note)


def device_findings() -> Iterator[Finding]:
    """CPU and GPUs."""
    here = collect_provenance()
    cpu = here["cpu"]
    yield Finding(section="devices", name="cpu", note=f"{cpu['usable_cores']} cores, {here['memory_gib']} GiB")
    found = gpus()
    missing = None if found else "torch sees no GPU"
    yield Finding(section="devices", name="cuda", missing=missing, note=", ".join(found))


def arm_findings() -> Iterator[Finding]:
    """The ways to draft of each engine."""
    for drafting in catalog.DRAFTINGS:
        yield Finding(section="arms of reference", name=str(drafting))
    device, _ = device_of({})
    notes = {"NGRAM": "" if device == "cuda" else "at temperature 0 alone: on a CPU it is greedy at any"}
    for algorithm in (None, NAME, "NGRAM", *GPU_ONLY):
        name = algorithm or "vanilla"
        missing = missing_algorithm(algorithm, device)
        yield Finding(section=f"arms of {SERVED_ENGINE}", name=name, missing=missing, note=notes.get(name, ""))


def task_findings() -> Iterator[Finding]:
    """The tasks: whether their problems are here, or can be fetched."""
    offline = next((name for name in OFFLINE if os.environ.get(name, "").upper() in ("1", "TRUE", "YES", "ON")), None)
    for name in catalog.TASKS:
        missing, note = None, ""
        if name in HUB_TASKS:
            note = f"fetched from {HUB_TASKS[name]} at first use, or --source FILE"
            missing = f"{offline} is set, so give --source FILE" if offline else None
        elif name in GATED_TASKS:
            from huggingface_hub import get_token

            note = "gated: fetched with your token, or --source FILE"
            missing = None if get_token() and not offline else "gated data: log in to the hub, or give --source FILE"
        yield Finding(section="tasks", name=name, missing=missing, note=note)


def model_findings() -> Iterator[Finding]:
    """The models that have names."""
    for name in embedded_models():
        yield Finding(section="models", name=f"{EMBEDDED}{name}")
    missing = None
    try:
        smollm2_file()
    except FileNotFoundError as error:
        missing = str(error)
    if missing is None and importlib.util.find_spec("gguf") is None:
        missing = "reading it needs the package gguf; run: pip install gguf"
    yield Finding(section="models", name=SMOLLM2, missing=missing)


def study_findings(study: Study) -> Iterator[Finding]:
    """A study's task, and each of its arms."""
    yield from (each for each in task_findings() if each.name == study.task and "source" not in study.task_options)
    for arm in study.arms:
        yield Finding(section=f"study {study.name}", name=arm.name, missing=missing_for(study, arm))


def missing_for(study: Study, arm: Arm) -> str | None:
    """Why an arm cannot run here."""
    try:
        for _ in arm_lines(study, arm):
            pass
        if arm.serving is None or arm.serving.url:
            return None
        device, _ = device_of(arm.serving.arguments)
    except (OSError, ValueError) as error:
        return str(error)
    if device == "cuda" and not gpus():
        return "device = 'cuda', and torch sees no GPU"
    named = arm.serving.arguments.get(ALGORITHM)
    return missing_algorithm(ALGORITHMS[arm.speculation.drafting] if arm.speculation else named, device)


def asked(names: Sequence[str]) -> list[Finding]:
    """What these names stand for: names of the catalog, or studies. Raises ValueError, OSError for what is neither."""
    known = findings()
    found: list[Finding] = []
    for name in names:
        own = [each for each in known if each.name.lower() == name.lower()]
        if own:
            found += own
        elif Path(name).exists():
            found += study_findings(read_study(Path(name)))
        else:
            named = ", ".join(dict.fromkeys(each.name for each in known))
            raise ValueError(f"nothing called {name!r}, and no study there; known: {named}")
    return found
