r"""Finding the answer in a response: the last complete \boxed{...}, else a closing phrase; None where there is none.

Knows text only; whether an answer is right is for equivalence.py, options are for letters.py. An unfinished box at a
cut never counts, and an empty last box takes an earlier one back. Boxes joined by nothing but a comma, 'and' or 'or'
are one answer in parts. What follows a closing </think> is looked at first, the whole response only if no answer stands
there. A text that was cut by a budget is read the same way (policy `last`), or not at all (policy `strict`): a formula
or number without box or phrase is never an answer, since it may be a step on the way. A phrase ("The answer is 12") has
no closing mark: at a cut it may be a prefix of what would have come, which is why prompts ask for a box.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from results.records import Grade

BOX_PARTS = re.compile(r"\\(?P<box>boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
BARE_BOX = re.compile(r"\\boxed\s*(\d+)\b")
# Between two boxes of one answer: separators, signs that begin or end mathematics, and the name of the second part.
JOINT = re.compile(
    r"(?:[\s$.]|\\[()\[\],;: ]|\\q?quad|(?P<joint>,|;|(?:\\text\s*\{\s*)?\b(?:and|or)\b(?:\s*\})?))*"
    r"(?:[a-zA-Z](?:_\{?\w\}?)?\s*=)?\s*"
)
LONGEST_JOINT = 60
CHAT_END = re.compile(r"<\|[a-z_]+\|>.*", re.DOTALL)

# 'The final answer is: **', 'Answer:', 'Answer $', and 'A:' or '####' at the start of the last line: the answer
# follows, up to the end of the sentence or line.
PHRASE = re.compile(
    r"(?i:\banswer\b)(?:[^.:?!\n]{0,40}?\bis\b:?|[\s*]*[:=]|\s*(?=\$|\\\())[\s*]*|^(?:A:|####)[ \t]*(?=.+\Z)",
    re.MULTILINE,
)
LONGEST = 2000  # characters of an answer given in a phrase
SENTENCE = re.compile(rf".{{1,{LONGEST}}}?(?=\.?$|\.\s|\n)")
MATHS = re.compile(r"\$((?:\\.|[^\\$])+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
DISPLAY = re.compile(r"\\\[(.+?)\\\]|\$\$(.+?)\$\$", re.DOTALL)  # may go over several lines
AND = re.compile(r"\s*(?:,\s*(?:and|or)\b|,|and\b|or\b)\s*")
NUMBER_IN_PROSE = re.compile(r"\$?[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?=\s+[a-z]{2,})")
STATED = re.compile(r"\b(?:is|are|equals)\b:?\s+(?=[$\\\d(+-])")


class Box(NamedTuple):
    """A complete box: where it stands and what is in it."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box]:
    """All complete boxes with balanced braces, by their start; time linear in the text."""
    found: list[Box] = []
    opened: list[tuple[int, int] | None] = []
    for part in BOX_PARTS.finditer(text):
        token = part.group()
        if part["box"] or token == "{":
            opened.append((part.start(), part.end()) if part["box"] else None)
        elif token == "}" and opened and (box := opened.pop()):
            found.append(Box(box[0], part.end(), text[box[1] : part.start()].strip()))
    return sorted(found)


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{...}, or None; parts of one answer are joined by commas."""
    found = boxes(text)
    if not found:
        bare = list(BARE_BOX.finditer(text))
        return bare[-1].group(1) if bare else None
    parts = [found.pop()]
    while found and is_joint(text[found[-1].end : parts[0].start]):
        parts.insert(0, found.pop())
    return ", ".join(dict.fromkeys(part.content for part in parts))


def is_joint(between: str) -> bool:
    """Whether nothing but a separator stands between two boxes."""
    if len(between) > LONGEST_JOINT:
        return False
    joint = JOINT.fullmatch(between)
    return joint is not None and joint["joint"] is not None


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
    """What follows the last 'answer is' or 'Answer:': a display, or in one sentence its maths, its number, else all."""
    text = CHAT_END.sub("", text).rstrip()
    ends = [mark.end() for mark in PHRASE.finditer(text)]
    found = next((sentence for end in reversed(ends) if (sentence := SENTENCE.match(text, end))), None)
    if found is None:
        return None
    if display := DISPLAY.match(text, found.start()):
        return (display[1] or display[2]).strip() or None
    rest = found.group().strip(" *")
    if r"\boxed" in rest or r"\fbox" in rest or not re.search(r"\w", rest):
        return None
    return first_stated(rest) or said_at_the_end(rest)


def said_at_the_end(sentence: str) -> str | None:
    """What follows the last 'is' in front of a number or maths, else the last maths, else all of it."""
    if later := list(STATED.finditer(sentence)):
        tail = sentence[later[-1].end() :]
        return first_stated(tail) or tail
    maths = list(MATHS.finditer(sentence))
    return (without_marks(maths[-1].group()) if maths else sentence) or None


def first_stated(text: str) -> str | None:
    """The maths at the start of a text, further parts behind 'and' or commas included, or the number there."""
    parts: list[str] = []
    place = 0
    while maths := MATHS.match(text, place):
        parts.append(without_marks(maths.group()))
        joint = AND.match(text, maths.end())
        if joint is None:
            break
        place = joint.end()
    if parts:
        return ", ".join(parts)
    number = NUMBER_IN_PROSE.match(text)
    return number.group() if number else None


def grade_boxed_integer(response: str, gold: str) -> Grade:
    """Verdict where the gold is a whole number and the answer stands in a box."""
    answer = last_boxed(response)
    if answer is None:
        return Grade(verdict="no_answer", answer=None, reason="no complete box")
    # 18 digits at most: int() of a long digit string is slow, and beyond 4300 digits an error.
    same = re.fullmatch(r"\+?[0-9]{1,18}", answer) is not None and int(answer) == int(gold)
    return Grade(verdict="correct" if same else "incorrect", answer=answer, reason=f"gold is {gold}")
