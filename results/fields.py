"""Whether an object read from JSON has the fields of a dataclass, each with a value of its type.

Knows dataclasses of plain values: text, numbers, booleans, literals, None, and tuples of one such type, which are lists
in JSON. What a value means is the dataclass's own matter.
"""

import functools
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false", NoneType: "null"}


def check_fields(kind: Any, values: Mapping[str, Any], *, apart: Sequence[str] = ()) -> None:
    """Raise ValueError for an unknown, missing or wrong field of the dataclass `kind`.

    The types of the fields named in `apart` are the caller's to check.
    """
    known = declared(kind)
    for name in values:
        if name not in known:
            raise ValueError(f"unknown field {name!r}; known fields: {', '.join(known)}")
    for name, (field, annotation) in known.items():
        if name not in values:
            if field.default is MISSING:
                raise ValueError(f"field {name!r} is missing")
        elif name not in apart and not fits(values[name], annotation):
            raise refusal(name, values[name], words(annotation))


def check_columns(kind: Any, columns: object) -> list[tuple[Any, ...]]:
    """Many objects of the dataclass `kind` stored as one list per field: their values, object by object.

    Raises ValueError for lists of different lengths, or an unknown, missing or wrong field.
    """
    if not isinstance(columns, dict) or not all(isinstance(column, list) for column in columns.values()):
        raise refusal(f"the {kind.__name__.lower()}s", columns, "an object with a list per field")
    known = declared(kind)
    if set(columns) != set(known):
        raise refusal(f"the {kind.__name__.lower()}s' fields", list(columns), ", ".join(known))
    for name, (_, annotation) in known.items():
        if not column_fits(columns[name], annotation):
            raise refusal(name, columns[name], f"a list, each {words(annotation)}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise refusal("the lengths of the lists", lengths, "the same everywhere")
    return list(zip(*(columns[name] for name in known), strict=True))


def refusal(name: str, value: object, allowed: str) -> ValueError:
    """The error of a value that is not allowed."""
    return ValueError(f"{name} = {reprlib.repr(value)} is not allowed; allowed: {allowed}")


@functools.cache
def declared(kind: Any) -> dict[str, tuple[Field[Any], Any]]:
    """Name to field and annotation."""
    hints = get_type_hints(kind)
    return {field.name: (field, hints[field.name]) for field in fields(kind)}


def fits(value: object, annotation: Any) -> bool:
    """Whether a JSON value is one of the annotated type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is UnionType:
        return any(fits(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, list) and column_fits(value, arguments[0])
    return column_fits([value], annotation)


def column_fits(values: Sequence[Any], annotation: Any) -> bool:
    """Whether all values are of a plain type; quick, since a run has millions of them."""
    kinds = set(map(type, values))
    if annotation is not float:
        return kinds <= {annotation}
    # Compared, not converted: a whole number of 400 digits has no float. A NaN compares as false.
    return kinds <= {int, float} and all(abs(value) <= sys.float_info.max for value in values)


def words(annotation: Any) -> str:
    """The annotated type for people."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin is UnionType:
        return " or ".join(words(argument) for argument in arguments)
    if origin is tuple:
        return f"a list, each {words(arguments[0])}"
    return WORDS[annotation]
