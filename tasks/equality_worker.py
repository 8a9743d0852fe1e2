"""The work of one grading process: answers JSON messages about pairs of answers until the kernel ends it.

In: {"gold": text, "answer": text or null, "seconds": number}. Out: {"same": bool}, {"too_large": text} or
{"error": text}; without an answer, whether the gold can be read. Knows nothing of the other processes. Neither sympy's
loops nor its C code can be interrupted from inside: the kernel ends this process where it uses too much CPU time.
"""

import json
import resource
import signal
import socket
from collections.abc import Mapping
from typing import Any

MEMORY_BYTES = 2 << 30
OUT_OF_TIME = signal.SIGPROF
# What sympy and the LaTeX parser raise for odd input. Anything else ends the process, and its server reports it.
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


def received(channel: socket.socket) -> dict[str, Any]:
    """A message: one line, of which the other side sends one at a time. Raises OSError if it has gone."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = channel.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError("it ended")
        line += chunk
    message: dict[str, Any] = json.loads(line)
    return message


def send(channel: socket.socket, message: Mapping[str, Any]) -> None:
    """Sends a message. Raises OSError if the other side has gone."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def work(channel: socket.socket) -> None:
    """Answers one job after the other. Raises OSError when nobody asks any more."""
    signal.signal(OUT_OF_TIME, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while True:
        job = received(channel)
        signal.setitimer(signal.ITIMER_PROF, job["seconds"])
        reply = verdict(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(channel, reply)
