"""Values as lines of JSON between two processes that do not trust each other.

Knows no pipe and no program. What is read back has exact builtin types whatever was written: a subclass becomes the
type that it extends, so its own `__eq__`, `__abs__` or `__bool__` stays behind; an iterator becomes one over the items
that it gave; anything else becomes an `Opaque`, which equals nothing but itself. Numbers of numpy become Python's.
Reading needs no pickle and calls nothing that the writer chose.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

MOST_ITEMS = 100_000  # of an iterator, which may be endless
NUMPY_KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


class Opaque:
    """A value that cannot travel: equal to itself alone."""


class UnsendableError(TypeError):
    """A value of the tests that cannot travel, a function for example."""


def to_line(message: dict[str, Any]) -> bytes:
    """One line of ASCII for a message whose values are plain already."""
    return json.dumps(message).encode("ascii") + b"\n"


def encode(value: Any, *, strict: bool = False) -> Any:
    """A value as JSON can carry it. Raises UnsendableError if `strict` and there is no plain form.

    Type tests ask `type(value).__mro__`, which a class cannot fake as it can `__class__`.
    """
    kinds = type.mro(type(value)) if isinstance(type(value), type) else []
    for kind in kinds:
        if kind in WRITERS:
            return WRITERS[kind](value, strict)
    plain = from_numpy(value)
    if plain is not None:
        return encode(plain)
    if not strict and isinstance(value, Iterator):
        items = list(itertools.islice(value, MOST_ITEMS + 1))
        if len(items) <= MOST_ITEMS:
            return ["iterator", encode_all(items, strict)]
    if strict:
        raise UnsendableError(f"a value of type {type(value).__name__} cannot be handed to the program")
    return ["opaque"]


def encode_all(values: Any, strict: bool) -> list[Any]:
    """The plain forms of several values."""
    return [encode(value, strict=strict) for value in values]


def from_numpy(value: Any) -> bool | int | float | complex | None:
    """The Python number in a numpy scalar, else None; numpy itself is not imported."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if type(value).__module__ == "numpy" and kind in NUMPY_KINDS and getattr(value, "shape", None) == ():
        return NUMPY_KINDS[kind](value)  # type: ignore[no-any-return] # one of four number types
    return None


WRITERS: dict[type, Callable[[Any, bool], Any]] = {
    type(None): lambda _, __: None,
    type(...): lambda _, __: ["ellipsis"],
    bool: lambda value, _: bool.__bool__(value),
    int: lambda value, _: ["int", format(int.__index__(value), "x")],
    float: lambda value, _: ["float", float.hex(float.__float__(value))],
    complex: lambda value, _: ["complex", complex.__repr__(complex.__pos__(value))],
    str: lambda value, _: str.__str__(value),
    bytes: lambda value, _: ["bytes", bytes.hex(value)],
    bytearray: lambda value, _: ["bytearray", bytearray.hex(value)],
    list: lambda value, strict: ["list", encode_all(list.__iter__(value), strict)],
    tuple: lambda value, strict: ["tuple", encode_all(tuple.__iter__(value), strict)],
    set: lambda value, strict: ["set", encode_all(set.__iter__(value), strict)],
    frozenset: lambda value, strict: ["frozenset", encode_all(frozenset.__iter__(value), strict)],
    dict: lambda value, strict: ["dict", [encode_all(pair, strict) for pair in dict.items(value)]],
    type({}.keys()): lambda value, strict: ["set", encode_all(value, strict)],
    range: lambda value, strict: ["range", encode_all((value.start, value.stop, value.step), strict)],
    Fraction: lambda value, strict: ["fraction", encode_all((value.numerator, value.denominator), strict)],
    Decimal: lambda value, _: ["decimal", Decimal.__str__(value)],
}


def decode(plain: Any) -> Any:
    """The value in a plain form. Raises ValueError, TypeError or RecursionError for what no `encode` writes."""
    if plain is None or type(plain) in {bool, str}:
        return plain
    if type(plain) is not list or not plain or plain[0] not in READERS:
        raise ValueError(f"no plain value: {str(plain)[:80]}")
    return READERS[plain[0]](*plain[1:])


def decode_all(plain: Any) -> list[Any]:
    """The values in a list of plain forms."""
    if type(plain) is not list:
        raise TypeError("the items of a plain value must be a list")
    return [decode(item) for item in plain]


def decode_dict(pairs: Any) -> dict[Any, Any]:
    """The mapping in a list of pairs."""
    return dict(decode_all(pair) for pair in pairs)


READERS: dict[str, Callable[..., Any]] = {
    "opaque": Opaque,
    "ellipsis": lambda: ...,
    "int": lambda digits: int(digits, 16),
    "float": float.fromhex,
    "complex": complex,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "list": decode_all,
    "tuple": lambda items: tuple(decode_all(items)),
    "set": lambda items: set(decode_all(items)),
    "frozenset": lambda items: frozenset(decode_all(items)),
    "dict": decode_dict,
    "range": lambda limits: range(*decode_all(limits)),
    "fraction": lambda parts: Fraction(*decode_all(parts)),
    "decimal": Decimal,
    "iterator": lambda items: iter(decode_all(items)),
}
