"""Servers as processes: nothing of one stays behind, however it or its parent ends, and what went wrong is one line."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.serving import guard
from engines.serving.process import LOOPBACK, ServerProcess, free_port, refuse_used_port, wait_until

ROOT = Path(__file__).parents[1]
# A server with a child of its own, that says its session's id; `how` ends its start.
SERVER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("session", os.getsid(0), flush=True)
{how}
"""
STAYS = SERVER.format(how="time.sleep(60)")
DEAF = SERVER.format(how="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")


def start(tmp_path: Path, code: str) -> ServerProcess:
    return ServerProcess([sys.executable, "-c", code], {}, tmp_path / "server.log")


def session_of(server: ServerProcess) -> int:
    """The session that the server told of in its log."""
    holds(lambda: "session" in server.log.read_text())
    return int(server.log.read_text().split("session ")[1].split()[0])


def holds(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    return guard.holds(condition, seconds)


def test_a_closed_server_leaves_no_child(tmp_path: Path) -> None:
    server = start(tmp_path, STAYS)
    session = session_of(server)
    running = len(guard.members(session))

    server.close()

    assert running == 2
    assert guard.members(session) == []


def test_a_server_is_closed_twice_without_harm(tmp_path: Path) -> None:
    server = start(tmp_path, STAYS)
    server.close()

    server.close()

    assert server.exit_code is not None


def test_a_server_that_does_not_listen_to_reason_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(guard, "CHILDREN_SECONDS", 0.3)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, start_new_session=True) as server:
        assert server.stdout is not None
        server.stdout.readline()

        guard.stop(server.pid)

    assert guard.members(server.pid) == []


def test_a_guard_that_is_stopped_for_a_while_loses_no_patience() -> None:
    code = """
        import time
        from engines.serving import guard
        began = time.monotonic()
        guard.holds(lambda: print("waiting", flush=True), 1.0)
        print(time.monotonic() - began)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        waiting.send_signal(signal.SIGCONT)

        assert float(waiting.stdout.readlines()[-1]) > 2


def test_children_of_a_server_that_crashes_are_ended(tmp_path: Path) -> None:
    server = start(tmp_path, SERVER.format(how="os._exit(3)"))
    session = session_of(server)

    code = server.wait(30)
    server.close()

    assert code == 3
    assert guard.members(session) == []


def test_a_server_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from engines.serving.process import ServerProcess
        ServerProcess([sys.executable, "-c", {STAYS!r}], {{}}, Path({str(tmp_path / "server.log")!r}))
        time.sleep(60)
    """)
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    log = tmp_path / "server.log"
    holds(lambda: log.exists() and "session" in log.read_text())
    session = int(log.read_text().split()[1])

    process.send_signal(signal.SIGKILL)
    process.wait()

    assert holds(lambda: guard.members(session) == [])


def test_a_server_that_does_not_come_up_says_why_in_one_line(tmp_path: Path) -> None:
    server = start(tmp_path, "print('loading'); raise ValueError('the drafter has no mask_token_id')")

    with pytest.raises(
        OSError, match=r"ended with code 1 before .*: ValueError: the drafter has no mask_token_id"
    ) as caught:
        wait_until(lambda: False, server)
    server.close()

    assert "\n" not in str(caught.value)


def test_a_server_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    server = start(tmp_path, "import time; print('reading weights', flush=True); time.sleep(60)")
    try:
        holds(lambda: "reading" in server.log.read_text())

        with pytest.raises(OSError, match=r"not up after 0\.1 s: reading weights"):
            wait_until(lambda: False, server, 0.1)
    finally:
        server.close()


def test_waiting_ends_as_soon_as_the_server_is_up(tmp_path: Path) -> None:
    server = start(tmp_path, STAYS)
    began = time.monotonic()
    wait_until(lambda: True, server)
    waited = time.monotonic() - began
    server.close()

    assert waited < 5


def test_a_child_that_crashed_is_the_reason_and_a_harmless_error_is_none(tmp_path: Path) -> None:
    lines = [
        "requests.exceptions.ConnectionError: Max retries exceeded with url: /freeze_gc",
        "[12:00] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        "[12:01] kill_process_tree called",
    ]
    server = start(tmp_path, f"print({chr(10).join(lines)!r})")
    server.wait(30)
    server.close()

    assert server.reason() == lines[1]


def test_the_log_of_an_earlier_server_is_no_reason(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("RuntimeError: long ago\n")
    server = start(tmp_path, "print('short of breath')")
    server.wait(30)
    server.close()

    assert server.reason() == "short of breath"


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(OSError, match=f"port {port} of {LOOPBACK} cannot be used: Address already in use"):
            refuse_used_port(LOOPBACK, port)


def test_a_free_port_is_one_that_can_be_used() -> None:
    refuse_used_port(LOOPBACK, free_port())
