r"""Finding the answer in a response: the last complete \boxed{...}, else a closing phrase; None where there is none.

Knows text only; whether an answer is right is for equivalence.py. An unfinished box at a cut never counts, and a letter
is never guessed. What follows a closing </think> is looked at first, the whole response only if nothing stands there.
A phrase ("The answer is 12") has no closing mark: at a cut it may be a prefix of what would have come, which is why
prompts ask for a box.
"""

import re
from collections.abc import Callable, Iterator

from results.records import Grade

BOX_PARTS = re.compile(r"\\(?P<box>boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
BARE_BOX = re.compile(r"\\boxed\s*(\d+)\b")
TEXT_MACRO = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|rm|bf)\s*\{([^{}]*)\}")
CHAT_END = re.compile(r"<\|[a-z_]+\|>.*", re.DOTALL)

# 'The final answer is: **', 'Answer:', 'Answer $': the answer follows, up to the end of the sentence or line.
PHRASE = re.compile(r"(?i)\banswer\b(?:[^.:\n]{0,40}?\bis\b:?|[\s*]*[:=]|\s*(?=\$|\\\())[\s*]*")
LONGEST = 2000  # characters of an answer given in a phrase
SENTENCE = re.compile(rf".{{1,{LONGEST}}}?(?=\.?$|\.\s|\n)")
MATHS = re.compile(r"\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
NUMBER_IN_PROSE = re.compile(r"\$?[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?=\s+[a-z]{2,})")

ANSWER_MARK = (
    r"\banswer\b(?:\s+(?:is|seems|to|be|should|would|for|sure|option|choice))*+"
    r"[\s*_>]*+[:=\-\u2013]?[\s*_]*+(?:option\s+)?"
)
CHOICE_MARK = (
    r"\b(?:(?:final|correct|my)\s+(?:option|choice)(?:\s+is|:)|(?:hence|therefore|thus),?\s+(?:option|choice))\s*"
)
# Possessive quantifiers (+ at the end), so that a match cannot give a bracket back and overlook a second letter.
LETTER = r"[(\[\"'$*_]{0,6}+(?P<letter>[{letters}])(?![\w\x27\u2019]|-\w)[)\]\"'$*_]{0,6}+"
NO_SECOND = r"(?![ \t]*+(?:,|/|or\b|and\b|)[ \t]*+[(\[*]*+[{letters}]\b)"
ARTICLE = re.compile(r"A +(?!(?:is|because|since|as|for|by|due|but|and|given|with|which)\b)[a-z]")


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{...} with balanced braces, or None; time linear in the text."""
    latest: tuple[int, str] | None = None
    opened: list[tuple[bool, int]] = []
    for part in BOX_PARTS.finditer(text):
        token = part.group()
        if part["box"] or token == "{":
            opened.append((bool(part["box"]), part.end()))
        elif token == "}" and opened:
            is_box, start = opened.pop()
            if is_box and (latest is None or start > latest[0]):
                latest = start, text[start : part.start()].strip()
    if latest is None and (bare := list(BARE_BOX.finditer(text))):
        return bare[-1].group(1)
    return latest[1] if latest else None


def views(response: str) -> Iterator[str]:
    """The parts of a response to look at, best first: behind the thinking, then all of it."""
    _, closed, behind = response.rpartition("</think>")
    if closed:
        yield behind
    yield response


def first_found(response: str, finder: Callable[[str], str | None]) -> str | None:
    """What `finder` finds in the best view that has something."""
    return next((found for view in views(response) if (found := finder(view)) is not None), None)


def final_answer(response: str) -> str | None:
    """The answer that a response gives in a box or, without a box, in a phrase such as 'the answer is ...'."""

    def find(text: str) -> str | None:
        boxed = last_boxed(text)
        return boxed if boxed is not None else last_phrase(text)

    return without_marks(first_found(response, find) or "") or None


def without_marks(answer: str) -> str:
    r"""An answer without the $...$, \(...\) or \[...\] around all of it."""
    whole = MATHS.fullmatch(answer.strip())
    return whole[whole.lastindex or 0].strip() if whole else answer.strip()


def last_phrase(text: str) -> str | None:
    """What follows the last 'answer is' or 'Answer:', in one sentence: its maths, its number, else all of it."""
    text = CHAT_END.sub("", text).rstrip()
    ends = [mark.end() for mark in PHRASE.finditer(text)]
    found = next((sentence for end in reversed(ends) if (sentence := SENTENCE.match(text, end))), None)
    if found is None:
        return None
    rest = found.group().strip(" *")
    if maths := list(MATHS.finditer(rest)):
        return without_marks(maths[-1].group()) or None
    number = NUMBER_IN_PROSE.match(rest)
    return number.group() if number else rest or None


def final_letter(response: str, letters: str = "ABCD") -> str | None:
    """The option that a response chooses, or None where it chooses none, several, or one that is not offered.

    Looked for in this order: a box, 'the answer is (C)' and its like, letters in bold if they agree, a lone letter.
    """
    one = (LETTER + NO_SECOND).replace("{letters}", letters)
    marked = re.compile(rf"(?i:{ANSWER_MARK}|{CHOICE_MARK}){one}")

    def find(text: str) -> str | None:
        inside = re.match(one, plain(last_boxed(text) or ""))
        if inside and not is_article(inside):
            return inside["letter"]
        if found := [match for match in marked.finditer(text) if not is_article(match)]:
            return found[-1]["letter"]
        bold = {match["letter"] for match in re.finditer(rf"\*\*{one}", text)}
        if len(bold) == 1:
            return bold.pop()
        alone = re.fullmatch(one, text.strip().rstrip("."))
        return alone["letter"] if alone else None

    return first_found(response, find)


def plain(boxed: str) -> str:
    r"""A box's content without \text{} and its like, and without a leading 'Answer:'."""
    return re.sub(r"(?i)^(?:answer|option)\s*:?\s*", "", TEXT_MACRO.sub(r"\1", boxed).strip())


def is_article(found: re.Match[str]) -> bool:
    """Whether the letter is rather the English article: a bare A before a word that goes on with a noun."""
    return ARTICLE.match(found.string, found.start("letter")) is not None


def grade_boxed_integer(response: str, gold: str) -> Grade:
    """Verdict where the gold is a whole number and the answer stands in a box."""
    answer = last_boxed(response)
    if answer is None:
        return Grade(verdict="no_answer", answer=None, reason="no complete box")
    # 18 digits at most: int() of a long digit string is slow, and beyond 4300 digits an error.
    same = re.fullmatch(r"\+?[0-9]{1,18}", answer) is not None and int(answer) == int(gold)
    return Grade(verdict="correct" if same else "incorrect", answer=answer, reason=f"gold is {gold}")
