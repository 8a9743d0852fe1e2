"""Whether two expressions have one value, and two equations one set of solutions.

A unit behind an expression may be left out, and not be another. Decimals count as they are written, except that one
with six or more digits, from the first that is not 0, may stand for what it is the rounding of. Where values.py cannot
tell, math-verify decides: https://github.com/huggingface/Math-Verify.
"""

import re
from collections.abc import Sequence

import mpmath
import sympy

from tasks.expressions import UnreadableError, decimals, rational, tree_of
from tasks.kinds import Expression
from tasks.operations import UnknownValueError, as_mp
from tasks.values import is_real, same_up_to_a_factor, same_value, value_at

LOG = re.compile(r"\\log(?![a-zA-Z])(?!\s*_)")
ROUNDED_DIGITS = 6
UNITS = (
    {"cm", "centimeter", "centimetre"}, {"mm", "millimeter"}, {"m", "meter", "metre"}, {"km", "kilometer", "kilometre"},
    {"in", "inch", "inches"}, {"ft", "foot", "feet"}, {"yd", "yard"}, {"mi", "mile"}, {"g", "gram"}, {"kg", "kilogram"},
    {"mg", "milligram"}, {"lb", "pound"}, {"oz", "ounce"}, {"ton"}, {"l", "liter", "litre"}, {"ml", "milliliter"},
    {"gal", "gallon"}, {"quart"}, {"pint"}, {"cup"},
    {"s", "sec", "second"}, {"min", "minute"}, {"h", "hr", "hour"}, {"day"}, {"week"}, {"month"}, {"year"},
    {"cent", "¢"}, {"dollar"}, {"degree"}, {"radian", "rad"}, {"celsius"}, {"fahrenheit"},
)  # fmt: skip
NAMES = {name: i for i, names in enumerate(UNITS) for name in names} | {
    f"{n}s": i for i, names in enumerate(UNITS) for n in names
}
PART = re.compile(r"(?:(sq|cu)\.? ?)?([a-z¢]+)\.?(?:\^(\d))?")
SHORT_FOR = {"mph": "mi/h", "kph": "km/h", "square ": "sq ", "cubic ": "cu "}


def same_expression(one: Expression, other: Expression) -> bool:
    """By value, as they stand or without their units."""
    if re.sub(r"\s", "", one.latex) == re.sub(r"\s", "", other.latex) or same_latex(one.latex, other.latex):
        return True
    if not (one.bare or other.bare) or other_unit(one.unit, other.unit):
        return False
    return same_latex(one.bare or one.latex, other.bare or other.latex)


def other_unit(one: str, other: str) -> bool:
    """Whether both are known units, and not the same; a power may be left out as the whole unit may."""
    left, right = powers_of_units(one), powers_of_units(other)
    if not left or not right or left == right:
        return False
    return left.keys() != right.keys() or all(any(abs(power) > 1 for power in side.values()) for side in (left, right))


def powers_of_units(text: str) -> dict[str, int]:
    """Each unit in 'cm^2', 'square feet', 'm/s' or 'miles per hour' with its power; nothing where one is not known."""
    if text.startswith("mod "):
        return {text: 1}
    text = text.lower().strip(". ").replace(" per ", "/")
    for long, short in SHORT_FOR.items():
        text = text.replace(long, short)
    powers: dict[str, int] = {}
    for place, part in enumerate(text.split("/")):
        found = PART.fullmatch(part.strip())
        if found is None or found[2] not in NAMES:
            return {}
        power = int(found[3] or {"sq": 2, "cu": 3}.get(found[1], 1))
        powers[str(NAMES[found[2]])] = -power if place else power
    return powers


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
        return (
            is_real(value)
            and written is not None
            and bool(abs(mpmath.re(as_mp(value)) - as_mp(written)) <= mpmath.mpf(10) ** -places / 2)
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
