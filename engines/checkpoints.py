"""Model directories: read Qwen2- and Llama-type checkpoints into our decoder, and write ours as Qwen2 ones.

Knows files and names of weights; transformers reads the configuration, safetensors the weights. A drafter's directory
has two more keys in its config.json: `mask_token_id` and `logits_shift` (0: the row of a mask predicts its own place;
1: the row before it does, as in Dream, DiffuCoder and DiffuLLaMA).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engines.decoder import Decoder, DecoderConfig
from results.provenance import digest_file, digest_of

SUPPORTED = ("qwen2", "llama")
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """What makes a decoder a masked-diffusion drafter."""

    mask_token_id: int
    logits_shift: int


def read_config(folder: Path) -> tuple[DecoderConfig, dict[str, Any]]:
    """The decoder's shape and the whole config.json of a model directory.

    Raises:
        ValueError, OSError: no such directory, no config.json, or an architecture that the decoder does not have.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: not a model directory (no {CONFIG_FILE})")
    raw = read_json(path)
    refuse_unsupported(raw, path)
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind, heads = raw["model_type"], raw["num_attention_heads"]
    config = DecoderConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_hidden_layers=raw["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        max_position_embeddings=raw["max_position_embeddings"],
        rms_norm_eps=raw["rms_norm_eps"],
        attention_bias=raw.get("attention_bias", kind == "qwen2"),
        tie_word_embeddings=raw.get("tie_word_embeddings", False),
        rope_theta=rope.get("rope_theta", raw.get("rope_theta", 10_000.0)),
    )
    return config, raw


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: holds a {type(value).__name__}, not an object")
    return value


def refuse_unsupported(raw: dict[str, Any], path: Path) -> None:
    """Raise ValueError for whatever the decoder does not compute: better no answer than that of another model."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    found = {
        "model_type": (raw.get("model_type"), SUPPORTED),
        "rope type": (rope.get("rope_type", rope.get("type", "default")), ("default",)),
        "hidden_act": (raw.get("hidden_act", "silu"), ("silu",)),
        "use_sliding_window": (raw.get("use_sliding_window", False), (False,)),
        "mlp_bias": (raw.get("mlp_bias", False), (False,)),
    }
    for name, (value, supported) in found.items():
        if value not in supported:
            allowed = ", ".join(map(str, supported))
            raise ValueError(f"{path}: {name} {value!r} is not supported; supported: {allowed}")
    for name in SIZES:
        value = raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{path}: {name} = {value!r} is not allowed; it must be a whole number from 1 on")


def read_drafter_config(folder: Path) -> DrafterConfig:
    """Mask token and shift of a drafter's directory.

    Raises:
        ValueError: the directory is a model, but not a drafter's.
    """
    config, raw = read_config(folder)
    mask = raw.get("mask_token_id")
    if mask is None:
        raise ValueError(f"{folder / CONFIG_FILE}: no mask_token_id; a diffusion drafter needs one")
    if not isinstance(mask, int) or isinstance(mask, bool) or not 0 <= mask < config.vocab_size:
        allowed = f"a whole number from 0 to {config.vocab_size - 1}"
        raise ValueError(f"{folder / CONFIG_FILE}: mask_token_id {mask!r} is not allowed; allowed: {allowed}")
    shift = raw.get("logits_shift", 0)
    if shift not in (0, 1):
        raise ValueError(f"{folder / CONFIG_FILE}: logits_shift {shift!r} is not allowed; allowed: 0, 1")
    return DrafterConfig(mask_token_id=mask, logits_shift=shift)


def layer_names(index: int, *, bias: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our fused names of one layer with the published names of their parts, in order."""
    ours, theirs = f"layers.{index}", f"model.layers.{index}"
    yield f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",)
    yield f"{ours}.mlp_norm.weight", (f"{theirs}.post_attention_layernorm.weight",)
    yield f"{ours}.qkv.weight", tuple(f"{theirs}.self_attn.{part}_proj.weight" for part in "qkv")
    if bias:
        yield f"{ours}.qkv.bias", tuple(f"{theirs}.self_attn.{part}_proj.bias" for part in "qkv")
    yield f"{ours}.out.weight", (f"{theirs}.self_attn.o_proj.weight",)
    yield f"{ours}.gate_up.weight", tuple(f"{theirs}.mlp.{part}_proj.weight" for part in ("gate", "up"))
    yield f"{ours}.down.weight", (f"{theirs}.mlp.down_proj.weight",)


def weight_names(config: DecoderConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every weight of the decoder: our name, and the published names whose rows make it up."""
    yield "embed.weight", ("model.embed_tokens.weight",)
    yield "norm.weight", ("model.norm.weight",)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", ("lm_head.weight",)
    for index in range(config.num_hidden_layers):
        yield from layer_names(index, bias=config.attention_bias)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a model directory, from one safetensors file or an index of several."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            weights.update(load_file(path))
        except SafetensorError as error:
            raise ValueError(f"{path}: not a whole safetensors file: {error}") from None
    return weights


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model directory. Raises FileNotFoundError where there are none."""
    if (folder / INDEX_FILE).is_file():
        return [folder / name for name in sorted(set(read_json(folder / INDEX_FILE)["weight_map"].values()))]
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    raise FileNotFoundError(f"{folder}: no {WEIGHTS_FILE} and no {INDEX_FILE}")


def model_digest(folder: Path) -> str:
    """Changes with anything in a model directory that could change its answers: weights, configuration, tokenizer."""
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    files = [*weight_files(folder), *(folder / name for name in names if (folder / name).is_file())]
    return digest_of({path.name: digest_file(path) for path in files})


def load_decoder(folder: Path, dtype: torch.dtype) -> Decoder:
    """The model of a directory, in evaluation mode.

    Raises:
        ValueError, OSError: what is missing or unsupported, and where.
    """
    config, _ = read_config(folder)
    weights = read_weights(folder)
    state: dict[str, Tensor] = {}
    for ours, parts in weight_names(config):
        missing = [part for part in parts if part not in weights]
        if missing:
            raise ValueError(f"{folder}: weight {missing[0]!r} is missing")
        state[ours] = torch.cat([weights[part] for part in parts]) if len(parts) > 1 else weights[parts[0]]
    refuse_unused(weights, config, folder)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["embed.weight"]
    decoder = Decoder(config)
    for name, parameter in decoder.state_dict().items():
        if state[name].shape != parameter.shape:
            shapes = f"{tuple(state[name].shape)}, {CONFIG_FILE} asks for {tuple(parameter.shape)}"
            raise ValueError(f"{folder}: weight {name!r} has the shape {shapes}")
    decoder.load_state_dict(state)
    cos, sin = decoder.cos, decoder.sin
    decoder = decoder.to(dtype).eval().requires_grad_(False)
    decoder.cos, decoder.sin = cos, sin
    return decoder


def refuse_unused(weights: dict[str, Tensor], config: DecoderConfig, folder: Path) -> None:
    """Raise ValueError for a weight that the decoder would leave out. Tied heads and rotary tables are no loss."""
    used = {part for _, parts in weight_names(config) for part in parts} | {"lm_head.weight"}
    unused = [name for name in weights if name not in used and not name.endswith("rotary_emb.inv_freq")]
    if unused:
        raise ValueError(f"{folder}: weight {unused[0]!r} has no place in the model that {CONFIG_FILE} describes")


def save_decoder(decoder: Decoder, folder: Path, *, extra: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a model directory of type qwen2; `extra` goes into config.json (special tokens, drafter's keys)."""
    c = decoder.config
    if not c.attention_bias or c.head_dim * c.num_attention_heads != c.hidden_size:
        raise ValueError(f"{folder}: only Qwen2's shape can be written (attention bias, head_dim = hidden / heads)")
    state, parts = decoder.state_dict(), {}
    q_width, kv_width = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    splits = {3: [q_width, kv_width, kv_width], 2: [c.intermediate_size] * 2, 1: None}
    for ours, names in weight_names(c):
        sizes = splits[len(names)]
        tensors = state[ours].split(sizes) if sizes else (state[ours],)
        parts.update({name: t.to(dtype).contiguous().clone() for name, t in zip(names, tensors, strict=True)})
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "dtype": str(dtype).removeprefix("torch."),
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "max_position_embeddings": c.max_position_embeddings,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": c.rope_theta,
        "hidden_act": "silu",
        "use_sliding_window": False,
        "tie_word_embeddings": c.tie_word_embeddings,
        **extra,
    }
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / (WEIGHTS_FILE + ".partial")
    save_file(parts, scratch, metadata={"format": "pt"})
    scratch.chmod(0o644)  # safetensors writes for the owner alone; an installed model is for all users
    scratch.replace(folder / WEIGHTS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
