"""The measured half: runs what is missing of a study and appends it to the run folder's ledger, one line a completion.

Resuming is the default: a started-again session makes only the requests that have no generation yet. Engines of all
arms are open at once and warmed up, then serve the plan's requests one by one (concurrency 1). What surrounds an
engine's own seconds (ledger, live grades, display) is measured and kept small: see `SessionResult.overhead`.
"""

import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from engines.contract import Engine, EngineError
from harness import catalog
from harness.arms import Arm
from harness.plan import GENERATIONS_FILE, Job, Measured, plan_jobs, read_run
from harness.study import Study
from results.ledger import Ledger, read_rows
from results.provenance import collect_provenance, digest_of
from results.records import Completion, Generation
from tasks.contract import Problem

SESSIONS_FILE = "sessions.jsonl"
LOGS_FOLDER = "logs"
SESSION_KEY = ("session", "event")
WARM_UP_PROBLEMS = 4
# What an engine says of itself and its name in the study does not: answers of two models must not mix in one run.
IDENTITY_KEYS = ("model_digest", "drafter_digest", "chat_template")

OpenEngine = Callable[[Study, Arm], Engine]


class Progress(Protocol):
    """Who is told about a session as it goes; its seconds count as overhead."""

    def start(self, todo: Sequence[Job], done_before: int) -> None:
        """The requests that are about to be made."""
        ...

    def note(self, job: Job, generation: Generation, engine_seconds: float) -> None:
        """A completion, and the engines' seconds so far."""
        ...

    def close(self) -> None:
        """No more completions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """A session's sums: completions (failed ones among them), seconds of the loop and of the engines in it."""

    completed: int
    failed: int
    wall_seconds: float
    engine_seconds: float

    @property
    def overhead(self) -> float | None:
        """Harness wall over engine wall, >= 1; None where no engine ran."""
        return self.wall_seconds / self.engine_seconds if self.engine_seconds else None


def open_engine(study: Study, arm: Arm) -> Engine:
    """The arm's engine as the catalog has it; what its server says goes to the study's logs."""
    settings = study.engine_settings(arm)
    if arm.serving and study.logs:
        settings["log"] = study.logs / f"{arm.name}.log"
    return catalog.build_engine(study.engine, study.located(study.model), settings)


def open_named(study: Study, arm: Arm, open_engine: OpenEngine) -> Engine:
    """The arm's engine. Raises ValueError that names study and arm."""
    try:
        return open_engine(study, arm)
    except (OSError, ValueError) as error:
        raise ValueError(f"study {study.name!r}, [arm.{arm.name}]: {error}") from error


def engine_id(study: Study, arm: Arm) -> str:
    """Names an engine: arms with equal settings share one."""
    settings = study.engine_settings(arm) | {"speculation": arm.identity["speculation"]}
    return digest_of(settings | {"engine": study.engine, "model": study.model})


def parts(study: Study) -> list[Study]:
    """The study as it is run: whole, or one arm after the other where two engines do not fit side by side."""
    return [study] if study.interleave else [replace(study, arms=(arm,)) for arm in study.arms]


class Session:
    """One run of what is missing; a context manager. `todo` is what is missing, known before any engine is open.

    A run folder that was not there before goes again with a session that recorded nothing.
    Raises ValueError or OSError where the problems' ids or the run folder are not fit, or another process writes there.
    """

    def __init__(
        self, study: Study, problems: Sequence[Problem], folder: Path, open_engine: OpenEngine = open_engine
    ) -> None:
        self.study, self.folder = replace(study, logs=folder / LOGS_FOLDER), folder
        self._open_engine = open_engine
        self._stack = ExitStack()
        self._names = {arm.name: engine_id(study, arm) for arm in study.arms}
        self._engines: dict[str, Engine] = {}
        jobs = plan_jobs(study, problems)
        new = missing_paths(folder)
        try:
            self._ledger = self._stack.enter_context(Ledger(folder / GENERATIONS_FILE))
            # Runs before the lock is gone: nobody else can have begun to write there.
            self._stack.callback(remove_empty, new)
            self._sessions = self._stack.enter_context(Ledger(folder / SESSIONS_FILE, SESSION_KEY))
            measured = Measured(read_run(folder))
        except (OSError, ValueError):
            self.close()
            raise
        self.todo = [job for job in jobs if not measured.answers(job)]
        self.done_before = len(jobs) - len(self.todo)
        self._number = sum(row["event"] == "opened" for row in self._sessions) + 1

    def prepare(self) -> None:
        """Open and warm up the engine of every arm that has work, and record what they are.

        Raises ValueError or OSError for whatever is wrong with a model, or if it is not the one of earlier sessions.
        """
        busy = {job.cell.arm.name for job in self.todo}
        arms = [arm for arm in self.study.arms if arm.name in busy]
        facts: dict[str, dict[str, Any]] = {}
        for arm in arms:
            name = self._names[arm.name]
            if name in facts:
                facts[name]["arms"].append(arm.name)
                continue
            engine = self._engines[name] = open_named(self.study, arm, self._open_engine)
            self._stack.callback(engine.close)
            facts[name] = {"engine_id": name, "arms": [arm.name], "describe": engine.describe()}
            refuse_changed_engine(self.folder, facts[name])
        for name, known in facts.items():
            own = [job.request for job in self.todo if self._names[job.cell.arm.name] == name]
            known["warm_up"] = asdict(self._engines[name].warm_up(own[:WARM_UP_PROBLEMS]))
        self._sessions.append(
            {"session": self._number, "event": "opened", "todo": len(self.todo), "done_before": self.done_before}
            | {"study": self.study.to_json(), "engines": list(facts.values()), "provenance": collect_provenance()}
        )

    def run(self, progress: Progress) -> SessionResult:
        """Make the missing requests. An interrupt keeps all that is finished; a kill may cost the last completion.

        Raises EngineError where an engine cannot go on, which is recorded and keeps as much as an interrupt.
        """
        if self.todo and not self._engines:
            self.prepare()
        completed, failed, engine_seconds, ended = 0, 0, 0.0, "interrupted"
        writer = Writer(self._ledger)
        begun = time.perf_counter()
        progress.start(self.todo, self.done_before)
        try:
            for job in self.todo:
                started = time.perf_counter()
                completion = complete(self._engines[self._names[job.cell.arm.name]], job)
                engine_seconds += time.perf_counter() - started
                generation = job.generation(completion)
                writer.append(generation.to_json())
                completed += 1
                failed += completion.finish_reason == "error"
                progress.note(job, generation, engine_seconds)
            ended = "finished"
        except EngineError:
            ended = "engine lost"
            raise
        finally:
            writer.close()
            progress.close()
            result = SessionResult(
                completed=completed,
                failed=failed,
                wall_seconds=time.perf_counter() - begun,
                engine_seconds=engine_seconds,
            )
            if self.todo:
                self._sessions.append({"session": self._number, "event": ended} | asdict(result))
        return result

    def close(self) -> None:
        """Close the engines and let go of the run folder; safe to call twice."""
        self._stack.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def missing_paths(folder: Path) -> list[Path]:
    """What opening a run folder's ledgers will create: files, then folders from the inside out."""
    paths = [folder / GENERATIONS_FILE, folder / SESSIONS_FILE, folder, *folder.parents]
    return [path for path in paths if not path.exists()]


def remove_empty(paths: Sequence[Path]) -> None:
    """Remove these files and folders if no file of them holds anything."""
    files = [path for path in paths if path.is_file()]
    if any(path.stat().st_size for path in files):
        return
    for path in files:
        path.unlink()
    for path in paths:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


class Writer:
    """Appends to a ledger beside the next request: a disk's 4 ms a row would be 2 % of a short answer's time.

    At most one row is on its way; what the disk refuses is raised by the next call.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[bool] | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Put a row on its way, once the one before it is on disk."""
        self._wait()
        self._pending = self._thread.submit(self._ledger.append, row)

    def close(self) -> None:
        """Return when everything is on disk."""
        try:
            self._wait()
        finally:
            self._thread.shutdown()

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def complete(engine: Engine, job: Job) -> Completion:
    """The one completion of a job's request; the stream is drawn to its end, so that nothing stays behind in it."""
    (completion,) = engine.stream([job.request])
    return completion


def refuse_changed_engine(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise ValueError if an earlier session had other weights or another chat template under this engine's name."""
    described = facts["describe"]
    for row in read_rows(folder / SESSIONS_FILE):
        for engine in engines_of(row, folder):
            earlier = engine.get("describe", {})
            for key in IDENTITY_KEYS:
                if engine.get("engine_id") == facts["engine_id"] and earlier.get(key) != described.get(key):
                    raise ValueError(
                        f"{folder}: arm {facts['arms'][0]!r} was measured with {key} {earlier.get(key)!r}, now it is "
                        f"{described.get(key)!r}; answers of both must not mix: move the folder away, or use --out"
                    )


def engines_of(session: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What a session's row says of its engines. Raises ValueError where that is something else."""
    engines = session.get("engines", [])
    if isinstance(engines, list) and all(
        isinstance(engine, dict) and isinstance(engine.get("describe", {}), dict) for engine in engines
    ):
        return engines
    place = f"{folder / SESSIONS_FILE}: session {session.get('session')!r}"
    raise ValueError(f"{place}: engines = {reprlib.repr(engines)} is not allowed; allowed: a list of objects")
