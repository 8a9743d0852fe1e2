"""`streak run --dry-run`: what a study would do, arm by arm: models, resolved arguments, memory.

Fetches and opens nothing. Knows a study and how engines are started; shapes of models are engines/serving/memory.py's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engines.contract import NumberFormat
from engines.sampling import Sampling
from engines.serving.arguments import DRAFTER, ServerArm, device_of, refusal_of
from engines.serving.client import Client
from engines.serving.directories import check_drafter, find_model, is_hub_name
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
        with naming(study, arm):
            yield from arm_lines(study, arm)


def refuse_laws(study: Study) -> None:
    """Raise ValueError, naming the arm, where a server cannot keep the study's law: every request would fail."""
    for arm in study.arms:
        if arm.serving:
            with naming(study, arm):
                server_of(study, arm, None, context=1)


@contextmanager
def naming(study: Study, arm: Arm) -> Iterator[None]:
    """Errors say whose they are."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"study {study.name!r}, [arm.{arm.name}]: {error}") from error


def arm_lines(study: Study, arm: Arm) -> Iterator[str]:
    """One arm: what it is, its models with their memory, and how its server is started."""
    yield f"{arm.name}{'' if arm.name != study.baseline else ' (baseline)'}"
    target, drafters = study.located(study.model), drafters_of(study, arm)
    models: dict[str, NumberFormat] = {target: arm.number_format}
    models |= dict.fromkeys(drafters, arm.drafter_format or arm.number_format)
    shape = shape_of(target)
    context = study.max_context or (shape.context if shape else 0)
    if arm.serving and not context:
        raise ValueError(f"the context of {study.model!r} is not known here; set max_context in [engine]")
    server = server_of(study, arm, drafters[0] if drafters else None, context) if arm.serving else None
    if server and server.drafter and arm.speculation and not any(map(is_hub_name, (target, server.drafter))):
        started = not (arm.serving and arm.serving.url)
        check_drafter(find_model(server.drafter), find_model(target), arm.speculation, context, started=started)
    tokens = server.tokens if server else context
    yield f"  models: {study.model}" + "".join(f", drafter {name}" for name in drafters_of(study, arm, as_named=True))
    yield f"  memory: {estimate(models, tokens).text()}"
    if server is None:
        yield f"  settings: {', '.join(f'{key} {value}' for key, value in arm.identity.items())}"
    elif arm.serving and arm.serving.url:
        yield f"  server: the one at {Client(arm.serving.url).url}"
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


def server_of(study: Study, arm: Arm, drafter: str | None, context: int) -> ServerArm:
    """How the arm's server would be started, by names alone. Raises ValueError where it cannot keep the study's law."""
    settings: dict[str, Any] = study.engine_settings(arm)
    device, more = device_of(settings["server"])
    server = ServerArm(
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
    for temperature in arm.temperatures:
        refusal = refusal_of(server, Sampling(temperature=temperature, **study.law))
        if refusal:
            raise ValueError(refusal)
    return server


def listed(numbers: "list[float] | tuple[float, ...]") -> str:
    """Numbers as people write them."""
    return ", ".join(f"{number:g}" for number in numbers)
