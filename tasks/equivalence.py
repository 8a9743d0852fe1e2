"""Whether two mathematical answers are the same: equal as text, or equal to a grading process that can be killed.

Knows no benchmark; answers.py finds the text to compare, answer_equality.py compares. The processes
(equality_worker.py) start when they are needed, one for each thread that asks at the same time, and each is killed with
its child when it does not reply. The limit is on CPU time, so that a busy machine changes no verdict; a wall limit far
above it is for a process that waits instead of working.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from results.records import Grade

WORKER = Path(__file__).with_name("equality_worker.py")
START_SECONDS = 120.0
END_SECONDS = 2.0
WALL_SECONDS = 60.0  # on top of ten times the CPU limit
LONGEST_REASON = 200  # characters of a gold or an answer that a reason quotes

Process: TypeAlias = "subprocess.Popen[bytes]"


class MathChecker:
    """Compares answers with golds; owns a process for each thread that asks at the same time. Threads may share it.

    time_limit_seconds: CPU seconds for one pair
    """

    def __init__(self, *, time_limit_seconds: float = 5.0) -> None:
        if not time_limit_seconds > 0:
            raise ValueError(f"time_limit_seconds = {time_limit_seconds!r} is not allowed; it must be above 0")
        self.time_limit_seconds = time_limit_seconds
        self._lock = threading.Lock()
        self._idle: list[Process] = []
        self._owner = os.getpid()
        self.processes = 0  # started so far

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
        """Ends the idle processes; the next question starts another."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            if self._owner == os.getpid() and process.stdin is not None:
                process.stdin.close()  # the end of its input lets it finish in order
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
            end(process, self._owner)

    def _ask(self, gold: str, answer: str | None) -> dict[str, Any]:
        """A process's reply. Raises TimeoutError at the time limit and OSError if it ends; it is gone then."""
        job = json.dumps({"gold": gold, "answer": answer, "seconds": self.time_limit_seconds})
        process = self._take()
        kept = False
        try:
            reply = exchange(process, job, 10 * self.time_limit_seconds + WALL_SECONDS)
            kept = True
        finally:
            if kept:
                with self._lock:
                    self._idle.append(process)
            else:
                end(process, os.getpid())
        if "timeout" in reply:
            raise TimeoutError(f"no verdict within {self.time_limit_seconds:g} s of CPU time")
        return reply

    def _take(self) -> Process:
        """An idle process, or another one; those of the process that this one was forked from are left alone."""
        with self._lock:
            if self._owner != os.getpid():
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                process = self._idle.pop()
                if process.poll() is None:
                    return process
                end(process, self._owner)
        process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes += 1
        weakref.finalize(self, end, process, os.getpid())
        started = exchange(process, None, START_SECONDS)
        if "error" in started:
            end(process, os.getpid())
            raise OSError(f"the maths grader does not start: {started['error']}")
        return process


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


def exchange(process: Process, job: str | None, seconds: float) -> dict[str, Any]:
    """Sends a job, if any, and waits for a line. Raises TimeoutError, or OSError if the process ends instead."""
    questions, replies = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    if job is not None:
        questions.write(job.encode() + b"\n")
        questions.flush()
    deadline = time.monotonic() + seconds
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(replies, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"no verdict within {seconds:g} s")
            chunk = os.read(replies.fileno(), 65536)
            if not chunk:
                raise OSError(f"the maths grader's process ended without a verdict (exit status {process.wait()})")
            line += chunk
    reply: dict[str, Any] = json.loads(line)
    return reply


def end(process: Process, owner: int) -> None:
    """Kills the process with its child and closes its pipes; in a fork, which does not own it, it is left alone."""
    if owner != os.getpid() or process.stdout is None or process.stdout.closed:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):
            cast(IO[bytes], pipe).close()
    process.wait()
