"""A resumable training loop: the loss of step n depends on n alone, so a stage can end anywhere and the next go on.

Knows a module, a loss per batch and a folder for its state; no task, tokenizer or objective. Matrices inside the layers
are trained by Muon (Jordan et al., 2024), the rest by AdamW, both as torch ships them; or all of it by AdamW. Under
torchrun every rank takes its own batches, and the first one writes (ranks.py).
"""

import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon

from engines.alignment import ranks
from engines.alignment.schedule import Schedule

STATE_FILE = "state.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a listener is told after a step."""

    step: int
    steps: int
    loss: float
    seconds: float
    """Training seconds over all stages."""


class Counters(Protocol):
    """Numbers that are kept beside the weights, and go on where they were."""

    def state_dict(self) -> dict[str, int]:
        """Plain values."""
        ...

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take up kept values."""
        ...


def build_optimizers(model: nn.Module, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Muon for the two-dimensional weights of the layers and AdamW for everything else, or AdamW alone."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trained if p.dim() == 2 and "layers." in name]
    chosen = {id(p) for p in matrices}
    others = [p for _, p in trained if id(p) not in chosen]
    rate = schedule.learning_rate
    inner = {"params": matrices, "lr": rate, "weight_decay": schedule.weight_decay}
    outer = {"params": others, "lr": rate * schedule.adamw_ratio, "weight_decay": 0.0}
    if schedule.optimizer == "adamw":
        return [AdamW([group for group in (inner, outer) if group["params"]], betas=(0.9, 0.98))]
    muon = Muon(matrices, lr=rate, weight_decay=schedule.weight_decay, adjust_lr_fn="match_rms_adamw")
    return [muon, *([AdamW([outer], betas=(0.9, 0.98))] if others else [])]


def save_atomically(state: object, path: Path) -> None:
    """Write `state` so that `path` holds either the old or the new one, whatever happens in between.

    Raises OSError where the disk refuses it; nothing of the new one is left then.
    """
    scratch = path.with_suffix(".partial")
    try:
        torch.save(state, scratch)
        with scratch.open("rb") as stream:
            os.fsync(stream.fileno())
        scratch.replace(path)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError of its writer.
        scratch.unlink(missing_ok=True)
        kept = ", the one before it is intact" if path.exists() else ""
        raise OSError(f"{path}: the checkpoint could not be written{kept}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """What torch says, in one short line."""
    return " ".join(str(error).split())[:200]


class Run:
    """A training as it stands: model, optimizers, step and seconds, and the folder that keeps them."""

    def __init__(self, model: nn.Module, schedule: Schedule, folder: Path, counters: Counters | None) -> None:
        self.model, self.schedule, self.path, self.counters = model, schedule, folder / STATE_FILE, counters
        self.optimizers = build_optimizers(model, schedule)
        self.groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        self.base_rates = [group["lr"] for group in self.groups]
        self.step, self.seconds = 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self.load()

    def load(self) -> None:
        """Take up the state of the folder. Raises ValueError for a file that is no whole state of this model."""
        try:
            state = torch.load(self.path, weights_only=True, map_location="cpu")
            ranks.load_whole(self.model, self.optimizers, state["model"], state["optimizers"])
            self.step, self.seconds = state["step"], state["seconds"]
            if self.counters is not None:
                self.counters.load_state_dict(state["counters"])
        except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError, TypeError) as error:
            # Weights of other names or shapes are a RuntimeError of torch; a part that is missing, one of the last two.
            reason = f"no {error} in it" if isinstance(error, KeyError) else reason_of(error)
            raise ValueError(
                f"{self.path}: not a whole training state ({reason}); remove {self.path.parent} to train anew"
            ) from error
        self.groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def save(self) -> None:
        """Keep the state; the first rank writes, all take part."""
        model, optimizers = ranks.whole(self.model, self.optimizers)
        state = {"model": model, "optimizers": optimizers, "step": self.step, "seconds": self.seconds}
        if self.counters is not None:
            state["counters"] = self.counters.state_dict()
        if ranks.rank() == 0:
            save_atomically(state, self.path)

    def advance(self, loss_at: Callable[[int], Tensor], name_batch: Callable[[int], str] | None) -> float:
        """One step; returns its loss, the mean over its batches and ranks.

        Raises FloatingPointError for a loss or a gradient that is not finite; no weight has changed then.
        """
        for group, rate in zip(self.groups, self.base_rates, strict=True):
            group["lr"] = rate * self.schedule.scale(self.step)
        total, count = 0.0, self.schedule.accumulate
        for at in range(count):
            index = (self.step * count + at) * ranks.count() + ranks.rank()
            loss = loss_at(index)
            value = ranks.mean(loss.detach())
            if not math.isfinite(value):
                raise self.broken("loss", value, index, name_batch)
            (loss / count if count > 1 else loss).backward()
            total += value / count
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.schedule.clip_norm))
        if not math.isfinite(norm):
            raise self.broken("gradient's norm", norm, self.step * count * ranks.count(), name_batch)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total

    def broken(
        self, what: str, value: float, index: int, name_batch: Callable[[int], str] | None
    ) -> FloatingPointError:
        """The error of a number that is none."""
        batch = f" (batch {index}, digest {name_batch(index)})" if name_batch else ""
        return FloatingPointError(
            f"{self.path.parent}: the {what} of step {self.step} is {value}{batch}; the last good state is kept"
        )


def train(
    model: nn.Module,
    loss_at: Callable[[int], Tensor],
    schedule: Schedule,
    folder: Path,
    *,
    stage_seconds: float = math.inf,
    save_every: int = 100,
    listen: Callable[[Progress], None] = lambda progress: None,
    counters: Counters | None = None,
    name_batch: Callable[[int], str] | None = None,
) -> bool:
    """Train `model` in place until the schedule is done or the stage's seconds are spent.

    The state in `folder` is read first when it is there, so a killed or ended stage is taken up again. What `listen`
    does after a step is not counted among the seconds.

    Args:
        loss_at: the loss of a batch, by its index; a step takes `accumulate` of them on every rank
        counters: kept with the weights
        name_batch: names a batch in an error

    Returns:
        True when the schedule is complete, False when only the stage is.

    Raises:
        FloatingPointError: a loss or gradient is not finite; the last good state stays in `folder`.
        OSError: the state cannot be written; the one before it stays.
    """
    run = Run(model, schedule, folder, counters)
    stage = 0.0
    model.train()
    while run.step < schedule.steps:
        begun = time.monotonic()
        loss = run.advance(loss_at, name_batch)
        took = time.monotonic() - begun
        run.seconds, stage = run.seconds + took, stage + took
        listen(Progress(step=run.step, steps=schedule.steps, loss=loss, seconds=run.seconds))
        model.train()
        # The clock of one rank decides, or ranks would part.
        if ranks.total(stage) / ranks.count() >= stage_seconds and run.step < schedule.steps:
            run.save()
            return False
        if run.step % save_every == 0:
            run.save()
    run.save()
    model.eval()
    return True
