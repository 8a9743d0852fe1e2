"""Packed windows against one window a row: the same laws, the same gradients, and more windows per second."""

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from engines.alignment.divergences import TargetLaws
from engines.alignment.examples import Example, at_places, padded_laws, trimmed
from engines.alignment.objectives import log_streak
from engines.alignment.packing import one_window_a_row
from engines.alignment.windows import Windows, pad_sequences, uniform_anchors, window_log_probs, window_targets
from engines.checkpoints import DrafterConfig
from harness.cli import app
from small_alignment import write_alignment
from test_alignment import fresh_drafter, some_examples

WINDOW = 4


def gradients(packed: bool, shift: int) -> list[torch.Tensor]:
    examples, drafter = some_examples(3), DrafterConfig(mask_token_id=4, logits_shift=shift)
    decoder = fresh_drafter()
    ids, lengths = pad_sequences(examples, 0)
    windows = Windows(ids, lengths, uniform_anchors(examples, 5, torch.Generator().manual_seed(3)))
    targets, valid = window_targets(windows, WINDOW)
    if packed:
        log_probs = window_log_probs(decoder, drafter, windows, WINDOW, torch.zeros_like(valid))
    else:
        log_probs = one_window_a_row(decoder, drafter, windows, WINDOW)
    log_streak(log_probs.gather(-1, targets[..., None]).squeeze(-1), valid).backward()
    return [p.grad for p in decoder.parameters() if p.grad is not None]


@pytest.mark.parametrize("shift", [0, 1])
def test_packed_windows_have_the_gradients_of_one_window_a_row(shift: int) -> None:
    pairs = list(zip(gradients(True, shift), gradients(False, shift), strict=True))

    assert len(pairs) > 5
    assert all(torch.allclose(packed, row, rtol=1e-3, atol=1e-5) for packed, row in pairs)
    assert max(float(packed.abs().max()) for packed, _ in pairs) > 1e-3


def test_the_command_times_both_ways(tmp_path: Path) -> None:
    config = write_alignment(tmp_path)

    result = CliRunner().invoke(app, ["align", str(config), "--work", str(tmp_path / "work"), "--packing"])

    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"\d+ windows/s packed, \d+ one a row: \d+\.\d x \(16 windows a step\)\n", result.stdout)
    assert not (tmp_path / "work").exists()


def laws_of(example: Example) -> TargetLaws:
    tokens = torch.arange(len(example.response_ids))[:, None] + torch.tensor([100, 200])
    return TargetLaws(tokens=tokens, logs=torch.full(tokens.shape, -0.5))


def test_laws_stand_at_the_places_of_the_tokens_that_they_are_of() -> None:
    examples = [Example(e.prompt_ids, e.response_ids, laws_of(e)) for e in some_examples(2)]

    found = at_places(padded_laws(examples), torch.tensor([[[5, 6]], [[7, 8]]]))

    assert found.tokens.tolist() == [[[[100, 200], [101, 201]]], [[[102, 202], [103, 203]]]]


def test_examples_with_and_without_laws_do_not_mix() -> None:
    first, second = some_examples(2)

    with pytest.raises(ValueError, match="1 of 2 examples have no target laws"):
        padded_laws([Example(first.prompt_ids, first.response_ids, laws_of(first)), second])


@pytest.mark.parametrize(
    ("prompt", "response", "context"), [(5, 40, 16), (5, 9, 16), (15, 30, 16), (40, 7, 16), (3, 60, 7)]
)
def test_a_long_text_is_cut_into_pieces_that_cover_its_response_once(prompt: int, response: int, context: int) -> None:
    text = list(range(prompt + response))
    whole = Example(text[:prompt], text[prompt:])
    whole = Example(whole.prompt_ids, whole.response_ids, laws_of(whole))

    pieces = trimmed(whole, context)

    covered = [token for piece in pieces for token in piece.response_ids]
    assert covered == text[prompt : prompt + len(covered)]
    assert len(covered) >= response - 1
    assert all(len(piece) <= context and piece.prompt_ids for piece in pieces)
    for piece in pieces:
        joined = piece.prompt_ids + piece.response_ids
        assert joined == list(range(joined[0], joined[0] + len(joined)))
        assert piece.laws is not None
        assert (piece.laws.tokens[:, 0] - 100 + prompt).tolist() == piece.response_ids
