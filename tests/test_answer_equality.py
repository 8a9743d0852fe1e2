"""Equality of answers, kind by kind, and as a property of random expressions."""

from collections.abc import Callable

import sympy
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tasks.answer_equality import same_answer

x, y = sympy.symbols("x y")
PROPERTY = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
RENDERINGS: tuple[dict[str, object], ...] = (
    {},
    {"fold_frac_powers": True},
    {"fold_short_frac": True},
    {"root_notation": False},
    {"mul_symbol": "dot"},
    {"mul_symbol": "times"},
    {"ln_notation": True},
    {"inv_trig_style": "full"},
    {"order": "rev-lex"},
)
DRESSES: tuple[Callable[[str], str], ...] = (
    lambda latex: latex,
    lambda latex: f"${latex}$",
    lambda latex: rf"\({latex}\)",
    lambda latex: rf"\displaystyle {latex}.",
    lambda latex: latex.replace(r"\frac", r"\dfrac"),
    lambda latex: latex.replace(r"\left(", "(").replace(r"\right)", ")"),
    lambda latex: rf"z = {latex}",
)


def rationals() -> st.SearchStrategy[sympy.Rational]:
    return st.fractions(min_value=-50, max_value=50, max_denominator=60).map(
        lambda value: sympy.Rational(value.numerator, value.denominator)
    )


def grown(smaller: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    pairs = st.tuples(smaller, smaller)
    return st.one_of(
        pairs.map(lambda pair: pair[0] + pair[1]),
        pairs.map(lambda pair: pair[0] * pair[1]),
        pairs.map(lambda pair: pair[0] / (pair[1] ** 2 + 1)),
        st.tuples(smaller, st.integers(2, 3)).map(lambda pair: pair[0] ** pair[1]),
        smaller.map(lambda each: sympy.sqrt(each**2 + 2)),
        smaller.map(sympy.sin),
        smaller.map(sympy.atan),
        smaller.map(lambda each: sympy.log(each**2 + 3)),
    )


NUMBERS = st.recursive(
    st.one_of(rationals(), st.sampled_from([sympy.pi, sympy.sqrt(2), sympy.sqrt(3), sympy.E, sympy.Rational(1, 7)])),
    grown,
    max_leaves=4,
)
FUNCTIONS = st.recursive(st.one_of(rationals(), st.sampled_from([x, y, x * y, sympy.pi])), grown, max_leaves=4)
EXPRESSIONS = st.one_of(NUMBERS, FUNCTIONS)


def is_moderate(value: sympy.Expr) -> bool:
    """Whether a value is finite and of a size that answers have."""
    return value.is_finite is not False and len(str(value)) < 200


@PROPERTY
@given(EXPRESSIONS, st.sampled_from(RENDERINGS), st.sampled_from(RENDERINGS), st.sampled_from(DRESSES))
def test_a_value_is_equal_however_it_is_written(
    value: sympy.Expr, one: dict[str, object], other: dict[str, object], dress: Callable[[str], str]
) -> None:
    assume(is_moderate(value))
    gold, answer = sympy.latex(value, **one), dress(sympy.latex(value, **other))

    assert same_answer(gold, answer)
    assert same_answer(answer, gold)


@PROPERTY
@given(EXPRESSIONS, st.sampled_from([sympy.expand, sympy.factor, sympy.together]))
def test_a_value_is_equal_in_another_form(value: sympy.Expr, rewrite: Callable[[sympy.Expr], sympy.Expr]) -> None:
    assume(is_moderate(value))
    rewritten = rewrite(value)
    assume(is_moderate(rewritten))

    assert same_answer(sympy.latex(value), sympy.latex(rewritten))


@PROPERTY
@given(EXPRESSIONS, rationals(), st.sampled_from(RENDERINGS), st.integers(0, 12))
def test_a_changed_value_is_never_equal(
    value: sympy.Expr, change: sympy.Rational, rendering: dict[str, object], smaller: int
) -> None:
    assume(is_moderate(value) and change != 0)
    changed = value + change / 10**smaller

    assert not same_answer(sympy.latex(value), sympy.latex(changed, **rendering))
    assert not same_answer(sympy.latex(changed, **rendering), sympy.latex(value))


@PROPERTY
@given(st.lists(rationals(), min_size=2, max_size=4, unique=True), st.randoms(use_true_random=False))
def test_order_counts_in_points_and_not_in_sets(values: list[sympy.Rational], random: object) -> None:
    shuffled = values[1:] + values[:1]
    point, turned = (", ".join(map(sympy.latex, each)) for each in (values, shuffled))

    assert same_answer(rf"\{{{point}\}}", rf"\{{{turned}\}}")
    assert same_answer(f"({point})", f"({point})")
    assert not same_answer(f"({point})", f"({turned})")
    assert not same_answer(f"({point})", rf"\{{{point}\}}")
