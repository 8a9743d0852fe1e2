"""Losslessness, token for token: do arms write what the baseline writes, and where they part, was it a tie?

Pure functions of generations. A divergence is a tie if the target's scores of the two tokens, computed once more in
float32, lie within the epsilon of the number format: in low precision such ties may fall either way. Any other is a
violation. At temperatures above 0 the scores are those that the request's seed has perturbed: see Engine.token_gap.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.contract import NumberFormat
from results.records import Generation

# Logits of these models reach about 20, where two neighbours in bfloat16 are 0.125 apart: two such steps. In float32
# the order of additions differs between one row and many.
EPSILON: Mapping[NumberFormat, float] = {"float32": 1e-3, "bfloat16": 0.25}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first place where an arm's tokens differ from the baseline's; a token is None where an answer had ended."""

    problem_id: str
    sample: int
    position: int
    baseline_token: int | None
    arm_token: int | None
    prefix: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An arm against the baseline: answers compared, answers with equal tokens, and every first divergence.

    failed: answers that cannot be compared, since the arm's request failed or the baseline's did
    """

    arm_id: str
    compared: int
    identical: int
    failed: int
    divergences: tuple[Divergence, ...]


class Violation(NamedTuple):
    """A divergence that is no tie, and how far apart the scores of its two tokens are."""

    divergence: Divergence
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Divergences of one or several arms by their cause, and the widest gap among the ties (logits)."""

    ties: int
    widest_tie: float
    violations: tuple[Violation, ...]


def identity(generations: Iterable[Generation], baseline_id: str) -> list[Identity]:
    """Compare every other arm_id with the baseline's, answer by answer.

    A text that a budget cut is compared as far as it goes. Failed requests are counted, not compared.
    """
    answers: dict[str, dict[tuple[str, int], Generation]] = defaultdict(dict)
    for generation in generations:
        answers[generation.arm_id][generation.problem_id, generation.sample] = generation
    baseline = answers.pop(baseline_id, {})
    return [compare(arm_id, own, baseline) for arm_id, own in answers.items()]


def compare(
    arm_id: str, own: Mapping[tuple[str, int], Generation], baseline: Mapping[tuple[str, int], Generation]
) -> Identity:
    """One arm against the baseline, on the answers that both have."""
    shared = [key for key in own if key in baseline]
    whole = [key for key in shared if not (failed(own[key]) or failed(baseline[key]))]
    found = [first_divergence(baseline[key], own[key]) for key in whole]
    divergences = tuple(divergence for divergence in found if divergence)
    return Identity(
        arm_id=arm_id,
        compared=len(whole),
        identical=len(whole) - len(divergences),
        failed=len(shared) - len(whole),
        divergences=divergences,
    )


def failed(generation: Generation) -> bool:
    """Whether the request failed, so that there is no answer."""
    return generation.completion.finish_reason == "error"


def first_divergence(baseline: Generation, other: Generation) -> Divergence | None:
    """Where two answers to one request part, or None."""
    left, right = baseline.completion.token_ids, other.completion.token_ids
    shared = min(len(left), len(right))
    position = next((i for i in range(shared) if left[i] != right[i]), shared)
    if position == shared:
        shorter = baseline if len(left) < len(right) else other
        if len(left) == len(right) or shorter.completion.finish_reason == "budget":
            return None
    return Divergence(
        problem_id=other.problem_id,
        sample=other.sample,
        position=position,
        baseline_token=token_at(left, position),
        arm_token=token_at(right, position),
        prefix=left[:position],
    )


def token_at(tokens: Sequence[int], position: int) -> int | None:
    """The token there, or None after the end."""
    return tokens[position] if position < len(tokens) else None


def explain(
    divergences: Iterable[Divergence], gap: Callable[[Divergence, int, int], float], epsilon: float
) -> Explained:
    """Part divergences into ties, whose two tokens have target scores at most `epsilon` apart, and violations.

    Args:
        divergences: first divergences
        gap: distance of two tokens' target scores after a divergence's prefix
        epsilon: widest gap of a tie
    """
    ties: list[float] = []
    violations: list[Violation] = []
    for divergence in divergences:
        first, second = divergence.baseline_token, divergence.arm_token
        width = float("inf") if first is None or second is None else gap(divergence, first, second)
        if width <= epsilon:
            ties.append(width)
        else:
            violations.append(Violation(divergence, width))
    return Explained(ties=len(ties), widest_tie=max(ties, default=0.0), violations=tuple(violations))
