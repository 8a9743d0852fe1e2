"""Model directories that hold something else than they should: one line that names file, key and value."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, read_config, read_drafter_config
from tiny_models import write_drafter, write_model


def change(path: Path, **values: object) -> None:
    """Some keys of a JSON file get other values; `...` takes a key away."""
    changed = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({key: value for key, value in changed.items() if value is not ...}))


def refusal(caught: pytest.ExceptionInfo[Exception]) -> str:
    """The one line of an error."""
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_parameters": [1]}, "rope_parameters = [1] is not allowed; it must be an object"),
        ({"rope_scaling": "linear"}, "rope_scaling = 'linear' is not allowed; it must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "rope type 'linear' is not supported; supported: default"),
        ({"rope_parameters": {"rope_theta": "1e4"}}, "rope_parameters.rope_theta = '1e4' is not allowed"),
        ({"rope_theta": -1}, "rope_theta = -1 is not allowed; it must be a number above 0"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps = 'tiny' is not allowed; it must be a number above 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan is not allowed"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps = inf is not allowed"),
        ({"rms_norm_eps": True}, "rms_norm_eps = True is not allowed"),
        ({"head_dim": 0}, "head_dim = 0 is not allowed; it must be a whole number from 1 on"),
        ({"head_dim": 7}, "head_dim = 7 is not allowed; it must be an even whole number"),
        ({"num_attention_heads": 32}, "head_dim = 1 is not allowed; it must be an even whole number"),
        ({"num_attention_heads": 64}, "head_dim = 1 is not allowed; it must be an even whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3 is not allowed; it must be a divisor of num_attention"),
        ({"num_key_value_heads": "2"}, "num_key_value_heads = '2' is not allowed; it must be a whole number"),
        ({"num_hidden_layers": 1.5}, "num_hidden_layers = 1.5 is not allowed; it must be a whole number from 1"),
        ({"vocab_size": 10**18}, "it must be a whole number from 1 to 4194304"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes' is not allowed; it must be true or false"),
        ({"attention_bias": 1}, "attention_bias = 1 is not allowed; it must be true or false"),
        ({"use_sliding_window": "no"}, "use_sliding_window = 'no' is not allowed; it must be true or false"),
        ({"model_type": ["qwen2"]}, "model_type ['qwen2'] is not supported; supported: qwen2, llama, Dream"),
        ({"hidden_act": {}}, "hidden_act {} is not supported; supported: silu"),
    ],
)
def test_a_value_of_the_configuration_that_is_none_is_one_line(
    tmp_path: Path, values: Mapping[str, object], message: str
) -> None:
    change(write_model(tmp_path, tokenizer=False) / "config.json", **values)

    with pytest.raises(ValueError, match=r"config\.json: ") as caught:
        read_config(tmp_path)

    assert message in refusal(caught)


def test_a_key_that_is_null_counts_as_missing(tmp_path: Path) -> None:
    folder = write_model(tmp_path, tokenizer=False)
    before, _ = read_config(folder)
    nulls = dict.fromkeys(("rope_parameters", "rope_scaling", "head_dim", "use_sliding_window"))
    change(folder / "config.json", **nulls, rms_norm_eps=..., rope_theta=...)

    assert read_config(folder)[0] == before


@pytest.mark.parametrize("shift", [2, "1", True, 0.5])
def test_a_shift_of_a_drafters_logits_is_0_or_1(tmp_path: Path, shift: object) -> None:
    change(write_drafter(tmp_path) / "config.json", logits_shift=shift)

    with pytest.raises(ValueError, match=r"logits_shift = .* is not allowed; it must be a whole number from 0 to 1"):
        read_drafter_config(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", "\xff", "[" * 100_000])
def test_a_configuration_that_is_no_object_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")

    with pytest.raises(ValueError, match=r"config\.json: (not a JSON file|holds a list, not an object)"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map names no file"),
        ({"weight_map": 5}, "weight_map = 5 is not allowed; it must be an object"),
        ({"weight_map": {"a": 7}}, "weight_map names 7; allowed: names of files in "),
        ({"weight_map": {"a": "../model.safetensors"}}, "weight_map names '../model.safetensors'"),
        ({"weight_map": {"a": "/etc/passwd"}}, "weight_map names '/etc/passwd'"),
        ({"weight_map": {"a": ".."}}, "no .., which model.safetensors.index.json names"),
        ({"weight_map": {"a": "two.safetensors"}}, "no two.safetensors, which model.safetensors.index.json names"),
    ],
)
def test_an_index_of_weights_names_files_of_its_folder(tmp_path: Path, index: object, message: str) -> None:
    (write_model(tmp_path, tokenizer=False) / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_decoder(tmp_path, torch.float32)

    assert message in refusal(caught)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.layers.0.self_attn.k_proj.weight", torch.zeros(16, 31), "(16, 31) and cannot stand below"),
        ("model.layers.0.self_attn.k_proj.weight", torch.tensor(1.0), "has the shape () and cannot stand below"),
        ("model.layers.1.mlp.down_proj.weight", torch.zeros(32, 48).int(), "holds torch.int32; supported: floating"),
        ("model.norm.weight", torch.zeros(31), "'norm.weight' has the shape (31,), config.json asks for (32,)"),
    ],
)
def test_a_weight_of_another_shape_or_type_is_named(
    tmp_path: Path, name: str, tensor: torch.Tensor, message: str
) -> None:
    path = write_model(tmp_path, tokenizer=False) / "model.safetensors"
    save_file(load_file(path) | {name: tensor}, path)

    with pytest.raises(ValueError, match="weight") as caught:
        load_decoder(tmp_path, torch.float32)

    assert message in refusal(caught)


def test_a_size_beyond_the_weights_takes_no_memory(tmp_path: Path) -> None:
    change(write_model(tmp_path, tokenizer=False) / "config.json", intermediate_size=2**22)

    with pytest.raises(ValueError, match=r"has the shape \(96, 32\), config.json asks for \(8388608, 32\)"):
        load_decoder(tmp_path, torch.float32)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("token", ["1", -1, 512, 1.0, True, [1, "2"], {}])
def test_an_end_token_is_a_number_of_the_vocabulary(tmp_path: Path, name: str, token: object) -> None:
    path = write_model(tmp_path) / name
    path.write_text(path.read_text() if path.exists() else "{}")
    change(path, eos_token_id=token)

    with pytest.raises(ValueError, match=rf"{name}: eos_token_id = .* it must be a whole number from 0 to 511, or a"):
        ChatTokenizer(tmp_path)


def test_end_tokens_are_those_of_both_configurations_and_of_the_tokenizer(tmp_path: Path) -> None:
    change(write_model(tmp_path) / "config.json", eos_token_id=[7, 8])
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')

    assert ChatTokenizer(tmp_path).stop_ids == {1, 7, 8, 9}


TEMPLATES: list[Any] = [5, [1], [{"name": "tools", "template": "x"}], [{"name": "default", "template": 5}], {"a": "b"}]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_template_is_a_text_or_named_texts(tmp_path: Path, template: object) -> None:
    (write_model(tmp_path) / "chat_template.jinja").unlink()
    change(tmp_path / "tokenizer_config.json", chat_template=template)

    with pytest.raises(ValueError, match=r"tokenizer_config\.json: chat_template = .* it must be a text, or a list"):
        ChatTokenizer(tmp_path)


def test_of_several_chat_templates_the_default_is_used(tmp_path: Path) -> None:
    (write_model(tmp_path) / "chat_template.jinja").unlink()
    named = [{"name": "default", "template": "<|user|>?"}, {"name": "tools", "template": "x"}]
    change(tmp_path / "tokenizer_config.json", chat_template=named)

    assert len(ChatTokenizer(tmp_path).prompt_ids([{"role": "user", "content": "hi"}])) == 2


@pytest.mark.parametrize("template", ["{% for %}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ raise_exception('no') }}"])
def test_a_chat_template_that_fails_is_one_line(tmp_path: Path, template: str) -> None:
    (write_model(tmp_path) / "chat_template.jinja").write_text(template)

    with pytest.raises(ValueError, match="the chat template cannot be rendered: ") as caught:
        ChatTokenizer(tmp_path)

    assert refusal(caught).startswith(str(tmp_path))


def test_a_chat_template_without_text_is_refused(tmp_path: Path) -> None:
    (write_model(tmp_path) / "chat_template.jinja").write_text("{% set a = 1 %}")

    with pytest.raises(ValueError, match="the chat template makes no text of a user's message"):
        ChatTokenizer(tmp_path)


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(tmp_path: Path) -> None:
    change(write_model(tmp_path) / "config.json", vocab_size=3)

    with pytest.raises(ValueError, match=r"the tokenizer writes token \d+, the model knows only 3"):
        ChatTokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("tokenizer_config.json", {"eos_token": 5}, "Special token eos_token has to be either str or AddedToken"),
        ("tokenizer_config.json", {"added_tokens_decoder": [1]}, "AttributeError"),
        ("tokenizer.json", {"added_tokens": 5}, "TypeError"),
        ("tokenizer.json", {"pre_tokenizer": 5}, "did not match any variant"),
        ("tokenizer.json", {"model": 5}, "transformers cannot read the tokenizer"),
        ("config.json", {"layer_types": [1]}, "Validation error for field 'layer_types'"),
        ("config.json", {"dtype": "nope"}, "AttributeError"),
    ],
)
def test_what_transformers_cannot_read_is_one_line_that_names_the_folder(
    tmp_path: Path, name: str, values: Mapping[str, object], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    change(write_model(tmp_path) / name, **values)

    with pytest.raises(ValueError, match="transformers cannot read the tokenizer: ") as caught:
        ChatTokenizer(tmp_path)

    assert refusal(caught).startswith(str(tmp_path))
    assert message in refusal(caught)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"])
@pytest.mark.parametrize("text", ["[1]", "5", "null", "{"])
def test_a_settings_file_of_a_tokenizer_that_is_no_object_is_named(tmp_path: Path, name: str, text: str) -> None:
    (write_model(tmp_path) / name).write_text(text)

    with pytest.raises(ValueError, match=rf"{name}: (holds a \w+, not an object|not a JSON file)"):
        ChatTokenizer(tmp_path)
