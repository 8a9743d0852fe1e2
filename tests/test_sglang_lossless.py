"""SPECDIFF2 on SGLang's CPU engine against SGLang without speculation: the same tokens, whatever drafts and pool."""

import random
from typing import Any

import pytest

from sglang_runs import MODELS, Answer, Ran, Request, needs_sglang, request, run

pytestmark = needs_sglang
WINDOW = 4
TARGET = {"model_path": str(MODELS / "verifier"), "enable_deterministic_inference": True}
DRAFTED = {
    "speculative_algorithm": "SPECDIFF2",
    "speculative_draft_model_path": str(MODELS / "aligned"),
    "speculative_num_steps": WINDOW,
    "chunked_prefill_size": 16,
    "max_total_tokens": 800,
    "schedule_conservativeness": 0.1,
}
ARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "chain": ({}, {}),
    "iid, walk": ({"speculative_eagle_topk": 4}, {"shape": "iid"}),
    "iid, paper": ({"speculative_eagle_topk": 4}, {"shape": "iid", "rule": "paper"}),
    "tree": ({}, {"shape": "tree", "nodes": 12}),
}
GREEDY, AGAIN, SEEDED, MIXED, LOGGED, STOPPED, GRAMMAR, REFUSED = range(8)
END, EQUALS = 1, 33
"""The end token; and that of `=`, which every answer to a problem holds: some requests stop at it."""
REFUSALS: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.2,
    "min_new_tokens": 3,
    "min_p": 0.1,
}


def prompts() -> list[list[int]]:
    """12 problems of the models' own world, and 12 that begin alike and then go on at random (seed 5)."""
    from engines.chat import ChatTokenizer
    from tasks.arithmetic import Arithmetic

    chat = ChatTokenizer(MODELS / "verifier")
    problems = list(Arithmetic().problems())[:12]
    rng = random.Random(5)
    shared = [rng.randrange(5, 500) for _ in range(20)]
    others = [shared + [rng.randrange(5, 500) for _ in range(rng.randrange(1, 8))] for _ in range(12)]
    return [chat.prompt_ids(problem.messages) for problem in problems] + others


def batches() -> list[list[Request]]:
    """What every engine is asked, one batch after the other on the same radix cache.

    SGLang knows how long a request that ignores the end token will be, and lets no more run than there is room for to
    their ends. So the long ones are kept from the end token by a bias: eight of them run, and outgrow the pool.

    SGLang's seeded draws from a whole law are others where a request with top-k is in the same forward, as greedy ones
    count. So whole laws are asked for together, and the mixed batch has top-k throughout.
    """
    asked = prompts()
    numbered = list(enumerate(asked))
    grammar: dict[str, Any] = {"regex": "[a-z ]{4,12}", "ignore_eos": False}
    mixed: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "top_k": 20}
    return [
        [request(prompt, 96, ignore_eos=False, logit_bias={str(END): -1e4}) for prompt in asked],
        [request(prompt, 32) for prompt in asked],
        [request(prompt, 32, temperature=1.0, sampling_seed=100 + n) for n, prompt in numbered],
        [request(prompt, 24, sampling_seed=n, **(mixed if n % 2 else {})) for n, prompt in numbered],
        [request(prompt, 16, temperature=1.0, sampling_seed=n, return_logprob=True) for n, prompt in numbered[:6]],
        [request(prompt, 96, ignore_eos=False, stop_token_ids=[EQUALS]) for prompt in asked[:6]],
        [request(prompt, 16, temperature=1.0, sampling_seed=n, **grammar) for n, prompt in numbered[:6]],
        *([request(asked[0], 4, temperature=1.0, **{name: value})] for name, value in REFUSALS.items()),
    ]


@pytest.fixture(scope="module")
def vanilla(tmp_path_factory: pytest.TempPathFactory) -> list[list[Answer]]:
    """SGLang without speculation."""
    return run(tmp_path_factory.mktemp("vanilla"), TARGET, batches()[:REFUSED]).answers


@pytest.fixture(scope="module", params=ARMS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The same requests with SPECDIFF2: a pool that is too small for them, chunks of 16, overlapping rounds.

    Whether SGLang takes a request back or lets it wait is up to the order in which requests come in. So it is told to
    take one back, too: whenever more than one decodes at a forward whose number is divisible by 7.
    """
    engine, further = ARMS[request.param]
    return run(
        tmp_path_factory.mktemp("arm"),
        TARGET | DRAFTED | engine,
        batches(),
        further=further,
        environment={"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "7"},
    )


@pytest.fixture(scope="module")
def arm(ran: Ran) -> list[list[Answer]]:
    """What was answered."""
    return ran.answers


def ids(answers: list[Answer]) -> list[list[int]]:
    return [answer.ids for answer in answers]


@pytest.mark.parametrize("batch", [GREEDY, AGAIN], ids=["cold", "from the radix cache"])
def test_greedy_texts_are_those_without_speculation(
    arm: list[list[Answer]], vanilla: list[list[Answer]], batch: int
) -> None:
    assert ids(arm[batch]) == ids(vanilla[batch])


@pytest.mark.parametrize("batch", [SEEDED, MIXED], ids=["whole law", "top-k and top-p, beside greedy ones"])
def test_seeded_texts_are_those_without_speculation(
    arm: list[list[Answer]], vanilla: list[list[Answer]], batch: int
) -> None:
    assert ids(arm[batch]) == ids(vanilla[batch])


def test_every_text_is_as_long_as_was_asked(vanilla: list[list[Answer]]) -> None:
    assert [len(answer.ids) for answer in vanilla[GREEDY]] == [96] * 24


def test_logprobs_are_those_without_speculation(arm: list[list[Answer]], vanilla: list[list[Answer]]) -> None:
    expected = [answer.logprobs for answer in vanilla[LOGGED]]

    found = [answer.logprobs for answer in arm[LOGGED]]

    assert [pytest.approx(each, abs=1e-4) for each in expected] == found


def test_a_stop_token_cuts_a_round_where_it_stands(arm: list[list[Answer]], vanilla: list[list[Answer]]) -> None:
    assert [(a.ids, a.finish) for a in arm[STOPPED]] == [(a.ids, a.finish) for a in vanilla[STOPPED]]
    assert "stop" in {answer.finish for answer in vanilla[STOPPED]}


def test_a_grammar_binds_drafts_as_it_binds_tokens(arm: list[list[Answer]], vanilla: list[list[Answer]]) -> None:
    assert ids(arm[GRAMMAR]) == ids(vanilla[GRAMMAR])


def test_eight_requests_shared_overlapping_rounds(ran: Ran) -> None:
    assert (ran.most_running, ran.overlaps) == (8, True)


def test_requests_were_taken_back_and_began_again(arm: list[list[Answer]]) -> None:
    assert sum(answer.retractions for answer in arm[GREEDY]) > 0


def test_later_requests_hit_the_radix_cache(arm: list[list[Answer]]) -> None:
    assert sum(answer.cached for answer in arm[AGAIN]) > 0


def test_drafts_were_kept_and_drafts_were_rejected(arm: list[list[Answer]]) -> None:
    tokens = sum(len(answer.ids) - 1 for answer in arm[GREEDY])
    rounds = sum(answer.rounds for answer in arm[GREEDY])

    assert 1.2 < tokens / rounds < 1 + WINDOW


def test_what_cannot_be_exact_is_refused_by_name(arm: list[list[Answer]]) -> None:
    errors = [answers[0].error for answers in arm[REFUSED:]]

    assert [error.split(" = ")[0] for error in errors] == list(REFUSALS)
