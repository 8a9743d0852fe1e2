"""Examines programs that models wrote, shut off from everything, and says whether their tests passed.

Knows no benchmark. One process of ours per thread that asks (sandbox_runner.py) confines itself and forks two children
for each examination (sandbox_roles.py): the program's and that of its tests. Where the system allows it they have
namespaces of their own: no network, no process in sight, a file system of Python and the system's libraries that cannot
be written to, one empty folder in memory that can; else Landlock guards the user's files, and the verdict says so. In
both cases a system call filter, limits on CPU, memory, processes, open files and file size, no privileges, no output.
docs/SANDBOX.md says what holds where, and what a program cannot do.
"""

import contextlib
import json
import math
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from io import RawIOBase
from pathlib import Path
from typing import Any, Literal, TypeAlias

RUNNER = Path(__file__).with_name("sandbox_runner.py")
START_SECONDS = 120.0
VERDICT_BYTES = 1 << 24
STRETCH = 10.0  # wall seconds for each second of the limit, at most, on a machine where a program hardly gets a core

Measure: TypeAlias = Literal["namespaces", "landlock", "filter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """A reply and what it is tested by: the start of the program, its function, the definition of check(function)."""

    prompt: str
    entry_point: str
    reply: str
    tests: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program did. code: what was run, None if nothing; `broken`: says nothing about the program."""

    passed: bool
    reason: str
    code: str | None = None
    timed_out: bool = False
    broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What is in force on this machine.

    factor:   by how much time limits are stretched, for a slower machine than usual
    warnings: each measure that is missing
    """

    namespaces: bool
    landlock: bool
    filtered: bool
    own_user: bool
    factor: float
    warnings: Sequence[str]

    @property
    def enough(self) -> bool:
        """Whether a hostile program would leave the machine as it was."""
        return self.namespaces or (self.landlock and self.filtered)

    @property
    def warning(self) -> str | None:
        """One line on what is missing, or None."""
        if not self.warnings:
            return None
        return f"{'degraded sandbox' if self.enough else 'NO SANDBOX'}: {', '.join(self.warnings)}"

    def __str__(self) -> str:
        """One line for a study's provenance."""
        parts = [
            "namespaces (no network, own files and processes)" if self.namespaces else "",
            "Landlock on the user's files" if self.landlock else "",
            "system call filter" if self.filtered else "",
            "limits",
            "a user of its own" if self.own_user else "",
            f"time limits x {self.factor:.2f}",
            self.warning or "",
        ]
        return "; ".join(filter(None, parts))


class Runner:
    """One process to fork examinations from, one at a time. Raises OSError if it does not start."""

    def __init__(self, hidden: Sequence[str], without: Sequence[Measure]) -> None:
        self._control, theirs = socket.socketpair()
        folder = tempfile.mkdtemp(prefix="streak-sandbox-")
        job = {"control": theirs.fileno(), "folder": folder, "hidden": list(hidden), "without": list(without)}
        with theirs:
            self.child = subprocess.Popen(
                [sys.executable, "-s", "-P", str(RUNNER), json.dumps(job)],
                cwd="/",
                env=bare_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self.owner = os.getpid()
        self.end: Callable[[], object] = weakref.finalize(
            self, end_runner, self.child, self._control, folder, self.owner
        )
        try:
            self.isolation = Isolation(**self._hear(START_SECONDS))
            if self.isolation.namespaces:  # the file system that was mounted there has become the process's root
                shutil.rmtree(folder)
        except OSError as error:
            self._control.close()
            _, said = self.child.communicate()
            shutil.rmtree(folder, ignore_errors=True)
            raise OSError(f"{error}: {' '.join(said.decode(errors='replace').split())[-300:]}") from error

    def _hear(self, seconds: float) -> dict[str, Any]:
        """A message from the process. Raises OSError if it ends or takes too long."""
        self._control.settimeout(seconds)
        message = self._control.recv(1 << 16)
        if not message:
            raise OSError("the sandbox does not start")
        said: dict[str, Any] = json.loads(message)
        return said

    def examine(self, exam: Exam, time_limit_seconds: float, memory_bytes: int) -> Outcome:
        """Holds one examination. Raises OSError if this process is of no more use."""
        limits = {"cpu_seconds": math.ceil(time_limit_seconds) + 1, "memory_bytes": memory_bytes}
        (job_end, job), (verdict, verdict_end) = os.pipe(), os.pipe()
        with os.fdopen(job, "wb", buffering=0) as job_pipe, os.fdopen(verdict, "rb", buffering=0) as verdict_pipe:
            try:
                socket.send_fds(self._control, [json.dumps(limits).encode()], [job_end, verdict_end])
            finally:
                os.close(job_end)
                os.close(verdict_end)
            pids = self._hear(START_SECONDS)
            hand_over(job_pipe, exam)
            said = listen(verdict_pipe, time_limit_seconds, pids)
        self._control.sendall(b"e")
        self._hear(START_SECONDS)
        return judge(said, time_limit_seconds)


def hand_over(pipe: RawIOBase, exam: Exam) -> None:
    """Writes an exam to its examiner and closes the pipe; one that is gone is noticed by its silence."""
    rest = memoryview(json.dumps(asdict(exam)).encode("ascii"))
    with contextlib.suppress(BrokenPipeError):
        while rest:
            rest = rest[pipe.write(rest) :]
    pipe.close()


def listen(pipe: RawIOBase, seconds: float, pids: dict[str, int]) -> bytes | None:
    """What the examiner says; None if it says nothing within `seconds`, the waiting for a core not counted."""
    started, said = time.monotonic(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        allowed = seconds
        while not said.endswith(b"\n") and len(said) < VERDICT_BYTES:
            left = started + allowed - time.monotonic()
            if left > 0 and selector.select(left):
                chunk = pipe.read(1 << 16)
                if not chunk:
                    break
                said += chunk
            elif left <= 0:
                allowed = min(seconds + waited_seconds(pids), seconds * STRETCH)
                if started + allowed <= time.monotonic():
                    return None
    return said


def waited_seconds(pids: dict[str, int]) -> float:
    """How long the two processes were ready to run while others had the cores; 0 where the kernel does not tell."""
    inner = read_text(f"/proc/{pids['candidate']}/task/{pids['candidate']}/children").split()
    waits = [read_text(f"/proc/{pid}/schedstat").split() for pid in (pids["examiner"], pids["candidate"], *inner)]
    return sum(int(wait[1]) for wait in waits if len(wait) > 1) / 1e9


def read_text(path: str) -> str:
    """A file of /proc, empty if it is not there."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""


def judge(said: bytes | None, seconds: float) -> Outcome:
    """What the examiner's line means."""
    if said is None:
        return Outcome(passed=False, timed_out=True, reason=f"timed out after {seconds:g} s")
    try:
        return Outcome(**json.loads(said))
    except (TypeError, ValueError):
        return Outcome(passed=False, broken=True, reason="the tests ended without a verdict")


def end_runner(child: "subprocess.Popen[bytes]", control: socket.socket, folder: str, owner: int) -> None:
    """Hangs up, and waits until the process has ended what it held; in a fork, which does not own it, it lives on."""
    control.close()
    if owner == os.getpid():
        with child:
            try:
                child.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def bare_environment() -> dict[str, str]:
    """No variable of the user's, so no credential either; a fixed hash seed, so that a verdict can be repeated."""
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **quiet}


class Sandbox:
    """Examines replies; threads may share it, each gets a process of its own.

    hidden:  packages whose files programs must not see, for there the answers are
    without: measures not to use, for tests
    """

    def __init__(self, *, hidden: Sequence[str] = (), without: Sequence[Measure] = ()) -> None:
        self._hidden, self.without = hidden, tuple(without)
        self.idle: list[Runner] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _runner(self) -> Iterator[Runner]:
        """A process that nobody else uses; after an error it is ended, otherwise it serves the next."""
        with self._lock:
            self.idle = [each for each in self.idle if each.owner == os.getpid() and each.child.poll() is None]
            runner = self.idle.pop() if self.idle else None
        if runner is None:
            runner = Runner(self._hidden, self.without)
        try:
            yield runner
        except BaseException:  # after an interrupt, too, nobody knows what it still holds
            runner.end()
            raise
        with self._lock:
            self.idle.append(runner)

    def isolation(self) -> Isolation:
        """What is in force on this machine. Raises OSError if the sandbox does not start."""
        with self._runner() as runner:
            return runner.isolation

    def close(self) -> None:
        """Ends all processes; the next exam starts another."""
        with self._lock:
            for runner in self.idle:
                runner.end()
            self.idle = []

    def examine(
        self,
        exam: Exam,
        *,
        time_limit_seconds: float = 10.0,
        memory_bytes: int = 1 << 30,
        allow_unsandboxed: bool = False,
    ) -> Outcome:
        """Runs the tests of an exam on its reply. Raises nothing for anything that a program may do.

        time_limit_seconds: wall seconds on a machine of usual speed, the waiting for a busy core not counted; a bound
            on CPU seconds lies just above it

        Raises:
            OSError: this machine offers no sandbox, and `allow_unsandboxed` does not say to do without.
        """
        try:
            with self._runner() as runner:
                isolation = runner.isolation
                if isolation.enough or allow_unsandboxed:
                    outcome = runner.examine(exam, time_limit_seconds * isolation.factor, memory_bytes)
                    warned = "; ".join(filter(None, [outcome.reason, isolation.warning]))
                    return replace(outcome, reason=warned)
        except OSError as error:
            return Outcome(passed=False, broken=True, reason=f"the sandbox failed: {error}")
        raise OSError(
            f"{isolation.warning}; programs that models wrote are not run here unless the task says "
            "allow_unsandboxed = true"
        )
