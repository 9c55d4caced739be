"""JSON lines through Arrow's reader, and lists of JSON objects."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from addml.io.source import Origin, ReadError, decode_start, encoding_of
from addml.io.values import table_from_rows

BLOCK_BYTES = 1 << 20
LARGEST_BLOCK = 1 << 30
SAMPLE_BYTES = 1 << 18
NUMBER, TEXT = "a number", "text"


def read_json_lines(origin: Origin, encoding: str | None) -> tuple[pa.Table, list[str]]:
    """The table of one JSON object a line; where some values of a key are numbers and some texts, all are texts."""
    found, name = _encoding(origin, encoding)
    block = BLOCK_BYTES
    while True:
        try:
            with _utf8(origin, found) as stream:
                options = arrow_json.ReadOptions(block_size=block)
                return arrow_json.read_json(stream, options), [f"encoding: {name}"]
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
            if "straddling" not in str(error) or block >= LARGEST_BLOCK:
                table, notes = _table(_slowly(origin, found, error))
                return table, [f"encoding: {name}", *notes]
            block *= 8


def read_json_list(origin: Origin, encoding: str | None) -> tuple[pa.Table, list[str]]:
    """The table of one JSON list of objects."""
    found, name = _encoding(origin, encoding)
    try:
        with _text(origin, found) as stream:
            items = json.load(stream)
    except json.JSONDecodeError as error:
        raise ReadError(f"{origin.name}, line {error.lineno}: is not JSON: {error.msg}. Correct the line.") from error
    except OSError as error:
        raise origin.unreadable(error) from error
    wrong = next((position for position, item in enumerate(items, start=1) if not isinstance(item, dict)), None)
    if wrong is not None:
        raise ReadError(f"{origin.name}: item {wrong} of the list is not an object {{...}} with the row's values.")
    table, notes = _table(items)
    return table, [f"encoding: {name}", "format: one JSON list, read whole", *notes]


def _table(items: list[dict[str, Any]]) -> tuple[pa.Table, list[str]]:
    names = list(dict.fromkeys(name for item in items for name in item))
    return table_from_rows(names, [[item.get(name) for name in names] for item in items])


def line_of(origin: Origin, encoding: str | None, row: int) -> int:
    """The line on which a row, counted from 1, stands; empty lines are no rows."""
    return next(islice(_items(origin, _encoding(origin, encoding)[0]), row - 1, None))[0]


def _encoding(origin: Origin, encoding: str | None) -> tuple[str, str]:
    head = origin.head(SAMPLE_BYTES)
    if encoding is None:
        return encoding_of(head, origin.name)
    decode_start(head, encoding, origin.name)  # an error where it does not fit
    return encoding, f"{encoding}, as given"


def _utf8(origin: Origin, encoding: str) -> pa.NativeFile:
    stream = origin.open()
    return stream if encoding.startswith("utf-8") else pa.transcoding_input_stream(stream, encoding, "utf8")


def _slowly(origin: Origin, encoding: str, error: Exception) -> list[dict[str, Any]]:
    """The objects of lines that Arrow refuses, where texts among numbers are why; else the error with its line."""
    if isinstance(error, OSError):
        raise origin.unreadable(error) from error
    kinds: dict[str, tuple[str, int]] = {}
    items, mixed = list[dict[str, Any]](), False
    for number, item in _items(origin, encoding):
        if isinstance(item, str):
            raise ReadError(f"{origin.name}, line {number}: {item}") from error
        items.append(item)
        for key, value in item.items():
            kind = _kind(value)
            before, line = kinds.setdefault(key, (kind, number)) if kind else (kind, number)
            mixed |= before != kind
            if before != kind and not {before, kind} <= {NUMBER, TEXT}:
                raise ReadError(
                    f"{origin.name}, line {number}: {key!r} is {kind} ({value!r:.60}) where line {line} "
                    f"has {before}. Write the same kind of value on every line, or null."
                ) from error
    if not mixed or "changed from" not in str(error):
        raise ReadError(f"{origin.name}: {error}") from error
    return items


def _items(origin: Origin, encoding: str) -> Iterator[tuple[int, Any]]:
    """Each line's number and object, or what is wrong with the line."""
    with _text(origin, encoding) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                item = json.loads(line)
            except json.JSONDecodeError as error:
                shown = f"{line.strip()!r:.60}"
                yield number, f"is not a whole JSON object: {error.msg}: {shown}. Write one object a line."
                return
            whole = isinstance(item, dict)
            yield number, item if whole else f"is not a JSON object {{...}}: {line.strip()!r:.60}."


def _text(origin: Origin, encoding: str) -> io.TextIOWrapper:
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(io.BufferedReader(origin.open()), encoding=codec, errors="replace")


def _kind(value: Any) -> str:
    """The kind of a value as Arrow tells them apart; nothing for null, which fits all."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return NUMBER
    if isinstance(value, str):
        return TEXT
    return "a list" if isinstance(value, list) else "an object"


def as_json(value: Any) -> str:
    """The value as JSON; what JSON does not know is written as text."""
    return json.dumps(value, ensure_ascii=False, default=str)
