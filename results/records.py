"""The records of a study: what an engine measured (Completion, Generation) and what a grader derived (Grade, Record).

Plain frozen values; JSON in and out through `to_json` and the `from_json` class methods. A change of fields raises
SCHEMA. Seconds are monotonic seconds since the arrival of the request, unless a name says otherwise.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from results.fields import check_columns, check_fields, refusal

SCHEMA = 1

Verdict = Literal["correct", "incorrect", "no_answer", "grader_timeout", "grader_error"]
FinishReason = Literal["stop", "length", "budget", "error"]
Policy = Literal["strict", "last"]
Clock = Literal["request", "service", "decode"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
POLICIES: tuple[Policy, ...] = get_args(Policy)
CLOCKS: tuple[Clock, ...] = get_args(Clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One step of decoding: the prefill, or one draft-verify-accept.

    seconds:        when its tokens were there, since the request's arrival
    kept:           tokens it added to the answer (bonus token included; none after EOS or a stop string)
    chars:          length of the answer's text after it, in characters
    drafted:        draft tokens that were verified (nodes of the tree)
    accepted:       draft tokens among the kept ones
    draft_seconds, verify_seconds: parts of its time; the rest is bookkeeping
    """

    seconds: float
    kept: int
    chars: int
    drafted: int = 0
    accepted: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0


ROUND_FIELDS = tuple(field.name for field in fields(Round))


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine returns for one request; the first round is the prefill, with the first token."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    finish_reason: FinishReason
    rounds: tuple[Round, ...]
    queue_seconds: float = 0.0
    cached_tokens: int = 0
    error: str | None = None

    @property
    def seconds(self) -> float:
        """Seconds from arrival to the last token."""
        return self.rounds[-1].seconds if self.rounds else 0.0

    def clock_offset(self, clock: Clock) -> float:
        """Seconds after the arrival at which `clock` starts."""
        if clock == "request" or not self.rounds:
            return 0.0
        return self.queue_seconds if clock == "service" else self.rounds[0].seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A completion with its place in a study: the key is (arm_id, problem_id, sample).

    An arm at two temperatures is two arm_ids under one name.

    prompt_id:       digest of the chat that was continued
    option_order:    multiple choice: the order in which the options were shown (see tasks/gpqa.py); left out elsewhere
    budget_seconds:  deadline under which it ran, on the clock `service`; None means without one
    """

    arm: str
    arm_id: str
    temperature: float
    problem_id: str
    sample: int
    completion: Completion
    prompt_id: str = ""
    budget_seconds: float | None = None
    schema: int = SCHEMA
    option_order: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes two generations the same one."""
        return self.arm_id, self.problem_id, self.sample

    def to_json(self) -> dict[str, Any]:
        """Plain values; rounds as one list per field, which is five times shorter than one object per round."""
        columns = {name: [getattr(each, name) for each in self.completion.rounds] for name in ROUND_FIELDS}
        for name in ("seconds", "draft_seconds", "verify_seconds"):
            columns[name] = [round(value, 7) for value in columns[name]]
        completion = {field.name: getattr(self.completion, field.name) for field in fields(Completion)}
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.option_order is None:
            del row["option_order"]
        return row | {"completion": completion | {"rounds": columns, "token_ids": list(self.completion.token_ids)}}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises ValueError for another schema, or a field that is not as it should be."""
        if row.get("schema") != SCHEMA:
            raise ValueError(f"generation of schema {row.get('schema')!r}; this version reads schema {SCHEMA}")
        check_fields(cls, row, apart=("completion",))
        completion = row["completion"]
        if not isinstance(completion, dict):
            raise refusal("completion", completion, "an object")
        check_fields(Completion, completion, apart=("rounds",))
        lines = check_columns(Round, completion["rounds"])
        plain = {
            "rounds": tuple(Round(**dict(zip(ROUND_FIELDS, line, strict=True))) for line in lines),
            "token_ids": tuple(completion["token_ids"]),
        }
        return cls(**{**row, "completion": Completion(**{**completion, **plain})})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grader's verdict, what it took for the answer, and one line on why."""

    verdict: Verdict
    answer: str | None
    reason: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is not allowed; allowed: {', '.join(VERDICTS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The grade of one generation at one budget under one cut-off policy.

    tokens:  tokens kept by the budget
    cut:     whether the budget ended the text before the model did
    """

    arm: str
    arm_id: str
    temperature: float
    problem_id: str
    sample: int
    budget_seconds: float
    clock: Clock
    policy: Policy
    verdict: Verdict
    answer: str | None
    reason: str
    tokens: int
    cut: bool
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises ValueError for another schema, or a field that is not as it should be."""
        if row.get("schema") != SCHEMA:
            raise ValueError(f"record of schema {row.get('schema')!r}; this version reads schema {SCHEMA}")
        check_fields(cls, row)
        return cls(**row)
