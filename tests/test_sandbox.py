"""Running a model's program: verdicts that it cannot fake, limits that hold, nothing left behind."""

import tempfile
import time
from pathlib import Path

import pytest

from tasks import sandbox
from tasks.sandbox import Outcome, isolation, run_program


@pytest.fixture
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(sandbox, "namespaces", lambda: request.param)


FORGERY = """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b"x passed\\n" * 9)
    except OSError:
        pass
os._exit(0)
"""

DEAF_LOOP = """
import signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
"""

# Limits must hold on a system that does not allow namespaces too.
with_and_without_namespaces = pytest.mark.parametrize("isolated", [(), None], ids=["bare", "namespaces"], indirect=True)


class TestVerdicts:
    def test_a_program_that_ends_has_passed(self) -> None:
        assert run_program(["x = 1", "assert x == 1"]) == Outcome(passed=True, reason="passed")

    def test_the_reason_names_the_error(self) -> None:
        outcome = run_program(["def f(): return 1\n", "assert f() == 2, 'not two'"])

        assert outcome == Outcome(passed=False, reason="failed AssertionError: not two")

    @pytest.mark.parametrize(
        "program",
        [
            "import os; os._exit(0)",
            "import sys; sys.exit(0)",
            "raise SystemExit",
            "import atexit, os; atexit.register(os._exit, 0); assert False",
            "import sys, os; sys.excepthook = lambda *a: os._exit(0); assert False",
            FORGERY,
            "import os; os.closerange(3, 256); assert False",
            "print('passed'); assert False",
            "import ctypes; ctypes.string_at(0)",
            "def broken(:",
            "\0",
            "\ud800",
            '"""',
            "(" * 3000,
            "input()",
            "class E(BaseException): pass\nraise E",
        ],
    )
    def test_no_other_end_passes(self, program: str) -> None:
        outcome = run_program([program])

        assert not outcome.passed
        assert not outcome.broken
        assert outcome.reason

    def test_a_part_cannot_swallow_the_next(self) -> None:
        assert not run_program(["def f(): return 0\nif False:\n  \\\n", "assert f() == 1"]).passed

    def test_a_main_guard_does_not_run(self) -> None:
        assert run_program(["if __name__ == '__main__':\n    raise ValueError"]).passed

    def test_a_part_may_have_its_own_future_imports(self) -> None:
        assert run_program(["x = 1", "from __future__ import annotations\ndef f(a: Unknown) -> None: ..."]).passed

    def test_much_output_neither_blocks_nor_fails(self) -> None:
        assert run_program(["import sys\nprint('x' * 5_000_000)\nsys.stderr.write('e' * 2_000_000)"]).passed


@with_and_without_namespaces
@pytest.mark.usefixtures("isolated")
class TestLimits:
    @pytest.mark.parametrize(
        "program",
        [
            "while True: pass",
            "import time; time.sleep(60)",
            "sum(range(10**13))",
            DEAF_LOOP,
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        ],
    )
    def test_an_endless_program_is_stopped(self, program: str) -> None:
        started = time.monotonic()
        outcome = run_program([program], time_limit_seconds=0.5)

        assert outcome == Outcome(passed=False, reason="timed out after 0.5 s")
        assert time.monotonic() - started < 30.0

    def test_too_much_memory_is_refused(self) -> None:
        assert "MemoryError" in run_program(["x = 'a' * 10**12"]).reason

    def test_too_long_a_file_is_refused(self) -> None:
        assert not run_program(["open('big', 'wb').write(bytes(1 << 20) * 64)"]).passed

    def test_a_thread_that_sleeps_does_not_delay_the_verdict(self) -> None:
        started = time.monotonic()
        program = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"

        assert run_program([program]).passed
        assert time.monotonic() - started < 30.0

    def test_the_folder_is_thrown_away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

        assert run_program(["open('left', 'w').write('x')", "import os; assert os.path.exists('left')"]).passed
        assert list(tmp_path.iterdir()) == []

    def test_no_variable_of_the_user_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "secret")

        assert run_program(["import os; assert 'HF_TOKEN' not in os.environ"]).passed

    def test_a_child_of_the_program_does_not_outlive_it(self, tmp_path: Path) -> None:
        marker = tmp_path / "alive"
        program = f"import os\nos.posix_spawn('/bin/sh', ['sh', '-c', 'sleep 1; touch {marker}'], {{}})"

        assert run_program([program]).passed
        time.sleep(1.5)
        assert not marker.exists()


def test_a_sandbox_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "RUNNER", Path("/no/such/runner.py"))
    outcome = run_program(["pass"])

    assert outcome.broken
    assert not outcome.passed


@with_and_without_namespaces
@pytest.mark.usefixtures("isolated")
def test_isolation_says_in_one_line_what_is_in_force() -> None:
    line = isolation()

    assert "\n" not in line
    assert ("no network" in line) == bool(sandbox.namespaces())


def test_the_network_is_out_of_reach_where_namespaces_are_allowed() -> None:
    program = "import socket\nassert [name for _, name in socket.if_nameindex()] == ['lo']"

    assert run_program([program]).passed or not sandbox.namespaces()
