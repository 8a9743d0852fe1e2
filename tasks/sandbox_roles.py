"""The two processes of an examination: one runs the model's program, the other its tests, and only data goes between.

The candidate's process gets the program and the arguments of each call, never the tests; whatever it does to its own
interpreter (builtins, helpers, frames, exit) cannot reach the examiner's. The examiner runs the benchmark's prompt and
tests, never a line of the program; its oracles and helpers are the benchmark's own. A result is rebuilt from data with
exact builtin types, so a program can only pass by answering right.
Knows no benchmark by name; the way of testing, check(function), is HumanEval's: Chen et al. (2021), arXiv:2107.03374.
"""

import builtins
import contextlib
import json
import os
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

from tasks.plain_values import UnsendableError, decode, decode_all, encode, to_line
from tasks.programs import program_parts

MOST_BYTES = 32 << 20  # of one message
CHUNK_BYTES = 1 << 16
DEEPEST = 100_000  # calls in calls, whatever the program asks for: an endless recursion ends before the memory does
SEED = 0  # some tests draw their cases at random: the same for every program


class LostCandidateError(Exception):
    """The program's process ended, or said what its side of the agreement never says."""


def lines(descriptor: int) -> Iterator[bytes]:
    """Lines from a pipe until it is closed; one of MOST_BYTES is cut, and then is no message."""
    pieces: list[bytes] = []
    while chunk := os.read(descriptor, CHUNK_BYTES):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield b"".join([*pieces, piece])
            pieces = []
        pieces.append(rest)
        if len(pieces) > MOST_BYTES // CHUNK_BYTES and sum(map(len, pieces)) > MOST_BYTES:
            yield b""
            pieces = []


def write_all(descriptor: int, message: bytes) -> None:
    """Writes all of a message to a pipe."""
    rest = memoryview(message)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def in_words(error: BaseException) -> tuple[str, str]:
    """The name of an error's type and its message, in one short line each, whatever its class does."""
    try:
        message = " ".join(str(error).split())[:300]
    except BaseException:  # noqa: BLE001 - the message is a method of the program's class
        message = ""
    return type.__dict__["__name__"].__get__(type(error))[:80], message


def run_parts(parts: list[str], name: str) -> types.ModuleType:
    """A module in which the parts ran one after the other; compiled apart, so that none can swallow the next."""
    module = types.ModuleType(name)  # not __main__: a main guard must not run
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    for part in parts:
        exec(compile(part, f"<{name}>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what this is for
    return module


def be_candidate(calls: int, replies: int) -> None:
    """Runs the program in the first message, then answers calls of its function until the examiner hangs up."""
    messages = lines(calls)
    job = json.loads(next(messages))
    set_limit = sys.setrecursionlimit
    sys.setrecursionlimit = lambda limit: set_limit(min(limit, DEEPEST))
    function: Any = None
    try:
        function = getattr(run_parts(job["parts"], "solution"), job["entry_point"])
        reply: dict[str, Any] = {"ready": True}
    except BaseException as error:  # noqa: BLE001 - whatever ends the program is its result
        reply = {"raised": in_words(error)}
    write_all(replies, to_line(reply))
    for message in messages:
        question = json.loads(message)
        arguments, named = decode_all(question["arguments"]), decode(question["named"])
        try:
            reply = {"value": encode(function(*arguments, **named))}
        except BaseException as error:  # noqa: BLE001 - the same
            reply = {"raised": in_words(error)}
        write_all(replies, to_line(reply))


class Proxy:
    """The function under test as the tests see it: a call goes to the candidate's process and comes back as data."""

    def __init__(self, calls: int, replies: int) -> None:
        self._calls, self._replies = calls, lines(replies)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The result. Raises what the function raised, by name, or LostCandidateError."""
        plain = {"arguments": [encode(each, strict=True) for each in arguments], "named": encode(named, strict=True)}
        reply = self.exchange(plain)
        try:
            if "raised" not in reply:
                return decode(reply["value"])
            name, message = map(str, reply["raised"])
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise LostCandidateError(f"a reply that is no value: {type(error).__name__}") from error
        raise same_error(name, message)

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """One message to the candidate and its reply. Raises LostCandidateError if there is none."""
        try:
            write_all(self._calls, to_line(message))
            line = next(self._replies)
        except (BrokenPipeError, StopIteration):
            raise LostCandidateError("the program ended before its tests were done") from None
        try:
            reply = json.loads(line)
        except (RecursionError, ValueError) as error:
            raise LostCandidateError(f"a reply that is no message: {type(error).__name__}") from error
        if type(reply) is not dict or len(reply) != 1 or not reply.keys() & {"ready", "raised", "value"}:
            raise LostCandidateError("a reply that is no message")
        return reply


def same_error(name: str, message: str) -> Exception:
    """An error of the builtin type of that name, or of a new type if there is none: tests may expect a ValueError."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(name, (Exception,), {})
    with contextlib.suppress(TypeError):
        made: Exception = kind(message)
        return made
    return RuntimeError(f"{name}: {message}")


def be_examiner(job: int, verdict: int, calls: int, replies: int) -> None:
    """Reads an examination, holds it, and writes the verdict."""
    text = b""
    while chunk := os.read(job, CHUNK_BYTES):
        text += chunk
    write_all(verdict, to_line(examine(json.loads(text), Proxy(calls, replies))))


def examine(job: dict[str, Any], proxy: Proxy) -> dict[str, Any]:
    """The verdict as plain values: `code` that was run, `passed`, `reason`, `broken` for a fault of the tests."""
    parts = program_parts(job["prompt"], job["entry_point"], job["reply"])
    if parts is None:
        return {"code": None, "passed": False, "reason": "no code in the reply"}
    verdict = {"code": parts[-1], "passed": False, "broken": False}
    random.seed(SEED)
    try:
        started = proxy.exchange({"parts": parts, "entry_point": job["entry_point"]})
        if "ready" not in started:
            return verdict | {"reason": "failed " + ": ".join(map(str, started["raised"])).removesuffix(": ")}
        module = run_parts([job["prompt"] + "\n    pass\n"], "tests")
        setattr(module, job["entry_point"], proxy)
        for part in (job["tests"], f"check({job['entry_point']})"):
            exec(compile(part, "<tests>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the benchmark's own
    except (LostCandidateError, UnsendableError) as error:
        return verdict | {"reason": str(error), "broken": isinstance(error, UnsendableError)}
    except Exception as error:  # noqa: BLE001 - a test fails by whatever it raises
        return verdict | {"reason": "failed " + ": ".join(in_words(error)).removesuffix(": ")}
    return verdict | {"passed": True, "reason": "passed"}
