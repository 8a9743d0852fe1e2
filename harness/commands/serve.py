"""`streak serve`: a server for one arm of a study, until it is interrupted."""

from pathlib import Path
from typing import Any

import typer

from engines.serving.process import LOOPBACK, refuse_used_port
from harness import catalog
from harness.arms import Arm
from harness.commands.exits import BAD_INPUT, plain_errors
from harness.doctor import missing_for
from harness.study import Study, read_study

SERVE_STUDY = Path(__file__).parents[1] / "serve.toml"
POLL_SECONDS = 3600.0


def serve(study_path: Path | None, name: str | None, port: int, concurrency: int, log: Path | None) -> None:
    """Start the arm's server, say where it is, and wait; it ends with this command, however that ends."""
    with plain_errors():
        study = read_study(study_path or SERVE_STUDY)
        arm = pick_arm(study, name)
        missing = missing_for(study, arm)
        if missing:
            raise ValueError(f"study {study.name!r}, [arm.{arm.name}]: {missing}")
        refuse_used_port(LOOPBACK, port)
        settings = study.engine_settings(arm) | {"port": port, "concurrency": concurrency, "log": log}
        typer.echo(f"starting {arm.name} of {study.title!r}: model {study.model}; Ctrl-C ends it")
        try:
            engine: Any = catalog.build_engine(study.engine, study.located(study.model), settings)
        except KeyboardInterrupt:
            typer.echo("stopped")
            return
    try:
        described = engine.describe()["server"]
        if described.get("device") == "cpu":
            typer.echo(f"OMP_NUM_THREADS={arm.threads} was set for it: more threads are far slower on small models")
        drafts = described.get("speculative_algorithm") or "nothing"
        typer.echo(f"{arm.name}: {engine.client.url} on {described.get('device')}, drafts by {drafts}")
        typer.echo(f"log: {engine.process.log}")
        while engine.process.wait(POLL_SECONDS) is None:
            pass
        typer.echo(f"streak: the server ended by itself: {engine.process.reason()}", err=True)
        raise typer.Exit(BAD_INPUT)
    except KeyboardInterrupt:
        typer.echo("stopped")
    finally:
        engine.close()


def pick_arm(study: Study, name: str | None) -> Arm:
    """The arm of that name, or the last one. Raises ValueError where it has no server of its own."""
    arms = {arm.name: arm for arm in study.arms}
    arm = study.arms[-1] if name is None else arms.get(name)
    if arm is None:
        raise ValueError(f"study {study.name!r} has no arm {name!r}; it has: {', '.join(arms)}")
    if arm.serving is None:
        raise ValueError(f"study {study.name!r}: engine {study.engine!r} has no server; 'sglang' has")
    if arm.serving.url:
        raise ValueError(f"study {study.name!r}, [arm.{arm.name}]: its server runs already, at {arm.serving.url}")
    return arm
