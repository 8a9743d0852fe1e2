"""From an alignment's file to how the engines train each drafter: objectives, schedules, parents."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engines.alignment.losses import Plan
from engines.alignment.mixed import Mixed, Settings
from engines.alignment.schedule import Schedule
from engines.alignment.stages import DrafterSetup, training_device
from engines.models import resolve_model
from harness.align_settings import AlignConfig, DrafterConfig, TrainingConfig


def drafter_setup(config: AlignConfig, drafter: DrafterConfig, work: Path, pad_id: int) -> DrafterSetup:
    """A drafter's settings as the engines take them. Raises ValueError, naming file and table."""
    training = drafter.training
    try:
        mixed = Mixed(
            weights=drafter.objective,
            settings=Settings(
                decay=training.decay,
                drafts=training.drafts,
                nodes=training.nodes,
                softness=training.softness,
                draft_temperature=training.draft_temperature,
            ),
        )
        plan = Plan(
            objective=mixed,
            window=training.window,
            anchors=training.anchors,
            seed=training.seed,
            pad_id=pad_id,
            noise=drafter.noise,
            on_policy=training.on_policy,
        )
        schedule, device = schedule_of(training), training_device(training.device)
    except ValueError as error:
        raise ValueError(f"{config.path}: [drafter.{drafter.name}]: {error}") from None
    return DrafterSetup(
        name=drafter.name,
        objective_text=drafter.objective_text,
        plan=plan,
        schedule=schedule,
        parent=parent_of(config, drafter, work),
        parent_name=drafter.parent,
        layers=drafter.layers,
        mask_token_id=training.mask_token_id,
        batch_tokens=training.batch_tokens,
        keep_at=drafter.keep_at,
        save_every=training.save_every,
        evaluate_every=training.evaluate_every,
        context=training.context,
        lora_rank=training.lora_rank,
        lora_alpha=training.lora_alpha,
        device=device,
        settings=settings_of(drafter),
    )


def schedule_of(training: TrainingConfig) -> Schedule:
    """Steps and learning rate."""
    return Schedule(
        steps=training.steps,
        learning_rate=training.learning_rate,
        warmup_steps=training.warmup_steps,
        decay_from=training.decay_from,
        rest=training.rest,
        weight_decay=training.weight_decay,
        adamw_ratio=training.adamw_ratio,
        clip_norm=training.clip_norm,
        shape=training.schedule,
        optimizer=training.optimizer,
        accumulate=training.accumulate,
    )


def parent_of(config: AlignConfig, drafter: DrafterConfig, work: Path) -> Path:
    """Where a drafter begins: `verifier`, another drafter of the file, or any model.

    Raises ValueError or OSError where there is none, or where it stands behind the drafter in the file.
    """
    names = [each.name for each in config.drafters]
    if drafter.parent not in names:
        named = config.verifier.path if drafter.parent == "verifier" else drafter.parent
        try:
            return resolve_model(config.located(named))
        except (OSError, ValueError) as error:
            before = ", ".join(["verifier", *names[: names.index(drafter.name)]])
            raise ValueError(
                f"{config.path}: parent = {drafter.parent!r} in [drafter.{drafter.name}]: {error}; or one of {before}"
            ) from error
    if names.index(drafter.parent) >= names.index(drafter.name):
        raise ValueError(
            f"{config.path}: parent = {drafter.parent!r} in [drafter.{drafter.name}] does not stand before it; "
            "a drafter's parent must come first in the file"
        )
    return work / drafter.parent


def settings_of(drafter: DrafterConfig) -> dict[str, Any]:
    """A drafter's settings as plain values, but for how often it is saved and judged, which changes no weight."""
    plain = asdict(replace(drafter.training, save_every=1, evaluate_every=0))
    layers = None if drafter.layers is None else list(drafter.layers)
    return plain | {"objective": dict(drafter.objective), "noise": drafter.noise, "layers": layers}
