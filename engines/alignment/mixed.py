"""Weighted sums of objectives, with weights that may change over the steps: what a training's config names.

Knows tensors, and the objectives by name. Everything is computed from one set of window laws, so a further objective
costs no further forward of the drafter.
"""

import math
import reprlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from torch import Tensor

from engines.alignment import divergences, objectives
from engines.alignment.divergences import TargetLaws

Weight: TypeAlias = float | Sequence[Sequence[float]]
"""A constant, or pairs (step, weight): linear between them, constant before the first and behind the last."""
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
"""Of those that are not 0. Far outside, a loss has no float32."""
LARGEST_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLaws:
    """What the drafter says of windows, all places masked as in use, and what the target says of them.

    draft_logs:     [..., G, V] log-probabilities of every place
    log_q:          [..., G] those of the verifier's own tokens
    valid:          [..., G] whether the place lies within the text
    target:         the target's laws of the same places; needed for TARGET_OBJECTIVES alone
    noise_weights:  [..., G] masked diffusion's weights, where some places were shown; such windows are for `ce` alone
    """

    draft_logs: Tensor
    log_q: Tensor
    valid: Tensor
    target: TargetLaws | None = None
    noise_weights: Tensor | None = None


def window_laws(
    draft_logs: Tensor,
    tokens: Tensor,
    valid: Tensor,
    *,
    target: TargetLaws | None = None,
    noise_weights: Tensor | None = None,
) -> WindowLaws:
    """Window laws from the drafter's [..., G, V] and the verifier's tokens [..., G], looked up once for all terms."""
    log_q = draft_logs.gather(-1, tokens[..., None]).squeeze(-1)
    return WindowLaws(draft_logs=draft_logs, log_q=log_q, valid=valid, target=target, noise_weights=noise_weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What single objectives need to know beside the laws."""

    decay: float = 0.8
    """`exp_ce`: weight of a place over that of the one before it."""
    drafts: int = 8
    """`iid_streak`: joint drafts that will be served."""
    nodes: int = 64
    """`tree_streak`: nodes of the tree that will be served."""
    softness: float = 1.0
    """`tree_streak`: nats over which a path goes from out to in."""
    draft_temperature: float = 1.0
    """`streak_kl`: of the drafts that its weights count."""

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must lie in (0, 1], not {self.decay}")
        if self.drafts < 1 or self.nodes < 1:
            raise ValueError(f"drafts and nodes must be at least 1, not {self.drafts} and {self.nodes}")
        if not 0 < self.softness < math.inf:
            raise ValueError(f"softness must be a positive number of nats, not {self.softness}")
        if not 0 < self.draft_temperature < math.inf:
            raise ValueError(f"draft_temperature must be a positive number, not {self.draft_temperature}")


TokenObjective: TypeAlias = Callable[[WindowLaws, Settings], Tensor]
TargetObjective: TypeAlias = Callable[[WindowLaws, TargetLaws, Settings], Tensor]


def tree_streak(laws: WindowLaws, settings: Settings) -> Tensor:
    """`tree_streak` for the tree that the drafter would serve as it is."""
    floors = objectives.tree_floors(laws.draft_logs, settings.nodes)
    return objectives.tree_streak(laws.log_q, laws.valid, floors, softness=settings.softness)


def streak_kl(laws: WindowLaws, target: TargetLaws, settings: Settings) -> Tensor:
    """`streak_kl` for drafts at the temperature at which they will be served."""
    temperature = settings.draft_temperature
    return divergences.streak_kl(laws.draft_logs, target, laws.valid, laws.log_q, draft_temperature=temperature)


TOKEN_OBJECTIVES: Mapping[str, TokenObjective] = {
    "streak": lambda laws, settings: objectives.streak(laws.log_q, laws.valid),
    "log_streak": lambda laws, settings: objectives.log_streak(laws.log_q, laws.valid),
    "streak_ce": lambda laws, settings: objectives.streak_ce(laws.log_q, laws.valid),
    "iid_streak": lambda laws, settings: objectives.iid_streak(laws.log_q, laws.valid, drafts=settings.drafts),
    "tree_streak": tree_streak,
    "exp_ce": lambda laws, settings: objectives.exp_ce(laws.log_q, laws.valid, decay=settings.decay),
    "ce": lambda laws, settings: objectives.ce(laws.log_q, laws.valid, laws.noise_weights),
}
TARGET_OBJECTIVES: Mapping[str, TargetObjective] = {
    "distillspec": lambda laws, target, settings: divergences.distillspec(laws.draft_logs, target, laws.valid),
    "ar_distillation": lambda laws, target, settings: divergences.ar_distillation(laws.draft_logs, target, laws.valid),
    "tv": lambda laws, target, settings: divergences.tv(laws.draft_logs, target, laws.valid),
    "streak_kl": streak_kl,
}
OBJECTIVES = (*TOKEN_OBJECTIVES, *TARGET_OBJECTIVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A weighted sum of objectives: Mixed(weights={"log_streak": 1.0, "ce": [(0, 1.0), (500, 0.1)]})."""

    weights: Mapping[str, Weight]
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError(f"a mixture needs at least one objective; known objectives: {', '.join(OBJECTIVES)}")
        for name in self.weights:
            if name not in OBJECTIVES:
                raise ValueError(f"unknown objective {name!r}; known objectives: {', '.join(OBJECTIVES)}")
        steps = sorted({step for name, weight in self.weights.items() for step, _ in knots(name, weight)})
        # Weights are linear between these steps and never negative, so their sum can only vanish at one of them.
        for step in steps:
            if not any(self.weights_at(step).values()):
                raise ValueError(f"all weights are 0 at step {step}: {', '.join(self.weights)}")

    @property
    def needs_target(self) -> bool:
        """Whether some term compares with the target's laws, which cost a forward of the target."""
        return any(name in TARGET_OBJECTIVES for name in self.weights)

    def weights_at(self, step: int) -> dict[str, float]:
        """Weight of every objective at `step`, counted from 0."""
        return {name: interpolated(knots(name, weight), step) for name, weight in self.weights.items()}

    def loss(self, laws: WindowLaws, step: int) -> Tensor:
        """The weighted sum at `step`; an objective without weight there is not computed."""
        terms = [weight * self.term(name, laws) for name, weight in self.weights_at(step).items() if weight]
        return sum(terms[1:], start=terms[0])

    def term(self, name: str, laws: WindowLaws) -> Tensor:
        """One objective alone, without its weight."""
        if laws.noise_weights is not None and name != "ce":
            raise ValueError(f"objective {name!r} needs windows masked throughout; masked diffusion's suit ce alone")
        if name in TOKEN_OBJECTIVES:
            return TOKEN_OBJECTIVES[name](laws, self.settings)
        if laws.target is None:
            raise ValueError(f"objective {name!r} needs the target's laws of the windows, and none were given")
        return TARGET_OBJECTIVES[name](laws, laws.target, self.settings)


def knots(name: str, weight: Weight) -> list[tuple[int, float]]:
    """The pairs (step, weight) of an objective's weight, a constant as one pair; checked."""
    pairs = [(0, weight)] if isinstance(weight, int | float) else weight
    if not isinstance(pairs, list | tuple) or not all(is_pair(pair) for pair in pairs):
        raise ValueError(f"weight of {name!r} is a number or pairs (step, weight), not {reprlib.repr(weight)}")
    steps = [step for step, _ in pairs]
    ascending = all(first < second for first, second in pairwise(steps))
    if not pairs or not ascending or not all(0 <= step <= LARGEST_STEP and step == int(step) for step in steps):
        raise ValueError(
            f"steps of {name!r} must be whole numbers that ascend from 0 or later, not {reprlib.repr(steps)}"
        )
    for _, value in pairs:
        if value != 0 and not SMALLEST_WEIGHT <= value <= LARGEST_WEIGHT:
            allowed = f"0, or a number from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
            raise ValueError(f"weight of {name!r} must be {allowed}, not {reprlib.repr(value)}")
    return [(int(step), float(value)) for step, value in pairs]


def is_pair(value: object) -> bool:
    """Whether a value is two numbers (a boolean is none)."""
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
    )


def interpolated(pairs: Sequence[tuple[int, float]], step: int) -> float:
    """The weight at `step`: linear between the pairs, constant outside."""
    after = bisect_right(pairs, step, key=lambda pair: pair[0])
    if after in (0, len(pairs)):
        return pairs[min(after, len(pairs) - 1)][1]
    (first, start), (last, end) = pairs[after - 1 : after + 1]
    return start + (end - start) * (step - first) / (last - first)
