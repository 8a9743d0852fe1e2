"""How much memory an arm needs, before anything is opened or fetched: weights, and keys and values of its requests.

Knows shapes of models: of a local directory by its config.json, of some models on a hub by the table below, which holds
what their authors published. What a server needs beside (activations, graphs, workspaces) is no part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.contract import NumberFormat
from engines.json_object import JsonObject, read_json
from engines.models import resolve_model
from engines.serving.directories import is_hub_name

GIB = 2**30
BYTES: Mapping[NumberFormat, int] = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a causal model's size follows from. `tied`: the output layer is the embedding table."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    tied: bool = False

    @property
    def parameters(self) -> int:
        """Weights of the matrices; biases and norms are some ten thousandths of them."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * self.head_width
        tables = self.vocab * self.hidden * (1 if self.tied else 2)
        return tables + self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_width(self) -> int:
        """Size of a head."""
        return self.hidden // self.heads

    def token_bytes(self, number_bytes: int) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_width * number_bytes


QWEN_7B = ModelShape(layers=28, hidden=3584, intermediate=18944, heads=28, kv_heads=4, vocab=152064, context=32768)
LLAMA_7B = ModelShape(layers=32, hidden=4096, intermediate=11008, heads=32, kv_heads=32, vocab=32000, context=4096)
PUBLISHED = {
    "Qwen/Qwen2.5-72B-Instruct": ModelShape(
        layers=80, hidden=8192, intermediate=29568, heads=64, kv_heads=8, vocab=152064, context=32768
    ),
    "Qwen/Qwen2.5-14B-Instruct": ModelShape(
        layers=48, hidden=5120, intermediate=13824, heads=40, kv_heads=8, vocab=152064, context=32768
    ),
    "Qwen/Qwen2.5-7B-Instruct": QWEN_7B,
    "Qwen/Qwen2.5-0.5B-Instruct": ModelShape(
        layers=24, hidden=896, intermediate=4864, heads=14, kv_heads=2, vocab=151936, context=32768, tied=True
    ),
    "apple/DiffuCoder-7B-Instruct": QWEN_7B,
    "apple/DiffuCoder-7B-cpGRPO": QWEN_7B,
    "meta-llama/Llama-2-70b-chat-hf": ModelShape(
        layers=80, hidden=8192, intermediate=28672, heads=64, kv_heads=8, vocab=32000, context=4096
    ),
    "meta-llama/Llama-2-13b-chat-hf": ModelShape(
        layers=40, hidden=5120, intermediate=13824, heads=40, kv_heads=40, vocab=32000, context=4096
    ),
    "meta-llama/Llama-2-7b-chat-hf": LLAMA_7B,
    "diffusionfamily/diffullama": LLAMA_7B,
}


def shape_of(name: str) -> ModelShape | None:
    """The shape of a model; None for one on a hub that the table does not hold.

    Raises:
        ValueError, OSError: there is no model of that name, or its config.json says no shape.
    """
    if is_hub_name(name):
        return PUBLISHED.get(name)
    return read_shape(resolve_model(name))


def read_shape(folder: Path) -> ModelShape:
    """The shape in a directory's config.json. Raises ValueError, OSError."""
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: not a model directory (no config.json)")
    config = JsonObject(path, read_json(path))
    heads = config.whole("num_attention_heads", least=1)
    return ModelShape(
        layers=config.whole("num_hidden_layers", least=1),
        hidden=config.whole("hidden_size", least=1),
        intermediate=config.whole("intermediate_size", least=1),
        heads=heads,
        kv_heads=config.whole("num_key_value_heads", least=1, default=heads),
        vocab=config.whole("vocab_size", least=1),
        context=config.whole("max_position_embeddings", least=1),
        tied=config.flag("tie_word_embeddings", False),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of an arm's models with the keys and values of so many tokens.

    unknown: models of unknown shape, which count as nothing
    """

    tokens: int
    weights: int
    cache: int
    unknown: tuple[str, ...]

    def text(self) -> str:
        """For people, in GiB."""
        total = (self.weights + self.cache) / GIB
        cache = f"keys and values of {self.tokens} tokens {self.cache / GIB:.2f}"
        parts = f"{total:.2f} GiB: weights {self.weights / GIB:.2f}, {cache}"
        return parts + (f"; without {', '.join(self.unknown)}, whose shape is not known here" if self.unknown else "")


def estimate(models: Mapping[str, NumberFormat], tokens: int) -> Memory:
    """Memory of models that all keep the keys and values of so many tokens. Raises ValueError, OSError as shape_of."""
    weights = cache = 0
    unknown = []
    for name, number_format in models.items():
        shape = shape_of(name)
        if shape is None:
            unknown.append(name)
            continue
        weights += shape.parameters * BYTES[number_format]
        cache += tokens * shape.token_bytes(BYTES[number_format])
    return Memory(tokens=tokens, weights=weights, cache=cache, unknown=tuple(unknown))
