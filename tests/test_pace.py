"""How many nodes are verified: by step times and by what was accepted, never by the clock of this machine."""

import math
import random

import pytest

from engines.pace import Pace, interpolated
from engines.speculation import MOST_AUTO_NODES

STEEP = {0: 1.0, 1: 1.1, MOST_AUTO_NODES: 20.0}
FLAT = {0: 1.0, 1: 1.0, MOST_AUTO_NODES: 1.05}


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def settled(table: dict[int, float], path_logs: list[float]) -> tuple[Pace, int]:
    """A pace after many rounds with the same draft, none of them learnt from, and what it chooses then."""
    pace = Pace(0.3, table)
    for _ in range(300):
        chosen = pace.choose(path_logs, 0.0)
    return pace, chosen


def test_cheap_verification_takes_more_nodes_than_dear_verification() -> None:
    path_logs = logs(0.9, 0.8, 0.6, 0.5, 0.3, 0.2, 0.1, 0.05)

    cheap, dear = (settled(table, path_logs)[1] for table in (FLAT, STEEP))

    assert (cheap, dear) == (8, 4)


def test_nodes_that_are_never_accepted_are_verified_no_more() -> None:
    pace, path_logs = Pace(0.3, STEEP), logs(0.9, 0.9, 0.9, 0.9, 0.9, 0.9)
    before = pace.choose(path_logs, 0.0)

    for _ in range(100):
        pace.learn(path_logs, [], 0.0)

    assert (before, pace.choose(path_logs, 0.0)) == (6, 1)


def test_what_is_learnt_at_one_temperature_stays_there() -> None:
    pace, path_logs = Pace(0.3, STEEP), logs(0.9, 0.9, 0.9)
    for _ in range(100):
        pace.learn(path_logs, [], 1.0)

    assert pace.choose(path_logs, 0.0) == 3


def test_the_floor_lets_every_node_through_that_could_pay() -> None:
    path_logs = logs(*(0.95**depth for depth in range(1, 60)))
    pace, chosen = settled(STEEP, path_logs)

    assert path_logs[chosen - 1] >= pace.floor(0.0)


def test_an_easy_round_is_verified_further_than_a_hard_one_pays_for() -> None:
    """After hard rounds the rate is low, and each further node of an easy round is worth its time."""
    hard, easy = logs(0.3, 0.1, 0.05), logs(*(0.9**depth for depth in range(1, 40)))
    pace, _ = settled(STEEP, hard)

    assert pace.choose(easy, 0.0) > settled(STEEP, easy)[1]


@pytest.mark.parametrize("table", [FLAT, STEEP], ids=["flat", "steep"])
def test_the_choice_is_no_slower_than_the_best_fixed_number(table: dict[int, float]) -> None:
    """Simulated rounds (seed 0): the drafter is too sure of itself, true chances are the square of its own."""
    rng = random.Random(0)
    pace, seconds = Pace(0.3, table), interpolated(table)

    def play(fixed: int | None) -> float:
        kept = spent = 0.0
        for _ in range(3000):
            sureness = rng.choice([0.97, 0.8, 0.5])
            path_logs = logs(*(sureness**depth for depth in range(1, 33)))
            nodes = pace.choose(path_logs, 0.0) if fixed is None else fixed
            accepted = 0
            while accepted < nodes and rng.random() < sureness**2:
                accepted += 1
            if fixed is None:
                pace.learn(path_logs[:nodes], list(range(accepted)), 0.0)
            kept += 1 + accepted
            spent += 0.3 + seconds[nodes]
        return kept / spent

    adaptive = play(None)

    # Where nodes cost next to nothing, all of them are best, and one percent is noise.
    assert adaptive >= 0.99 * max(play(nodes) for nodes in (1, 2, 4, 8, 16, 32))


def test_step_times_between_the_measured_ones_lie_between_and_never_fall() -> None:
    assert interpolated({0: 1.0, 2: 3.0, 4: 2.5}) == pytest.approx([1.0, 2.0, 3.0, 3.0, 3.0])
