"""What is here to serve with: SGLang in its tested version, the plugin as SGLang finds it, GPUs as torch sees them.

Loads no server; answers are one line on what is missing, or None.
"""

import os
import shutil
from importlib.metadata import PackageNotFoundError, entry_points, version

from engines.serving.arguments import GPU_ONLY, Device
from engines.sglang_plugin.registration import TESTED_VERSION
from engines.sglang_plugin.settings import NAME

PACKAGE = "sglang"
PLUGINS = "sglang.srt.plugins"
PLUGIN = "engines.sglang_plugin:register"


def missing_server() -> str | None:
    """Why no server can be started here."""
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        return "package sglang is not installed; run: pip install -e '.[sglang]', or give arms the url of a server"
    return None if found == TESTED_VERSION else f"sglang {found} is installed; needed: {TESTED_VERSION}"


def missing_plugin() -> str | None:
    """Why SGLang would not find SPECDIFF2."""
    known = {point.value for point in entry_points(group=PLUGINS)}
    return None if PLUGIN in known else f"SGLang finds no plugin {PLUGIN}; run: pip install -e '.[sglang]' here"


def gpus() -> list[str]:
    """Names of the GPUs that torch sees."""
    import torch

    return [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]


def missing_algorithm(algorithm: str | None, device: Device) -> str | None:
    """Why a server that is started here could not draft in this way; algorithm None stands for plain decoding."""
    # The attention of SGLang's CPU engine is the plugin's, whatever drafts.
    plugin = missing_plugin() if algorithm == NAME or device == "cpu" else None
    missing = missing_server() or plugin
    if missing:
        return missing
    if algorithm in GPU_ONLY and not gpus():
        return "needs a GPU: SGLang's CPU engine has no tree attention for it"
    compiler = os.environ.get("CXX", "c++")
    if algorithm == "NGRAM" and not shutil.which(compiler):
        return f"needs the C++ compiler {compiler!r}: SGLang compiles its n-gram tables when it first uses them"
    return None
