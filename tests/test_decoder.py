"""The decoder against transformers, and its cache against a forward without one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from engines.cache import DecoderConfig, KVCache
from engines.checkpoints import load_decoder, read_config, save_decoder
from engines.decoder import Decoder
from tiny_models import TINY, sharpened

SHAPE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def causal(rows: int) -> torch.Tensor:
    return torch.full((rows, rows), float("-inf")).triu_(1)


@pytest.fixture(params=["qwen2", "llama", "llama-wide-heads-untied"])
def published(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[PreTrainedModel, Path]:
    torch.manual_seed(3)
    model: PreTrainedModel
    if request.param == "qwen2":
        model = Qwen2ForCausalLM(
            Qwen2Config(**SHAPE, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
        )
    elif request.param == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True))
    else:
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=False, head_dim=16))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path)
    return model.train(False), tmp_path


@torch.inference_mode()
def test_logits_equal_those_of_transformers_within_1e_4(published: tuple[PreTrainedModel, Path]) -> None:
    model, folder = published
    ids = torch.randint(0, 61, (2, 30), generator=torch.Generator().manual_seed(0))

    decoder = load_decoder(folder, torch.float32)
    ours = decoder.logits(decoder(ids, torch.arange(30), causal(30)))

    assert (ours - model(ids).logits).abs().max() < 1e-4


@torch.inference_mode()
def test_a_written_directory_gives_transformers_the_same_logits(tmp_path: Path) -> None:
    decoder = sharpened(TINY, 1)
    save_decoder(decoder, tmp_path, extra={}, dtype=torch.float32)
    ids = torch.randint(0, 500, (1, 20), generator=torch.Generator().manual_seed(0))

    theirs = Qwen2ForCausalLM.from_pretrained(tmp_path)(ids).logits

    assert (decoder.logits(decoder(ids, torch.arange(20), causal(20))) - theirs).abs().max() < 1e-4


@torch.inference_mode()
def test_decoding_with_a_cache_equals_one_forward_over_all_tokens() -> None:
    decoder, cache = sharpened(TINY, 0), KVCache(TINY, 1, 32, torch.float32)
    ids = torch.randint(0, 500, (1, 12), generator=torch.Generator().manual_seed(0))
    whole = decoder(ids, torch.arange(12), causal(12))

    decoder(ids[:, :8], torch.arange(8), causal(8), cache)
    cache.commit(8)
    stepwise = []
    for at in range(8, 12):
        stepwise.append(decoder(ids[:, at : at + 1], torch.tensor([at]), None, cache))
        cache.commit(1)

    assert torch.allclose(torch.cat(stepwise, 1), whole[:, 8:], atol=1e-4)


@torch.inference_mode()
def test_a_committed_path_leaves_the_cache_as_if_only_its_rows_had_been_seen() -> None:
    decoder, cache = sharpened(TINY, 0), KVCache(TINY, 1, 32, torch.float32)
    ids = torch.tensor([[7, 9, 11, 13]])
    tree = torch.tensor([[20, 31, 40, 42]])  # 31 and 40 both follow 20, 42 follows 40
    seen = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]])
    mask = torch.cat((torch.zeros(4, 4), torch.zeros(4, 4).masked_fill(seen == 0, float("-inf"))), 1)

    decoder(ids, torch.arange(4), causal(4), cache)
    cache.commit(4)
    decoder(tree, torch.tensor([4, 5, 5, 6]), mask, cache)
    cache.commit_path(0, [0, 2, 3])
    after_tree = decoder(torch.tensor([[50]]), torch.tensor([7]), None, cache)

    path = torch.tensor([[7, 9, 11, 13, 20, 40, 42, 50]])
    assert torch.allclose(after_tree[0, -1], decoder(path, torch.arange(8), causal(8))[0, -1], atol=1e-4)


@torch.inference_mode()
def test_skipped_rows_are_cached_and_change_no_other() -> None:
    decoder, ids = sharpened(TINY, 0), torch.randint(0, 500, (1, 12), generator=torch.Generator().manual_seed(0))
    whole, short = KVCache(TINY, 1, 32), KVCache(TINY, 1, 32)

    every = decoder(ids, torch.arange(12), causal(12), whole)
    wanted = decoder(ids, torch.arange(12), causal(12), short, skip=9)

    assert torch.allclose(wanted, every[:, 9:], atol=1e-5)
    assert torch.allclose(short.store, whole.store, atol=1e-5)


def test_an_unsupported_architecture_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')

    with pytest.raises(ValueError, match="model_type 'mamba' is not supported; supported: qwen2, llama, Dream"):
        read_config(tmp_path)


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    small = DecoderConfig(**{**{f: getattr(TINY, f) for f in TINY.__slots__}, "num_hidden_layers": 1})
    save_decoder(Decoder(small), tmp_path, extra={}, dtype=torch.float32)
    config = (tmp_path / "config.json").read_text().replace('"num_hidden_layers": 1', '"num_hidden_layers": 2')
    (tmp_path / "config.json").write_text(config)

    with pytest.raises(ValueError, match=r"'model\.layers\.1\.input_layernorm\.weight' is missing"):
        load_decoder(tmp_path, torch.float32)
