"""The life of a server that this process starts: its port, its log, whether it is up, and its end with all children.

Knows a command and an address; what the server serves is in its arguments. engines/serving/guard.py runs it, so that
nothing stays behind however this process ends.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from engines.serving import guard

LOOPBACK = "127.0.0.1"
START_SECONDS = 1800.0
"""A server's patience with itself: large models are read from disks of any kind."""
ERROR_LINE = re.compile(r"^(\w+\.)*\w*(Error|Exception|Exit)\b.*:|: error: ")
CRASH = "crashed with exit code"
HARMLESS = "/freeze_gc"
"""The server asks itself for this before it listens, and goes on."""
LONGEST_LINE = 240
LONGEST_TAIL = 200_000


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def refuse_used_port(host: str, port: int) -> None:
    """Raise OSError where the port cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(f"port {port} of {host} cannot be used: {error.strerror}; name another one") from None


class ServerProcess:
    """A running command with its log."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self.begins_at = sink.tell()
            self._guard = subprocess.Popen(
                [sys.executable, guard.__file__, *command],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal is ours to act on
            )

    @property
    def pid(self) -> int:
        """Of the process that guards it, whose one child is the server."""
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._guard.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None where it still runs after these seconds."""
        try:
            return self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def reason(self) -> str:
        """One line on why it ended: the log's last error, else a child that crashed, else the last line."""
        with self.log.open("rb") as stream:
            stream.seek(max(self.begins_at, self.log.stat().st_size - LONGEST_TAIL))
            lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line]
        errors = [line for line in lines if ERROR_LINE.search(line) and HARMLESS not in line]
        crashes = [line for line in lines if CRASH in line]
        found = (errors or crashes or lines or ["it wrote nothing"])[-1]
        return found[:LONGEST_LINE]

    def close(self) -> None:
        """End it and everything it started; safe to call twice."""
        if self._guard.stdin and not self._guard.stdin.closed:
            # A line, since a forked child of ours may hold the other end open too.
            with suppress(BrokenPipeError):
                self._guard.stdin.write(b"\n")
                self._guard.stdin.close()
        self._guard.wait()  # its patience is limited; without it, nobody would end what is left


def wait_until(ready: Callable[[], bool], server: ServerProcess, seconds: float = START_SECONDS) -> None:
    """Return when the server is up. Raises OSError where it ends before, or takes too long."""
    end = time.monotonic() + seconds
    while not ready():
        code = server.wait(0.2)
        if code is not None:
            raise OSError(f"the server ended with code {code} before it was up: {server.reason()} (log: {server.log})")
        if time.monotonic() > end:
            raise OSError(f"the server is not up after {seconds:g} s: {server.reason()} (log: {server.log})")
