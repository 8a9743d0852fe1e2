"""Finding answers in text: boxes, phrases and letters, and that no text makes it slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers import final_answer, grade_boxed_integer, last_boxed, last_phrase
from tasks.letters import final_letter


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\fbox{3}", "3"),
        (r"\boxed {4}", "4"),
        (r"$$\boxed7$$", "7"),
        (r"\boxed{2}. (I was told to use \boxed )", "2"),
        (r"{ a brace that never closes, \boxed{5}", "5"),
        (r"} a brace too many, \boxed{6}", "6"),
        (r"\boxed{}", ""),
    ],
)
def test_the_last_complete_box_is_found(text: str, box: str) -> None:
    assert last_boxed(text) == box


@pytest.mark.parametrize("text", ["", "no box", r"\boxed{55", r"\boxed{\frac{1}{", r"\boxed", r"\boxed{a\}"])
def test_an_unfinished_box_never_counts(text: str) -> None:
    assert last_boxed(text) is None


def test_a_box_that_a_cut_left_open_does_not_hide_the_one_before() -> None:
    assert last_boxed(r"\boxed{5}, no, \boxed{1") == "5"


@given(st.text(alphabet="{}\\boxed5 $", max_size=40), st.text(alphabet="abc{ ", max_size=5))
def test_a_final_box_is_found_behind_any_text(before: str, after: str) -> None:
    assert last_boxed(before + r" \boxed{42}" + after.replace("}", "")) == "42"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>\\boxed{41}</think>\n\nThe answer is \\boxed{42}.", "42"),
        ("<think>\\boxed{41}</think>\n\nThe answer is 42.", "42"),
        ("<think>\\boxed{41}</think>\n\nI cannot tell.", "41"),
        ("<think>so far \\boxed{41}", "41"),
        ("The answer is 3\nActually, the final answer is 4", "4"),
        ("The answer is 90 degrees.", "90"),
        ("**Answer:** 4.", "4"),
        (r"Final Answer: The final answer is $(-6, 10)$. I hope it is correct.", "(-6, 10)"),
        (r"Answer \( 9 \)", "9"),
        ("The answer is 42 because geometry proves it", "42"),
        ("The answer is x + 1", "x + 1"),
        (r"\boxed{$42$}", "42"),
        (r"\boxed{\$42}", r"\$42"),
    ],
)
def test_the_final_answer_is_found(response: str, answer: str) -> None:
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$\boxed{(2,2)}$ and $\boxed{(6,2)}$", "(2,2), (6,2)"),
        (r"$x_1 = \boxed{1}$, $x_2 = \boxed{2}$", "1, 2"),
        (r"\boxed{7}, \boxed{7}", "7"),
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{1}, or rather \boxed{2}", "2"),
        (r"The final answer is" + "\n\\[\n12\n\\]", "12"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("so 3+4=7 in all.\nA: 7", "7"),
        ("A: first we add\nthen we stop", None),
        (r"the answer is \boxed{55", None),
        (r"The final answer is:" + "\n\\[", None),
        (r"\boxed{5} before; final answer: \boxed{}", None),
    ],
)
def test_boxes_and_phrases_in_several_parts_or_cut_off(response: str, answer: str | None) -> None:
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    "response",
    ["", "It is 42.", "The answer is", "Answer:\n", r"final answer: \boxed{}", "What is the answer? It is unclear."],
)
def test_no_answer_is_none(response: str) -> None:
    assert final_answer(response) is None


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        (r"\boxed{(B)}", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{B. both of them}", "B"),
        (r"\boxed{C} but the answer is \boxed{A}", "A"),
        ("\\boxed{\\Delta E = A}\nAnswer: B", "B"),
        ("The answer is (C)", "C"),
        ("**Final Answer**\n\n**C**", "C"),
        ("Correct answer: **C) 3.2 eV**", "C"),
        ("The answer is A because it is", "A"),
        ("If I answer ANSWER: A that is wrong.</think>ANSWER: B", "B"),
        ("(D)", "D"),
        ("**D) is right**", "D"),
        ("答案：（B）36", "B"),
        ("Antwort: C", "C"),
        ("Answer: Ａ", "A"),
        ("The answer is b.", "B"),
        ("D. It cannot be A or B", "D"),
        ("Option C is correct.", "C"),
        ("I would choose option D", "D"),
        ("I'd go with D.", "D"),
        (r"The answer is $\mathbf{C}$.", "C"),
        (r"Therefore the answer is $\textbf{(C)}$", "C"),
        ("(b)", "B"),
        ("b.", "B"),
    ],
)
def test_the_chosen_letter_is_found(response: str, letter: str) -> None:
    assert final_letter(response) == letter


@pytest.mark.parametrize(
    "response",
    [
        "",
        "So the answer is (",
        "Answer: A or B",
        "Answer: (A), (B)",
        r"\boxed{A, C}",
        r"\boxed{A polygenic score}",
        "**A)** fails and **B)** fails too",
        "After eliminating (A) and (B), the remaining options are (C) and (D). Comparing",
        "The answer is Carbon.",
        "Answer: DNA",
        "Answer: E",
        r"\boxed{E}",
        "The answer is a number.",
        "Either B or D is correct.",
        "A. is too small\nB. is too large\nso we go on",
        "A. It is too small. B. It is too large.",
        "I cannot answer that, sorry.",
    ],
)
def test_an_unclear_choice_is_no_letter(response: str) -> None:
    assert final_letter(response) is None


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        (r"\boxed{3.2\text{ eV}}", "B"),
        ("**Answer:** 3.2 eV.", "B"),
        ("none of these", "C"),
        ("B: 3.2 eV", "B"),
        ("A: we start with 3.2 eV", None),
        (r"\boxed{3.3\text{ eV}}", None),
        ("It is not 3.2 eV, so it may be something else.", None),
    ],
)
def test_the_text_of_an_option_stands_for_its_letter(response: str, letter: str | None) -> None:
    options = {"A": "1.6 eV", "B": "3.2 eV", "C": "None of these", "D": "6.4 eV"}

    assert final_letter(response, options=options) == letter


def test_letters_that_are_not_offered_are_not_taken() -> None:
    assert final_letter("Answer: D", letters="ABC") is None


HOSTILE = {
    "open boxes": r"\boxed{" * 20_000,
    "open braces": "{" * 100_000,
    "blanks": "the answer" + " " * 100_000 + "is",
    "stars": "**" * 50_000,
    "marks": "answer: " * 15_000,
    "dollars": "answer: " + "$" * 100_000,
    "open maths": "answer: " + r"\(" * 50_000,
    "boxed maths": r"\boxed{" + r"\(" * 50_000 + "}",
    "digits": "the answer is " + "1" * 100_000,
    "letters": "answer: " + "A, " * 30_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_searched_quickly(text: str) -> None:
    started = time.process_time()
    final_answer(text)
    final_letter(text)

    assert time.process_time() - started < 2.0


def test_a_boxed_integer_is_compared_as_a_number() -> None:
    assert grade_boxed_integer(r"\boxed{042}", "42").verdict == "correct"
    assert grade_boxed_integer(r"\boxed{24}", "42").verdict == "incorrect"
    assert grade_boxed_integer(r"\boxed{4", "42").verdict == "no_answer"
    assert grade_boxed_integer(r"\boxed{" + "9" * 5000 + "}", "42").verdict == "incorrect"


def test_the_phrase_ends_where_its_sentence_ends() -> None:
    assert last_phrase("The answer is 3.5. That took 10 steps.") == "3.5"
