"""A resumable training loop: the loss of step n depends on n alone, so a stage can end anywhere and the next go on.

Knows a module, a loss per step and a folder for its state; no task, tokenizer or objective. Matrices inside the layers
are trained by Muon (Jordan et al., 2024), the rest by AdamW, both as torch ships them.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon

STATE_FILE = "state.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps and learning rate: a short warm-up, a plateau, then a linear way down to a small rest."""

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

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.decay_from < 1:
            given = f"{self.steps}, {self.decay_from}"
            raise ValueError(f"a schedule needs steps >= 1 and 0 <= decay_from < 1, not {given}")

    def scale(self, step: int) -> float:
        """Factor on the learning rate at `step`, counted from 0."""
        share = step / self.steps
        decay = 1.0 if share < self.decay_from else max(self.rest, (1 - share) / (1 - self.decay_from))
        return min(1.0, (step + 1) / self.warmup_steps) * decay


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a listener is told after a step."""

    step: int
    steps: int
    loss: float
    seconds: float
    """Training seconds over all stages."""


def build_optimizers(model: nn.Module, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Muon for the two-dimensional weights of the layers, AdamW for everything else."""
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers." in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        Muon(
            matrices,
            lr=schedule.learning_rate,
            weight_decay=schedule.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        ),
        AdamW(others, lr=schedule.learning_rate * schedule.adamw_ratio, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def save_atomically(state: object, path: Path) -> None:
    """Write `state` so that `path` holds either the old or the new one, whatever happens in between."""
    scratch = path.with_suffix(".partial")
    torch.save(state, scratch)
    scratch.replace(path)


def train(
    model: nn.Module,
    loss_at: Callable[[int], Tensor],
    schedule: Schedule,
    folder: Path,
    *,
    stage_seconds: float = math.inf,
    save_every: int = 100,
    listen: Callable[[Progress], None] = lambda progress: None,
) -> bool:
    """Train `model` in place until the schedule is done or the stage's seconds are spent.

    The state in `folder` is read first when it is there, so a killed or ended stage is taken up again.

    Returns:
        True when the schedule is complete, False when only the stage is.

    Raises:
        FloatingPointError: the loss of a step is not finite; the last good state stays in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state_path = folder / STATE_FILE
    optimizers = build_optimizers(model, schedule)
    base_rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    step, spent = 0, 0.0
    if state_path.exists():
        state = torch.load(state_path, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        step, spent = state["step"], state["seconds"]

    def save() -> None:
        optimizer_states = [optimizer.state_dict() for optimizer in optimizers]
        seconds = spent + time.monotonic() - begun
        save_atomically(
            {"model": model.state_dict(), "optimizers": optimizer_states, "step": step, "seconds": seconds}, state_path
        )

    begun = time.monotonic()
    model.train()
    while step < schedule.steps:
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for group, rate in zip(groups, base_rates, strict=True):
            group["lr"] = rate * schedule.scale(step)
        loss = loss_at(step)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"{folder}: the loss of step {step} is {loss.item()}; the last good state is kept")
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), schedule.clip_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        elapsed = time.monotonic() - begun
        listen(Progress(step=step, steps=schedule.steps, loss=loss.item(), seconds=spent + elapsed))
        if elapsed >= stage_seconds and step < schedule.steps:
            save()
            return False
        if step % save_every == 0:
            save()
    save()
    model.eval()
    return True
