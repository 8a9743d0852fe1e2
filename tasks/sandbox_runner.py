"""The process from which sandbox.py's examinations are forked: confined once, it hands on what it has.

Run by path with one JSON argument; it talks to sandbox.py over a socket and never sees a program, a test or a verdict:
nothing of these is in the memory that a candidate inherits. For each examination it forks an examiner and a
candidate (sandbox_roles.py); on the word of sandbox.py, or when that ends, it kills them and waits until they are gone.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tasks import confinement, syscall_filter
from tasks.sandbox_roles import be_candidate, be_examiner

# Imported before the first fork, since most programs need them.
COMMON = (
    *("bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "hashlib", "heapq"),
    *("itertools", "math", "operator", "re", "statistics", "string", "typing"),
)
USERS_FROM, USERS = 60_000, 4_000  # ids that no account has by the usual numbering
MOST_DESCRIPTORS = 65536
LOOP_STEPS = 200_000
LOOP_SECONDS = 0.005  # of a core of 2023 at 3 GHz


@dataclass(slots=True, kw_only=True)
class Confined:
    """What is in force, as found out at the start.

    uid:     user of the two processes
    warnings: what this machine does not allow
    """

    uid: int
    namespaces: bool = False
    landlock: int | None = None
    filtered: bool = False
    folder: Path = Path(confinement.WORKSPACE)
    warnings: list[str] = field(default_factory=list)


def machine_factor() -> float:
    """How much slower this machine runs Python than the one that limits are given for; at least 1."""

    def loop() -> float:
        started = time.thread_time()
        total = 0
        for number in range(LOOP_STEPS):
            total += number & 7
        return time.thread_time() - started

    return max(1.0, min(loop() for _ in range(5)) / LOOP_SECONDS)


def attempt(confined: Confined, name: str, measure: Callable[[], None]) -> bool:
    """Whether a measure works here, tried in a child that ends with it; a warning says why not."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            measure()
            status = 0
        except (OSError, AttributeError) as error:  # AttributeError: the C library has no such function
            os.write(writes, str(getattr(error, "strerror", None) or error).encode())
        finally:
            os._exit(status)
    os.close(writes)
    reason = os.read(reads, 1000).decode()
    os.close(reads)
    if os.waitpid(pid, 0)[1] == 0:
        return True
    confined.warnings.append(f"no {name} ({reason})")
    return False


def confine(job: dict[str, Any]) -> Confined:
    """Puts this process where its children are to be, as far as the machine allows."""
    own = os.geteuid()
    confined = Confined(uid=USERS_FROM + os.getpid() % USERS if own == 0 else own)
    readable = [*confinement.SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    mountpoint = Path(job["folder"])
    hidden = [place for name in job["hidden"] for place in places(name)]

    def namespaces() -> None:
        confinement.enter_namespaces(mountpoint, [*readable, *confinement.DEVICES], hidden)

    def probe() -> None:
        namespaces()
        if (pid := confinement.clone_with_pid_namespace()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    if "namespaces" not in job["without"] and attempt(confined, "namespaces", probe):
        namespaces()
        confined.namespaces = True
    else:
        confined.folder = mountpoint
        mountpoint.chmod(0o711)  # to be passed through by the user that the program runs as
        if "landlock" not in job["without"] and attempt(
            confined, "Landlock", lambda: confinement.obey_landlock(confinement.landlock_rules([], [], []))
        ):
            confined.landlock = confinement.landlock_rules(readable, [str(mountpoint)], hidden)
        if own == 0 and not attempt(confined, "user of its own", lambda: can_import_as(confined.uid)):
            confined.uid = 0
    confined.filtered = "filter" not in job["without"] and attempt(
        confined, "system call filter", lambda: syscall_filter.filter_system_calls(shared_files=True)
    )
    confined.warnings += [f"no {name} (switched off)" for name in job["without"]]
    return confined


def can_import_as(uid: int) -> None:
    """Raises OSError if that user cannot read the standard library, as under root's home, where it may be installed."""
    confinement.drop_privileges(uid)
    Path(os.__file__).read_bytes()
    os.scandir(Path(os.__file__).parent).close()


def places(package: str) -> list[str]:
    """The folders of a package."""
    found = importlib.util.find_spec(package)
    return list(found.submodule_search_locations or ()) if found else []


def shut_in(confined: Confined, limits: dict[str, int], keep: set[int]) -> None:
    """Takes from this process all that a program must not have, and all descriptors but `keep`."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    kept = sorted(keep if confined.landlock is None else keep | {confined.landlock})
    for before, after in zip([2, *kept], [*kept, MOST_DESCRIPTORS], strict=True):
        os.closerange(before + 1, after)
    confinement.set_limits(
        limits["cpu_seconds"], limits["memory_bytes"], processes=os.geteuid() == 0 or not confined.filtered
    )
    if confined.landlock is not None:
        confinement.obey_landlock(confined.landlock)
        os.close(confined.landlock)
    confinement.drop_privileges(confined.uid)
    confinement.die_with_parent()
    if confined.filtered:
        syscall_filter.filter_system_calls(shared_files=not confined.namespaces)


def leave(role: Callable[..., None], *descriptors: int) -> NoReturn:
    """Plays a role and ends without any exit hook; a program that pulled its own interpreter apart ends too."""
    try:
        role(*descriptors)
    finally:
        os._exit(0)


def start_examiner(confined: Confined, limits: dict[str, int], ends: tuple[int, ...]) -> int:
    """Forks the examiner; `ends` are the job, the verdict, the calls and the replies."""
    if (pid := os.fork()) == 0:
        shut_in(confined, limits, set(ends))
        leave(be_examiner, *ends)
    return pid


def start_candidate(confined: Confined, limits: dict[str, int], ends: tuple[int, int], folder: Path) -> int:
    """Forks the candidate; with namespaces it is the child of the one to kill, whose end is the end of all in them."""
    pid = confinement.clone_with_pid_namespace() if confined.namespaces else os.fork()
    if pid:
        return pid
    if confined.namespaces:
        confinement.die_with_parent()
        confinement.mount_workspace(confined.uid)
        if inner := os.fork():
            os.closerange(3, MOST_DESCRIPTORS)
            os.waitpid(inner, 0)
            os._exit(0)
    os.chdir(folder)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder))
    shut_in(confined, limits, set(ends))
    leave(be_candidate, *ends)


def hold(confined: Confined, control: socket.socket, limits: dict[str, int], given: list[int]) -> None:
    """Starts one examination, waits for the word to end it, and leaves nothing of it."""
    job, verdict = given
    calls, replies = os.pipe(), os.pipe()
    folder = confined.folder if confined.namespaces else Path(tempfile.mkdtemp(dir=confined.folder))
    if not confined.namespaces and os.geteuid() == 0:
        os.chown(folder, confined.uid, confined.uid)
    candidate = start_candidate(confined, limits, (calls[0], replies[1]), folder)
    examiner = start_examiner(confined, limits, (job, verdict, calls[1], replies[0]))
    for descriptor in (*given, *calls, *replies):
        os.close(descriptor)
    with contextlib.suppress(OSError):
        control.sendall(json.dumps({"examiner": examiner, "candidate": candidate}).encode())
    control.recv(1)
    for pid in (candidate, examiner):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not confined.namespaces:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Confines itself, says how far, and serves until sandbox.py hangs up."""
    job = json.loads(sys.argv[1])
    control = socket.socket(fileno=job["control"])
    for name in COMMON:
        importlib.import_module(name)
    factor = machine_factor()
    confined = confine(job)
    del sys.path[0]
    said = {"namespaces": confined.namespaces, "landlock": confined.landlock is not None}
    said |= {"filtered": confined.filtered, "own_user": os.geteuid() == 0 != confined.uid}
    control.sendall(json.dumps(said | {"factor": factor, "warnings": confined.warnings}).encode())
    while True:
        message, given, _, _ = socket.recv_fds(control, 4096, 2)
        if not message:
            break
        hold(confined, control, json.loads(message), given)
        with contextlib.suppress(BrokenPipeError):
            control.sendall(b'{"ended": true}')
    if not confined.namespaces:  # a harness that was killed cannot do it
        shutil.rmtree(confined.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
