"""The grading process of equivalence.py: answers JSON lines about pairs of answers until its input ends.

Run by path. In: {"gold": text, "answer": text or null, "seconds": number}. Out: {"same": bool}, {"too_large": text},
{"timeout": true} or {"error": text}; without an answer, whether the gold can be read. The process imports sympy once
and forks: the child does the work under limits on memory and CPU time, and where the kernel ends it, the parent says so
and forks another at once. Neither sympy's loops nor its C code can be interrupted from inside.
"""

import ctypes
import json
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

MEMORY_BYTES = 2 << 30
PR_SET_PDEATHSIG = 1
OUT_OF_TIME = signal.SIGPROF
# What sympy and the LaTeX parser raise for odd input. Anything else ends the child, and the parent reports it.
LIBRARY_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)


def verdict(job: dict[str, Any]) -> dict[str, Any]:
    """The reply to one job."""
    from tasks.answer_equality import can_be_read, same_answer
    from tasks.operations import TooLargeError

    try:
        if job["answer"] is None:
            return {"same": can_be_read(job["gold"])}
        return {"same": same_answer(job["gold"], job["answer"])}
    except TooLargeError as error:
        return {"too_large": str(error)}
    except LIBRARY_ERRORS as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def read_line(descriptor: int) -> bytes:
    """One line; the asker sends one at a time. Empty at the end of the input."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return b""
        line += chunk
    return line


def reply(channel: int, values: dict[str, Any]) -> None:
    """One line to the asker."""
    line = json.dumps(values).encode() + b"\n"
    while line:
        line = line[os.write(channel, line) :]


def work(channel: int) -> None:
    """The child: answers until the input ends, or until the kernel ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(OUT_OF_TIME, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while line := read_line(0):
        job = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, job["seconds"])
        answer = verdict(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply(channel, answer)


def serve(channel: int) -> None:
    """The parent: keeps one child at work, and says how it ended."""
    while True:
        child = os.fork()
        if child == 0:
            work(channel)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            return
        timed_out = ended == -OUT_OF_TIME
        reply(channel, {"timeout": True} if timed_out else {"error": f"the grading process ended ({ended})"})


def main() -> None:
    """Loads what grading needs, says so, and serves."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    # The replies get a descriptor of their own, so that a library that prints cannot spoil them.
    channel = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.CRITICAL)
    try:
        ready = verdict({"gold": r"\sqrt{2}", "answer": r"\frac{2}{\sqrt{2}}"})
    except ImportError as error:
        ready = {"error": str(error)}
    reply(channel, ready)
    serve(channel)


if __name__ == "__main__":
    main()
