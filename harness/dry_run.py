"""`streak run --dry-run`: what a study would do, arm by arm: models, resolved arguments, memory.

Fetches and opens nothing. Knows a study and how engines are started; shapes of models are engines/serving/memory.py's.
"""

from collections.abc import Iterator
from typing import Any

from engines.contract import NumberFormat
from engines.serving.arguments import DRAFTER, ServerArm, device_of
from engines.serving.memory import estimate, shape_of
from harness.arms import Arm
from harness.study import Study


def dry_lines(study: Study) -> Iterator[str]:
    """Sentences on the study and each of its arms. Raises ValueError or OSError, naming the arm, for what cannot be."""
    yield f"{study.title}: task {study.task}, model {study.model}, engine {study.engine}"
    temperatures = sorted({cell.temperature for cell in study.cells})
    yield (
        f"temperatures {listed(temperatures)}; {study.samples} sample{'s' if study.samples > 1 else ''} a problem; "
        f"budgets {listed(study.budgets)} s on the clock {study.clock}; deadline {study.deadline_seconds:g} s"
    )
    yield "engines side by side" if study.interleave else "one arm after the other"
    for arm in study.arms:
        try:
            yield from arm_lines(study, arm)
        except (OSError, ValueError) as error:
            raise ValueError(f"study {study.name!r}, [arm.{arm.name}]: {error}") from error


def arm_lines(study: Study, arm: Arm) -> Iterator[str]:
    """One arm: what it is, its models with their memory, and how its server is started."""
    yield f"{arm.name}{'' if arm.name != study.baseline else ' (baseline)'}"
    target, drafters = study.located(study.model), drafters_of(study, arm)
    models: dict[str, NumberFormat] = {target: arm.number_format}
    models |= dict.fromkeys(drafters, arm.drafter_format or arm.number_format)
    server = server_of(study, arm, drafters[0] if drafters else None) if arm.serving else None
    shape = shape_of(target)
    tokens = server.tokens if server else study.max_context or (shape.context if shape else 0)
    yield f"  models: {study.model}" + "".join(f", drafter {name}" for name in drafters_of(study, arm, as_named=True))
    yield f"  memory: {estimate(models, tokens).text()}"
    if server is None:
        yield f"  settings: {', '.join(f'{key} {value}' for key, value in arm.identity.items())}"
    elif arm.serving and arm.serving.url:
        yield f"  server: the one at {arm.serving.url}"
    else:
        variables = " ".join(f"{key}={value}" for key, value in server.environment.items() if key != "PYTHONPATH")
        yield f"  environment: {variables}"
        yield f"  server: {' '.join(server.command_line)}"


def drafters_of(study: Study, arm: Arm, *, as_named: bool = False) -> list[str]:
    """The models that an arm drafts with, located unless `as_named`."""
    named = list(arm.speculation.drafters) if arm.speculation else []
    if arm.serving and DRAFTER in arm.serving.arguments:
        named.append(str(arm.serving.arguments[DRAFTER]))
    return named if as_named else [study.located(name) for name in named]


def server_of(study: Study, arm: Arm, drafter: str | None) -> ServerArm:
    """How the arm's server would be started, by names alone. Raises ValueError where the context cannot be known."""
    settings: dict[str, Any] = study.engine_settings(arm)
    device, more = device_of(settings["server"])
    shape = shape_of(study.located(study.model))
    context = study.max_context or (shape.context if shape else None)
    if context is None:
        raise ValueError(f"the context of {study.model!r} is not known here; set max_context in [engine]")
    return ServerArm(
        model=study.located(study.model),
        drafter=drafter if arm.speculation else None,
        speculation=arm.speculation,
        number_format=arm.number_format,
        device=device,
        threads=arm.threads,
        context=context,
        limited=study.max_context is not None,
        seeds=settings["seeds"],
        more=more,
    )


def listed(numbers: "list[float] | tuple[float, ...]") -> str:
    """Numbers as people write them."""
    return ", ".join(f"{number:g}" for number in numbers)
