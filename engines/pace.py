"""`auto`: how many drafted nodes are worth verifying, by measured step times and the acceptance seen so far.

Knows numbers only. A round that verifies n nodes takes t_draft + t_verify(n) and keeps 1 + s_1 + ... + s_n tokens in
expectation, where s_i is the chance that node i is accepted; nodes come in the order of the drafter's own probability.
Tokens per second over many rounds, hard ones and easy ones, are most where each round takes the n with the largest
kept(n) - rate * seconds(n), rate being the tokens per second of the rounds so far (Dinkelbach, 1967). The drafter's
probability of a node's path is no promise: s_i is what was accepted among all nodes verified so far whose probability
was about the same.
"""

import math
from bisect import bisect
from collections.abc import Mapping

from engines.speculation import MOST_AUTO_NODES

WIDTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, MOST_AUTO_NODES)
"""Node counts whose verification is timed; those between are interpolated."""
# Borders of the bins by probability; finer where most nodes lie.
BORDERS = tuple(math.log(p) for p in (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97))
PRIOR = 10.0
"""Verified nodes that the drafter's own probability counts for."""
SLACK = 0.5
"""Share of the smallest probability that pays at which growing a draft ends: the estimate of it may rise."""
KEEP = 0.98
"""Weight of the past in the running sums of tokens and seconds."""


class Calibration:
    """Nodes verified and accepted, by bins of the drafter's probability of their path."""

    def __init__(self) -> None:
        self.verified = [0.0] * (len(BORDERS) + 1)
        self.accepted = [0.0] * (len(BORDERS) + 1)
        self.kept = self.seconds = 0.0

    def rate(self, slowest: float) -> float:
        """Tokens per second of the rounds so far; `slowest` before the first one."""
        return self.kept / self.seconds if self.seconds else slowest

    def note(self, kept: float, seconds: float) -> None:
        """Add a round's expected tokens and seconds to the running sums."""
        self.kept, self.seconds = KEEP * self.kept + kept, KEEP * self.seconds + seconds

    def chance(self, path_log: float) -> float:
        """Estimated probability that a node is accepted."""
        at = bisect(BORDERS, path_log)
        return (self.accepted[at] + PRIOR * math.exp(path_log)) / (self.verified[at] + PRIOR)

    def learn(self, path_logs: list[float], accepted: list[int]) -> None:
        """Take note of a verified draft."""
        for path_log in path_logs:
            self.verified[bisect(BORDERS, path_log)] += 1
        for node in accepted:
            self.accepted[bisect(BORDERS, path_logs[node])] += 1


class Pace:
    """Step times of one engine, and what its drafts were worth at each temperature."""

    def __init__(self, draft_seconds: float, verify_seconds: Mapping[int, float]) -> None:
        """verify_seconds: seconds of a verification by node count; at least the smallest and the largest of WIDTHS."""
        self.draft_seconds = draft_seconds
        self.verify_seconds = interpolated(verify_seconds)
        self.calibrations: dict[float, Calibration] = {}

    @property
    def slowest(self) -> float:
        """Tokens per second of rounds that keep the bonus token alone."""
        return 1.0 / (self.draft_seconds + self.verify_seconds[0])

    def describe(self) -> dict[str, object]:
        """Step times in milliseconds, those of verification by node count."""
        verify = {nodes: round(1000 * self.verify_seconds[nodes], 4) for nodes in (0, *WIDTHS)}
        return {"draft_ms": round(1000 * self.draft_seconds, 4), "verify_ms": verify}

    def calibration(self, temperature: float) -> Calibration:
        """What was learnt at a temperature."""
        return self.calibrations.setdefault(temperature, Calibration())

    def floor(self, temperature: float) -> float:
        """Log-probability below which a node cannot pay for its own verification."""
        slope = (self.verify_seconds[-1] - self.verify_seconds[0]) / (len(self.verify_seconds) - 1)
        pays = slope * self.calibration(temperature).rate(self.slowest)
        return math.log(min(1.0, max(SLACK * pays, 1e-4)))

    def choose(self, path_logs: list[float], temperature: float) -> int:
        """How many of a draft's nodes to verify, to keep the most tokens per second over many rounds.

        One at least: what is never verified is never learnt about.
        """
        if not path_logs:
            return 0
        calibration = self.calibration(temperature)
        rate = calibration.rate(self.slowest)
        kept, nodes, best = 1.0, 0, (-math.inf, 0.0)
        for count, path_log in enumerate(path_logs, start=1):
            kept += calibration.chance(path_log)
            worth = kept - rate * self.verify_seconds[count]
            if worth > best[0]:
                nodes, best = count, (worth, kept)
        calibration.note(best[1], self.draft_seconds + self.verify_seconds[nodes])
        return nodes

    def learn(self, path_logs: list[float], accepted: list[int], temperature: float) -> None:
        """Take note of what a verified draft was worth."""
        self.calibration(temperature).learn(path_logs, accepted)


def interpolated(seconds: Mapping[int, float]) -> list[float]:
    """Seconds by node count from 0 to the largest known, never falling: more nodes are no less work."""
    known = sorted(seconds)
    line: list[float] = []
    for nodes in range(known[-1] + 1):
        right = next(each for each in known if each >= nodes)
        left = max((each for each in known if each <= nodes), default=right)
        share = (nodes - left) / (right - left) if right > left else 0.0
        value = seconds[left] + share * (seconds[right] - seconds[left])
        line.append(max(value, line[-1] if line else 0.0))
    return line
