"""Model directories: read Qwen2- and Llama-type checkpoints into our decoder, and write ours as Qwen2 ones.

Knows files and names of weights; safetensors reads the weights. A drafter's directory has more keys in its config.json:
`mask_token_id`, `logits_shift` (0: the row of a mask predicts its own place; 1: the row before it does, as in Dream,
DiffuCoder and DiffuLLaMA), `draft_prefix` (`causal` or `full`: engines/drafters/diffusion.py) and `draft_window` (the
window that it was trained for).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engines.cache import DecoderConfig
from engines.decoder import Decoder
from engines.json_object import JsonObject, is_whole, read_json
from engines.speculation import LARGEST_WINDOW
from results.provenance import digest_file, digest_of

SUPPORTED = ("qwen2", "llama", "Dream")
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
LARGEST_SIZE = 2**22
"""Of any size above; the context's has a row in the rotary table for every position."""
DraftPrefix = Literal["causal", "full"]
DRAFT_PREFIXES: tuple[DraftPrefix, ...] = get_args(DraftPrefix)
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """What makes a decoder a masked-diffusion drafter."""

    mask_token_id: int
    logits_shift: int
    prefix: DraftPrefix = "causal"
    window: int = 16


def read_config(folder: Path) -> tuple[DecoderConfig, dict[str, Any]]:
    """The decoder's shape and the whole config.json of a model directory.

    Raises:
        ValueError, OSError: no such directory, no config.json, or an architecture that the decoder does not have.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: not a model directory (no {CONFIG_FILE})")
    raw = read_json(path)
    shape = JsonObject(path, raw)
    rope = shape.nested("rope_parameters")
    rope = rope if rope.values else shape.nested("rope_scaling")
    refuse_unsupported(shape, rope)
    sizes = {name: shape.whole(name, least=1, most=LARGEST_SIZE) for name in SIZES}
    config = DecoderConfig(
        **sizes,
        num_key_value_heads=shape.whole("num_key_value_heads", least=1, default=sizes["num_attention_heads"]),
        head_dim=shape.whole("head_dim", least=1, default=sizes["hidden_size"] // sizes["num_attention_heads"] or 1),
        rms_norm_eps=shape.positive("rms_norm_eps", 1e-6),
        attention_bias=shape.flag("attention_bias", raw["model_type"] != "llama"),
        tie_word_embeddings=shape.flag("tie_word_embeddings", False),
        rope_theta=rope.positive("rope_theta", shape.positive("rope_theta", 10_000.0)),
    )
    refuse_uneven_heads(config, shape)
    return config, raw


def refuse_unsupported(shape: JsonObject, rope: JsonObject) -> None:
    """Raise ValueError for whatever the decoder does not compute: better no answer than that of another model."""
    found = {
        "model_type": (shape.get("model_type"), SUPPORTED),
        "rope type": (rope.get("rope_type", rope.get("type", "default")), ("default",)),
        "hidden_act": (shape.get("hidden_act", "silu"), ("silu",)),
        "use_sliding_window": (shape.flag("use_sliding_window", False), (False,)),
        "mlp_bias": (shape.flag("mlp_bias", False), (False,)),
    }
    for name, (value, supported) in found.items():
        if value not in supported:
            allowed = ", ".join(map(str, supported))
            raise ValueError(f"{shape.path}: {name} {value!r} is not supported; supported: {allowed}")


def refuse_uneven_heads(config: DecoderConfig, shape: JsonObject) -> None:
    """Raise ValueError for heads that cannot share keys and values, or whose width has no two halves to rotate."""
    if config.num_attention_heads % config.num_key_value_heads:
        raise shape.refuse("num_key_value_heads", f"a divisor of num_attention_heads = {config.num_attention_heads}")
    if config.head_dim % 2:
        raise ValueError(
            f"{shape.path}: head_dim = {config.head_dim} is not allowed; it must be an even whole number "
            "(without the key: hidden_size / num_attention_heads)"
        )


def read_drafter_config(folder: Path) -> DrafterConfig:
    """Mask token and shift of a drafter's directory.

    Raises:
        ValueError: the directory is a model, but not a drafter's.
    """
    config, raw = read_config(folder)
    return read_drafter_settings(JsonObject(folder / CONFIG_FILE, raw), config.vocab_size)


def read_drafter_settings(settings: JsonObject, vocab_size: int) -> DrafterConfig:
    """The same from the contents of a config.json, wherever it came from."""
    mask = settings.get("mask_token_id")
    if mask is None:
        raise ValueError(f"{settings.path}: no mask_token_id; a diffusion drafter needs one")
    if not is_whole(mask) or not 0 <= mask < vocab_size:
        allowed = f"a whole number from 0 to {vocab_size - 1}"
        raise ValueError(f"{settings.path}: mask_token_id {mask!r} is not allowed; allowed: {allowed}")
    # Dream and DiffuCoder, and DiffuLLaMA: made from causal models, they say nothing of shift and prefix.
    stock = settings.get("model_type") in ("Dream", "llama")
    prefix = settings.get("draft_prefix", "full" if stock else "causal")
    if prefix not in DRAFT_PREFIXES:
        raise settings.refuse("draft_prefix", ", ".join(DRAFT_PREFIXES))
    return DrafterConfig(
        mask_token_id=mask,
        logits_shift=settings.whole("logits_shift", least=0, most=1, default=int(stock)),
        prefix=prefix,
        window=settings.whole("draft_window", least=1, most=LARGEST_WINDOW, default=16),
    )


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
    """The safetensors files of a model directory.

    Raises:
        ValueError, FileNotFoundError: there are none, or the index names what is none.
    """
    index = folder / INDEX_FILE
    if index.is_file():
        names = JsonObject(index, read_json(index)).nested("weight_map").values.values()
        strangers = [name for name in names if not isinstance(name, str) or Path(name).name != name]
        if strangers or not names:
            found = f"names {strangers[0]!r}" if strangers else "names no file"
            raise ValueError(f"{index}: weight_map {found}; allowed: names of files in {folder}")
        files = [folder / name for name in sorted(set(names))]
    else:
        files = [folder / WEIGHTS_FILE]
    for file in files:
        if not file.is_file():
            where = f", which {INDEX_FILE} names" if index.is_file() else f" and no {INDEX_FILE}"
            raise FileNotFoundError(f"{folder}: no {file.name}{where}")
    return files


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
    state = {ours: fused(weights, parts, folder) for ours, parts in weight_names(config)}
    refuse_unused(weights, config, folder)
    # Before the decoder takes memory: a size in config.json may be anything.
    refuse_other_shapes(state, config, folder)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["embed.weight"]
    decoder = Decoder(config)
    decoder.load_state_dict(state)
    cos, sin = decoder.cos, decoder.sin
    decoder = decoder.to(dtype).eval().requires_grad_(False)
    decoder.cos, decoder.sin = cos, sin
    return decoder


def fused(weights: Mapping[str, Tensor], parts: Sequence[str], folder: Path) -> Tensor:
    """The weights of these published names, one below the other. Raises ValueError where one is missing or odd."""
    for part in parts:
        if part not in weights:
            raise ValueError(f"{folder}: weight {part!r} is missing")
        if not weights[part].is_floating_point():
            raise ValueError(
                f"{folder}: weight {part!r} holds {weights[part].dtype}; supported: floating-point numbers"
            )
        if weights[part].shape[1:] != weights[parts[0]].shape[1:] or weights[part].dim() == 0:
            shapes = f"{tuple(weights[part].shape)} and cannot stand below {parts[0]!r}"
            raise ValueError(f"{folder}: weight {part!r} has the shape {shapes}")
    return torch.cat([weights[part] for part in parts]) if len(parts) > 1 else weights[parts[0]]


def refuse_other_shapes(state: Mapping[str, Tensor], config: DecoderConfig, folder: Path) -> None:
    """Raise ValueError for a weight of another shape than the configuration asks for."""
    c = config
    heads, kv_heads = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    shapes = {
        "embed.weight": (c.vocab_size, c.hidden_size),
        "lm_head.weight": (c.vocab_size, c.hidden_size),
        "norm.weight": (c.hidden_size,),
        "attention_norm.weight": (c.hidden_size,),
        "mlp_norm.weight": (c.hidden_size,),
        "qkv.weight": (heads + 2 * kv_heads, c.hidden_size),
        "qkv.bias": (heads + 2 * kv_heads,),
        "out.weight": (c.hidden_size, heads),
        "gate_up.weight": (2 * c.intermediate_size, c.hidden_size),
        "down.weight": (c.hidden_size, c.intermediate_size),
    }
    for name, tensor in state.items():
        wanted = shapes[".".join(name.split(".")[-2:])]
        if tensor.shape != wanted:
            found = f"{tuple(tensor.shape)}, {CONFIG_FILE} asks for {wanted}"
            raise ValueError(f"{folder}: weight {name!r} has the shape {found}")


def refuse_unused(weights: dict[str, Tensor], config: DecoderConfig, folder: Path) -> None:
    """Raise ValueError for a weight that the decoder would leave out. Tied heads and rotary tables are no loss."""
    used = {part for _, parts in weight_names(config) for part in parts} | {"lm_head.weight"}
    unused = [name for name in weights if name not in used and not name.endswith("rotary_emb.inv_freq")]
    if unused:
        raise ValueError(f"{folder}: weight {unused[0]!r} has no place in the model that {CONFIG_FILE} describes")


def refuse_unwritable(shape: DecoderConfig) -> None:
    """Raise ValueError for a shape that save_decoder does not write."""
    if shape.head_dim * shape.num_attention_heads != shape.hidden_size:
        raise ValueError(f"head_dim = {shape.head_dim} cannot be written; allowed: hidden_size / num_attention_heads")


def save_decoder(decoder: Decoder, folder: Path, *, extra: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a model directory; `extra` goes into config.json (special tokens, drafter's keys).

    Its type is qwen2, or llama without attention bias. Raises ValueError for a shape that neither has, OSError where
    the disk refuses the weights.
    """
    c = decoder.config
    refuse_unwritable(c)
    state, parts = decoder.state_dict(), {}
    q_width, kv_width = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    splits = {3: [q_width, kv_width, kv_width], 2: [c.intermediate_size] * 2, 1: None}
    for ours, names in weight_names(c):
        sizes = splits[len(names)]
        tensors = state[ours].split(sizes) if sizes else (state[ours],)
        parts.update({name: t.to(dtype).contiguous().clone() for name, t in zip(names, tensors, strict=True)})
    config = {
        "architectures": ["Qwen2ForCausalLM" if c.attention_bias else "LlamaForCausalLM"],
        "model_type": "qwen2" if c.attention_bias else "llama",
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
    try:
        save_file(parts, scratch, metadata={"format": "pt"})
    except SafetensorError as error:
        scratch.unlink(missing_ok=True)
        raise OSError(f"{folder / WEIGHTS_FILE}: the weights could not be written: {error}") from error
    scratch.chmod(0o644)  # safetensors writes for the owner alone; an installed model is for all users
    scratch.replace(folder / WEIGHTS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
