"""Values read back from a JSON document, each checked; an error names the place and what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]


class PlainError(ValueError):
    """A document that is not what was written."""


def mapping(value: Any, place: str) -> Document:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise PlainError(f"{place} is {shown(value)}, expected an object; fit and save again")
    return value


def text(document: Document, key: str) -> str:
    """A text."""
    value = _get(document, key)
    return value if isinstance(value, str) else _refuse(document, key, "a text")


def optional_text(document: Document, key: str) -> str | None:
    """A text or null."""
    return None if _get(document, key) is None else text(document, key)


def number(document: Document, key: str) -> float:
    """A finite number."""
    value = _get(document, key)
    return float(value) if _is_number(value) else _refuse(document, key, "a finite number")


def count(document: Document, key: str) -> int:
    """A whole number, zero or more."""
    value = _get(document, key)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return int(value) if is_count else _refuse(document, key, "a whole number, zero or more")


def flag(document: Document, key: str) -> bool:
    """True or false."""
    value = _get(document, key)
    return value if isinstance(value, bool) else _refuse(document, key, "true or false")


def numbers(document: Document, key: str) -> tuple[float, ...]:
    """A list of finite numbers."""
    value = _get(document, key)
    if not isinstance(value, list) or not all(map(_is_number, value)):
        _refuse(document, key, "a list of finite numbers")
    return tuple(map(float, value))


def counts(document: Document, key: str) -> tuple[int, ...]:
    """A list of whole numbers, zero or more."""
    value = _get(document, key)
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        _refuse(document, key, "a list of whole numbers, zero or more")
    return tuple(value)


def texts(document: Document, key: str) -> tuple[str, ...]:
    """A list of texts."""
    value = _get(document, key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        _refuse(document, key, "a list of texts")
    return tuple(value)


def fits(document: Document, condition: bool, what: str) -> None:
    """Refuse a document whose values do not fit together."""
    if not condition:
        raise PlainError(f"{_name(document)}: {what}; fit and save again")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _get(document: Document, key: str) -> Any:
    if key not in document:
        raise PlainError(f"{_name(document)} has no {key!r}; fit and save again")
    return document[key]


def _refuse(document: Document, key: str, expected: str) -> Any:
    raise PlainError(f"{_name(document)} has {key!r} = {shown(document[key])}, expected {expected}; fit and save again")


def _name(document: Document) -> str:
    return f"prepared column {document['name']!r}" if "name" in document else "a prepared column"


def shown(value: Any) -> str:
    """A value as an error message shows it."""
    words = repr(value)
    return words if len(words) <= 60 else words[:57] + "..."
