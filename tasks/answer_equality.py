"""Whether two answers say the same: their forms compared part by part, down to the values of the expressions.

Order counts in points, vectors, matrices and ratios, and not in lists and sets. A list of named values is a point; other
brackets make other things: a set is no tuple, (1,2] is not (1,2). A name in front (x = 3) may be left out, a unit, degree,
percent or currency sign too, and the base of a number. Decimals count as they are written, except that one with six
or more digits behind the point and from the first that is not 0 may stand for what it is the rounding of.
Where values.py cannot tell, math-verify decides: https://github.com/huggingface/Math-Verify.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import mpmath
import sympy

from tasks import forms
from tasks.expressions import UnreadableError, decimals, rational, tree_of
from tasks.forms import Based, Expression, Form, Grid, Joined, Named, Relation, Row, Several, Word, form_of, plain
from tasks.notation import normalised
from tasks.values import TooLargeError, UnknownValueError, is_real, as_mp, same_up_to_a_factor, same_value, value_at

DECIMAL_COMMA = re.compile(r"(-?\d+),(\d+)")
DECIMAL_POINT = re.compile(r"-?\d*\.\d+")
LOG = re.compile(r"\\log(?![a-zA-Z])(?!\s*_)")
ROUNDED_DIGITS = 6
UNITS = (
    {"cm", "centimeter", "centimetre"}, {"mm", "millimeter"}, {"m", "meter", "metre"}, {"km", "kilometer", "kilometre"},
    {"in", "inch", "inches"}, {"ft", "foot", "feet"}, {"yd", "yard"}, {"mi", "mile"}, {"g", "gram"}, {"kg", "kilogram"},
    {"s", "sec", "second"}, {"min", "minute"}, {"h", "hr", "hour"}, {"day"}, {"week"}, {"month"}, {"year"},
    {"cent", "¢"}, {"dollar"}, {"degree"}, {"radian", "rad"},
)  # fmt: skip
# Signs and words that notation.py takes away: an answer may leave them out, and not put another in their place.
MEASURES = {
    "money": re.compile(r"\\\$|\bdollars?\b|€|£"),
    "cents": re.compile(r"\bcents?\b|¢"),
    "degrees": re.compile(r"\\circ\b|°|\bdegrees?\b|\\degree"),
    "percent": re.compile(r"%|\bper ?cent\b"),
}
RELATIONS = {"<": sympy.StrictLessThan, "<=": sympy.LessThan, ">": sympy.StrictGreaterThan, ">=": sympy.GreaterThan, "!=": sympy.Ne}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}


def same_answer(gold: str, answer: str) -> bool:
    """Whether an answer says what the gold says. Raises TooLargeError, or what sympy raises for odd trees."""
    kinds = [{name for name, sign in MEASURES.items() if sign.search(text)} for text in (gold, answer)]
    if all(kinds) and kinds[0].isdisjoint(kinds[1]):
        return False
    one, other = normalised(with_point(gold, answer)), normalised(with_point(answer, gold))
    return bool(other) and (one == other or same_form(form_of(one), form_of(other)))


def can_be_read(gold: str) -> bool:
    """Whether a gold has a form and all its expressions can be read."""
    text = normalised(gold)
    return bool(text) and readable(form_of(text))


def readable(form: Form) -> bool:
    """Whether all expressions in a form can be read."""
    match form:
        case Expression():
            try:
                tree_of(form.bare or form.latex)
            except UnreadableError:
                return False
            return True
        case Several(parts=parts) | Row(parts=parts) | Joined(parts=parts):
            return all(map(readable, parts))
        case Grid(rows=rows):
            return all(readable(cell) for row in rows for cell in row)
        case Named(value=value):
            return readable(value)
        case Relation(sides=sides):
            return all(readable(Expression(side)) for side in sides)
    return True


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
    for rule in (same_named, same_word, same_based, same_several, same_row, same_grid):
        for left, right in ((one, other), (other, one)):
            if (verdict := rule(left, right)) is not None:
                return verdict
    if isinstance(one, Expression) and isinstance(other, Expression):
        return same_expression(one, other)
    if isinstance(one, Relation) and isinstance(other, Relation) and same_relation(one, other):
        return True
    return same_set(one, other)


def same_named(one: Form, other: Form) -> bool | None:
    """A value with a name: the name may be left out, and what is named may be said as another equation."""
    if not isinstance(one, Named):
        return None
    if isinstance(other, Named):
        return same_form(one.value, other.value) if one.name == other.name else same_equation(one.equation, other.equation)
    if isinstance(other, Relation) and other.signs == ("=",):
        return same_equation(one.equation, other.sides)
    return same_form(one.value, other)


def same_word(one: Form, other: Form) -> bool | None:
    """An answer in words, letter by letter; a formula may spell a word."""
    if not isinstance(one, Word):
        return None
    said = other.text if isinstance(other, Word) else plain(other.latex) if isinstance(other, Expression) else None
    return one.text == said


def same_based(one: Form, other: Form) -> bool | None:
    """A number in a base: by value, or by its digits where the other side leaves the base out."""
    if not isinstance(one, Based):
        return None
    if isinstance(other, Expression):
        return one.digits == other.latex
    if not isinstance(other, Based) or not all(int(form.digits[i], 36) < form.base for form in (one, other) for i in range(len(form.digits))):
        return False
    return int(one.digits, one.base) == int(other.digits, other.base)


def same_several(one: Form, other: Form) -> bool | None:
    """Lists and sets in any order, ratios in theirs; a list of named values may be a point."""
    if not isinstance(one, Several):
        return None
    if one.kind == "ratio":
        return isinstance(other, Several) and other.kind == "ratio" and same_ratio(one.parts, other.parts)
    if isinstance(other, Row):
        named = one.kind == "list" and all(isinstance(part, Named) for part in one.parts)
        return named and other.left in ("(", r"\langle") and in_order(one.parts, other.parts)
    if isinstance(other, Several) and other.kind != "ratio":
        return any_order(distinct(one.parts), distinct(other.parts))
    if one.kind == "list" and len(alone := distinct(one.parts)) == 1:
        return same_form(alone[0], other)
    return None if isinstance(other, Joined | Relation) else False


def same_ratio(one: Sequence[Form], other: Sequence[Form]) -> bool:
    """Whether all parts are equal, or all in one proportion."""
    if in_order(one, other):
        return True
    values = [[rational(part.latex) if isinstance(part, Expression) else None for part in parts] for parts in (one, other)]
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
    kinds = [tuple("(" if bracket in (r"\langle", "(") else ")" if bracket in (r"\rangle", ")") else bracket for bracket in (row.left, row.right)) for row in (one, other)]
    return (len(one.parts) != 2 or kinds[0] == kinds[1]) and in_order(one.parts, other.parts)


def same_grid(one: Form, other: Form) -> bool | None:
    """Matrices, cell by cell; one column may be written as a point, and a product of matrices is multiplied out."""
    if not isinstance(one, Grid):
        return None
    if isinstance(other, Grid):
        return len(one.rows) == len(other.rows) and all(map(in_order, one.rows, other.rows))
    if isinstance(other, Row):
        return all(len(row) == 1 for row in one.rows) and in_order([row[0] for row in one.rows], other.parts)
    if not isinstance(other, Expression) or r"\begin" not in other.latex:
        return False
    try:
        product = sympy.Matrix(tree_of(other.latex).doit())
    except (UnreadableError, TypeError, ValueError):
        return False
    cells = [[Expression(sympy.latex(cell)) for cell in product.row(i)] for i in range(product.rows)]
    return len(cells) == len(one.rows) and all(map(in_order, one.rows, cells))


def same_expression(one: Expression, other: Expression) -> bool:
    """By value, as they stand or without their units."""
    if re.sub(r"\s", "", one.latex) == re.sub(r"\s", "", other.latex) or same_latex(one.latex, other.latex):
        return True
    units = [unit_kind(form.unit) for form in (one, other)]
    if not (one.bare or other.bare) or (None not in units and units[0] != units[1]):
        return False
    return same_latex(one.bare or one.latex, other.bare or other.latex)


def unit_kind(word: str) -> int | None:
    """Which of the known units a word is, if any."""
    word = word.lower().strip(". ")
    return next((i for i, names in enumerate(UNITS) if word in names or word.removesuffix("s") in names), None)


def same_latex(one: str, other: str) -> bool:
    r"""Whether two expressions have one value; a \log without a base is to ten or natural, in both alike."""
    if same_reading(one, other):
        return True
    natural = [LOG.sub(r"\\ln", latex) for latex in (one, other)]
    return natural != [one, other] and same_reading(*natural)


def same_reading(one: str, other: str) -> bool:
    r"""The same with \log to ten."""
    exact = rational(one), rational(other)
    if None not in exact:
        return exact[0] == exact[1] or rounds_to(one, other) or rounds_to(other, one)
    try:
        left, right = tree_of(one), tree_of(other)
    except UnreadableError:
        return False
    if isinstance(left, sympy.MatrixBase | sympy.MatrixExpr) or isinstance(right, sympy.MatrixBase | sympy.MatrixExpr):
        return math_verify_says(left, right)
    try:
        return same_value(left, right) or rounds_to(one, other) or rounds_to(other, one)
    except UnknownValueError:
        return math_verify_says(left, right)


def rounds_to(decimal: str, exact: str) -> bool:
    """Whether a decimal with enough digits is the rounding of what is no decimal itself."""
    places = decimals(decimal)
    if places < ROUNDED_DIGITS or decimals(exact) or len(decimal.lstrip("-+0.")) < ROUNDED_DIGITS:
        return False
    written = rational(decimal)
    with mpmath.workdps(60):
        try:
            value = value_at(tree_of(exact), {})
        except (UnknownValueError, ZeroDivisionError, UnreadableError):
            return False
        return is_real(value) and written is not None and bool(
            abs(mpmath.re(as_mp(value)) - as_mp(written)) <= mpmath.mpf(10) ** -places / 2
        )


def math_verify_says(one: sympy.Basic, other: sympy.Basic) -> bool:
    """The verdict of math-verify, for what has no value here."""
    from math_verify import verify

    return bool(verify([one], [other], timeout_seconds=None))


def same_equation(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two equations have proportional differences of their sides."""
    try:
        left, right = (difference(sides) for sides in (one, other))
        return same_up_to_a_factor(left, right, positive=False)
    except (UnreadableError, UnknownValueError):
        return False


def difference(sides: Sequence[str]) -> sympy.Expr:
    """First side minus last side."""
    with sympy.evaluate(False):
        return sympy.Add(tree_of(sides[0]), sympy.Mul(-1, tree_of(sides[-1])))


def same_relation(one: Relation, other: Relation) -> bool:
    """Equations up to a factor; single inequalities up to a positive one; chains side by side."""
    if one.signs == other.signs == ("=",):
        return same_equation(one.sides, other.sides)
    for turned in (other, Relation(other.sides[::-1], tuple(FLIPPED.get(sign, sign) for sign in other.signs[::-1]))):
        if one.signs != turned.signs:
            continue
        if all(re.sub(r"\s", "", a) == re.sub(r"\s", "", b) or same_latex(a, b) for a, b in zip(one.sides, turned.sides, strict=True)):
            return True
        try:
            if len(one.signs) == 1 and "=" not in one.signs and "~" not in one.signs and same_up_to_a_factor(difference(one.sides), difference(turned.sides), positive=True):
                return True
        except (UnreadableError, UnknownValueError):
            continue
    return False


def same_set(one: Form, other: Form) -> bool:
    """Sets of real numbers: intervals, inequalities with one unknown, unions and the like."""
    unknowns: set[str] = set()
    sets = [real_set(form, unknowns) for form in (one, other)]
    if sets[0] is None or sets[1] is None or len(unknowns) > 1:
        return False
    pieces = [ordered_pieces(each) for each in sets]
    return len(pieces[0]) == len(pieces[1]) and all(map(same_piece, *pieces))


def ordered_pieces(numbers: sympy.Set) -> list[sympy.Set]:
    """The intervals and points of a set, from left to right."""
    pieces = list(numbers.args) if isinstance(numbers, sympy.Union) else [numbers]
    points = [sympy.FiniteSet(point) for piece in pieces if isinstance(piece, sympy.FiniteSet) for point in piece]
    whole = [piece for piece in pieces if not isinstance(piece, sympy.FiniteSet)] + points
    return sorted(whole, key=lambda piece: float(piece.inf) if piece is not sympy.S.EmptySet else 0.0)


def same_piece(one: sympy.Set, other: sympy.Set) -> bool:
    """Whether two intervals or points are the same."""
    if one == other:
        return True
    if not isinstance(one, sympy.Interval) or not isinstance(other, sympy.Interval):
        return False
    if (one.left_open, one.right_open) != (other.left_open, other.right_open):
        return False
    return all(a == b or (a.is_finite is not False and b.is_finite is not False and same_value(a, b)) for a, b in zip(one.args[:2], other.args[:2], strict=True))


def real_set(form: Form, unknowns: set[str]) -> sympy.Set | None:
    """The set of real numbers that a form means, or None; the name of its unknown is added to `unknowns`."""
    if isinstance(form, Row) and len(form.parts) == 2 and form.left in "([" and form.right in ")]":
        ends = [number(part) for part in form.parts]
        return None if None in ends else sympy.Interval(*ends, form.left == "(", form.right == ")")
    if isinstance(form, Several) and form.kind != "ratio":
        points = [number(part) for part in form.parts]
        return None if None in points else sympy.FiniteSet(*points)
    if isinstance(form, Named):
        unknowns.add(form.name)
        return real_set(form.value, unknowns)
    if isinstance(form, Expression):
        return sympy.S.Reals if form.latex == r"\mathbb{R}" else None
    if isinstance(form, Relation):
        return solutions(form, unknowns)
    if not isinstance(form, Joined):
        return None
    total, *others = [real_set(part, unknowns) for part in form.parts]
    for sign, part in zip(form.signs, others, strict=True):
        if total is None or part is None:
            return None
        operation = {r"\cup": sympy.Union, r"\cap": sympy.Intersection}.get(sign, sympy.Complement)
        total = operation(total, part)
    return total


def number(form: Form) -> sympy.Expr | None:
    """The real number, or infinity, that a form means."""
    if not isinstance(form, Expression):
        return None
    try:
        value = tree_of(form.bare or form.latex).doit()
    except UnreadableError:
        return None
    return value if value.is_extended_real and not value.free_symbols else None


def solutions(relation: Relation, unknowns: set[str]) -> sympy.Set | None:
    """The solutions of inequalities with one unknown, which may be a mere name such as f(x)."""
    unknown = sympy.Symbol("unknown", real=True)
    sides: list[sympy.Expr] = []
    for side in relation.sides:
        if forms.is_name(side):
            unknowns.add(re.sub(r"[\s{}]", "", side))
            sides.append(unknown)
            continue
        try:
            tree = tree_of(side).doit()
        except UnreadableError:
            return None
        names = {symbol.name for symbol in tree.free_symbols}
        unknowns |= names
        sides.append(tree.subs({symbol: unknown for symbol in tree.free_symbols}))
    if len(unknowns) > 1 or not set(relation.signs) <= set(RELATIONS) or not any(side.has(unknown) for side in sides):
        return None
    solved: sympy.Set = sympy.S.Reals
    for (left, right), sign in zip(pairwise(sides), relation.signs, strict=True):
        try:
            condition = RELATIONS[sign](left, right)
            if condition in (sympy.true, sympy.false):
                return None
            part = sympy.solve_univariate_inequality(condition, unknown, relational=False)
        except (NotImplementedError, TypeError, ValueError):
            return None
        solved = sympy.Intersection(solved, part)
    return solved
