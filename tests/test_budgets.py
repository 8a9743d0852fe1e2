"""What a budget keeps of a completion."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.budgets import Kept, replay
from results.records import CLOCKS, Clock, Completion, FinishReason, Round

TEXT = "one two three."


def completion(finish: FinishReason = "stop", queue_seconds: float = 0.0) -> Completion:
    """Three rounds: `one` at 0.5 s, `one two` at 0.7 s, everything at 1.0 s; in the queue before that."""
    rounds = ((0.5, 1, 3), (0.7, 2, 7), (1.0, 3, 14))
    return Completion(
        request_id="r",
        text=TEXT,
        token_ids=(1, 2, 3, 4, 5, 6),
        prompt_tokens=4,
        finish_reason=finish,
        rounds=tuple(Round(seconds=queue_seconds + s, kept=kept, chars=chars) for s, kept, chars in rounds),
        queue_seconds=queue_seconds,
    )


def test_a_round_counts_from_the_moment_it_ends() -> None:
    kept = replay(completion(), 0.7, "service")

    assert kept == Kept(text="one two", tokens=3, cut=True, finished=False)


def test_a_round_that_ends_after_the_budget_is_not_kept() -> None:
    kept = replay(completion(), 0.69, "service")

    assert (kept.text, kept.tokens) == ("one", 1)


def test_nothing_is_kept_before_the_first_token() -> None:
    kept = replay(completion(), 0.1, "service")

    assert kept == Kept(text="", tokens=0, cut=True, finished=False)


def test_an_answer_that_ended_within_the_budget_is_whole_and_finished() -> None:
    kept = replay(completion(), 1.0, "service")

    assert kept == Kept(text=TEXT, tokens=6, cut=False, finished=True)


def test_an_answer_that_the_deadline_ended_is_cut_at_every_budget() -> None:
    kept = replay(completion("budget"), 5.0, "service")

    assert kept == Kept(text=TEXT, tokens=6, cut=True, finished=False)


def test_an_answer_at_the_token_limit_is_neither_cut_nor_finished() -> None:
    kept = replay(completion("length"), 1.0, "service")

    assert kept == Kept(text=TEXT, tokens=6, cut=False, finished=False)


def test_a_request_that_failed_at_once_keeps_nothing_and_is_not_cut() -> None:
    failed = Completion(
        request_id="r", text="", token_ids=(), prompt_tokens=4, finish_reason="error", rounds=(), error="no room"
    )

    assert replay(failed, 1.0, "decode") == Kept(text="", tokens=0, cut=False, finished=False)


@pytest.mark.parametrize(("clock", "text"), [("request", "one"), ("service", "one two"), ("decode", TEXT)])
def test_each_clock_starts_later_than_the_one_before(clock: Clock, text: str) -> None:
    assert replay(completion(queue_seconds=0.25), 0.75, clock).text == text


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    """Completions with rising seconds, kept tokens, and a text that never shrinks."""
    steps = draw(st.lists(st.tuples(st.floats(0.001, 1), st.integers(0, 5), st.integers(0, 9)), max_size=12))
    queue = draw(st.floats(0, 1))
    seconds = list(itertools.accumulate((step[0] for step in steps), initial=queue))[1:]
    chars = list(itertools.accumulate(step[2] for step in steps))
    kept = [step[1] for step in steps]
    return Completion(
        request_id="r",
        text="x" * (chars[-1] if chars else 0),
        token_ids=tuple(range(sum(kept))),
        prompt_tokens=1,
        finish_reason=draw(st.sampled_from(["stop", "length", "budget", "error"])),
        rounds=tuple(Round(seconds=s, kept=k, chars=c) for s, k, c in zip(seconds, kept, chars, strict=True)),
        queue_seconds=queue,
    )


@given(completions(), st.floats(0.001, 10), st.floats(0.001, 10), st.sampled_from(CLOCKS))
def test_a_larger_budget_never_keeps_less(one: Completion, first: float, second: float, clock: Clock) -> None:
    less, more = (replay(one, budget, clock) for budget in sorted((first, second)))

    assert more.text.startswith(less.text)
    assert more.tokens >= less.tokens
    assert less.cut >= more.cut
    assert more.finished >= less.finished


@given(completions(), st.sampled_from(CLOCKS))
def test_a_budget_beyond_the_last_round_keeps_everything(one: Completion, clock: Clock) -> None:
    kept = replay(one, 1000, clock)

    assert (kept.text, kept.tokens) == (one.text, len(one.token_ids))
