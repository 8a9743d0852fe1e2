"""The processes that compare answers: how they share time, how they end, and that they leave nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tasks import equality_server, equivalence
from tasks.equality_server import SLICE_SECONDS, Child, Job, Server
from tasks.equivalence import SET_ASIDE, MathChecker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

ROOT = Path(__file__).parents[1]
HANGS = r"\int_0^1 \frac{x^{7}\sin(x^{3})}{\sqrt{1+x^{5}}} dx"  # sympy looks for a closed form for minutes


@pytest.fixture
def checker() -> Iterator[MathChecker]:
    """One that works on one answer at a time, and has loaded what it needs."""
    checker = MathChecker(time_limit_seconds=60.0, workers=1)
    checker.grade("1", "2")
    yield checker
    checker.close()


def server_pid(checker: MathChecker) -> int:
    server = checker._server
    assert server is not None
    return server.process.pid


def states(server: int) -> dict[int, str]:
    """The processes of a server, with their letters in /proc: R runs, T is stopped, S waits."""
    found = {}
    for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        with suppress(OSError):
            found[int(pid)] = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return found


def wait_for_states(server: int, letters: str) -> dict[int, str]:
    """The processes once their letters, sorted, are these."""
    deadline = time.monotonic() + 60
    while "".join(sorted(states(server).values())) != letters:
        assert time.monotonic() < deadline, states(server)
        time.sleep(0.01)
    return states(server)


def hang(checker: MathChecker, times: int) -> ThreadPoolExecutor:
    """Threads that ask about as many hanging answers, and some more."""
    pool = ThreadPoolExecutor(times + 2)
    for _ in range(times):
        pool.submit(checker.grade, "1", HANGS)
    return pool


def test_an_easy_answer_does_not_wait_for_a_hard_one(checker: MathChecker) -> None:
    with hang(checker, 1):
        wait_for_states(server_pid(checker), "R")

        assert checker.grade("1/2", "0.5").verdict == "correct"
        assert "R" in wait_for_states(server_pid(checker), "RS").values()
        checker.close()


def test_hard_answers_are_set_aside_up_to_a_bound_and_one_worker_runs_one(checker: MathChecker) -> None:
    with hang(checker, SET_ASIDE + 3):
        wait_for_states(server_pid(checker), "R" + "T" * SET_ASIDE)
        at_work = [list(states(server_pid(checker)).values()).count("R") for _ in range(100)]
        checker.close()

        assert sum(count <= 1 for count in at_work) > 90  # while one takes another's place, both may be seen


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose processes are only noted."""

    def note(child: Child, number: signal.Signals) -> None:
        child.stopped = number == signal.SIGSTOP

    def fork(server: Server) -> Child:
        server.children.append(Child(len(server.children), server.control))
        return server.children[-1]

    monkeypatch.setattr(Child, "signal", note)
    monkeypatch.setattr(Server, "fork", fork)
    monkeypatch.setattr(equality_server, "send", lambda *_: None)
    ours, theirs = socket.socketpair()
    yield Server(ours)
    ours.close()
    theirs.close()


def slices_until_done(server: Server, jobs: int, *, slices: int) -> int:
    """How many slices it takes until as many jobs, of so many slices each, are done."""
    server.fresh.extend(Job(server.control, {}) for _ in range(jobs))
    for passed in range(jobs * slices + 1):
        while server.share_time():
            pass
        if not server.running():
            return passed
        for child in server.running():
            assert child.job
            child.job.used += SLICE_SECONDS
            if child.used >= SLICE_SECONDS * (slices - 0.5):
                child.job = None
    raise AssertionError("jobs are left over")


def test_hard_answers_leave_no_worker_idle_at_the_end(unstarted: Server) -> None:
    unstarted.workers, unstarted.processes = 2, 2 + SET_ASIDE

    assert slices_until_done(unstarted, 5, slices=50) <= 5 * 50 / 2 + 1


def test_more_hard_answers_than_can_be_set_aside_leave_no_worker_idle_either(unstarted: Server) -> None:
    unstarted.workers, unstarted.processes = 2, 2 + SET_ASIDE

    assert slices_until_done(unstarted, 21, slices=50) <= 21 * 50 / 2 + 1
    assert len(unstarted.children) == 2 + SET_ASIDE


def test_a_process_that_is_killed_is_replaced(checker: MathChecker) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(checker.grade, "1", HANGS)
        (pid,) = wait_for_states(server_pid(checker), "R")
        os.kill(pid, signal.SIGKILL)

        assert asked.result().reason == "maths grader: the grading process ended (-9)"
        assert checker.grade("1/2", "0.5").verdict == "correct"
        assert checker.servers == 1


def test_an_idle_process_that_is_killed_is_replaced(checker: MathChecker) -> None:
    (pid,) = states(server_pid(checker))
    os.kill(pid, signal.SIGKILL)
    wait_for_states(server_pid(checker), "")

    assert checker.grade("1/2", "0.5").verdict == "correct"


def test_a_server_that_is_killed_takes_its_processes_along_and_is_replaced(checker: MathChecker) -> None:
    with hang(checker, 2) as pool:
        asked = pool.submit(checker.grade, "1", HANGS)
        children = wait_for_states(server_pid(checker), "RTT")
        os.kill(server_pid(checker), signal.SIGKILL)

        assert asked.result().reason == "the maths grader's process ended without a verdict"
        assert all(gone_within(pid, seconds=20.0) for pid in children)
        assert checker.grade("1/2", "0.5").verdict == "correct"
        assert checker.servers == 2


def test_a_process_that_others_stopped_ends_at_the_limit_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "CLOCK_SECONDS", -599.0)
    checker = MathChecker(time_limit_seconds=60.0, workers=1)
    try:
        with ThreadPoolExecutor(1) as pool:
            checker.grade("1", "2")
            asked = pool.submit(checker.grade, "1", HANGS)
            (pid,) = wait_for_states(server_pid(checker), "R")
            os.kill(pid, signal.SIGSTOP)

            assert (asked.result().verdict, asked.result().reason) == ("grader_timeout", "no verdict within 1 s")
    finally:
        checker.close()


def test_closing_ends_answers_that_are_at_work(checker: MathChecker) -> None:
    with hang(checker, 2) as pool:
        asked = pool.submit(checker.grade, "1", HANGS)
        children = wait_for_states(server_pid(checker), "RTT")
        checker.close()

        assert asked.result().verdict == "grader_error"
        assert all(gone_within(pid, seconds=20.0) for pid in children)


def test_no_process_is_left_when_the_asker_is_killed() -> None:
    script = f"""
        import threading
        from tasks.equivalence import MathChecker
        checker = MathChecker(workers=1)
        checker.grade("1", "2")
        print(checker._server.process.pid, flush=True)
        for _ in range(3):
            threading.Thread(target=checker.grade, args=("1", {HANGS!r})).start()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        children = wait_for_states(server, "RTT")
        parent.kill()

    assert all(gone_within(pid, seconds=20.0) for pid in (server, *children))


def test_a_fork_has_a_server_of_its_own(checker: MathChecker) -> None:
    if (pid := os.fork()) == 0:
        try:
            os._exit(0 if checker.grade("1/2", "0.5").verdict == "correct" and checker.servers == 2 else 1)
        finally:
            os._exit(2)

    assert os.waitpid(pid, 0)[1] == 0
    assert checker.grade("1/2", "0.5").verdict == "correct"
    assert checker.servers == 1


def gone_within(pid: int, *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if is_zombie(pid):  # where nobody reaps orphans
            return True
        time.sleep(0.05)
    return False


def is_zombie(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z"
