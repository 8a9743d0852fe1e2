"""One expression in LaTeX as a sympy tree, as it stands: nothing is computed while it is read.

The parser is that of math-verify, latex2sympy2_extended, which builds trees from a grammar and runs no text as code.
What is mended here: a whole number in front of a fraction is a factor (mixed numbers are written as sums before, see
notation.py), letters keep their case, and gamma and binomial are not computed on sight.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy

from tasks.notation import closing

SETTINGS = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
NUMBER = re.compile(r"([-+]?)\s*(\d+|\d*\.\d+|\d+\.)")
FRACTION = re.compile(r"([-+]?)\s*(?:\\frac\s*\{(-?\d+)\}\s*\{(-?\d+)\}|(\d+)\s*/\s*(\d+))")
CALL = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|sinh|cosh|tanh|ln|log(?:_\{[^{}]*\}|_\w)?)\s*\{(?=\s*\()")
CIS = re.compile(r"\\cis(?![a-zA-Z])\s*(-?[^-+,=]*)")
POWER = re.compile(r"\s*\^\s*(?:\{[^{}]*\}|\w)")


class UnreadableError(ValueError):
    """A text that is no expression."""


class Reader(_Latex2Sympy):  # type: ignore[misc]  # the package ships no types
    r"""The parser, without its reading of 4\frac{10}{3} and (2)(3) as sums, and each part converted once.

    As it stands it converts a bracket's content anew for each way of asking what it is: 1000 times, ten levels down.
    """

    def __init__(self) -> None:
        super().__init__(is_real=True, config=SETTINGS)
        self._converted: dict[int, tuple[Any, Any]] = {}  # a part of the syntax tree, kept alive, and its conversion

    def convert_expr(self, expr: Any) -> Any:
        """An expression."""
        return self._once(expr, super().convert_expr)

    def convert_func(self, func: Any) -> Any:
        """A function with its argument."""
        return self._once(func, super().convert_func)

    def _once(self, part: Any, convert: Callable[[Any], Any]) -> Any:
        if id(part) not in self._converted:
            self._converted[id(part)] = part, convert(part)
        return self._converted[id(part)][1]

    def convert_postfix_list(self, arr: list[Any], i: int = 0) -> Any:
        """The product of factors that stand side by side."""
        first = self.convert_postfix(arr[i])
        if i == len(arr) - 1 or not isinstance(first, sympy.Expr):
            return super().convert_postfix_list(arr, i)
        rest = self.convert_postfix_list(arr, i + 1)
        return self.mat_mul_flat(first, rest) if getattr(rest, "is_Matrix", False) else self.mul_flat(first, rest)


@lru_cache(maxsize=1024)
def tree_of(latex: str) -> sympy.Basic | sympy.MatrixBase:
    """The tree. Raises UnreadableError for what is no single expression or matrix."""
    number = rational(latex)
    if number is not None:
        return sympy.Rational(number.numerator, number.denominator)
    try:
        with sympy.evaluate(False):
            tree = Reader().parse(readable(latex))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # the parser raises Exception itself for a syntax error
        raise UnreadableError(f"cannot be read: {latex[:80]}") from error
    if not isinstance(tree, sympy.Expr | sympy.MatrixBase):
        raise UnreadableError(f"not one expression: {latex[:80]}")
    return tree


def readable(latex: str) -> str:
    """The text as the grammar wants it: no words, no unusual factorial or degree signs left."""
    latex = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", latex)
    latex = re.sub(r"\\a(sin|cos|tan|cot|sec|csc)\b", r"\\arc\1", latex)
    return powers_of_functions(polar(latex)).strip()


def polar(latex: str) -> str:
    r"""\cis x as e^{i(x)}; without brackets up to the next sign."""
    while cis := CIS.search(latex):
        closed = closing(latex, cis.start(1)) if cis[1][:1] in ("(", "{") else None
        end = cis.end() if closed is None else closed + 1
        latex = f"{latex[: cis.start()]}e^{{i({latex[cis.start(1) : end]})}}{latex[end:]}"
    return latex


def powers_of_functions(latex: str) -> str:
    r"""\log{(x)}^{2} as \log^{2}{(x)}: what is raised is the function, not its argument."""
    for function in reversed(list(CALL.finditer(latex))):
        closed = closing(latex, function.end() - 1)
        power = POWER.match(latex, closed + 1) if closed is not None else None
        if closed is not None and power:
            argument = latex[function.end() - 1 : closed + 1]
            latex = f"{latex[: function.end() - 1]}{power.group()}{argument}{latex[power.end() :]}"
    return latex


def rational(latex: str) -> Fraction | None:
    """A number or a fraction of whole numbers, exactly and at once; None for anything else."""
    # Decimal reads long numbers fast, and puts no limit on their digits as int does.
    if number := NUMBER.fullmatch(latex):
        return Fraction(Decimal(number[2])) * (-1 if number[1] == "-" else 1)
    if fraction := FRACTION.fullmatch(latex):
        above, below = int(Decimal(fraction[2] or fraction[4])), int(Decimal(fraction[3] or fraction[5]))
        return Fraction(above, below) * (-1 if fraction[1] == "-" else 1) if below else None
    return None


def decimals(latex: str) -> int:
    """How many decimals a decimal number is written with; 0 for anything else."""
    number = NUMBER.fullmatch(latex)
    return len(number[2].partition(".")[2]) if number else 0
