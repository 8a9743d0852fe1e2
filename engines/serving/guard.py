"""Runs one command, and ends every process that it left behind: when it exits, or when whoever started this is gone.

    python guard.py COMMAND ...

Whoever starts it holds its standard input open. A line there is the sign to stop, and so is its end, which comes with
a death of any kind. A model server's own children do not always follow their parent: here they cannot stay.
Knows processes only. Loads nothing but the standard library: run as a file, it is there within milliseconds.
"""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_SECONDS = 10.0
"""For which a server may take to end by itself after SIGTERM."""
CHILDREN_SECONDS = 2.0
"""The same for children that it left behind."""
STEP_SECONDS = 0.05


def main(command: list[str]) -> int:
    """Run the command; returns its exit code, as a shell would say it."""
    # Signals for the foreground are for the process that started this; it will close the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=stop_on_sign, args=(child.pid,), daemon=True).start()
    code = child.wait()
    stop(child.pid)
    return code if code >= 0 else 128 - code


def stop_on_sign(session: int) -> None:
    """Wait for a line or the end of standard input, then end the session."""
    os.read(sys.stdin.fileno(), 1)
    stop(session)


def stop(session: int) -> None:
    """End all processes of a session, by force those that do not go by themselves.

    Its leader is asked first, who may have an order of its own: children that go before it would look like a crash.
    """
    send([session], signal.SIGTERM)
    holds(lambda: session not in members(session), PATIENCE_SECONDS)
    send(members(session), signal.SIGTERM)
    holds(lambda: not members(session), CHILDREN_SECONDS)
    send(members(session), signal.SIGKILL)
    holds(lambda: not members(session), PATIENCE_SECONDS)


def send(pids: list[int], number: signal.Signals) -> None:
    """Signal processes; one that is gone by then is fine."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def members(session: int) -> list[int]:
    """Living processes of a session, as /proc has them. The session's leader may be gone, its id stays."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # What follows the name, which may hold anything: state, parent, group, session.
            state, _, _, sid = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if int(sid) == session and state not in "ZX":
            found.append(int(entry.name))
    return found


def holds(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition comes true in time. Steps are counted: while this process is stopped, no time passes."""
    for _ in range(math.ceil(seconds / STEP_SECONDS)):
        if condition():
            return True
        time.sleep(STEP_SECONDS)
    return condition()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
