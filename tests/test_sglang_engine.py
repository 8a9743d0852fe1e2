"""The engine on SGLang itself, on its CPU engine: the reference engine's texts, deadlines, seeds, and a clean end."""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engines.contract import Engine, Request, RoundSums
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.serving import guard
from engines.serving.client import RefusedError
from engines.serving.presence import missing_algorithm
from engines.sglang_engine import SglangEngine
from engines.sglang_plugin.settings import NAME
from engines.speculation import Speculation
from results.records import Completion
from tasks.arithmetic import Arithmetic

MISSING = missing_algorithm(NAME, "cpu")
pytestmark = [pytest.mark.sglang, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
CHAIN = Speculation(drafter="embedded:aligned", window=12)
LOOKUP = Speculation(drafting="ngram", window=12)
PROBLEMS = list(Arithmetic(num_problems=8, seed=7).problems())
CONCURRENCY = 8


def requests(count: int = len(PROBLEMS), budget_seconds: float = math.inf, **sampling: float) -> list[Request]:
    return [
        Request(
            request_id=f"{number}",
            messages=PROBLEMS[number % len(PROBLEMS)].messages,
            sampling=Sampling(max_tokens=160, seed=number, **sampling),  # type: ignore[arg-type]
            budget_seconds=budget_seconds,
        )
        for number in range(count)
    ]


def answers(engine: Engine, asked: list[Request]) -> dict[str, Completion]:
    return {completion.request_id: completion for completion in engine.stream(asked)}


def tokens(found: dict[str, Completion]) -> dict[str, tuple[int, ...]]:
    return {name: completion.token_ids for name, completion in found.items()}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SglangEngine]:
    """A server of SPECDIFF2 that takes seeds."""
    log = tmp_path_factory.mktemp("logs") / "chain.log"
    engine = SglangEngine("embedded:verifier", speculation=CHAIN, concurrency=CONCURRENCY, log=log)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain_answers() -> dict[str, Completion]:
    """What the reference engine writes, token by token."""
    return answers(ReferenceEngine("embedded:verifier"), requests())


def test_texts_at_temperature_0_are_the_reference_engines(
    chain: SglangEngine, plain_answers: dict[str, Completion]
) -> None:
    assert tokens(answers(chain, requests())) == tokens(plain_answers)


def test_tau_is_the_reference_engines(chain: SglangEngine) -> None:
    ours = [each for answer in answers(chain, requests()).values() for each in answer.rounds[1:]]
    reference = answers(ReferenceEngine("embedded:verifier", speculation=CHAIN), requests())
    theirs = [each for answer in reference.values() for each in answer.rounds[1:]]

    tau, expected = (sum(each.accepted for each in rounds) / len(rounds) for rounds in (ours, theirs))
    assert tau == pytest.approx(expected, rel=0.02)


def test_every_stream_begins_with_an_empty_prefix_cache(chain: SglangEngine) -> None:
    cached = [answers(chain, requests(1))["0"].cached_tokens for _ in range(2)]

    assert cached == [0, 0]


def test_many_requests_with_other_budgets_end_within_a_round_of_theirs(chain: SglangEngine) -> None:
    """A budget of 1 ms is over before the first token is here, on any machine."""
    asked = with_mixed_budgets()
    found = answers(chain, asked)

    beyond = {each.request_id: moments_beyond(found[each.request_id], each.budget_seconds) for each in asked}
    assert len(found) == 64
    assert not [completion.error for completion in found.values() if completion.error]
    assert max(beyond.values()) == 1
    assert {beyond[each.request_id] for each in asked if each.budget_seconds == 0.001} == {1}
    chain.flush()  # refused by a pool that something still holds


def with_mixed_budgets() -> list[Request]:
    return [
        replace(each, budget_seconds=budget)
        for each, budget in zip(requests(64), [0.001, 0.3, 1.2, 60.0] * 16, strict=True)
    ]


def moments_beyond(completion: Completion, budget_seconds: float) -> int:
    """At how many moments tokens came after the budget was spent; rounds that came as one chunk have the same."""
    moments = {each.seconds - completion.queue_seconds for each in completion.rounds}
    return sum(moment > budget_seconds for moment in moments)


def test_64_requests_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "crowd.log"
    engine = SglangEngine("embedded:verifier", speculation=CHAIN, concurrency=64, max_context=320, seeds=False, log=log)
    session = session_of(engine)
    try:
        asked = with_mixed_budgets()
        found = answers(engine, asked)
        engine.flush()
        most = max(engine.round_sums())
    finally:
        engine.close()

    assert len(found) == 64
    assert not [completion.error for completion in found.values() if completion.error]
    assert max(moments_beyond(found[each.request_id], each.budget_seconds) for each in asked) == 1
    assert most >= 16  # those whose budgets are long enough for a whole answer
    assert guard.members(session) == []


def test_texts_of_a_budget_are_beginnings_of_the_whole_ones(
    chain: SglangEngine, plain_answers: dict[str, Completion]
) -> None:
    found = answers(chain, requests(budget_seconds=0.5))

    assert all(plain_answers[name].text.startswith(completion.text) for name, completion in found.items())


def test_a_seed_decides_a_draw(chain: SglangEngine) -> None:
    first, second = (tokens(answers(chain, requests(4, temperature=1.0))) for _ in range(2))

    assert first == second
    assert len(set(first.values())) == 4


def test_a_request_that_cannot_be_served_disturbs_no_other(chain: SglangEngine) -> None:
    unseeded = requests(2, temperature=1.0, min_p=0.2)[:1]
    found = answers(chain, [*unseeded, *requests(3)[1:]])

    assert found["0"].error is not None
    assert [found[name].finish_reason for name in ("1", "2")] == ["stop", "stop"]


def test_nothing_of_a_server_stays_behind(tmp_path: Path) -> None:
    engine = SglangEngine("embedded:verifier", seeds=False, log=tmp_path / "plain.log")
    session = session_of(engine)
    before = guard.members(session)
    texts = tokens(answers(engine, requests(2)))
    engine.close()

    assert len(before) >= 3
    assert guard.members(session) == []
    assert texts == tokens(answers(ReferenceEngine("embedded:verifier"), requests(2)))


def session_of(engine: SglangEngine) -> int:
    """The session of an engine's own server."""
    assert engine.process is not None
    return next(os.getsid(pid) for pid in children_of(engine.process.pid))


def children_of(pid: int) -> list[int]:
    """Processes that a process started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def lookup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SglangEngine]:
    """A server of SGLang's own n-gram drafts, as many a round as the chain's."""
    missing = missing_algorithm("NGRAM", "cpu")
    if missing:
        pytest.skip(missing)
    log = tmp_path_factory.mktemp("logs") / "lookup.log"
    engine = SglangEngine("embedded:verifier", speculation=LOOKUP, concurrency=CONCURRENCY, seeds=False, log=log)
    yield engine
    engine.close()


def test_n_gram_drafts_change_no_text_at_temperature_0(
    lookup: SglangEngine, plain_answers: dict[str, Completion]
) -> None:
    found = answers(lookup, requests())

    assert tokens(found) == tokens(plain_answers)
    assert sum(each.accepted for answer in found.values() for each in answer.rounds) > 0


def test_n_gram_drafts_are_refused_above_temperature_0(lookup: SglangEngine) -> None:
    found = answers(lookup, requests(1, temperature=0.5))["0"]

    assert (found.finish_reason, found.token_ids) == ("error", ())
    assert found.error == "temperature = 0.5: SGLang's own NGRAM is greedy on a CPU; allowed: 0"


def test_a_server_of_n_gram_drafts_refuses_such_requests_of_others_too(lookup: SglangEngine) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": {"temperature": 0.5, "max_new_tokens": 4}}

    with pytest.raises(RefusedError, match=r"temperature = 0\.5 is not supported by NGRAM on a CPU; allowed: 0"):
        lookup.client.generate(body)


@pytest.mark.parametrize("name", ["chain", "lookup"])
def test_a_server_tells_the_time_of_the_rounds_that_requests_share(name: str, request: pytest.FixtureRequest) -> None:
    engine: SglangEngine = request.getfixturevalue(name)
    before = engine.round_sums().get(2, RoundSums())
    answers(engine, requests(2))
    found = engine.round_sums()[2].minus(before)

    assert found.rounds > 0
    assert 0 < found.verify_seconds < found.seconds - found.draft_seconds
    assert (found.draft_seconds > 0) == (name == "chain")


def test_an_argument_that_sglang_does_not_know_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="unrecognized arguments: --tea 1") as caught:
        SglangEngine("embedded:verifier", seeds=False, server={"tea": 1}, log=tmp_path / "server.log")

    assert "\n" not in str(caught.value)
