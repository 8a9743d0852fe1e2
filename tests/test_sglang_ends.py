"""A study on SGLang that is interrupted, whose server is then killed, and that goes on: real signals and processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from engines.serving import guard
from engines.serving.presence import missing_algorithm
from engines.sglang_plugin.settings import NAME

ROOT = Path(__file__).parents[1]
MISSING = missing_algorithm(NAME, "cpu")
pytestmark = [pytest.mark.sglang, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
PROBLEMS, FEW = 60, 3
SCHEDULER = "sglang::scheduler"
PATIENCE_SECONDS = 900.0
# A shell's background jobs ignore interrupts, and so would this one.
STREAK = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from harness.cli import main
main()
"""
STUDY = f"""
[task]
name = "arithmetic"
num_problems = {PROBLEMS}
[model]
path = "embedded:verifier"
[engine]
name = "sglang"
[sampling]
temperatures = [0.0]
max_tokens = 160
[budgets]
seconds = [60.0]
[arm.specdiff2]
drafter = "embedded:aligned"
window = 12
"""


class Ended(NamedTuple):
    """How a command ended: its exit code, its last words, the rows it left, and what of its server still runs."""

    code: int
    errors: list[str]
    rows: list[str]
    event: str
    left: list[int]


def run_until(folder: Path, act: Callable[[subprocess.Popen[str], int], None] | None) -> Ended:
    """Run the study; once a few more answers are there, act: on the command, or on the session of its server."""
    rows = folder / "runs/study/generations.jsonl"
    before = len(lines(rows))
    command = [sys.executable, "-c", STREAK, "run", "study"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    session = 0
    if act:
        enough = guard.holds(lambda: process.poll() is not None or len(lines(rows)) >= before + FEW, PATIENCE_SECONDS)
        assert enough
        session = session_below(process.pid)
        act(process, session)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    last = json.loads(lines(folder / "runs/study/sessions.jsonl")[-1])
    left = guard.members(session) if session else []
    return Ended(process.returncode, errors.splitlines(), lines(rows), last["event"], left)


def lines(file: Path) -> list[str]:
    """Whole lines of a file that may not be there yet."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def session_below(pid: int) -> int:
    """The session of the server that a process guards: that of its grandchild."""
    (warden,) = [child for child in children_of(pid) if guard.__file__ in arguments_of(child)]
    (server,) = children_of(warden)
    return os.getsid(server)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def arguments_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def kill_scheduler(_: object, session: int) -> None:
    """As the kernel does where memory runs out."""
    (scheduler,) = [pid for pid in guard.members(session) if arguments_of(pid)[0] == SCHEDULER]
    os.kill(scheduler, signal.SIGKILL)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """Interrupted; gone on with, until the scheduler is killed; gone on with to the end."""
    folder = tmp_path_factory.mktemp("story")
    (folder / "study").mkdir()
    (folder / "study/study.toml").write_text(STUDY, encoding="utf-8")
    return [
        run_until(folder, lambda process, _: process.send_signal(signal.SIGINT)),
        run_until(folder, kill_scheduler),
        run_until(folder, None),
    ]


def test_an_interrupt_is_one_line(story: list[Ended]) -> None:
    interrupted = story[0]

    assert interrupted.code == 130
    assert interrupted.errors == [
        "streak: interrupted; what is finished lies in runs/study; go on with: streak run study"
    ]


def test_a_server_whose_scheduler_is_killed_is_one_line(story: list[Ended]) -> None:
    (line,) = story[1].errors

    assert story[1].code == 2
    assert "the server is lost" in line
    assert line.endswith("what is finished lies in runs/study; go on with: streak run study")


def test_no_process_of_a_server_stays(story: list[Ended]) -> None:
    assert [ended.left for ended in story] == [[], [], []]


def test_what_was_finished_is_kept_and_the_rest_is_made(story: list[Ended]) -> None:
    first, second, third = (ended.rows for ended in story)

    assert FEW <= len(first) < len(second) < len(third) == PROBLEMS
    assert third[: len(second)] == second
    assert second[: len(first)] == first


def test_the_sessions_say_how_each_ended(story: list[Ended]) -> None:
    assert [ended.event for ended in story] == ["interrupted", "engine lost", "finished"]
    assert story[2].code == 0
