"""The server of equivalence.py: loads what grading needs once, forks processes that grade, and shares time among them.

Run by path; its standard input is a socket. Each descriptor that comes over it is a connection, which carries one job
at a time, a line, and its reply. To what equality_worker.py reads, a job adds `workers` (how many may run at once) and
`clock_seconds`, a limit for a process that waits instead of working; a reply may be {"timeout": text}, too.

An answer that takes longer than others gives way to them: its process is stopped, and goes on in its turn. So a hard
answer holds nobody up, and no worker is idle while two hard ones wait for the same. At most SET_ASIDE processes are
stopped at a time; where more answers are hard, those that have had most time go on to their end first.
"""

import ctypes
import logging
import operator
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tasks.equality_worker import OUT_OF_TIME, received, send, verdict, work

PR_SET_PDEATHSIG = 1
SLICE_SECONDS = 0.1
USED = operator.attrgetter("used")


@dataclass(eq=False, slots=True)
class Job:
    """A job and who asked. used: seconds on the clock for which a process ran on it, stops left out."""

    asker: socket.socket
    message: dict[str, Any]
    used: float = 0.0


@dataclass(eq=False, slots=True)
class Child:
    """A process that grades, busy while it has a job."""

    pid: int
    channel: socket.socket
    job: Job | None = None
    stopped: bool = False

    @property
    def used(self) -> float:
        """Seconds that its job has had."""
        return self.job.used if self.job else 0.0

    def signal(self, number: signal.Signals) -> None:
        """Stops it, sets it running, or kills it."""
        os.kill(self.pid, number)  # it has not been waited for yet, so the number is still its own
        self.stopped = number == signal.SIGSTOP


class Server:
    """Jobs, processes and connections."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.workers = self.processes = 1
        self.fresh: deque[Job] = deque()
        self.children: list[Child] = []
        self.looked = time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serves until the other side hangs up, and leaves no process behind."""
        while True:
            busy = any(child.job for child in self.children)
            for key, _ in self.selector.select(SLICE_SECONDS if busy else None):
                if key.fileobj is self.control:
                    _, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
                    if not descriptors:
                        return self.end()
                    self.selector.register(socket.socket(fileno=descriptors[0]), selectors.EVENT_READ)
                elif isinstance(key.data, Child):
                    self.hear(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self.listen(key.fileobj)
            self.count_time()
            while self.share_time():
                pass

    def listen(self, asker: socket.socket) -> None:
        """Takes a job; one whose asker has gone is given up."""
        with suppress(OSError):
            message = received(asker)
            self.workers, self.processes = message["workers"], message["processes"]
            self.fresh.append(Job(asker, message))
            return
        self.selector.unregister(asker)
        asker.close()
        self.fresh = deque(job for job in self.fresh if job.asker is not asker)
        for child in [child for child in self.children if child.job and child.job.asker is asker]:
            child.signal(signal.SIGKILL)
            self.bury(child)

    def hear(self, child: Child) -> None:
        """Hands a reply on, or says how the process ended."""
        if child not in self.children:  # it was killed meanwhile
            return
        with suppress(OSError):
            self.reply(child, received(child.channel))
            if child.stopped:
                child.signal(signal.SIGCONT)
            return
        ended = self.bury(child)
        if child.job and ended == -OUT_OF_TIME:
            self.reply(child, {"timeout": f"{child.job.message['seconds']:g} s of CPU time"})
        else:
            self.reply(child, {"error": f"the grading process ended ({ended})"})

    def reply(self, child: Child, message: dict[str, Any]) -> None:
        """A message to who asked, if still there; the job is done."""
        if child.job:
            with suppress(OSError):
                send(child.job.asker, message)
        child.job = None

    def bury(self, child: Child) -> int:
        """Forgets a process that has ended; how it ended."""
        self.children.remove(child)
        self.selector.unregister(child.channel)
        child.channel.close()
        return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])

    def count_time(self) -> None:
        """Adds the time since the last look to the jobs that ran, and kills those far above it: they only wait."""
        now = time.monotonic()
        for child in self.running():
            if child.job:
                child.job.used += now - self.looked
                if child.used > (limit := child.job.message["clock_seconds"]):
                    child.signal(signal.SIGKILL)
                    self.bury(child)
                    self.reply(child, {"timeout": f"{limit:g} s"})
        self.looked = now

    def running(self) -> list[Child]:
        """The processes that are at work."""
        return [child for child in self.children if child.job and not child.stopped]

    def share_time(self) -> bool:
        """Sets one job going, in the place of one that had more time by a slice if need be; whether there was one."""
        idle = [child for child in self.children if not child.job]
        aside = [child for child in self.children if child.stopped]
        begins = bool(self.fresh) and (bool(idle) or len(self.children) < self.processes)
        if not begins and not aside:
            return False
        crowded = bool(self.fresh) and not begins  # then the one nearest to its end makes room soonest
        following = None if begins else (max if crowded else min)(aside, key=USED)
        running = self.running()
        if len(running) >= self.workers:
            longest = max(running, key=USED)
            if crowded or longest.used < SLICE_SECONDS + (following.used if following else 0.0):
                return False
            longest.signal(signal.SIGSTOP)
        if following:
            following.signal(signal.SIGCONT)
        else:
            child = idle[-1] if idle else self.fork()
            child.job = self.fresh.popleft()
            with suppress(BrokenPipeError):  # it was killed while it had nothing to do: `hear` says so
                send(child.channel, child.job.message)
        return True

    def fork(self) -> Child:
        """Another process, which the kernel kills with this one."""
        ours, theirs = socket.socketpair()
        server = os.getpid()
        if (pid := os.fork()) == 0:
            ours.close()
            self.become_child(theirs, server)
        theirs.close()
        child = Child(pid, ours)
        self.children.append(child)
        self.selector.register(ours, selectors.EVENT_READ, child)
        return child

    def become_child(self, channel: socket.socket, server: int) -> NoReturn:
        """Leaves all that is the server's, works, and ends."""
        status = 1
        try:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for key in self.selector.get_map().values():
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
            if os.getppid() == server:
                work(channel)
            status = 0
        finally:
            os._exit(status)

    def end(self) -> None:
        """Kills all processes, stopped ones too, and waits until they are gone."""
        for child in list(self.children):
            child.signal(signal.SIGKILL)
            self.bury(child)


def main() -> None:
    """Loads what grading needs, says so, and serves."""
    control = socket.socket(fileno=0)
    logging.disable(logging.CRITICAL)
    try:
        ready = verdict({"gold": r"\sqrt{2}", "answer": r"\frac{2}{\sqrt{2}}"})
    except ImportError as error:
        ready = {"error": str(error)}
    send(control, ready)
    Server(control).serve()
    os._exit(0)  # at once: taking a loaded sympy down is slow


if __name__ == "__main__":
    main()
