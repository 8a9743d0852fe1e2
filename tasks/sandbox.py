"""Runs a program that a model wrote, in a child process under limits, and says whether it ran to its end.

Knows no benchmark. The child (sandbox_runner.py) has a session, a throw-away folder and a bare environment of its own,
limits on CPU, memory, file size, open files and processes, no input, and nobody reads its output; where the system
allows it, also a network and a process namespace, so that nothing is reachable and no descendant outlives it. The
verdict comes over a pipe, signed with a token drawn for the run.
What it is not: a wall against a program that attacks it on purpose. The file system is the user's.
"""

import functools
import json
import math
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

RUNNER = Path(__file__).with_name("sandbox_runner.py")
START_SECONDS = 60.0
NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--kill-child")
AS_USER = ("--user", "--map-current-user")  # what lets an ordinary user have namespaces, on most systems

Child: TypeAlias = "subprocess.Popen[bytes]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended. `broken`: the sandbox itself did not start, which says nothing about the program."""

    passed: bool
    reason: str
    broken: bool = False


def run_program(parts: Sequence[str], *, time_limit_seconds: float = 10.0, memory_bytes: int = 2 << 30) -> Outcome:
    """Runs the parts of a program one after the other in one namespace; passed means that the last one came to its end.

    time_limit_seconds: wall seconds for all parts (starting the interpreter is not counted); CPU seconds are limited to
    the next whole number above. Raises nothing for anything that a program may do.
    """
    token = secrets.token_hex(16)
    cpu_seconds = math.ceil(time_limit_seconds) + 1
    job = {"parts": list(parts), "token": token, "cpu_seconds": cpu_seconds, "memory_bytes": memory_bytes}
    with tempfile.TemporaryDirectory(prefix="streak-sandbox-", ignore_cleanup_errors=True) as folder:
        try:
            child = subprocess.Popen(
                [*namespaces(), sys.executable, "-s", "-P", str(RUNNER)],
                cwd=folder,
                env=bare_environment(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(passed=False, broken=True, reason=f"the sandbox does not start: {error}")
        with child:
            try:
                return watch(child, json.dumps(job), token, time_limit_seconds)
            finally:
                kill_all(child)


def watch(child: Child, job: str, token: str, time_limit_seconds: float) -> Outcome:
    """Hands the job over and waits for the verdict, the end of the child or of its time."""
    job_pipe, verdict_pipe = cast(IO[bytes], child.stdin), cast(IO[bytes], child.stdout)
    try:
        job_pipe.write(job.encode())
        job_pipe.close()
    except BrokenPipeError:
        return Outcome(passed=False, broken=True, reason="the sandbox ended before it read the program")
    said, started = b"", False
    deadline = time.monotonic() + START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(verdict_pipe, selectors.EVENT_READ)
        while said.count(b"\n") < 2:
            if not started and said.startswith(b"ready\n"):
                started, deadline = True, time.monotonic() + time_limit_seconds
            if not selector.select(max(0.0, deadline - time.monotonic())):
                reason = f"timed out after {time_limit_seconds:g} s" if started else "the sandbox did not get ready"
                return Outcome(passed=False, broken=not started, reason=reason)
            chunk = os.read(verdict_pipe.fileno(), 4096)
            if not chunk:
                break
            said += chunk
    return verdict(said.decode(errors="replace"), token)


def verdict(said: str, token: str) -> Outcome:
    """What the child's two lines mean; a line without the token is the program's own and worth nothing."""
    ready, _, line = said.partition("\n")
    if ready != "ready":
        lost = ready.removeprefix(f"{token} failed ") or "it ended at once"
        return Outcome(passed=False, broken=True, reason=f"the sandbox did not get ready: {lost}")
    signed, _, result = line.rstrip("\n").partition(" ")
    if signed != token:
        return Outcome(passed=False, reason="ended before its tests were done")
    return Outcome(passed=result == "passed", reason=result)


def kill_all(child: Child) -> None:
    """Kills the child's process group; with a process namespace, every other descendant goes with it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def bare_environment(folder: str) -> dict[str, str]:
    """No variable of the user's, so no credential either; a fixed hash seed, so that a verdict can be repeated."""
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **quiet}


@functools.cache
def namespaces() -> tuple[str, ...]:
    """The command in front of the runner's that takes it off the network, or nothing where that is not allowed."""
    for prefix in (NAMESPACES, (*NAMESPACES, *AS_USER)):
        try:
            done = subprocess.run([*prefix, "true"], capture_output=True, timeout=START_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return prefix
    return ()


def isolation() -> str:
    """What is in force on this machine, in one line, for the provenance of a study."""
    limits = "limits on time, CPU, memory, file size, open files and processes; own session, folder and environment"
    user = "; as root, whom the limit on processes does not bind" if os.geteuid() == 0 else ""
    if namespaces():
        return f"{limits}; no network, own process namespace{user}"
    return f"{limits}{user}; the network is reachable and a descendant that leaves the session survives (no unshare)"
