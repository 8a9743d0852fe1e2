"""A forecast of an arm: tau and speed-up from texts that the verifier wrote alone, held against the engine.

The verifier continues held-out problems alone; rounds are played on these texts with the drafter (engines/forecast.py).
What a step and a round take, all that is in them, is timed on the first problems after a warm-up, both engines in
turns; this turns the tokens kept per round into a speed-up. With `measure` the engine then decodes all problems with
the arm, and both are reported side by side. Grades nothing and keeps nothing. Clock `decode`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from engines.contract import NUMBER_FORMATS, BareForwards, NumberFormat, Request
from engines.forecast import RecordedText, refuse_unplayable
from engines.forecasting import flops_ratio, forecast_rounds
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.speculation import Speculation
from harness.bench import Timed, mean_bare, time_bare
from results.acceptance import Acceptance, acceptance
from results.costs import speed_limit, speed_up
from results.records import Completion
from tasks.contract import Problem

OTHER_SEEDS = 1_000_000
"""Added to the requests' seeds where the forecast's texts are drawn apart from those that are measured."""
TIMED_ROUNDS = 400
"""Of the arm, after which enough is timed."""


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
class StepTimes:
    """Mean seconds of a plain step and of a round as the engine makes them, and of their bare forwards apart."""

    step_seconds: float
    round_seconds: float
    bare_step_seconds: float
    forwards: BareForwards

    def to_json(self) -> dict[str, float]:
        """Milliseconds."""
        return {
            "step": 1000 * self.step_seconds,
            "round": 1000 * self.round_seconds,
            "bare_step": 1000 * self.bare_step_seconds,
            "draft": 1000 * self.forwards.draft_seconds,
            "verify": 1000 * self.forwards.verify_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One temperature. flops_ratio: FLOPs of a kept token over those of a plainly decoded one."""

    temperature: float
    acceptance: Acceptance
    times: StepTimes
    flops_ratio: float
    measured: Measured | None

    @property
    def speedup(self) -> float:
        """Tokens per second over plain decoding: those that a round keeps, by the seconds of step and round."""
        return speed_up(
            self.acceptance.tau_with_bonus - 1,
            step_seconds=self.times.step_seconds,
            round_seconds=self.times.round_seconds,
        )

    @property
    def limit(self) -> float:
        """The speed-up if step and round were their forwards and nothing else."""
        return speed_limit(
            self.acceptance.tau,
            step_seconds=self.times.bare_step_seconds,
            draft_seconds=self.times.forwards.draft_seconds,
            verify_seconds=self.times.forwards.verify_seconds,
        )

    @property
    def tau_error(self) -> float | None:
        """Forecast over measured tau, minus one; None where nothing was measured, or nothing accepted."""
        if self.measured is None or not self.measured.acceptance.accepted:
            return None
        return self.acceptance.tau / self.measured.acceptance.tau - 1

    @property
    def speedup_error(self) -> float | None:
        """The same of the speed-up; None where nothing was measured."""
        return self.speedup / self.measured.speedup - 1 if self.measured else None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        measured = self.measured and {
            "tau": self.measured.acceptance.tau,
            "tau_with_bonus": self.measured.acceptance.tau_with_bonus,
            "rounds": self.measured.acceptance.rounds,
            "speedup": self.measured.speedup,
            "tau_error": self.tau_error,
            "speedup_error": self.speedup_error,
        }
        return {
            "temperature": self.temperature,
            "tau": self.acceptance.tau,
            "tau_with_bonus": self.acceptance.tau_with_bonus,
            "rounds": self.acceptance.rounds,
            "speedup": self.speedup,
            "limit": self.limit,
            "flops_ratio": self.flops_ratio,
            "ms": self.times.to_json(),
            "measured": measured,
        }


def forecasts(asked: Asked) -> Iterator[Forecast]:
    """One forecast a temperature.

    Raises ValueError or OSError for whatever is wrong with a model or the arm.
    """
    settings: dict[str, Any] = {"number_format": asked.number_format, "threads": asked.threads}
    plain = ReferenceEngine(asked.verifier, **settings)
    arm = ReferenceEngine(asked.verifier, speculation=asked.speculation, **settings)
    for engine in (plain, arm):
        engine.warm_up(requests(asked, max(asked.temperatures), 0)[:2])
    for temperature in asked.temperatures:
        times = step_times(asked, plain, arm, temperature)
        held_out = requests(asked, temperature, 0)
        pairs = list(in_turns(plain, arm, held_out)) if asked.measure else []
        answers = [answer for answer, _ in pairs] or answered(plain, held_out)
        texts = answered(plain, requests(asked, temperature, OTHER_SEEDS)) if asked.fresh else answers
        refuse_short(texts)
        recorded = [recording(asked, plain, answer, temperature) for answer in texts]
        rounds = forecast_rounds(
            plain.folder, plain.chat, asked.speculation, recorded, number_format=asked.number_format
        )
        yield Forecast(
            temperature=temperature,
            acceptance=acceptance(rounds, int(asked.speculation.window)),
            times=times,
            flops_ratio=flops_ratio(plain.folder, asked.speculation, rounds, context=mean_context(texts)),
            measured=measured(asked, answers, [drafted for _, drafted in pairs]) if asked.measure else None,
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


def in_turns(
    plain: ReferenceEngine, arm: ReferenceEngine, asked: Sequence[Request]
) -> Iterator[tuple[Completion, Completion]]:
    """Both engines' answers to each request, one after the other, since a machine's speed drifts within seconds."""
    for at, request in enumerate(asked):
        # A B B A, so that a drift favours neither.
        if at % 2 == 0:
            (answer,), (drafted,) = answered(plain, [request]), answered(arm, [request])
        else:
            (drafted,), (answer,) = answered(arm, [request]), answered(plain, [request])
        yield answer, drafted


def refuse_short(answers: Sequence[Completion]) -> None:
    """Raise ValueError where no text has a token after its first one."""
    if all(len(answer.rounds) < 2 for answer in answers):
        raise ValueError(f"the verifier's texts of {len(answers)} problems have one token each: no round to forecast")


def step_times(asked: Asked, plain: ReferenceEngine, arm: ReferenceEngine, temperature: float) -> StepTimes:
    """Seconds of steps and rounds on the first problems, under seeds of their own, and of bare forwards beside them."""
    answers: list[Completion] = []
    drafted: list[Completion] = []
    steps: list[Timed] = []
    forwards: list[Timed] = []
    for answer, with_drafts in in_turns(plain, arm, requests(asked, temperature, 2 * OTHER_SEEDS)):
        answers.append(answer)
        drafted.append(with_drafts)
        steps += bare(plain, answer)
        forwards += bare(arm, with_drafts)
        if len(round_seconds(drafted)) >= TIMED_ROUNDS:
            break
    for own in (answers, drafted):
        refuse_short(own)
    bare_times = mean_bare(forwards, steps)
    return StepTimes(
        # Means, as a speed-up is measured: what slows a machine for a while slows both, since they take turns.
        step_seconds=fmean(round_seconds(answers)),
        round_seconds=fmean(round_seconds(drafted)),
        bare_step_seconds=bare_times.step_seconds,
        forwards=bare_times.forwards,
    )


def bare(engine: ReferenceEngine, answer: Completion) -> list[Timed]:
    """The forwards of an answer's mean round, timed apart; none where it has no round."""
    timed = time_bare(engine, answer) if len(answer.rounds) > 1 else None
    return [timed] if timed else []


def round_seconds(answers: Sequence[Completion]) -> list[float]:
    """Seconds of every round after the prefill."""
    return [after.seconds - before.seconds for answer in answers for before, after in pairwise(answer.rounds)]


def mean_context(answers: Sequence[Completion]) -> int:
    """Mean number of tokens before a step of these texts."""
    return round(fmean(answer.prompt_tokens + len(answer.token_ids) / 2 for answer in answers))


def seconds_a_token(answers: Sequence[Completion]) -> float:
    """Seconds of a token after the first, over all answers."""
    return sum(round_seconds(answers)) / sum(len(answer.token_ids) - 1 for answer in answers)


def measured(asked: Asked, plain: Sequence[Completion], drafted: Sequence[Completion]) -> Measured:
    """What the engine made of the problems with the arm."""
    found = acceptance([answer.rounds for answer in drafted], int(asked.speculation.window))
    return Measured(acceptance=found, speedup=seconds_a_token(plain) / seconds_a_token(drafted))
