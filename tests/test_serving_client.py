"""The engine against a server of the native interface: rounds, deadlines, ends and losses, without SGLang."""

import itertools
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engines.chat import ChatTokenizer
from engines.contract import EngineError, Request
from engines.models import resolve_model
from engines.sampling import Sampling
from engines.serving.client import Client
from engines.sglang_engine import SglangEngine
from engines.speculation import Speculation
from fake_server import FakeServer, Script
from results.records import Completion
from test_alignment_record import write_record
from tiny_models import write_drafter

CHAT = ChatTokenizer(resolve_model("embedded:verifier"))
TOKENS = CHAT.encode("Tom has 3 apples and buys 5 more, so there are 8. The answer is \\boxed{8}.")
(END,) = CHAT.stop_ids
CHAIN = Speculation(drafter="embedded:aligned", window=4)


def singles(tokens: list[int]) -> list[list[list[int]]]:
    """One chunk a token."""
    return [[[token]] for token in tokens]


def request(number: int = 0, budget_seconds: float = float("inf"), **sampling: Any) -> Request:
    messages = [{"role": "user", "content": f"How many is {number}?"}]
    settings = {"max_tokens": 100, **sampling}
    return Request(
        request_id=f"r{number}", messages=messages, sampling=Sampling(**settings), budget_seconds=budget_seconds
    )


@contextmanager
def serving(script: Script, **settings: Any) -> Iterator[tuple[FakeServer, SglangEngine]]:
    """A scripted server and an engine that is connected to it."""
    with FakeServer(script) as server:
        yield server, SglangEngine("embedded:verifier", url=server.url, **{"seeds": False, **settings})


def answer(script: Script, asked: Request | None = None, **settings: Any) -> Completion:
    with serving(script, **settings) as (_, engine):
        (completion,) = engine.stream([asked or request()])
    return completion


def test_every_token_of_a_plain_answer_is_a_round_with_its_time() -> None:
    completion = answer(Script(chunks=singles([*TOKENS[:6], END]), pause_seconds=0.01))

    assert completion.token_ids == (*TOKENS[:6], END)
    assert [each.kept for each in completion.rounds] == [1] * 7
    assert all(later.seconds > earlier.seconds for earlier, later in itertools.pairwise(completion.rounds))


def test_the_text_of_an_answer_is_that_of_its_tokens() -> None:
    completion = answer(Script(chunks=singles([*TOKENS, END])))

    assert completion.text == CHAT.decode(TOKENS)
    assert completion.finish_reason == "stop"


def test_rounds_of_an_answer_say_what_was_drafted_and_accepted() -> None:
    script = Script(chunks=[[TOKENS[:1]], [TOKENS[1:4]], [[*TOKENS[4:5], END]]], nodes=4)
    completion = answer(script, speculation=CHAIN)

    assert [(each.kept, each.drafted, each.accepted) for each in completion.rounds] == [(1, 0, 0), (3, 4, 2), (2, 4, 1)]


def test_rounds_that_came_as_one_chunk_are_told_apart() -> None:
    script = Script(chunks=[[TOKENS[:1]], [TOKENS[1:4], TOKENS[4:5]], [[*TOKENS[5:6], END]]], nodes=4)
    completion = answer(script, speculation=CHAIN)

    assert sorted(each.accepted for each in completion.rounds[1:]) == [0, 1, 2]


def test_a_server_that_repeats_the_whole_answer_is_read_as_well() -> None:
    completion = answer(Script(chunks=singles([*TOKENS[:6], END]), incremental=False))

    assert completion.token_ids == (*TOKENS[:6], END)


def test_a_deadline_ends_the_answer_within_a_round_and_keeps_its_text() -> None:
    completion = answer(Script(chunks=singles(TOKENS), pause_seconds=0.05), request(budget_seconds=0.22))

    assert completion.finish_reason == "budget"
    assert completion.text == CHAT.decode(list(completion.token_ids)) != ""
    assert 0.22 <= completion.seconds < 0.22 + 2 * 0.05


def test_a_deadline_between_two_rounds_is_told_to_the_server() -> None:
    with serving(Script(chunks=singles(TOKENS[:8]), pause_seconds=0.3)) as (server, engine):
        began = time.perf_counter()
        (completion,) = engine.stream([request(budget_seconds=0.45)])

    assert [body["rid"] for body in server.seen["/generate"]] == list(server.aborted)
    assert completion.finish_reason == "budget"
    assert time.perf_counter() - began < 0.45 + 0.3


def test_seconds_in_the_servers_queue_are_no_seconds_of_the_budget() -> None:
    script = Script(chunks=singles([*TOKENS[:4], END]), pause_seconds=0.05, queue_seconds=0.04)
    completion = answer(script, request(budget_seconds=0.23))

    assert completion.queue_seconds == 0.04
    assert completion.finish_reason == "stop"


def test_a_stop_string_cuts_the_text_and_ends_the_request() -> None:
    with serving(Script(chunks=singles(TOKENS), pause_seconds=0.01)) as (server, engine):
        (completion,) = engine.stream([request(stop=(" apples",))])

    assert completion.text == "Tom has 3"
    assert completion.finish_reason == "stop"
    assert len(server.aborted) == 1


def test_tokens_after_the_end_token_are_not_kept() -> None:
    script = Script(chunks=[[TOKENS[:1]], [[TOKENS[1], END, TOKENS[2]]]], nodes=4)
    completion = answer(script, speculation=CHAIN)

    assert completion.token_ids == (TOKENS[0], TOKENS[1], END)


def test_the_token_cap_ends_the_answer() -> None:
    completion = answer(Script(chunks=singles(TOKENS[:5]), finish="length"), request(max_tokens=5))

    assert (completion.finish_reason, len(completion.token_ids)) == ("length", 5)


def test_a_request_that_the_server_refuses_is_an_error_of_its_own() -> None:
    completion = answer(Script(chunks=[], refuses="the input is too long"))

    assert (completion.finish_reason, completion.error) == ("error", "the input is too long")


def test_an_answer_that_the_server_ends_by_itself_is_an_error() -> None:
    completion = answer(Script(chunks=singles(TOKENS[:3]), finish="abort"))

    assert completion.finish_reason == "error"


def test_as_many_requests_are_under_way_as_the_engine_was_told() -> None:
    with serving(Script(chunks=singles([*TOKENS[:4], END]), pause_seconds=0.02), concurrency=3) as (server, engine):
        completions = list(engine.stream(request(number) for number in range(8)))

    assert sorted(each.request_id for each in completions) == [f"r{number}" for number in range(8)]
    assert server.most_under_way == 3


def test_a_stream_that_is_left_ends_its_requests_at_the_server() -> None:
    with serving(Script(chunks=singles(TOKENS), pause_seconds=0.05), concurrency=2) as (server, engine):
        with closing(engine.stream([request(0, budget_seconds=0.1), request(1), request(2)])) as stream:
            next(stream)

        assert {body["rid"] for body in server.seen["/generate"]} == server.aborted


def test_the_prefix_cache_is_emptied_before_every_stream() -> None:
    with serving(Script(chunks=singles([*TOKENS[:2], END]))) as (server, engine):
        for number in range(3):
            list(engine.stream([request(number)]))

    assert len(server.seen["/flush_cache"]) == 3


def test_a_prefix_cache_that_cannot_be_emptied_is_no_cold_one() -> None:
    with serving(Script(chunks=[], flush_refused="requests are running")) as (_, engine):
        stream = engine.stream([request()])

        with pytest.raises(EngineError, match="prefix cache cannot be emptied: requests are running"):
            next(stream)


def test_a_server_that_dies_is_no_error_of_a_request() -> None:
    with serving(Script(chunks=singles(TOKENS), pause_seconds=0.01, dies_after=0)) as (server, engine):
        stream = engine.stream([request()])

        with pytest.raises(EngineError, match=f"{server.url}: the server is lost"):
            next(stream)


def test_warming_up_leaves_an_empty_cache() -> None:
    with serving(Script(chunks=singles([*TOKENS, END]), pause_seconds=0.002)) as (server, engine):
        found = engine.warm_up([request()])

    assert found.rounds >= 40
    assert len(server.seen["/flush_cache"]) == len(server.seen["/generate"]) + 1


@pytest.mark.parametrize(
    ("script", "settings", "complaint"),
    [
        (Script(chunks=[]), {"speculation": CHAIN}, "drafts by nothing, the arm by SPECDIFF2; is the plugin installed"),
        (Script(chunks=[], nodes=4), {}, "drafts by SPECDIFF2, the arm by nothing"),
        (Script(chunks=[], nodes=8), {"speculation": CHAIN}, "window = 8 is not allowed; allowed: 4"),
        (Script(chunks=[], model_path="/models/other"), {}, "serves model 'other', the study asks for 'verifier'"),
        (Script(chunks=[]), {"seeds": True}, "ignores the seeds of requests"),
        (Script(chunks=[], nodes=4, info={"version": "0.6.0"}), {"speculation": CHAIN}, "SGLang 0.6.0"),
    ],
)
def test_a_server_that_does_not_serve_the_arm_is_refused(
    script: Script, settings: dict[str, Any], complaint: str
) -> None:
    with FakeServer(script) as server, pytest.raises(ValueError, match=complaint):
        SglangEngine("embedded:verifier", url=server.url, **{"seeds": False, **settings})


def test_a_drafter_with_other_tokens_is_refused(tmp_path: Path) -> None:
    other = Speculation(drafter=str(write_drafter(tmp_path / "other")), window=4)
    complaint = "the drafter's tokens are not those of the target"
    with FakeServer(Script(chunks=[], nodes=4)) as server, pytest.raises(ValueError, match=complaint):
        SglangEngine("embedded:verifier", url=server.url, speculation=other, max_context=90, seeds=False)


def test_a_server_without_the_plugin_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.serving.presence.missing_server", lambda: None)
    monkeypatch.setattr("engines.serving.presence.entry_points", lambda **_: ())

    with pytest.raises(OSError, match="SGLang finds no plugin engines"):
        SglangEngine("embedded:verifier", speculation=CHAIN)


def test_a_drafter_that_was_aligned_under_another_template_is_not_served(tmp_path: Path) -> None:
    drafter = tmp_path / "drafter"
    shutil.copytree(resolve_model("embedded:aligned"), drafter)
    write_record(drafter)

    with pytest.raises(ValueError, match="aligned under chat template 000000000000"):
        SglangEngine("embedded:verifier", speculation=Speculation(drafter=str(drafter), window=4), seeds=False)


def test_n_gram_drafts_need_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.serving.presence.missing_server", lambda: None)
    monkeypatch.setattr("engines.serving.presence.missing_plugin", lambda: None)
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(OSError, match="engine 'sglang': needs the C\\+\\+ compiler 'no-such-compiler'"):
        SglangEngine("embedded:verifier", speculation=Speculation(drafting="ngram", window=4), seeds=False)


def test_an_address_where_nobody_answers_is_one_line() -> None:
    with FakeServer(Script(chunks=[])) as server:
        url = server.url

    with pytest.raises(OSError, match=f"{url}: no server answers"):
        SglangEngine("embedded:verifier", url=url, seeds=False)


@pytest.mark.parametrize("url", ["localhost:80", "http://a b", "http://name:word@host:80", "http://host:80/?x=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=f"url = {re.escape(repr(url))} is not allowed"):
        Client(url)


def test_seeds_go_with_the_requests_that_have_use_for_them() -> None:
    script = Script(chunks=singles([TOKENS[0], END]), info={"enable_deterministic_inference": True})
    with serving(script, seeds=True) as (server, engine):
        list(engine.stream([request(temperature=1.0, seed=7)]))
        list(engine.stream([request(seed=7)]))

    seeds = [body["sampling_params"].get("sampling_seed") for body in server.seen["/generate"]]
    assert seeds == [7, None]


def test_what_a_server_says_of_itself_is_recorded_without_its_paths() -> None:
    with serving(Script(chunks=[], info={"model_path": "/somewhere/verifier", "device": "cpu"})) as (_, engine):
        described = engine.describe()

    assert described["server"]["model_path"] == "verifier"
    assert described["server"]["device"] == "cpu"
