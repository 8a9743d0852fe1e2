"""One expression in LaTeX as a sympy tree, as it stands: nothing is computed while it is read.

The parser is that of math-verify, latex2sympy2_extended, which builds trees from a grammar and runs no text as code. What
is mended here: a whole number in front of a fraction is a factor (mixed numbers are written as sums before, see
notation.py), letters keep their case, and gamma and binomial are not computed on sight.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy

SETTINGS = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
NUMBER = re.compile(r"([-+]?)\s*(\d+|\d*\.\d+|\d+\.)")
FRACTION = re.compile(r"([-+]?)\s*(?:\\frac\s*\{(-?\d+)\}\s*\{(-?\d+)\}|(\d+)\s*/\s*(\d+))")
MOST_DIGITS = 4_000  # of a whole number that is read at sight


class UnreadableError(ValueError):
    """A text that is no expression."""


class Reader(_Latex2Sympy):  # type: ignore[misc]  # the package ships no types
    """The parser, without its reading of 4\\frac{10}{3} and (2)(3) as sums."""

    def convert_postfix_list(self, arr: list[Any], i: int = 0) -> Any:
        """The product of factors that stand side by side."""
        first = self.convert_postfix(arr[i])
        if i == len(arr) - 1 or not isinstance(first, sympy.Expr):
            return super().convert_postfix_list(arr, i)
        rest = self.convert_postfix_list(arr, i + 1)
        return self.mat_mul_flat(first, rest) if getattr(rest, "is_Matrix", False) else self.mul_flat(first, rest)


@lru_cache(maxsize=64)
def tree_of(latex: str) -> sympy.Basic | sympy.MatrixBase:
    """The tree. Raises UnreadableError for what is no single expression or matrix."""
    number = rational(latex)
    if number is not None:
        return sympy.Rational(number.numerator, number.denominator)
    try:
        with sympy.evaluate(False):
            tree = Reader(is_real=True, config=SETTINGS).parse(readable(latex))
    except Exception as error:  # noqa: BLE001 (the parser raises Exception itself for a syntax error)
        if isinstance(error, MemoryError | RecursionError):
            raise
        raise UnreadableError(f"cannot be read: {latex[:80]}") from error
    if not isinstance(tree, sympy.Expr | sympy.MatrixBase):
        raise UnreadableError(f"not one expression: {latex[:80]}")
    return tree


def readable(latex: str) -> str:
    """The text as the grammar wants it: no words, no unusual factorial or degree signs left."""
    latex = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", latex)
    return re.sub(r"\\(?:ldots)\b", r"\\ldots ", latex).strip()


def rational(latex: str) -> Fraction | None:
    """A number or a fraction of whole numbers, exactly and at once; None for anything else."""
    if len(latex) > MOST_DIGITS:
        return None
    if number := NUMBER.fullmatch(latex):
        return Fraction(number[2].rstrip(".")) * (-1 if number[1] == "-" else 1)
    if fraction := FRACTION.fullmatch(latex):
        above, below = int(fraction[2] or fraction[4]), int(fraction[3] or fraction[5])
        return Fraction(above, below) * (-1 if fraction[1] == "-" else 1) if below else None
    return None


def decimals(latex: str) -> int:
    """How many decimals a decimal number is written with; 0 for anything else."""
    number = NUMBER.fullmatch(latex)
    return len(number[2].partition(".")[2]) if number else 0
