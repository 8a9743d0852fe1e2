"""A drafter judged while it is trained: real rounds and expected streaks on the verifier's held-out texts.

tau, alpha and survival come from rounds played from first to last on the recorded texts (engines/forecast.py), argmax
chain and rule `walk`: what the engine would measure. The expected streak, over windows at uniform places, is what the
objective sees; the two differ, and only tau is what counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engines.alignment.examples import Example
from engines.alignment.losses import Plan
from engines.alignment.objectives import streak_sum
from engines.alignment.windows import Windows, pad_sequences, uniform_anchors, window_log_probs, window_targets
from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder
from engines.drafters.diffusion import DiffusionDrafter, DiffusionDrafting
from engines.forecast import RecordedText, play
from engines.speculation import Speculation
from results.acceptance import Acceptance, acceptance

BATCH = 8
"""Texts of one packed forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Held-out acceptance after a step, by temperature, and the mean expected streak of uniform windows."""

    step: int
    expected_streak: float
    by_temperature: dict[float, Acceptance]

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN, for places that no round reached, becomes null."""
        return {
            "step": self.step,
            "expected_streak": self.expected_streak,
            "temperatures": [
                {
                    "temperature": temperature,
                    "tau": found.tau,
                    "rounds": found.rounds,
                    "tested": [position.tested for position in found.positions],
                    "alpha": [position.alpha if position.tested else None for position in found.positions],
                    "survival": [None if each != each else each for each in found.survival],  # noqa: PLR0124 (NaN)
                }
                for temperature, found in self.by_temperature.items()
            ],
        }


def evaluate(
    decoder: Decoder, drafter: DrafterConfig, plan: Plan, texts: Sequence[RecordedText], step: int
) -> Evaluation:
    """Play the texts with the drafter as it is. The decoder is on the CPU."""
    decoder.eval()
    speculation = Speculation(drafter="in training", window=plan.window)
    capacity = max(len(text.prompt_ids) + len(text.response_ids) for text in texts)
    drafting = DiffusionDrafting(DiffusionDrafter(decoder, drafter, plan.window, capacity), speculation)
    by_temperature = {}
    for temperature in sorted({text.sampling.temperature for text in texts}):
        own = [text for text in texts if text.sampling.temperature == temperature]
        rounds = play(drafting, speculation, own, decoder.config.vocab_size)
        by_temperature[temperature] = acceptance(rounds, plan.window)
    streak = uniform_streak(decoder, drafter, plan, texts)
    return Evaluation(step=step, expected_streak=streak, by_temperature=by_temperature)


@torch.no_grad()
def uniform_streak(decoder: Decoder, drafter: DrafterConfig, plan: Plan, texts: Sequence[RecordedText]) -> float:
    """Mean expected streak of a sampled draft at uniform places, the same ones at every step."""
    examples = [Example(text.prompt_ids, text.response_ids) for text in texts if len(text.response_ids) > 1]
    generator = torch.Generator().manual_seed(plan.seed)
    total, count = 0.0, 0
    for first in range(0, len(examples), BATCH):
        batch = examples[first : first + BATCH]
        ids, lengths = pad_sequences(batch, plan.pad_id)
        windows = Windows(ids, lengths, uniform_anchors(batch, plan.anchors, generator))
        shown = torch.zeros(*windows.anchors.shape, plan.window, dtype=torch.bool)
        targets, valid = window_targets(windows, plan.window)
        log_probs = window_log_probs(decoder, drafter, windows, plan.window, shown)
        streaks = streak_sum(log_probs.gather(-1, targets[..., None]).squeeze(-1), valid)
        total, count = total + float(streaks.sum()), count + streaks.numel()
    return total / count
