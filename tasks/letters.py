r"""Finding the option that a response chooses: one letter, or None where it chooses none, several or one not offered.

Knows text only. Looked for in this order, behind a closing </think> first: a box, 'the answer is (C)' and its like
(also in other languages), bold letters if they agree, one option called correct, a reply that is or begins with a
letter, a reply that is an option's text. A letter is never guessed, and neither the article 'a' nor a word's first
letter is one.
"""

import re
import unicodedata
from collections.abc import Mapping

from tasks.answers import first_found, last_boxed

TEXT_MACRO = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|rm|bf)\s*\{([^{}]*)\}")
LOOK_ALIKES = str.maketrans("АВСЕ", "ABCE")  # Cyrillic capitals that are written where Latin ones are meant

ANSWER_MARK = (
    r"\b(?:answer|r[eé]ponse|antwort|respuesta|resposta|risposta|ответ)\b"
    r"(?:\s+(?:is|est|ist|es|é|è|seems|to|be|should|would|for|sure|option|choice))*+"
    r"[\s*_>]*+[:=\-\u2013]?[\s*_]*+(?:option\s+)?|(?:答案|答え|正解|정답)(?:是|为|は|은)?\s*[:：]?\s*"
)
CHOICE_MARK = (
    r"\b(?:(?:final|correct|my|best)\s+(?:option|choice)(?:\s+is|:)|(?:hence|therefore|thus),?\s+(?:option|choice)"
    r"|I(?:'ll|'d|\s+will|\s+would)?\s+(?:choose|chose|pick|select|go\s+with)(?:\s+option)?|settled?\s+(?:on|for))\s*"
)
# Possessive quantifiers (+ at the end), so that a match cannot give a bracket back and overlook a second letter.
LETTER = r"[(\[\"'$*_（]{0,6}+(?P<letter>[{letters}])(?![\w\x27\u2019]|-\w)[)\]\"'$*_）]{0,6}+"
# In lower case only where nothing follows that could make it a word of a sentence.
SMALL = r"[(\[\"'$*_]{0,6}+(?P<letter>[{small}])[)\]\"'$*_]{0,6}+(?=\s*(?:[.;,]|\n|$))"
NO_SECOND = r"(?![ \t]*+(?:,|/|or\b|and\b|)[ \t]*+[(\[*]*+[{letters}]\b)"
ARTICLE = re.compile(r"A +(?!(?:is|because|since|as|for|by|due|but|and|given|with|which|non?|not)\b)[a-z]")
CALLED_RIGHT = r"(?<![\w/])(?<!or )(?<!and )(?<!nor )(?:[Oo]ption )?{one}\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
# 'D. it cannot be A', 'B。', 'B不是 A' at the start of a reply, unless the reply lists several options that way.
LEADING = r"\s*[:：]?\s*(?P<letter>[{letters}])(?:[.)]\s+(?=\S)|[。：，、]|(?=[\u4e00-\u9fff]))"
LISTED = r"(?m)(?:^\s*|[.;]\s+)[(*]*[{letters}][.):]"


def final_letter(response: str, letters: str = "ABCD", options: Mapping[str, str] | None = None) -> str | None:
    """The option that a response chooses, or None.

    letters: those that are offered
    options: the text under each letter, where a reply may give that instead of the letter
    """
    search = LetterSearch(letters, options or {})
    plainer = TEXT_MACRO.sub(r"\1", unicodedata.normalize("NFKC", response).translate(LOOK_ALIKES))
    return first_found(plainer, search.find)


class LetterSearch:
    """The search for one set of letters and options."""

    def __init__(self, letters: str, options: Mapping[str, str]) -> None:
        def fill(pattern: str) -> str:
            return pattern.replace("{letters}", letters).replace("{small}", letters.lower())

        self._one, self._small = fill(LETTER + NO_SECOND), fill(SMALL)
        self._mark = re.compile(rf"(?i:{ANSWER_MARK}|{CHOICE_MARK})")
        self._letter, self._lower = re.compile(self._one), re.compile(self._small)
        self._bold = re.compile(rf"\*\*{self._one}")
        self._right = re.compile(CALLED_RIGHT.replace("{one}", self._one))
        self._leading, self._listed = re.compile(fill(LEADING)), re.compile(fill(LISTED))
        self._longest = 2 * max(map(len, options.values()), default=0)  # characters of a line that may be an option
        self._texts = {plain_text(text): letter for letter, text in options.items() if letter in letters}

    def find(self, text: str) -> str | None:
        """The chosen letter in a part of a response."""
        return (
            self.in_box(last_boxed(text))
            or self.marked(text)
            or self.agreed(self._bold, text)
            or self.agreed(self._right, text)
            or self.alone(text.strip())
            or self._texts.get(plain_text(text))
        )

    def in_box(self, content: str | None) -> str | None:
        """The letter, or the option's text, in a box."""
        if content is None:
            return None
        inside = plain(content)
        found = self._letter.match(inside)
        if found and not is_article(found):
            return found["letter"]
        small = self._lower.fullmatch(inside)
        return small["letter"].upper() if small else self._texts.get(plain_text(inside))

    def marked(self, text: str) -> str | None:
        """The letter or option behind the last mark such as 'answer:' that has one."""
        for mark in reversed(list(self._mark.finditer(text))):
            found = self._letter.match(text, mark.end())
            if found and not is_article(found):
                return found["letter"]
            if small := self._lower.match(text, mark.end()):
                return small["letter"].upper()
            line = text[mark.end() : mark.end() + self._longest].split("\n", 1)[0]
            if line and (option := self._texts.get(plain_text(line))):
                return option
        return None

    def agreed(self, pattern: re.Pattern[str], text: str) -> str | None:
        """The letter of all matches, if it is one."""
        found = {match["letter"] for match in pattern.finditer(text) if not is_article(match)}
        return found.pop() if len(found) == 1 else None

    def alone(self, text: str) -> str | None:
        """The letter that a reply is, or begins with."""
        bare = text.lstrip(":").strip().rstrip(".")
        if whole := self._letter.fullmatch(bare) or self._lower.fullmatch(bare):
            return whole["letter"].upper()
        letter, _, said = bare.partition(":")
        if self._texts.get(plain_text(said)) == letter:  # else 'A:' may say that an answer comes
            return letter
        leading = self._leading.match(text)
        return leading["letter"] if leading and len(self._listed.findall(text)) <= 1 else None


def plain(boxed: str) -> str:
    r"""A box's content without \text{} and its like, and without a leading 'Answer:'."""
    return re.sub(r"(?i)^(?:answer|option)\s*:?\s*", "", TEXT_MACRO.sub(r"\1", boxed).strip())


def plain_text(text: str) -> str:
    """A text to compare options by: no blanks, marks or case."""
    return re.sub(r"[\s$*_`\"'\\{}]+|[.]+$", "", TEXT_MACRO.sub(r"\1", text)).lower().rstrip(".")


def is_article(found: re.Match[str]) -> bool:
    """Whether the letter is rather the English article: a bare A before a word that goes on with a noun."""
    return ARTICLE.match(found.string, found.start("letter")) is not None
