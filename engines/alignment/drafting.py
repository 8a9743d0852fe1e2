"""Training a diffusion drafter: a decoder cut from the verifier, and the loss of a step under an objective.

Knows token ids and a verifier's weights; no task, no file. The batch and the random choices of step n are made from the
seed and n alone, so training can stop and go on anywhere.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from engines.alignment.examples import Example
from engines.alignment.objectives import ce, log_streak
from engines.alignment.windows import Windows, pad_sequences, uniform_anchors, window_log_probs, window_targets
from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder

Objective = Literal["masked_diffusion", "log_streak"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DraftTraining:
    """What one step trains: windows of `window` places at `anchors` places of every sequence of the batch."""

    objective: Objective
    window: int
    anchors: int
    seed: int
    pad_id: int


def drafter_from_verifier(verifier: Decoder, layers: int | Sequence[int]) -> Decoder:
    """A decoder of some of the verifier's layers (a number: of its first ones), with its embeddings and last norm."""
    taken = range(layers) if isinstance(layers, int) else layers
    drafter = Decoder(dataclasses.replace(verifier.config, num_hidden_layers=len(taken)))
    drafter.load_state_dict(
        {name: parameter for name, parameter in verifier.state_dict().items() if not name.startswith("layers.")}
        | {
            f"layers.{place}.{name}": parameter
            for place, layer in enumerate(taken)
            for name, parameter in verifier.layers[layer].state_dict().items()
        }
    )
    return drafter


def partly_shown(windows: Windows, window: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Masked diffusion's noise: places whose token is shown, and the weights of the masked ones, both [B, A, G].

    Every second window is masked throughout, as in use; the others at a share drawn evenly from 1/G to 1.
    """
    shape = (*windows.anchors.shape, 1)
    share = torch.rand(shape, generator=generator).clamp(min=1 / window)
    share[:, ::2] = 1.0
    masked = torch.rand((*windows.anchors.shape, window), generator=generator) < share
    masked[..., 0] |= ~masked.any(dim=-1)
    return ~masked, masked / share


def round_starts(log_probs: Tensor, windows: Windows, window: int) -> Tensor:
    """Where the rounds after those at the anchors would start if the drafter served its argmax chain: [B, A].

    An anchor whose round would reach the end of its text stays where it is.
    """
    targets, valid = window_targets(windows, window)
    hits = (log_probs.argmax(dim=-1) == targets) & valid
    following = windows.anchors + hits.cumprod(dim=-1).sum(dim=-1) + 1
    return torch.where(following < windows.lengths[:, None] - 1, following, windows.anchors)


def drafting_loss(
    decoder: Decoder, drafter: DrafterConfig, plan: DraftTraining, batch_at: Callable[[int], Sequence[Example]]
) -> Callable[[int], Tensor]:
    """The loss per step that the trainer wants.

    `masked_diffusion` trains uniform anchors. `log_streak` trains half uniform anchors and half the starts of rounds
    that follow them under the drafter as it is: rounds start behind a rejection, so at hard places.
    """

    def log_probs_at(windows: Windows, shown: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return window_log_probs(decoder, drafter, windows, plan.window, shown)

    def loss_at(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(plan.seed * 1_000_003 + step)
        examples = batch_at(step)
        ids, lengths = pad_sequences(examples, plan.pad_id)
        windows = Windows(ids, lengths, uniform_anchors(examples, plan.anchors, generator))
        shown = torch.zeros(*windows.anchors.shape, plan.window, dtype=torch.bool)
        weights = None
        if plan.objective == "masked_diffusion":
            shown, weights = partly_shown(windows, plan.window, generator)
        else:
            half = plan.anchors // 2
            probe = Windows(ids, lengths, windows.anchors[:, :half])
            with torch.no_grad():
                starts = round_starts(log_probs_at(probe, shown[:, :half]), probe, plan.window)
            windows = Windows(ids, lengths, torch.cat((starts, windows.anchors[:, half:]), dim=1))
        targets, valid = window_targets(windows, plan.window)
        log_q = log_probs_at(windows, shown).gather(-1, targets[..., None]).squeeze(-1)
        return log_streak(log_q, valid) if plan.objective == "log_streak" else ce(log_q, valid, weights)

    return loss_at
