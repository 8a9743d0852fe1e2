"""The child process of equivalence.py: compares pairs of mathematical answers with math-verify, one JSON line each.

Run by path, so that it imports nothing of this project. In: {"gold": text, "answer": text or null, "seconds": number}.
Out: {"same": bool}, or {"error": text}; without an answer, whether the gold can be parsed. Whatever this process does
not survive (an exhausted stack or memory, an endless loop) is for the parent to notice.
"""

import ctypes
import json
import logging
import os
import resource
import signal
import sys
import time
from typing import Any, TextIO

MEMORY_BYTES = 2 << 30
PR_SET_PDEATHSIG = 1
# What sympy and the LaTeX parser raise for odd input. Anything else ends this process, and the parent reports it.
LIBRARY_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)


def die_with(parent: int) -> None:
    """Makes the kernel end this process when the parent ends, however that happens (Linux; elsewhere a closed pipe)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent ended before the child was ready")


def limit_cpu(seconds: float) -> None:
    """Lets the kernel end this process (SIGXCPU) after `seconds` more of CPU time, rounded up."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, hard))


def compare(gold: str, answer: str | None) -> bool:
    """Whether math-verify takes `answer` for `gold`; without an answer, whether it can parse the gold."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    def parsed(text: str) -> list[Any]:
        kinds = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
        # Its own timeouts are alarms that sympy and C code outlive: they are off, and the parent keeps the time.
        return list(parse(rf"\boxed{{{text}}}", kinds, parsing_timeout=None, raise_on_error=True))

    if answer is None:
        return any(not isinstance(value, str) for value in parsed(gold))
    return bool(verify(parsed(gold), parsed(answer), timeout_seconds=None, raise_on_error=True))


def reply(channel: TextIO, **values: object) -> None:
    """One line to the parent."""
    channel.write(json.dumps(values) + "\n")
    channel.flush()


def main() -> None:
    """Answers lines until the input ends."""
    # The replies get a descriptor of their own, so that a library that prints cannot spoil them.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.excepthook = lambda kind, error, _: reply(channel, error=f"{kind.__name__}: {error}"[:300], fatal=True)
    die_with(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    compare("1", "1")  # imports now, so that no pair has to pay for it
    reply(channel, ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        limit_cpu(job["seconds"])
        try:
            same = compare(job["gold"], job["answer"])
        except LIBRARY_ERRORS as error:
            reply(channel, error=f"{type(error).__name__}: {error}"[:300])
        else:
            reply(channel, same=same)


if __name__ == "__main__":
    main()
