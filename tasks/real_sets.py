"""Sets of real numbers: whether intervals, inequalities, unions and the like have the same members.

Inequalities with one unknown are solved by sympy; the ends of intervals are compared by value.
"""

import re
from itertools import pairwise

import sympy

from tasks.expressions import UnreadableError, tree_of
from tasks.forms import is_name
from tasks.kinds import Expression, Form, Joined, Named, Relation, Row, Several
from tasks.values import same_value

RELATIONS = {
    "<": sympy.StrictLessThan,
    "<=": sympy.LessThan,
    ">": sympy.StrictGreaterThan,
    ">=": sympy.GreaterThan,
    "!=": sympy.Ne,
}


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
    return all(
        a == b or (a.is_finite is not False and b.is_finite is not False and same_value(a, b))
        for a, b in zip(one.args[:2], other.args[:2], strict=True)
    )


def real_set(form: Form, unknowns: set[str]) -> sympy.Set | None:
    """The set of real numbers that a form means, or None; the name of its unknown is added to `unknowns`."""
    match form:
        case Row(left=("(" | "[") as left, right=(")" | "]") as right, parts=(_, _)):
            ends = [number(part) for part in form.parts]
            return None if None in ends else sympy.Interval(*ends, left == "(", right == ")")
        case Several(kind="list" | "set"):
            points = [number(part) for part in form.parts]
            return None if None in points else sympy.FiniteSet(*points)
        case Named():
            unknowns.add(form.name)
            return real_set(form.value, unknowns)
        case Relation():
            return solutions(form, unknowns)
        case Joined():
            return joined_set(form, unknowns)
    return sympy.S.Reals if form == Expression(r"\mathbb{R}") else None


def joined_set(form: Joined, unknowns: set[str]) -> sympy.Set | None:
    """A union, intersection or difference, from left to right."""
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
    try:
        sides = [one_sided(side, unknown, unknowns) for side in relation.sides]
    except UnreadableError:
        return None
    if len(unknowns) > 1 or not set(relation.signs) <= set(RELATIONS):
        return None
    solved: sympy.Set = sympy.S.Reals
    for (left, right), sign in zip(pairwise(sides), relation.signs, strict=True):
        condition = RELATIONS[sign](left, right)
        if not condition.has(unknown):
            return None
        try:
            part = sympy.solve_univariate_inequality(condition, unknown, relational=False)
        except NotImplementedError:
            return None
        solved = sympy.Intersection(solved, part)
    return solved


def one_sided(side: str, unknown: sympy.Symbol, unknowns: set[str]) -> sympy.Expr:
    """A side with `unknown` in the place of its symbol or name, which is added to `unknowns`."""
    if is_name(side):
        unknowns.add(re.sub(r"[\s{}]", "", side))
        return unknown
    tree = tree_of(side).doit()
    unknowns |= {symbol.name for symbol in tree.free_symbols}
    return tree.subs(dict.fromkeys(tree.free_symbols, unknown))
