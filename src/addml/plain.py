"""A detector's settings, history and column names as JSON values, and back."""

from __future__ import annotations

from numbers import Integral, Rational
from typing import Any

import numpy as np

from addml import parameters
from addml.scoring import SCORERS


def names_from_plain(names: list[Any], columns: int) -> np.ndarray:
    if len(names) != columns or not all(isinstance(name, str) for name in names) or len(set(names)) < columns:
        raise ValueError(f"the names {names} for {columns} columns")
    return np.array(names, dtype=object)


def ids_from_plain(document: dict[str, Any]) -> tuple[str, ...]:
    """The columns that name a row, where a saved model says so."""
    ids = document.get("ids", [])
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ValueError(f"the ids {ids!r}")
    return tuple(ids)


def plain_record(record: dict[str, Any]) -> dict[str, Any]:
    """An epoch of the history as JSON, which has no infinity: null stands for what is not finite."""
    plain = {name: value if np.isfinite(value) else None for name, value in record.items() if name != "members"}
    return plain | ({"members": list(map(plain_record, record["members"]))} if "members" in record else {})


def record_from_plain(plain: dict[str, Any]) -> dict[str, Any]:
    record = {name: np.nan if value is None else value for name, value in plain.items() if name != "members"}
    if not all(type(value) is float or (type(value) is int and abs(value) < 2**63) for value in record.values()):
        raise ValueError(f"the epoch {plain} of the history")
    return record | ({"members": list(map(record_from_plain, plain["members"]))} if "members" in plain else {})


def plain_settings(settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Parameters as JSON values, and the names of those that cannot be."""
    plain: dict[str, Any] = {}
    left_out = []
    for name, value in settings.items():
        if name == "scorer" and not isinstance(value, str):
            plain[name] = {"name": value.name, **value.settings()}
        elif name == "hidden" and value is not None:
            plain[name] = list(parameters.widths(name, value))
        elif name == "one_sided" and value is not None:
            plain[name] = {str(column): side for column, side in value.items()}
        elif isinstance(value, np.generic):
            plain[name] = value.item()
        elif value is None or isinstance(value, (str, int, float, bool)):
            plain[name] = value
        elif isinstance(value, Rational) and not isinstance(value, Integral):  # a fraction: what it was computed as
            plain[name] = float(value)
        else:
            left_out.append(name)
    return plain, left_out


def settings_from_plain(plain: dict[str, Any]) -> dict[str, Any]:
    settings = dict(plain)
    settings["hidden"] = None if settings["hidden"] is None else tuple(settings["hidden"])
    if isinstance(settings["scorer"], dict):
        chosen = dict(settings["scorer"])
        settings["scorer"] = SCORERS[chosen.pop("name")](**chosen)
    return settings
