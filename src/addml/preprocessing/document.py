"""Fitted columns as JSON objects and back."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

Dataclass = TypeVar("Dataclass")

TYPES = {str: "a text", bool: "true or false", int: "a whole number, zero or more", float: "a finite number"}


class DocumentError(ValueError):
    """A document that is not what was written."""


def to_document(column: Any) -> dict[str, Any]:
    """The dataclass of a fitted column as a JSON object."""
    return {"name": column.name, "kind": column.kind, **dataclasses.asdict(column)}


def from_document(cls: type[Dataclass], document: Any, place: str = "a fitted column") -> Dataclass:
    """The dataclass back from a JSON object, the type of each value checked; other keys are ignored."""
    if not isinstance(document, Mapping):
        raise DocumentError(f"{place} is {document!r:.60}, expected an object; fit and save again")
    place = f"fitted column {document['name']!r}" if "name" in document else place
    kinds, values = typing.get_type_hints(cls), dict[str, Any]()
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in document:
            values[field.name] = _value(kinds[field.name], document[field.name], f"{place}: {field.name!r}")
        elif field.default is dataclasses.MISSING:
            raise DocumentError(f"{place} has no {field.name!r}; fit and save again")
    return cls(**values)


def _value(kind: Any, value: Any, place: str) -> Any:
    if isinstance(kind, types.UnionType):  # with None
        return None if value is None else _value(kind.__args__[0], value, place)
    if dataclasses.is_dataclass(kind):
        return from_document(typing.cast(type, kind), value, place)
    if typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_value(kind.__args__[0], one, place) for one in value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if kind is not float and type(value) is kind and (kind is not int or value >= 0):
        return value
    expected = TYPES.get(kind, "a list")
    raise DocumentError(f"{place} is {value!r:.60}, expected {expected}; fit and save again")
