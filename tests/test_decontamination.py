"""Decontamination: 13 words in a row are found however they are written, and nothing less is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.decontamination import NGRAM, Contamination, Overlap, contamination

QUESTION = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789äéñß", min_size=1, max_size=6)
seeds = st.integers(0, 100_000)
GAPS = " \t\n.,;:!?'\"()[]{}$*_-\u2014\u2026\u00a0\u2212+=/"


def written(sequence: list[str], seed: int) -> str:
    """The words with any case, punctuation and spacing."""
    dice = random.Random(seed)
    parts = []
    for word in sequence:
        gap = "".join(dice.choices(GAPS, k=dice.randint(1, 3)))
        parts += [gap, dice.choice([str.lower, str.upper, str.title])(word)]
    return "".join(parts)


def compare(training: str, evaluation: str) -> Contamination:
    return contamination([("t", training)], [("e", evaluation)])


@settings(deadline=None)
@given(
    shared=st.lists(words, min_size=NGRAM, max_size=NGRAM + 4),
    around=st.tuples(*[st.lists(words, max_size=5)] * 4),
    seed=seeds,
)
def test_thirteen_words_in_a_row_are_found_whatever_the_case_punctuation_and_spacing(
    shared: list[str], around: tuple[list[str], ...], seed: int
) -> None:
    training, evaluation = (written(around[at] + shared + around[at + 1], seed + at) for at in (0, 2))

    assert compare(training, evaluation).contaminated == {"t": ("e",)}


@settings(deadline=None)
@given(shared=st.lists(words, min_size=1, max_size=NGRAM - 1), seed=seeds)
def test_fewer_than_thirteen_words_in_a_row_are_not_enough(shared: list[str], seed: int) -> None:
    training, evaluation = (written([f"{own}zzzzzz"] * NGRAM + shared, seed) for own in ("x", "y"))

    assert compare(training, evaluation).overlaps == ()


@settings(deadline=None)
@given(text=st.lists(words, min_size=1, max_size=NGRAM - 1))
def test_a_short_text_is_found_when_the_whole_is_equal(text: list[str]) -> None:
    plain = " ".join(text)

    assert compare(plain, f"  {plain.upper()}?\n").contaminated == {"t": ("e",)}


@settings(deadline=None)
@given(training=st.text(), evaluation=st.text())
def test_any_text_can_be_compared(training: str, evaluation: str) -> None:
    assert compare(training, evaluation).training_count == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 3 + 5?", "What is 3 - 5?"),
        ("What is 3 + 5?", "What is 3 / 5?"),
        ("What is 3 - 5?", "What is 3 5?"),
        ("What is 35?", "What is 3.5?"),
    ],
)
def test_short_texts_that_differ_in_a_sign_are_two_problems(one: str, other: str) -> None:
    assert compare(one, other).overlaps == ()


@pytest.mark.parametrize("other", ["what is 3+5", "**What is 3 + 5?**", "What is\n3 \uff0b 5 ?"])
def test_a_short_text_is_the_same_in_another_dress(other: str) -> None:
    assert compare("What is 3 + 5?", other).contaminated == {"t": ("e",)}


def test_the_typographic_minus_is_a_hyphen() -> None:
    assert compare("What is 3 \u2212 5?", "What is 3-5?").contaminated == {"t": ("e",)}


def test_a_short_text_inside_a_longer_one_is_not_looked_for() -> None:
    assert compare(f"What is 3 + 5? {QUESTION}", "What is 3 + 5?").overlaps == ()


def test_a_long_text_does_not_hit_a_short_one_that_holds_its_words_and_a_sign() -> None:
    twelve = " ".join(["word"] * 12)

    assert compare(f"{twelve} word", f"{twelve} +").overlaps == ()


def test_an_overlap_names_both_ids_and_the_first_passage_they_share() -> None:
    report = compare(f"A new story. {QUESTION}", f"{QUESTION} How many?")

    passage = "natalia sold clips to 48 of her friends in april and then she"
    assert report.overlaps == (Overlap(training_id="t", evaluation_id="e", passage=passage),)


def test_a_prompt_that_hits_two_problems_names_both_once() -> None:
    report = contamination([("t", QUESTION * 2)], [("one", QUESTION), ("two", f"Hear: {QUESTION}")])

    assert report.contaminated == {"t": ("one", "two")}
    assert len(report.overlaps) == 2


def test_the_report_counts_what_was_compared() -> None:
    report = contamination(
        [("a", QUESTION), ("b", "Another one."), ("c", "")], iter([("e", QUESTION), ("f", "Short?"), ("g", "?!")])
    )

    assert (report.training_count, report.evaluation_count, report.compared_as_wholes) == (3, 3, 2)


def test_texts_without_any_words_are_not_equal_to_each_other() -> None:
    assert compare("?!", "...").overlaps == ()


def test_training_prompts_may_come_as_a_stream() -> None:
    stream = ((str(index), QUESTION if index == 7 else f"Prompt {index}") for index in range(10))

    assert list(contamination(stream, [("e", QUESTION)]).contaminated) == ["7"]
