"""Whether two mathematical answers are the same: equal as text, or equal to math-verify in a child that can be killed.

Knows no benchmark; answers.py finds the text to compare. The child (equality_worker.py) starts with the first pair
that is not equal as text, serves all later ones, and is killed and replaced when a pair takes too long: neither
sympy's loops nor its C code can be interrupted from inside. The limit is on CPU time, so that a busy machine changes no
verdict; a wall limit far above it is for a child that waits instead of working.
Source of the comparison: math-verify, https://github.com/huggingface/Math-Verify.
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
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from results.records import Grade

WORKER = Path(__file__).with_name("equality_worker.py")
START_SECONDS = 120.0
WALL_SECONDS = 100.0  # on top of the CPU limit

Child: TypeAlias = "subprocess.Popen[bytes]"


class MathChecker:
    """Compares answers with golds; owns at most one child process, which ends with it. Threads may share it.

    The kernel ties the child to the thread that started it: when that thread ends, the next pair starts another child.

    time_limit_seconds: CPU seconds of the child for one pair, rounded up
    """

    def __init__(self, *, time_limit_seconds: float = 5.0) -> None:
        if not time_limit_seconds > 0:
            raise ValueError(f"time_limit_seconds = {time_limit_seconds!r} is not allowed; it must be above 0")
        self.time_limit_seconds = time_limit_seconds
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._owner = 0
        self._end: Callable[[], object] = lambda: None

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
        if "error" in reply:
            return Grade(verdict="grader_error", answer=answer, reason=f"math-verify: {reply['error']}")
        if reply["same"]:
            return Grade(verdict="correct", answer=answer, reason=f"equal to gold {gold}")
        return Grade(verdict="incorrect", answer=answer, reason=f"gold is {gold}")

    def parses(self, gold: str) -> bool:
        """Whether `gold` can be compared with. Raises OSError or TimeoutError if nobody can tell."""
        return bool(self._ask(gold.strip(), None).get("same"))

    def close(self) -> None:
        """Ends the child; the next question starts another."""
        with self._lock:
            self._end()

    def _ask(self, gold: str, answer: str | None) -> dict[str, Any]:
        """The child's reply. Raises TimeoutError at the time limit and OSError if the child ends; it is gone then."""
        job = json.dumps({"gold": gold, "answer": answer, "seconds": self.time_limit_seconds})
        with self._lock:
            reply: dict[str, Any] = {"fatal": True}
            try:
                reply = exchange(self._running_child(), job, self.time_limit_seconds + WALL_SECONDS)
            finally:
                if "fatal" in reply:
                    self._end()
            return reply

    def _running_child(self) -> Child:
        """The child; another one if it has ended, or belongs to the process that this one was forked from."""
        if self._child is None or self._owner != os.getpid() or self._child.poll() is not None:
            self._end()
            command = [sys.executable, "-P", str(WORKER), str(os.getpid())]
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self._owner = os.getpid()
            self._end = weakref.finalize(self, end_child, self._child, self._owner)
            started = exchange(self._child, None, START_SECONDS)
            if "error" in started:
                raise OSError(f"the maths grader does not start: {started['error']}")
        return self._child


def exchange(child: Child, job: str | None, seconds: float) -> dict[str, Any]:
    """Sends a job, if any, and waits for a line. Raises TimeoutError, or OSError if the child ends instead."""
    questions, replies = cast(IO[bytes], child.stdin), cast(IO[bytes], child.stdout)
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
            if not chunk and child.wait() == -signal.SIGXCPU:
                raise TimeoutError("no verdict within the limit on CPU time")
            if not chunk:
                raise OSError(f"the maths grader's process ended without a verdict (exit status {child.returncode})")
            line += chunk
    reply: dict[str, Any] = json.loads(line)
    return reply


def end_child(child: Child, owner: int) -> None:
    """Kills the child and closes its pipes; in a fork, which does not own it, it is left alone."""
    if owner != os.getpid():
        return
    child.kill()
    child.communicate()
