"""Numbers and what is done to them: exact where they are rational, with mpmath at its present precision otherwise.

No operation starts on a number that would take too long or too much memory: it ends in TooLargeError instead.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import mpmath
import sympy

Value: TypeAlias = Any  # a Fraction, or an mpmath mpf or mpc

DIGITS = 60, 150  # decimal digits of the two looks at a value; half of them must agree
MOST_BITS = 200_000  # of an exact whole number
MOST_FACTORIAL, MOST_BINOMIAL = 10_000, 20_000
LARGEST_EXPONENT = 1e9  # of e, where numbers are no longer exact
CONSTANTS: dict[Any, Callable[[], Value]] = {
    sympy.pi: lambda: +mpmath.pi,
    sympy.E: lambda: +mpmath.e,
    sympy.I: lambda: mpmath.mpc(0, 1),
    sympy.GoldenRatio: lambda: +mpmath.phi,
    sympy.EulerGamma: lambda: +mpmath.euler,
    sympy.oo: lambda: mpmath.mpf("inf"),
    -sympy.oo: lambda: mpmath.mpf("-inf"),
}
FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc", "zeta", "erf"}
    | {"sinh", "cosh", "tanh", "coth", "sech", "csch", "asinh", "acosh", "atanh"}
)


class TooLargeError(ArithmeticError):
    """A number that would take too long or too much memory to compute."""


class UnknownValueError(ArithmeticError):
    """An expression whose value this file cannot compute."""


def near(left: Value, right: Value, digits: int) -> bool:
    """Whether two numbers agree to half of the digits; against an exact zero, and near it, absolutely."""
    left, right = as_mp(left), as_mp(right)
    if mpmath.isnan(left) or mpmath.isnan(right):
        raise UnknownValueError("undefined")
    if mpmath.isinf(left) or mpmath.isinf(right):
        return bool(left == right)
    tolerance = mpmath.mpf(10) ** (-digits // 2)
    if left and right and max(abs(left), abs(right)) > tolerance:
        return bool(abs(left - right) <= tolerance * max(abs(left), abs(right)))
    if left and right:  # both tiny, or both noise around zero
        return bool(abs(left - right) <= tolerance * max(abs(left), abs(right))) or is_noise(left, right, digits)
    return bool(abs(left - right) <= mpmath.mpf(10) ** (-digits * 3 // 4))


def is_noise(left: Value, right: Value, digits: int) -> bool:
    """Whether both are what rounding leaves of zero."""
    return bool(max(abs(left), abs(right)) <= mpmath.mpf(10) ** (-digits * 4 // 5))


def as_mp(value: Value) -> Value:
    """An exact number as one of mpmath's; others as they are."""
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def checked(value: Value) -> Value:
    """The value itself. Raises TooLargeError for an exact number that has grown too long."""
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise TooLargeError(f"a number of more than {MOST_BITS} binary digits")
    return value


def power(base: Value, exponent: Value) -> Value:
    """A power; exact where it can be, and without ever starting on a number that is too large."""
    if isinstance(exponent, Fraction) and isinstance(base, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if base not in (0, 1, -1) and abs(exponent) * bits > MOST_BITS:
                raise TooLargeError(f"a power of more than {MOST_BITS} binary digits")
            return base ** (exponent.numerator % 2 if base in (1, -1) else exponent.numerator)
        if exponent == Fraction(1, 2) and base >= 0:
            roots = [mpmath.libmp.isqrt(part) for part in (base.numerator, base.denominator)]
            if all(root * root == part for root, part in zip(roots, base.as_integer_ratio(), strict=True)):
                return Fraction(int(roots[0]), int(roots[1]))
    base, exponent = as_mp(base), as_mp(exponent)
    if base and mpmath.isfinite(base) and abs(exponent * mpmath.log(base)) > LARGEST_EXPONENT:
        raise TooLargeError("a power that is too large to compute")
    return mpmath.power(base, exponent)


def whole(value: Value, most: int) -> int | None:
    """The value as a whole number from 0 to `most`; None for anything else. Raises TooLargeError above `most`."""
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        return None
    if value > most:
        raise TooLargeError(f"a factorial or binomial of more than {most}")
    return int(value)


def factorial(value: Value) -> Value:
    """n!, by the gamma function where n is not a whole number."""
    number = whole(value, MOST_FACTORIAL)
    return mpmath.gamma(as_mp(value) + 1) if number is None else Fraction(int(mpmath.libmp.ifac(number)))


def binomial(above: Value, below: Value) -> Value:
    """N over k."""
    n, k = whole(above, MOST_BINOMIAL), whole(below, MOST_BINOMIAL)
    return (
        mpmath.binomial(as_mp(above), as_mp(below)) if n is None or k is None else Fraction(int(sympy.binomial(n, k)))
    )


def floored(value: Value) -> Value:
    """The largest whole number that is not above; a value within rounding of a whole number is that number."""
    if isinstance(value, Fraction):
        return Fraction(value.numerator // value.denominator)
    nearest = mpmath.nint(value)
    return nearest if near(nearest, value, DIGITS[0]) else mpmath.floor(value)


def logarithm(value: Value, base: Value | None = None) -> Value:
    """A logarithm; natural without a base."""
    natural = mpmath.log(as_mp(value))
    return natural if base is None else natural / mpmath.log(as_mp(base))


OPERATIONS: dict[str, Callable[..., Value]] = {
    "UnevaluatedExpr": lambda part: part,
    "Abs": abs,
    "exp": lambda part: power(+mpmath.e, part),
    "log": logarithm,
    "factorial": factorial,
    "gamma": lambda part: factorial(part - 1),
    "binomial": binomial,
    "floor": floored,
    "ceiling": lambda part: -floored(-part),
    "Mod": lambda part, base: part - base * floored(part / base),
    "Max": lambda *parts: max(parts, key=as_mp),
    "Min": lambda *parts: min(parts, key=as_mp),
    "re": lambda part: mpmath.re(as_mp(part)),
    "im": lambda part: mpmath.im(as_mp(part)),
    "conjugate": lambda part: mpmath.conj(as_mp(part)),
    "arg": lambda part: mpmath.arg(as_mp(part)),
    "sign": lambda part: mpmath.sign(as_mp(part)),
}
