"""SPECDIFF2's look at a server's arguments, at its two models and at SGLang itself; and its attention, on a CPU."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engines.sglang_plugin import registration
from engines.sglang_plugin.arguments import configuration, read_drafter, refuse_features, refuse_other_models
from engines.sglang_plugin.attention import attend
from engines.sglang_plugin.settings import SETTINGS_VARIABLE, Arm, read_arm
from tiny_models import write_drafter, write_model, write_other_tokens

FINE: dict[str, Any] = {
    "page_size": None,
    "pp_size": 1,
    "dp_size": 1,
    "enable_dp_attention": False,
    "disaggregation_mode": "null",
    "enable_hierarchical_cache": False,
    "enable_lora": None,
    "enable_two_batch_overlap": False,
    "disable_cuda_graph": True,
    "speculative_draft_attention_backend": None,
    "attention_backend": "specdiff_torch",
    "device": "cpu",
    "context_length": None,
}


def served(**others: Any) -> Any:
    return SimpleNamespace(**(FINE | others))


def test_a_server_as_the_plugin_describes_it_is_fine() -> None:
    refuse_features(served())


def test_on_a_gpu_the_drafter_gets_an_attention_of_its_own() -> None:
    refuse_features(served(device="cuda", attention_backend="fa3"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page_size", 16),
        ("pp_size", 2),
        ("dp_size", 2),
        ("enable_dp_attention", True),
        ("disaggregation_mode", "decode"),
        ("enable_hierarchical_cache", True),
        ("enable_lora", True),
        ("enable_two_batch_overlap", True),
        ("disable_cuda_graph", False),
        ("speculative_draft_attention_backend", "fa3"),
    ],
)
def test_a_feature_that_it_does_not_know_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"SPECDIFF2: {name} = {value!r} is not supported; supported: "):
        refuse_features(served(**{name: value}))


def test_a_cpu_needs_the_plugins_attention() -> None:
    with pytest.raises(ValueError, match="'torch_native' is not supported; supported: 'triton', 'specdiff_torch'"):
        refuse_features(served(attention_backend="torch_native"))


def arm() -> Arm:
    return read_arm("drafter", 4, 1)


def check_models(target: Path, drafter: Path | str, context: int | None = None) -> None:
    args = served(model_path=str(target), speculative_draft_model_path=str(drafter), context_length=context)
    refuse_other_models(args, arm())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("target"))


def test_a_drafter_of_the_targets_tokens_is_fine(target: Path, tmp_path: Path) -> None:
    check_models(target, write_drafter(tmp_path))


def test_a_drafter_that_is_not_there_is_named(target: Path) -> None:
    with pytest.raises(ValueError, match=r"^/nowhere/drafter: no model directory"):
        check_models(target, "/nowhere/drafter")


def test_a_model_that_is_no_drafter_is_refused(target: Path) -> None:
    with pytest.raises(ValueError, match="no mask_token_id; a diffusion drafter needs one"):
        check_models(target, target)


def test_another_vocabulary_is_refused(target: Path, tmp_path: Path) -> None:
    folder = write_drafter(tmp_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | {"vocab_size": 600}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    with pytest.raises(ValueError, match=r"vocabulary has 600 entries, that of the target .* has 512"):
        check_models(target, folder)


def test_other_words_of_the_same_number_are_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the drafter's tokens are not those of the target"):
        check_models(target, write_other_tokens(tmp_path))


def test_a_context_that_is_too_short_is_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="context of 96 tokens is shorter than the target's 200; set context_length"):
        check_models(target, write_drafter(tmp_path), context=200)


def test_an_arm_may_say_what_a_drafters_own_file_does_not(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS_VARIABLE, json.dumps({"mask_token_id": 5, "logits_shift": 1}))

    config = read_drafter(configuration(str(target)), arm())

    assert (config.mask_token_id, config.logits_shift) == (5, 1)


@pytest.mark.parametrize(("model_type", "shift"), [("Dream", 1), ("llama", 1), ("qwen2", 0)])
def test_stock_drafters_are_known_to_shift(model_type: str, shift: int, tmp_path: Path) -> None:
    raw = {"model_type": model_type, "vocab_size": 64, "mask_token_id": 3}
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")

    assert read_drafter(configuration(str(tmp_path)), arm()).logits_shift == shift


def test_another_sglang_is_refused_with_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "version", lambda name: "0.6.0")

    with pytest.raises(RuntimeError, match=r"needs SGLang 0\.5\.23, found 0\.6\.0; pip install sglang==0\.5\.23"):
        registration.refuse_other_sglang()


def test_a_name_that_sglang_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "version", lambda name: registration.TESTED_VERSION)
    monkeypatch.setattr(registration, "TOUCHED", ("json:no_such_name",))

    with pytest.raises(RuntimeError, match=r"SGLang 0\.5\.23 has no json:no_such_name"):
        registration.refuse_other_sglang()


Attended = tuple[list[Tensor], tuple[Tensor, Tensor], list[Tensor]]


@pytest.fixture
def attended() -> Attended:
    """Rows [2, 3, heads, 8] of two requests, a pool, and their prefixes' slots in it (seed 0, float64)."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 3, 4, 8), (2, 3, 2, 8), (2, 3, 2, 8)]
    rows = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]
    keys, values = torch.randn(2, 9, 2, 8, generator=draw, dtype=torch.float64)
    return rows, (keys, values), [torch.tensor([7, 2, 5, 1]), torch.tensor([4])]


def test_rows_attend_to_their_prefix_in_the_pool_and_to_the_rows_that_they_see(attended: Attended) -> None:
    """Against softmax(q k / sqrt D) v written out, to 1e-12; a random mask (seed 1)."""
    rows, pool, slots = attended
    draw = torch.Generator().manual_seed(1)
    sees = [torch.rand(3, len(each) + 3, generator=draw) > 0.4 for each in slots]
    for each in sees:
        each[:, 0] = True

    found = attend(rows, pool, slots, torch.cat([each.reshape(-1) for each in sees]), 8**-0.5)

    for b in range(2):
        keys, values = (torch.cat((pool[n][slots[b]], rows[1 + n][b])) for n in range(2))
        for head in range(4):
            scores = (rows[0][b, :, head] @ keys[:, head // 2].T) * 8**-0.5
            law = scores.masked_fill(~sees[b], float("-inf")).softmax(-1)
            assert torch.allclose(found[b, :, head], law @ values[:, head // 2], atol=1e-12)


def test_a_mask_among_the_rows_alone_shows_the_whole_prefix(attended: Attended) -> None:
    rows, pool, slots = attended
    among = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    whole = [torch.cat((torch.ones(3, len(each), dtype=torch.bool), among), 1).reshape(-1) for each in slots]

    found = attend(rows, pool, slots, among.reshape(-1).repeat(2), 8**-0.5)

    assert torch.equal(found, attend(rows, pool, slots, torch.cat(whole), 8**-0.5))
