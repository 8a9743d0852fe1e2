"""A forecast of an arm: tau and speed-up from texts that the verifier wrote alone, held against the engine.

The verifier continues held-out problems alone; rounds are played on these texts with the drafter (engines/forecast.py),
and a table of step times turns tau into a speed-up. With `measure` the engine then decodes the same problems with the
arm, and both are reported side by side. Grades nothing and keeps nothing. Clock `decode`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from engines.contract import NUMBER_FORMATS, BareForwards, NumberFormat, Request
from engines.forecast import RecordedText, refuse_unplayable
from engines.forecasting import forecast_rounds
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.speculation import Speculation
from results.acceptance import Acceptance, acceptance
from results.costs import speed_limit, speed_up
from results.records import Completion
from tasks.contract import Problem

OTHER_SEEDS = 1_000_000
"""Added to the requests' seeds where the forecast's texts are drawn apart from those that are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is forecast: an arm of a verifier on problems at some temperatures.

    measure: decode the problems with the arm, too
    fresh:   the forecast's texts are drawn under other seeds than the measured ones
    """

    verifier: str
    speculation: Speculation
    problems: Sequence[Problem]
    temperatures: Sequence[float]
    max_tokens: int
    number_format: NumberFormat
    threads: int
    measure: bool
    fresh: bool

    def __post_init__(self) -> None:
        refuse_unplayable(self.speculation)
        if self.number_format not in NUMBER_FORMATS:
            raise ValueError(
                f"number_format = {self.number_format!r} is not allowed; allowed: {', '.join(NUMBER_FORMATS)}"
            )
        if not isinstance(self.speculation.window, int):
            raise ValueError(f"window = {self.speculation.window!r} is not allowed; allowed: a whole number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the engine made of the same problems: tau, and tokens per second over those of plain decoding."""

    acceptance: Acceptance
    speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One temperature. Seconds: of a bare plain step, of the arm's bare forwards, and of what a loop adds to a step."""

    temperature: float
    acceptance: Acceptance
    step_seconds: float
    forwards: BareForwards
    other_seconds: float
    measured: Measured | None

    @property
    def speedup(self) -> float:
        """Tokens per second over plain decoding, if a round's loop costs what a plain step's does."""
        forwards = self.forwards.draft_seconds + self.forwards.verify_seconds
        return speed_up(
            self.acceptance.tau,
            step_seconds=self.step_seconds + self.other_seconds,
            round_seconds=forwards + self.other_seconds,
        )

    @property
    def limit(self) -> float:
        """The same without any loop."""
        return speed_limit(
            self.acceptance.tau,
            step_seconds=self.step_seconds,
            draft_seconds=self.forwards.draft_seconds,
            verify_seconds=self.forwards.verify_seconds,
        )

    @property
    def tau_error(self) -> float | None:
        """Forecast over measured tau, minus one; None where nothing was measured, or nothing accepted."""
        if self.measured is None or not self.measured.acceptance.accepted:
            return None
        return self.acceptance.tau / self.measured.acceptance.tau - 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        measured = self.measured and {
            "tau": self.measured.acceptance.tau,
            "tau_with_bonus": self.measured.acceptance.tau_with_bonus,
            "rounds": self.measured.acceptance.rounds,
            "speedup": self.measured.speedup,
            "tau_error": self.tau_error,
        }
        return {
            "temperature": self.temperature,
            "tau": self.acceptance.tau,
            "tau_with_bonus": self.acceptance.tau_with_bonus,
            "rounds": self.acceptance.rounds,
            "speedup": self.speedup,
            "limit": self.limit,
            "ms": {
                "step": 1000 * self.step_seconds,
                "draft": 1000 * self.forwards.draft_seconds,
                "verify": 1000 * self.forwards.verify_seconds,
                "other": 1000 * self.other_seconds,
            },
            "measured": measured,
        }


def forecasts(asked: Asked) -> Iterator[Forecast]:
    """One forecast a temperature.

    Raises ValueError or OSError for whatever is wrong with a model or the arm.
    """
    settings: dict[str, Any] = {"number_format": asked.number_format, "threads": asked.threads}
    plain = ReferenceEngine(asked.verifier, **settings)
    arm = ReferenceEngine(asked.verifier, speculation=asked.speculation, **settings)
    plain.warm_up(requests(asked, max(asked.temperatures), 0)[:2])
    for temperature in asked.temperatures:
        answers = answered(plain, requests(asked, temperature, 0))
        texts = answered(plain, requests(asked, temperature, OTHER_SEEDS)) if asked.fresh else answers
        recorded = [recording(asked, plain, answer, temperature) for answer in texts]
        rounds = forecast_rounds(
            plain.folder, plain.chat, asked.speculation, recorded, number_format=asked.number_format
        )
        found = acceptance(rounds, int(asked.speculation.window))
        if not found.rounds:
            raise ValueError(f"the verifier's texts of {len(texts)} problems have one token each: no round to forecast")
        yield Forecast(
            temperature=temperature,
            acceptance=found,
            **step_times(plain, arm, answers, rounds),
            measured=measure(asked, arm, answers, temperature) if asked.measure else None,
        )


def requests(asked: Asked, temperature: float, offset: int) -> list[Request]:
    """One request a problem, seeded by its place."""
    return [
        Request(
            request_id=str(at),
            messages=problem.messages,
            sampling=Sampling(temperature=temperature, max_tokens=asked.max_tokens, seed=offset + at),
        )
        for at, problem in enumerate(asked.problems)
    ]


def answered(engine: ReferenceEngine, asked: Sequence[Request]) -> list[Completion]:
    """The engine's answers. Raises ValueError for a request that fails: a forecast leaves no problem out."""
    answers = list(engine.stream(asked))
    for answer in answers:
        if answer.finish_reason == "error":
            raise ValueError(f"problem {answer.request_id}: {answer.error}")
    return answers


def recording(asked: Asked, engine: ReferenceEngine, answer: Completion, temperature: float) -> RecordedText:
    """A finished answer as a recorded text."""
    at = int(answer.request_id)
    seed = at + (OTHER_SEEDS if asked.fresh else 0)
    return RecordedText(
        prompt_ids=engine.chat.prompt_ids(asked.problems[at].messages),
        response_ids=list(answer.token_ids),
        sampling=Sampling(temperature=temperature, max_tokens=asked.max_tokens, seed=seed),
    )


def step_times(
    plain: ReferenceEngine, arm: ReferenceEngine, answers: Sequence[Completion], rounds: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    """Bare forwards after the texts' mean context with the mean number of nodes, and what the plain loop adds."""
    context = round(fmean(answer.prompt_tokens + len(answer.token_ids) / 2 for answer in answers))
    nodes = round(fmean(each.drafted for own in rounds for each in own[1:]))
    step = plain.bare_forwards(context, 0).verify_seconds
    whole = seconds_a_token(answers)
    return {
        "step_seconds": step,
        "forwards": arm.bare_forwards(context, nodes),
        "other_seconds": max(0.0, whole - step),
    }


def seconds_a_token(answers: Sequence[Completion]) -> float:
    """Seconds of a token after the first, over all answers."""
    seconds = sum(answer.seconds - answer.rounds[0].seconds for answer in answers)
    return seconds / sum(len(answer.token_ids) - 1 for answer in answers)


def measure(asked: Asked, arm: ReferenceEngine, plain: Sequence[Completion], temperature: float) -> Measured:
    """Decode the same problems with the arm."""
    asked_now = requests(asked, temperature, 0)
    arm.warm_up(asked_now[:2])
    answers = answered(arm, asked_now)
    found = acceptance([answer.rounds for answer in answers], int(asked.speculation.window))
    return Measured(acceptance=found, speedup=seconds_a_token(plain) / seconds_a_token(answers))
