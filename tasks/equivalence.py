"""Whether two mathematical answers are the same: equal as text, or equal to a grading process that can be killed.

Knows no benchmark; answers.py finds the text to compare, answer_equality.py compares. A server (equality_server.py)
starts when it is first needed; it forks the processes that compare, shares time among them, and replaces those that
were killed. The limit is on CPU time, so that a busy machine changes no verdict; one on the clock, far above it, is for
a process that waits instead of working. Neither counts the time for which an answer was set aside for others.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from results.provenance import usable_cores
from results.records import Grade
from tasks.equality_worker import received, send

SERVER = Path(__file__).with_name("equality_server.py")
START_SECONDS = 120.0
END_SECONDS = 2.0
CLOCK_SECONDS = 60.0  # on top of ten times the CPU limit
SET_ASIDE = 4  # processes that are stopped for others at a time, beyond those that run
LONGEST_REASON = 200  # characters of a gold or an answer that a reason quotes


class MathChecker:
    """Compares answers with golds. Threads may share it, also more of them than it has workers.

    time_limit_seconds: CPU seconds for one pair
    workers:            processes that run at once; None is one for each core
    """

    def __init__(self, *, time_limit_seconds: float = 5.0, workers: int | None = None) -> None:
        if not time_limit_seconds > 0:
            raise ValueError(f"time_limit_seconds = {time_limit_seconds!r} is not allowed; it must be above 0")
        self.time_limit_seconds = time_limit_seconds
        self.workers = workers or usable_cores()
        self.servers = 0  # started so far
        self._lock = threading.Lock()
        self._server: Server | None = None

    @property
    def askers(self) -> int:
        """Threads that have to ask at once to keep all workers busy: some wait for answers that were set aside."""
        return 2 * self.workers + SET_ASIDE

    def grade(self, gold: str, answer: str) -> Grade:
        """Verdict on `answer`; `grader_timeout` or `grader_error` where it could not be found out."""
        gold, answer = gold.strip(), answer.strip()
        if answer == gold:
            return Grade(verdict="correct", answer=answer, reason="equal as text")
        try:
            reply = self._ask(gold, answer)
        except TimeoutError as error:
            return Grade(verdict="grader_timeout", answer=answer, reason=str(error))
        except OSError as error:
            return Grade(verdict="grader_error", answer=answer, reason=str(error))
        return graded(gold, answer, reply)

    def parses(self, gold: str) -> bool:
        """Whether `gold` can be compared with. Raises OSError or TimeoutError if nobody can tell."""
        return bool(self._ask(gold.strip(), None).get("same"))

    def close(self) -> None:
        """Ends all processes; who waits for one of them gets an error. The next question starts others."""
        with self._lock:
            server, self._server = self._server, None
        if server:
            server.end()

    def _ask(self, gold: str, answer: str | None) -> dict[str, Any]:
        """The reply to a question. Raises TimeoutError at a time limit, and OSError without a server."""
        with self._lock:
            if self._server is None or not self._server.is_alive():
                self._server = Server()
                self.servers += 1
            server = self._server
        reply = server.ask(
            {
                "gold": gold,
                "answer": answer,
                "seconds": self.time_limit_seconds,
                "clock_seconds": 10 * self.time_limit_seconds + CLOCK_SECONDS,
                "workers": self.workers,
                "processes": self.workers + SET_ASIDE,
            }
        )
        if "timeout" in reply:
            raise TimeoutError(f"no verdict within {reply['timeout']}")
        return reply


class Server:
    """The process that the grading processes are forked from. Raises OSError if it does not start."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair()
        self._idle: deque[socket.socket] = deque()  # connections at which nobody waits
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(SERVER)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.end = weakref.finalize(self, end, self.process, self._control, self._idle, self._owner)
        self._control.settimeout(START_SECONDS)
        try:
            started = received(self._control)
        except OSError as error:  # with no word before the end, or within the time
            started = {"error": str(error)}
        if "error" in started:
            self.end()
            raise OSError(f"the maths grader does not start: {started['error']}")

    def is_alive(self) -> bool:
        """Whether this process may ask it; after a fork it stays the parent's."""
        return self._owner == os.getpid() and self.process.poll() is None

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a job, after the time that it and those before it take. Raises OSError if the server ends."""
        connection = self._connected()
        try:
            send(connection, job)
            reply = received(connection)
        except OSError:
            connection.close()
            raise OSError("the maths grader's process ended without a verdict") from None
        except BaseException:  # an interrupt: the server gives the job up
            connection.close()
            raise
        self._idle.append(connection)
        return reply

    def _connected(self) -> socket.socket:
        """A connection that nobody else uses. Raises OSError if the server has ended."""
        with suppress(IndexError):
            return self._idle.pop()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"c"], [theirs.fileno()])
        return ours


def graded(gold: str, answer: str, reply: Mapping[str, Any]) -> Grade:
    """The verdict that a grading process's reply means."""
    if "too_large" in reply:
        return Grade(verdict="grader_timeout", answer=answer, reason=f"not computed: {reply['too_large']}")
    if "error" in reply:
        return Grade(verdict="grader_error", answer=answer, reason=f"maths grader: {reply['error']}")
    shown = gold if len(gold) <= LONGEST_REASON else f"{gold[:LONGEST_REASON]} ..."
    if reply["same"]:
        return Grade(verdict="correct", answer=answer, reason=f"equal to gold {shown}")
    return Grade(verdict="incorrect", answer=answer, reason=f"gold is {shown}")


def end(process: "subprocess.Popen[bytes]", control: socket.socket, idle: Iterable[socket.socket], owner: int) -> None:
    """Hangs up, which ends the server and all its processes; in a fork, which does not own it, it lives on."""
    for connection in (control, *idle):
        connection.close()
    if owner != os.getpid():
        return
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
