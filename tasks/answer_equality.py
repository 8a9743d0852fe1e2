"""Whether two answers say the same: their forms compared part by part, down to the values of the expressions.

Order counts in points, vectors, matrices and ratios, and not in lists and sets. A list of named values is a point;
other brackets make other things: a set is no tuple, (1,2] is not (1,2). A name in front (x = 3) may be left out, and a
unit, a degree, percent or currency sign, and the base of a number; another one may not stand in its place.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import sympy

from tasks.expression_equality import difference, same_equation, same_expression, same_latex
from tasks.expressions import UnreadableError, rational, tree_of
from tasks.forms import form_of, plain
from tasks.kinds import Based, Choice, Expression, Form, Grid, Joined, Named, Relation, Row, Several, Word
from tasks.notation import normalised
from tasks.operations import UnknownValueError
from tasks.real_sets import same_set
from tasks.values import same_up_to_a_factor

DECIMAL_COMMA = re.compile(r"(-?\d+),(\d+)")
DECIMAL_POINT = re.compile(r"-?\d*\.\d+")
# Signs and words that notation.py takes away: an answer may leave them out, and not put another in their place.
MEASURES = {
    "money": re.compile(r"\\\$|(?<![a-zA-Z])dollars?\b|€|£"),
    "cents": re.compile(r"(?<![a-zA-Z])cents?\b|¢"),
    "degrees": re.compile(r"\\circ\b|°|\bdegrees?\b|\\degree"),
    "percent": re.compile(r"%|\bper ?cent\b"),
}
NO_SOLUTION = {"nosolution", "nosolutions", "theemptyset", "emptyset"}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}


def same_answer(gold: str, answer: str) -> bool:
    """Whether an answer says what the gold says. Raises TooLargeError, or what sympy raises for odd trees."""
    kinds = [{name for name, sign in MEASURES.items() if sign.search(text)} for text in (gold, answer)]
    if all(kinds) and kinds[0].isdisjoint(kinds[1]):
        return False
    one, other = read(with_point(gold, answer)), read(with_point(answer, gold))
    return one is not None and other is not None and same_form(one, other)


@lru_cache(maxsize=1024)
def read(text: str) -> Form | None:
    """The form of a text as it was written; None for nothing."""
    spelled = normalised(text)
    return form_of(spelled) if spelled else None


def can_be_read(gold: str) -> bool:
    """Whether a gold has a form and all its expressions can be read."""
    form = read(gold)
    return form is not None and readable(form)


def readable(form: Form) -> bool:
    """Whether all expressions in a form can be read."""
    if isinstance(form, Expression):
        try:
            tree_of(form.bare or form.latex)
        except UnreadableError:
            return False
    return all(map(readable, parts_of(form)))


def parts_of(form: Form) -> Sequence[Form]:
    """The forms within a form."""
    match form:
        case Several(parts=parts) | Row(parts=parts) | Joined(parts=parts):
            return parts
        case Grid(rows=rows):
            return [cell for row in rows for cell in row]
        case Named(value=value) | Choice(value=value):
            return [value]
        case Relation(sides=sides):
            return [Expression(side) for side in sides]
    return ()


def with_point(text: str, beside: str) -> str:
    """A decimal comma as a point, where the other side is one number with a point; 1,234 groups digits."""
    found = DECIMAL_COMMA.fullmatch(text.strip(" $"))
    if found is None or DECIMAL_POINT.fullmatch(beside.strip(" $")) is None:
        return text
    return text if len(found[2]) == 3 and not re.match("-?0", found[1]) else f"{found[1]}.{found[2]}"


def same_form(one: Form, other: Form) -> bool:
    """Whether two forms say the same; symmetric."""
    if one == other:
        return True
    for rule in (same_choice, same_named, same_word, same_based, same_several, same_row, same_grid):
        for left, right in ((one, other), (other, one)):
            if (verdict := rule(left, right)) is not None:
                return verdict
    if isinstance(one, Expression) and isinstance(other, Expression):
        return same_expression(one, other)
    if isinstance(one, Relation) and isinstance(other, Relation) and same_relation(one, other):
        return True
    if isinstance(one, Joined) and isinstance(other, Joined) and one.signs == other.signs:
        return any_order(one.parts, other.parts) or same_set(one, other)
    return same_set(one, other)


def same_choice(one: Form, other: Form) -> bool | None:
    """An option with what it says: either may be left out."""
    if not isinstance(one, Choice):
        return None
    if isinstance(other, Choice):
        return one.letter == other.letter and same_form(one.value, other.value)
    return same_form(Word(one.letter), other) or same_form(one.value, other)


def same_named(one: Form, other: Form) -> bool | None:
    """A value with a name: the name may be left out, and what is named may be said as another equation."""
    if not isinstance(one, Named):
        return None
    if isinstance(other, Named):
        return (
            same_form(one.value, other.value) if one.name == other.name else same_equation(one.equation, other.equation)
        )
    if isinstance(other, Relation) and other.signs == ("=",):
        return same_equation(one.equation, other.sides)
    return same_form(one.value, other)


def same_word(one: Form, other: Form) -> bool | None:
    """An answer in words, letter by letter; a formula may spell a word."""
    if not isinstance(one, Word):
        return None
    if other == Several("set", ()):
        return one.text in NO_SOLUTION
    said = other.text if isinstance(other, Word) else plain(other.latex) if isinstance(other, Expression) else None
    return one.text == said


def same_based(one: Form, other: Form) -> bool | None:
    """A number in a base: by value, or by its digits where the other side leaves the base out."""
    if not isinstance(one, Based):
        return None
    if isinstance(other, Expression):
        return one.digits == other.latex
    if not isinstance(other, Based) or not all(
        int(form.digits[i], 36) < form.base for form in (one, other) for i in range(len(form.digits))
    ):
        return False
    return int(one.digits, one.base) == int(other.digits, other.base)


def same_several(one: Form, other: Form) -> bool | None:
    """Lists and sets in any order, ratios in theirs; a list of named values may be a point."""
    if not isinstance(one, Several):
        return None
    if one.kind == "ratio":
        return same_ratio(one, other)
    if isinstance(other, Row):
        named = one.kind == "list" and all(isinstance(part, Named) for part in one.parts)
        return named and other.left in ("(", r"\langle") and in_order(one.parts, other.parts)
    if isinstance(other, Several) and other.kind != "ratio":
        return any_order(distinct(one.parts), distinct(other.parts))
    if one.kind == "list" and len(alone := distinct(one.parts)) == 1:
        return same_form(alone[0], other)
    return None if isinstance(other, Joined | Relation) else False


def same_ratio(ratio: Several, other: Form) -> bool:
    """Whether another ratio is the same or proportional; one of two parts may be a fraction."""
    if isinstance(other, Expression) and len(ratio.parts) == 2:
        first, second = (part.latex if isinstance(part, Expression) else "" for part in ratio.parts)
        return bool(first and second) and same_latex(rf"\frac{{{first}}}{{{second}}}", other.latex)
    return isinstance(other, Several) and other.kind == "ratio" and proportional(ratio.parts, other.parts)


def proportional(one: Sequence[Form], other: Sequence[Form]) -> bool:
    """Whether all parts are equal, or all in one proportion."""
    if in_order(one, other):
        return True
    values = [
        [rational(part.latex) if isinstance(part, Expression) else None for part in parts] for parts in (one, other)
    ]
    if len(one) != len(other) or any(not value for side in values for value in side):
        return False
    return len({Fraction(left or 0) / Fraction(right or 1) for left, right in zip(*values, strict=True)}) == 1


def in_order(one: Sequence[Form], other: Sequence[Form]) -> bool:
    """Whether the parts are equal one by one."""
    return len(one) == len(other) and all(same_form(left, right) for left, right in zip(one, other, strict=True))


def any_order(one: Sequence[Form], other: Sequence[Form]) -> bool:
    """Whether the parts can be paired so that all pairs are equal."""
    left = list(other)
    for part in one:
        found = next((i for i, candidate in enumerate(left) if same_form(part, candidate)), None)
        if found is None:
            return False
        del left[found]
    return not left


def distinct(parts: Sequence[Form]) -> list[Form]:
    """The parts, equal ones once."""
    kept: list[Form] = []
    for part in parts:
        if not any(same_form(part, other) for other in kept):
            kept.append(part)
    return kept


def same_row(one: Form, other: Form) -> bool | None:
    """Points, vectors and intervals: part by part; the brackets count where there are two parts."""
    if not isinstance(one, Row) or not isinstance(other, Row):
        return None
    kinds = [
        tuple(
            "(" if bracket in (r"\langle", "(") else ")" if bracket in (r"\rangle", ")") else bracket
            for bracket in (row.left, row.right)
        )
        for row in (one, other)
    ]
    return (len(one.parts) != 2 or kinds[0] == kinds[1]) and in_order(one.parts, other.parts)


def same_grid(one: Form, other: Form) -> bool | None:
    """Matrices, cell by cell; one row or column may be a point, and a product of matrices is multiplied out."""
    if not isinstance(one, Grid):
        return None
    if isinstance(other, Grid):
        return len(one.rows) == len(other.rows) and all(map(in_order, one.rows, other.rows))
    if isinstance(other, Row):
        if all(isinstance(part, Row) for part in other.parts):
            return in_order([Row(other.left, other.right, row) for row in one.rows], other.parts)
        line = one.rows[0] if len(one.rows) == 1 else [row[0] for row in one.rows if len(row) == 1]
        return len(line) == max(len(one.rows), len(one.rows[0])) and in_order(line, other.parts)
    return isinstance(other, Expression) and same_product(one, other)


def same_product(one: Grid, other: Expression) -> bool:
    """Whether a product or sum of matrices comes to a matrix."""
    if r"\begin" not in other.latex:
        return False
    try:
        product = sympy.Matrix(tree_of(other.latex).doit())
    except (UnreadableError, TypeError, ValueError):
        return False
    cells = [[Expression(sympy.latex(cell)) for cell in product.row(i)] for i in range(product.rows)]
    return len(cells) == len(one.rows) and all(map(in_order, one.rows, cells))


def same_relation(one: Relation, other: Relation) -> bool:
    """Equations up to a factor; inequalities side by side or, where there is one, up to a positive factor."""
    if one.signs == other.signs == ("=",):
        return same_equation(one.sides, other.sides)
    turned = Relation(other.sides[::-1], tuple(FLIPPED.get(sign, sign) for sign in other.signs[::-1]))
    return any(one.signs == each.signs and same_sides(one, each) for each in (other, turned))


def same_sides(one: Relation, other: Relation) -> bool:
    """The same for two chains with the same signs."""
    sides = zip(one.sides, other.sides, strict=True)
    if all(re.sub(r"\s", "", a) == re.sub(r"\s", "", b) or same_latex(a, b) for a, b in sides):
        return True
    if len(one.signs) > 1 or one.signs[0] not in FLIPPED:
        return False
    try:
        return same_up_to_a_factor(difference(one.sides), difference(other.sides), positive=True)
    except (UnreadableError, UnknownValueError):
        return False
