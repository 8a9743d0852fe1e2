"""Values of mathematical expressions: whether two are the same number, or the same function of their symbols.

Takes sympy trees and walks them; nothing is simplified and no text is evaluated. Rational arithmetic is exact. Anything
else is computed with mpmath at two precisions: equal values agree at both, and nothing is called zero that stays above
the smaller tolerance. Functions are compared at random points (fixed seed) where both are real: two different analytic
functions agree at all of them with probability zero. A number too large to compute ends in TooLargeError.
"""

import random
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from operator import add, mul
from typing import TypeAlias

import mpmath
import sympy

from tasks.operations import (
    CONSTANTS,
    DIGITS,
    FUNCTIONS,
    MOST_BINOMIAL,
    MOST_BITS,
    MOST_FACTORIAL,
    OPERATIONS,
    TooLargeError,
    UnknownValueError,
    Value,
    as_mp,
    checked,
    near,
    power,
)

Point: TypeAlias = Mapping[str, Value]

MOST_TERMS = 2_000  # of a sum or product that is written out
POINTS, POINTS_NEEDED = 12, 3


def same_value(one: sympy.Basic, other: sympy.Basic) -> bool:
    """Whether two expressions are the same number or function. Raises UnknownValueError or TooLargeError."""
    if one == other:
        return True
    names = symbol_names(one) | symbol_names(other)
    if names:
        return all_points(names, lambda point, digits: same_at(one, other, point, digits))
    huge = [is_huge(tree) and not tree.is_Rational for tree in (one, other)]  # what is written out is no effort
    if huge[0] != huge[1]:
        return False if is_small(other if huge[0] else one) else refuse_huge()
    return all(same_at(one, other, {}, digits) is True for digits in DIGITS)


def is_huge(tree: sympy.Basic) -> bool:
    """Whether a number is plainly above 10^200, told from what it is a power or factorial of; nothing is computed."""
    if tree.is_Rational:
        return bool(tree.p > tree.q * 10**200)
    if tree.is_Pow:
        base, exponent = tree.args
        steep = is_huge(base) or (base.is_Integer and base.p > 1)
        return steep and exceeds(exponent, MOST_BITS)
    if type(tree).__name__ in ("factorial", "gamma"):
        return exceeds(tree.args[0], MOST_FACTORIAL)
    return is_huge_product(tree)


def is_huge_product(tree: sympy.Basic) -> bool:
    """The same for n! written as a product, and for a binomial."""
    if isinstance(tree, sympy.Product) and len(tree.args) == 2 and len(tree.args[1]) == 3:
        index, low, high = tree.args[1]
        return bool(tree.args[0] == index and low == 1 and exceeds(high, MOST_FACTORIAL))
    if type(tree).__name__ == "binomial":
        n, k = tree.args
        return bool(n.is_Integer and k.is_Integer and n.p > MOST_BINOMIAL and 100 <= k.p <= n.p - 100)
    return False


def exceeds(tree: sympy.Basic, bound: int) -> bool:
    """Whether a tree is a whole number above `bound`, computed or plainly huge."""
    if is_huge(tree):
        return True
    try:
        value = value_at(tree, {})
    except (ArithmeticError, TypeError):
        return False
    return isinstance(value, Fraction) and value.denominator == 1 and value > bound


def is_small(tree: sympy.Basic) -> bool:
    """Whether a number can be computed and lies below 10^200."""
    with mpmath.workdps(DIGITS[0]):
        return bool(abs(as_mp(value_at(tree, {}))) < mpmath.mpf(10) ** 200)


def refuse_huge() -> bool:
    """Raises TooLargeError."""
    raise TooLargeError("a number that is too large to compute beside one that is not small")


def same_up_to_a_factor(one: sympy.Basic, other: sympy.Basic, *, positive: bool) -> bool:
    """Whether one is the other times a number that is not zero (`positive`: above zero). Raises as `same_value`."""
    names = symbol_names(one) | symbol_names(other)
    ratio: list[Value] = []

    def proportional(point: Point, digits: int) -> bool | None:
        with mpmath.workdps(digits):
            below, above = value_at(one, point), value_at(other, point)
            if not is_real(below) or not is_real(above) or not (below and above):
                return None
            ratio.append(as_mp(above) / as_mp(below))
            return near(ratio[0], ratio[-1], DIGITS[0]) and (not positive or mpmath.re(ratio[-1]) > 0)

    return all_points(names, proportional) if names else False


def all_points(names: set[str], agree: Callable[[Point, int], bool | None]) -> bool:
    """Whether all random points that tell anything say yes; raises UnknownValueError where too few do."""
    told = 0
    for number in range(POINTS):
        draw = random.Random(f"point {number}")
        # Drawn by name, so that a symbol has its value whatever stands beside it; at first above zero, where more
        # functions are real, then on both sides.
        with mpmath.workdps(DIGITS[1]):
            low = 0.25 if number % 2 == 0 else -3
            point = {name: mpmath.mpf(draw.uniform(low, 3)) + mpmath.sqrt(2) / 1000 for name in sorted(names)}
        verdict = agree(point, DIGITS[0])
        if verdict is True and number < 2:
            verdict = agree(point, DIGITS[1])
        if verdict is False:
            return False
        told += verdict is True
    if told < POINTS_NEEDED:
        raise UnknownValueError("undefined at nearly all random points")
    return True


def same_at(one: sympy.Basic, other: sympy.Basic, point: Point, digits: int) -> bool | None:
    """Whether two values agree to half of the digits; None where they are not both real, or undefined."""
    with mpmath.workdps(digits):
        try:
            left, right = value_at(one, point), value_at(other, point)
        except ZeroDivisionError:
            if point:
                return None
            raise UnknownValueError("undefined") from None
        if point and not (is_real(left) and is_real(right)):
            return None
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return left == right
        return near(left, right, digits)


def is_real(value: Value) -> bool:
    """Whether a value has no imaginary part, rounding apart."""
    if isinstance(value, Fraction):
        return True
    if not mpmath.isfinite(value):
        return False
    return bool(abs(mpmath.im(value)) <= mpmath.mpf(10) ** (-20) * (1 + abs(value)))


def symbol_names(tree: sympy.Basic) -> set[str]:
    """The names that have to be given a value; i is the imaginary unit unless a sum counts with it."""
    return {symbol.name for symbol in tree.free_symbols} - {"i"}


def value_at(tree: sympy.Basic, point: Point) -> Value:
    """The value of a tree where its symbols have the values of `point`, at mpmath's present precision.

    Raises TooLargeError, UnknownValueError, or ZeroDivisionError where the value is undefined.
    """
    leaf = leaf_value(tree, point)
    if leaf is not None:
        return leaf
    if isinstance(tree, sympy.Sum | sympy.Product):
        return series_value(tree, point)
    if isinstance(tree, sympy.Integral | sympy.Derivative | sympy.Limit):
        return done_value(tree, point)
    return applied(tree, [value_at(part, point) for part in tree.args])


def leaf_value(tree: sympy.Basic, point: Point) -> Value | None:
    """The value of a symbol, number or constant; None for what has parts."""
    if tree.is_Symbol:
        return symbol_value(tree.name, point)
    if tree.is_Rational:
        return Fraction(int(tree.p), int(tree.q))
    if tree.is_Float:
        return Fraction(str(tree))  # what was written: 0.1 is one tenth
    return CONSTANTS[tree]() if tree in CONSTANTS else None


def done_value(tree: sympy.Basic, point: Point) -> Value:
    """The value of an integral, limit, derivative or long sum in the closed form that sympy finds."""
    done = tree.doit()
    if done.has(type(tree)):
        raise UnknownValueError(f"a {type(tree).__name__.lower()} that sympy does not compute")
    return value_at(done, point)


def symbol_value(name: str, point: Point) -> Value:
    """The value of a symbol."""
    if name in point:
        return point[name]
    if name == "i":
        return mpmath.mpc(0, 1)
    raise UnknownValueError(f"a symbol without a value: {name}")


def applied(tree: sympy.Basic, parts: list[Value]) -> Value:
    """A function or operation of values."""
    name = type(tree).__name__
    if tree.is_Add:
        return reduce(add, parts)
    if tree.is_Mul:
        return checked(reduce(mul, parts))
    if tree.is_Pow:
        return power(parts[0], parts[1])
    if name in OPERATIONS:
        return checked(OPERATIONS[name](*parts))
    if name in FUNCTIONS:
        return getattr(mpmath, name)(*map(as_mp, parts))
    if isinstance(tree, sympy.core.function.AppliedUndef):
        # Some function of that name: smooth, with values that nothing else has.
        draw = random.Random(zlib.crc32(str(tree.func).encode()))
        return mpmath.fsum(mpmath.sin(as_mp(part) * draw.uniform(0.5, 1.5) + draw.random()) for part in parts) + 2
    raise UnknownValueError(f"{name} has no value here")


def series_value(tree: sympy.Basic, point: Point) -> Value:
    """A finite sum or product, term by term."""
    body, *limits = tree.args
    if len(limits) != 1 or len(limits[0]) != 3:
        raise UnknownValueError("a sum or product without limits")
    name, low, high = limits[0][0].name, value_at(limits[0][1], point), value_at(limits[0][2], point)
    if not isinstance(low, Fraction) or not isinstance(high, Fraction) or low.denominator * high.denominator != 1:
        return done_value(tree, point)
    if high - low > MOST_TERMS:
        if isinstance(tree, sympy.Product):
            raise TooLargeError(f"a product of more than {MOST_TERMS} factors")
        return done_value(tree, point)
    terms = (value_at(body, {**point, name: Fraction(k)}) for k in range(int(low), int(high) + 1))
    return checked(reduce(add, terms, Fraction(0)) if isinstance(tree, sympy.Sum) else reduce(mul, terms, Fraction(1)))
