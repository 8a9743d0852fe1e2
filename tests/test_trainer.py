"""Schedules, optimizers and steps of the trainer, and the models that a training begins with and leaves."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from engines.alignment.publish import open_parent, publish
from engines.alignment.schedule import Schedule
from engines.alignment.trainer import STATE_FILE, build_optimizers, train
from engines.checkpoints import DrafterConfig, load_decoder, read_config, read_drafter_config, save_decoder
from engines.decoder import Decoder
from results.alignment import read_alignment
from test_alignment import fresh_drafter
from test_alignment_record import RECORD
from tiny_models import TINY, sharpened, write_drafter, write_model


def test_a_cosine_warms_up_stays_and_falls_by_half_a_period_to_its_rest() -> None:
    schedule = Schedule(steps=100, learning_rate=1.0, warmup_steps=10, decay_from=0.2, rest=0.05, shape="cosine")

    scales = [schedule.scale(step) for step in (0, 9, 20, 60, 99)]

    assert scales == pytest.approx([0.1, 1.0, 1.0, 0.5, 0.05])
    assert schedule.scale(40) == pytest.approx((1 - math.cos(math.pi * 0.75)) / 2)


@pytest.mark.parametrize("change", [{"shape": "square"}, {"optimizer": "sgd"}, {"accumulate": 0}])
def test_a_schedule_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a schedule needs a known shape and optimizer, and accumulate >= 1"):
        Schedule(steps=1, learning_rate=1.0, **change)  # type: ignore[arg-type] # wrong on purpose


def test_adamw_alone_trains_all_weights_and_decays_the_matrices_of_the_layers() -> None:
    decoder = fresh_drafter()

    (adamw,) = build_optimizers(decoder, Schedule(steps=1, learning_rate=1.0, weight_decay=0.1, optimizer="adamw"))

    sizes = {group["weight_decay"]: len(group["params"]) for group in adamw.param_groups}
    assert sizes == {0.1: 4, 0.0: len(list(decoder.parameters())) - 4}


def stepped(folder: Path, accumulate: int) -> torch.Tensor:
    decoder = fresh_drafter().train()
    weights = torch.randn(4, *decoder.embed.weight.shape, generator=torch.Generator().manual_seed(0))

    def loss_at(index: int) -> torch.Tensor:
        own = weights[index : index + 1] if accumulate == 2 else weights[2 * index : 2 * index + 2]
        return (own * decoder.embed.weight).sum(dim=(1, 2)).mean()

    train(decoder, loss_at, Schedule(steps=2, learning_rate=1e-2, accumulate=accumulate), folder)
    return decoder.embed.weight.detach()


def test_a_step_of_two_batches_is_a_step_on_both_at_once(tmp_path: Path) -> None:
    assert torch.allclose(stepped(tmp_path / "two", 2), stepped(tmp_path / "one", 1), atol=1e-6)


def test_a_gradient_that_is_no_number_stops_before_the_step_and_keeps_the_state(tmp_path: Path) -> None:
    decoder = fresh_drafter().train()

    def loss_at(index: int) -> torch.Tensor:
        loss = decoder.embed.weight.sum()
        return loss + (decoder.norm.weight.sum() * 0).sqrt() if index == 2 else loss

    with pytest.raises(FloatingPointError, match=r"the gradient's norm of step 2 is .* \(batch 2, digest b2\)"):
        train(
            decoder,
            loss_at,
            Schedule(steps=4, learning_rate=1e-2),
            tmp_path,
            save_every=1,
            name_batch=lambda index: f"b{index}",
        )

    assert torch.load(tmp_path / STATE_FILE, weights_only=True)["step"] == 2
    assert all(torch.isfinite(weight).all() for weight in decoder.state_dict().values())


def test_a_stock_checkpoint_is_a_parent_and_reads_its_prefix_causally_from_then_on(tmp_path: Path) -> None:
    verifier, stock = write_model(tmp_path / "verifier"), write_drafter(tmp_path / "stock", draft_prefix="full")
    config = json.loads((stock / "config.json").read_text())
    dream = {key: value for key, value in config.items() if key not in ("logits_shift", "draft_prefix")}
    (stock / "config.json").write_text(json.dumps(dream | {"model_type": "Dream"}))
    assert read_drafter_config(stock).prefix == "full"

    start = open_parent(stock, verifier, layers=None, mask_token_id=None, window=6)
    publish(start.decoder, start.drafter, verifier, RECORD, tmp_path / "done")

    assert read_drafter_config(tmp_path / "done") == DrafterConfig(mask_token_id=4, logits_shift=1, window=6)
    assert read_alignment(tmp_path / "done") == RECORD


def test_a_causal_model_is_a_parent_by_some_layers_and_a_mask_token(tmp_path: Path) -> None:
    verifier = write_model(tmp_path / "verifier")

    start = open_parent(verifier, verifier, layers=(1,), mask_token_id=7, window=4)

    assert len(start.decoder.layers) == 1
    assert (start.drafter.mask_token_id, start.drafter.logits_shift) == (7, 1)


@pytest.mark.parametrize(
    ("layers", "mask", "part"), [((3,), None, r"layers = \[3\]"), ((1,), 9000, "mask_token_id = 9000")]
)
def test_a_parent_that_cannot_be_is_refused(
    tmp_path: Path, layers: tuple[int, ...], mask: int | None, part: str
) -> None:
    verifier = write_model(tmp_path / "verifier")

    with pytest.raises(ValueError, match=part):
        open_parent(verifier, verifier, layers=layers, mask_token_id=mask, window=4)


def test_a_model_without_attention_bias_is_written_as_a_llama(tmp_path: Path) -> None:
    decoder = Decoder(dataclasses.replace(TINY, attention_bias=False))

    save_decoder(decoder, tmp_path, extra={}, dtype=torch.float32)

    assert read_config(tmp_path)[1]["model_type"] == "llama"
    again = load_decoder(tmp_path, torch.float32)
    assert torch.equal(again.embed.weight, decoder.embed.weight)
    assert again.config == decoder.config


def test_a_checkpoint_that_the_disk_refuses_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = write_model(tmp_path / "verifier")
    start = open_parent(verifier, verifier, layers=(0,), mask_token_id=4, window=4)
    publish(start.decoder, start.drafter, verifier, RECORD, tmp_path / "done")
    before = (tmp_path / "done/model.safetensors").read_bytes()

    def full(*given: object, **settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engines.alignment.publish.shutil.copyfile", full)
    with pytest.raises(OSError, match=r"the checkpoint could not be written: .*No space left on device"):
        publish(sharpened(TINY, 3), start.drafter, verifier, RECORD, tmp_path / "done")

    assert (tmp_path / "done/model.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "verifier"]
