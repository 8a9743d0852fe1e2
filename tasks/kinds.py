"""The kinds of answers: plain values that forms.py reads from a text and answer_equality.py compares."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Word:
    """An answer in words; `text` in lower case unless it is a single letter."""

    text: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A number or expression in LaTeX; `bare` is without the unit behind it, if that is one."""

    latex: str
    bare: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Based:
    """A number in another base than ten."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a multiple choice with what it says: (C) 12."""

    letter: str
    value: "Form"


@dataclass(frozen=True, slots=True)
class Several:
    """Values without a bracket ('list'), in braces ('set'), or as a ratio: unordered except for a ratio."""

    kind: Literal["list", "set", "ratio"]
    parts: "tuple[Form, ...]"


@dataclass(frozen=True, slots=True)
class Row:
    """Values in brackets: a point, a vector or an interval, whose two brackets are kept."""

    left: str
    right: str
    parts: "tuple[Form, ...]"


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix, row by row."""

    rows: "tuple[tuple[Form, ...], ...]"


@dataclass(frozen=True, slots=True)
class Named:
    """A value with its name: x = 3, f(x) = x^2, (p, q) = (3, 2), x in a set."""

    name: str
    value: "Form"
    equation: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation that is no assignment, or a chain of inequalities."""

    sides: tuple[str, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    r"""Sets joined by \cup, \cap or \setminus, or conditions joined by 'or'."""

    signs: tuple[str, ...]
    parts: "tuple[Form, ...]"


Form: TypeAlias = Word | Expression | Based | Choice | Several | Row | Grid | Named | Relation | Joined
