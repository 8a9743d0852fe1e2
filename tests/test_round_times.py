"""What a server counts of its rounds: forwards, and the seconds from round to round, without prefills and pauses."""

from types import SimpleNamespace
from typing import Any

import pytest

from engines.contract import RoundSums
from engines.serving.resolved import read_rounds
from engines.sglang_plugin import round_times
from engines.sglang_plugin.round_times import STATE_KEY, RoundTimes, timed_forward, with_rounds

TARGET, DRAFTER = (SimpleNamespace(is_draft_worker=is_drafter) for is_drafter in (False, True))


class Clock:
    """Stands still but for what takes its time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def forward(self, runner: Any, batch: Any) -> str:  # noqa: ARG002 (SGLang's)
        self.now += 0.5 if runner is TARGET else 0.25
        return "logits"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(round_times, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(round_times, "TIMES", RoundTimes())
    return clock


def batch(requests: int, mode: str) -> Any:
    named = {f"is_{each}": (lambda each=each: each == mode) for each in ("decode", "target_verify", "extend")}
    return SimpleNamespace(batch_size=requests, forward_mode=SimpleNamespace(**named))


def serve(clock: Clock, requests: int, mode: str, pause: float) -> None:
    """A forward of the target and one of the drafter, and what else is done until the next one."""
    timed_forward(clock.forward, TARGET, batch(requests, mode))
    timed_forward(clock.forward, DRAFTER, batch(requests, "target_verify"))
    clock.now += pause


def counted() -> dict[int, RoundSums]:
    state = with_rounds(SimpleNamespace(internal_state={"other": 1}), "a request")
    return read_rounds({"internal_states": [state.internal_state]})


def test_a_round_lasts_until_the_next_one_begins(clock: Clock) -> None:
    for pause in (0.125, 0.375, 9.0):
        serve(clock, 8, "target_verify", pause)

    assert counted() == {8: RoundSums(rounds=2, seconds=2.0, draft_seconds=0.5, verify_seconds=1.0)}


def test_a_round_before_a_prefill_counts_nowhere_and_a_prefill_is_no_round(clock: Clock) -> None:
    for mode in ("extend", "target_verify", "extend", "extend"):
        serve(clock, 8, mode, 1.0)

    assert counted() == {}


def test_rounds_are_told_apart_by_their_number_of_requests(clock: Clock) -> None:
    for requests in (3, 3, 2, 1):
        serve(clock, requests, "decode", 0.25)

    assert {requests: sums.rounds for requests, sums in counted().items()} == {2: 1, 3: 2}


def test_a_forward_gives_back_what_it_made(clock: Clock) -> None:
    assert timed_forward(clock.forward, TARGET, batch(1, "decode")) == "logits"


def test_a_server_that_counts_no_rounds_has_none() -> None:
    assert read_rounds({"internal_states": [{}]}) == read_rounds({}) == {}


def test_the_sums_stand_beside_the_servers_own_state(clock: Clock) -> None:
    state = with_rounds(SimpleNamespace(internal_state={"other": 1}), "a request").internal_state

    assert state == {"other": 1, STATE_KEY: []}
