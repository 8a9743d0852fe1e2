"""Values that travel between processes: the same after the way, of exact types, and nothing else gets through."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.plain_values import MOST_ITEMS, Opaque, UnsendableError, decode, encode, to_line

scalars = st.sampled_from(
    [None, True, False, ..., 0, -7, 2**70, 0.1, -1e300, 1j, "", "a\\n\u00e9", b"\xff", Fraction(1, 3)]
)
hashables = scalars | st.tuples(scalars, scalars) | st.frozensets(scalars, max_size=3)
values = st.recursive(
    hashables | st.builds(range, st.integers(-9, 9), st.integers(-9, 9)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.sets(hashables, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=8,
)


def travelled(value: Any) -> Any:
    return decode(json.loads(to_line({"value": encode(value)}))["value"])


def kinds(value: Any) -> Any:
    return [type(value), *map(kinds, value if isinstance(value, list | tuple) else [])]


@given(values)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_a_value_is_the_same_after_the_way(value: Any) -> None:
    assert travelled(value) == value
    assert kinds(travelled(value)) == kinds(value)


@pytest.mark.parametrize("value", ["math.inf", "-0.0", "1e-320", "'\\ud800'", "complex(0, -0.0)", "-(10**5000)"])
def test_odd_numbers_and_texts_are_the_same(value: str) -> None:
    before = eval(value, {"math": math})  # noqa: S307 - values whose own text is no fit name for a test

    assert travelled(before) == before
    assert math.copysign(1.0, before) == math.copysign(1.0, travelled(before)) if type(before) is float else True


def test_a_float_that_is_no_number_stays_one() -> None:
    assert math.isnan(travelled(math.nan))


class Liar(int):
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Colour(IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Liar(9), 9),
        (Colour.RED, 1),
        (Point(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(int, a=1), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        ({"a": 1}.keys(), {"a"}),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (Decimal("1.5"), 1.5),
        (Fraction(1, 2), 0.5),
    ],
)
def test_a_value_of_another_class_becomes_the_builtin_one(value: Any, plain: Any) -> None:
    assert travelled(value) == plain
    assert type(travelled(value)) in {type(plain), Decimal, Fraction}


@pytest.mark.parametrize("value", [object(), len, int, Liar, np.arange(3), (x for x in iter(int, 1))])
def test_anything_else_equals_nothing(value: Any) -> None:
    there: Any = travelled(value)

    assert type(there) is Opaque
    assert [there == other for other in (1, None, Opaque())] == [False, False, False]


def test_an_iterator_gives_what_it_gave_and_is_no_list() -> None:
    assert tuple(travelled(map(abs, [-1, 2]))) == (1, 2)
    assert travelled(iter([1])) != [1]
    assert type(travelled(iter(range(MOST_ITEMS + 1)))) is Opaque


@pytest.mark.parametrize("value", [abs, object(), [abs], {1: abs}, iter([1])])
def test_arguments_of_tests_must_be_plain(value: Any) -> None:
    with pytest.raises(UnsendableError, match="cannot be handed to the program"):
        encode(value, strict=True)


NO_VALUES = """
1; 1.5; {}; []; ["eval", "1"]; [["list"]]; ["list"]; ["list", 1]; ["int"]; ["int", "x"]; ["int", 3, 4]; ["bytes", "0"];
["set", [["list", []]]]; ["dict", [["list", []]]]; ["fraction", [["int", "1"], ["int", "0"]]]; ["range", []]
"""


@pytest.mark.parametrize("plain", [json.loads(text) for text in NO_VALUES.split(";")])
def test_what_no_value_writes_is_refused(plain: Any) -> None:
    with pytest.raises((ArithmeticError, LookupError, TypeError, ValueError)):
        decode(plain)
