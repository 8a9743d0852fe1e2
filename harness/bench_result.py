"""What the bench found for an arm at one temperature: speeds, acceptance, and the limit that bare forwards set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.contract import BareForwards
from harness.study import Cell
from results.acceptance import Acceptance
from results.costs import break_even_tau, needed_tau, speed_limit

SPEEDUPS = (2, 3, 4)
"""For which the bench says how much tau they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """An arm's forwards timed apart after `context` tokens with `nodes` drafted ones, and the baseline's plain step."""

    context: int
    nodes: int
    step_seconds: float
    forwards: BareForwards


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """What the bench found for an arm at one temperature.

    speeds:     its row of analysis.headline
    bare:       None where it made no round, where the baseline itself speculates, or the engine times no forwards
    Numbers that cannot be computed are NaN here and null in JSON.
    """

    cell: Cell
    speeds: Mapping[str, Any]
    acceptance: Acceptance
    bare: Bare | None

    @property
    def half(self) -> int:
        """The last place of the window's first half."""
        return len(self.acceptance.positions) // 2

    @property
    def late_tests(self) -> int:
        """Places of the window's second half that were reached, over all rounds."""
        return sum(position.tested for position in self.acceptance.positions[self.half :])

    @property
    def round_seconds(self) -> float:
        """Mean seconds of a round."""
        return sum(float(self.speeds[f"{part}_ms"]) for part in ("draft", "verify", "other")) / 1000

    @property
    def step_seconds(self) -> float:
        """Mean seconds of the baseline's tokens on the same problems; the headline's break-even counts the bonus."""
        return self.round_seconds / float(self.speeds["break_even"])

    @property
    def break_even_tau(self) -> float:
        """From which on the arm pays, at the measured seconds."""
        return break_even_tau(step_seconds=self.step_seconds, round_seconds=self.round_seconds)

    def needed_tau(self, speedup: float) -> float:
        """What a speed-up takes, at the measured seconds."""
        return needed_tau(speedup, step_seconds=self.step_seconds, round_seconds=self.round_seconds)

    @property
    def limit(self) -> float:
        """The speed-up at this tau if rounds and steps were bare forwards."""
        if self.bare is None:
            return math.nan
        return speed_limit(
            float(self.speeds["tau"]),
            step_seconds=self.bare.step_seconds,
            draft_seconds=self.bare.forwards.draft_seconds,
            verify_seconds=self.bare.forwards.verify_seconds,
        )

    @property
    def limit_share(self) -> float:
        """Share of the limit that was reached."""
        return float(self.speeds["speedup"]) / self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        bare = self.bare and {
            "context": self.bare.context,
            "nodes": self.bare.nodes,
            "step_ms": 1000 * self.bare.step_seconds,
            "draft_ms": 1000 * self.bare.forwards.draft_seconds,
            "verify_ms": 1000 * self.bare.forwards.verify_seconds,
        }
        return {
            "temperature": self.cell.temperature,
            "tokens_per_second": known(self.speeds["tokens_per_second"]),
            "speedup": self._interval("speedup"),
            "median_speedup": self._interval("median_speedup"),
            "tau": known(self.speeds["tau"]),
            "tau_with_bonus": known(self.speeds["tau_with_bonus"]),
            **{name: self._interval(name) for name in ("tau_ratio", "late_ratio") if name in self.speeds},
            "break_even_tau": known(self.break_even_tau),
            "needed_tau": {str(speedup): known(self.needed_tau(speedup)) for speedup in SPEEDUPS},
            "ms": {part: known(self.speeds[f"{part}_ms"]) for part in ("draft", "verify", "other")},
            "limit": known(self.limit),
            "limit_share": known(self.limit_share),
            "bare": bare,
            "alpha": [known(alpha) for alpha in self.acceptance.alpha],
            "survival": [known(survival) for survival in self.acceptance.survival],
            "tested": [position.tested for position in self.acceptance.positions],
            "n_problems": self.speeds["problems_timed"],
            "rounds": self.acceptance.rounds,
            "errors": self.speeds["errors"],
        }

    def _interval(self, name: str) -> dict[str, float | None]:
        ends = {"value": name, "low": f"{name}_low", "high": f"{name}_high"}
        return {end: known(self.speeds[column]) for end, column in ends.items()}


def known(value: float) -> float | None:
    """The number as JSON can say it: null for none, and for an end of an interval without bound."""
    return value if math.isfinite(value) else None
