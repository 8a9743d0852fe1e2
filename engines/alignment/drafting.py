"""Training a diffusion drafter for the embedded models: a decoder cut from the verifier, and two ready plans.

Knows token ids and a verifier's weights; no task, no file. What a step does is in losses.py.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from engines.alignment.examples import Example
from engines.alignment.losses import Plan, WindowLoss
from engines.alignment.mixed import Mixed
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


def drafting_loss(
    decoder: Decoder, drafter: DrafterConfig, plan: DraftTraining, batch_at: Callable[[int], Sequence[Example]]
) -> WindowLoss:
    """The loss per step that the trainer wants.

    `masked_diffusion` trains uniform anchors. `log_streak` trains half uniform anchors and half the starts of rounds
    that follow them under the drafter as it is: rounds start behind a rejection, so at hard places.
    """
    noise = plan.objective == "masked_diffusion"
    whole = Plan(
        objective=Mixed(weights={"ce" if noise else plan.objective: 1.0}),
        window=plan.window,
        anchors=plan.anchors,
        seed=plan.seed,
        pad_id=plan.pad_id,
        noise=noise,
        on_policy=0.0 if noise else 0.5,
    )
    return WindowLoss(decoder=decoder, drafter=drafter, plan=whole, batch_at=batch_at)
