"""How many steps a training has, and the learning rate at each. Plain numbers, no tensors."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

Shape = Literal["linear", "cosine"]
Optimizer = Literal["muon", "adamw"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps and learning rate: a short warm-up, a plateau, then a way down to a small rest, linear or half a cosine."""

    steps: int
    learning_rate: float
    warmup_steps: int = 50
    decay_from: float = 0.5
    """Share of the steps after which the rate falls."""
    rest: float = 0.03
    weight_decay: float = 0.02
    adamw_ratio: float = 1.0
    """Learning rate of embeddings, norms and biases over that of the matrices."""
    clip_norm: float = 1.0
    shape: Shape = "linear"
    optimizer: Optimizer = "muon"
    accumulate: int = 1
    """Batches of a step."""

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.decay_from < 1:
            given = f"{self.steps}, {self.decay_from}"
            raise ValueError(f"a schedule needs steps >= 1 and 0 <= decay_from < 1, not {given}")
        if self.shape not in SHAPES or self.optimizer not in OPTIMIZERS or self.accumulate < 1:
            given = f"{self.shape}, {self.optimizer}, {self.accumulate}"
            raise ValueError(f"a schedule needs a known shape and optimizer, and accumulate >= 1, not {given}")

    def scale(self, step: int) -> float:
        """Factor on the learning rate at `step`, counted from 0."""
        share = step / self.steps
        left = (1 - share) / (1 - self.decay_from)
        if self.shape == "cosine":
            left = (1 - math.cos(math.pi * min(1.0, left))) / 2
        decay = 1.0 if share < self.decay_from else max(self.rest, left)
        return min(1.0, (step + 1) / self.warmup_steps) * decay
