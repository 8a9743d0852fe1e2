"""What SGLang's CPU engine needs in its environment. Loads neither torch nor SGLang.

SGLang calls a package `sgl_kernel`; the one on the package index is built for CUDA and cannot be imported without it.
The folder `stand_in` holds one of the same name in torch alone, with what the CPU engine calls.
"""

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_in"
CPU_BUILDS = ("sglang-kernel-cpu", "sgl-kernel-cpu")
"""Distributions whose `sgl_kernel` is built for a CPU."""


def cpu_environment() -> dict[str, str]:
    """Environment variables to set before SGLang is imported, for it and for the processes that it starts.

    One thread: on small models the threads' waiting for each other costs far more than their work saves. Nor is
    anything compiled: that would take minutes and a C++ compiler.
    """
    environment = {
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    if not has_cpu_kernels():
        known = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(STAND_IN), known] if known else [str(STAND_IN)])
    return environment


def has_cpu_kernels() -> bool:
    """Whether an `sgl_kernel` built for a CPU is installed."""
    for name in CPU_BUILDS:
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        return True
    return False
