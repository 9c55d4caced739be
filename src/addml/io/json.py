"""JSON: one object a line through Arrow's reader, or a document with the rows in a list, perhaps a level down."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from addml.io.source import NoRowsError, Origin, ReadError, decode_start, encoding_of
from addml.io.values import numbered_names, table_from_rows
from addml.text import listed

BLOCK_BYTES = 1 << 20
LARGEST_BLOCK = 1 << 30
SAMPLE_BYTES = 1 << 18
NUMBER, TEXT = "a number", "text"
ROW_NAMES = ("features", "data", "rows", "records", "results", "items", "values")  # what lists of rows are called
DEEPEST = 3  # levels at which the rows of a document are looked for
POSITION = ("longitude", "latitude", "z")  # of a point in GeoJSON; the third is a height or, of earthquakes, a depth


def read_json(origin: Origin, encoding: str | None) -> tuple[pa.Table, list[str]]:
    """The table of a JSON file, whichever way the rows lie in it."""
    found, name = _encoding(origin, encoding)
    try:
        document = _document(origin, found)
        table, notes = _table_of_lines(origin, found) if document is None else _table_of(document, origin.name)
    except OSError as error:
        raise origin.unreadable(error) from error
    return table, [f"encoding: {name}", *notes]


def line_of(origin: Origin, encoding: str | None, row: int) -> int | None:
    """The line on which a row, counted from 1, stands; None in a document, whose rows are not lines."""
    found = _encoding(origin, encoding)[0]
    if _document(origin, found) is not None:
        return None
    return next(islice(_items(origin, found), row - 1, None))[0]


def as_json(value: Any) -> str:
    """The value as JSON; what JSON does not know is written as text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _encoding(origin: Origin, encoding: str | None) -> tuple[str, str]:
    head = origin.head(SAMPLE_BYTES)
    if encoding is None:
        return encoding_of(head, origin.name)
    decode_start(head, encoding, origin.name)  # an error where it does not fit
    return encoding, f"{encoding}, as given"


# A document ---------------------------------------------------------------------------------------------------


def _document(origin: Origin, encoding: str) -> Any:
    """What the file holds if it is one JSON value that holds rows; None where every line is an object."""
    with _text(origin, encoding) as stream:
        lines = (line for line in stream if line.strip())
        first, second = next(lines, ""), next(lines, "")
    if not first.lstrip().startswith(("{", "[")):
        return None
    if first.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            whole = json.loads(first)
            return None if second or not _rows_in(whole) else whole
    try:
        with _text(origin, encoding) as stream:
            return json.load(stream)
    except json.JSONDecodeError as error:
        if first.startswith("{") and second.startswith("{"):  # a broken line among others, which reading by lines names
            return None
        raise ReadError(f"{origin.name}, line {error.lineno}: is not JSON: {error.msg}. Correct the line.") from error


def _table_of(document: Any, source: str) -> tuple[pa.Table, list[str]]:
    """The table in a document: a list of rows, an object that holds one, or an object of columns."""
    if document in ([], {}):
        raise NoRowsError(f"{source}: holds no rows, only {document!r}.")
    place, rows = _rows_in(document) or ("", None)
    if rows is None:
        wrong = next((place for place, item in enumerate(document, 1) if not isinstance(item, dict)), 0)
        if isinstance(document, list) and wrong > 1:
            raise ReadError(f"{source}: item {wrong} of the list is not an object {{...}} with the row's values.")
        raise ReadError(
            f"{source}: no rows were found in this JSON. Write a list of objects {{...}}, alone or under one key."
        )
    others = [key for key in document if key != place.partition(".")[0]] if isinstance(document, dict) and place else []
    notes = [f"format: one JSON document, its rows under {place!r}" if place else "format: one JSON list"]
    notes += [f"not read: {listed(others, 8)}"] if others else []
    if all(row.get("type") == "Feature" and isinstance(row.get("properties"), dict) for row in rows):
        rows, notes = [_feature(row) for row in rows], [*notes, "GeoJSON: a point's position as longitude, latitude, z"]
    table, changed = _table(rows)
    return table, [*notes, *changed]


def _rows_in(document: Any) -> tuple[str, list[dict[str, Any]]] | None:
    """Where the rows of a document lie, as key.key, and the rows; the longest list, or one that is named like rows."""
    found = list(_lists_in(document, (), DEEPEST))
    if found:
        path, rows = max(found, key=lambda one: (any(key in ROW_NAMES for key in one[0]), len(one[1])))
        return ".".join(path), rows
    return ("", columns) if isinstance(document, dict) and (columns := _from_columns(document)) else None


def _lists_in(node: Any, path: tuple[str, ...], deeper: int) -> Iterator[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    if isinstance(node, list) and node and all(isinstance(item, dict) for item in node):
        yield path, node
    elif isinstance(node, list) and len(node) > 1 and all(isinstance(item, list) for item in node):
        is_named = all(isinstance(cell, str) for cell in node[0]) and len(set(node[0])) == len(node[0])
        names = node[0] if is_named else numbered_names(len(node[0]))
        yield path, [dict(zip(names, row, strict=False)) for row in node[is_named:]]
    elif isinstance(node, dict) and deeper:
        names = node.get("columns")
        for key, value in node.items():
            rows = value if key == "data" and isinstance(value, list) and isinstance(names, list) else []
            if rows and all(isinstance(row, list) and len(row) == len(names or ()) for row in rows):  # pandas' "split"
                yield (*path, key), [dict(zip(map(str, names or ()), row, strict=True)) for row in rows]
            else:
                yield from _lists_in(value, (*path, key), deeper - 1)


def _from_columns(document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Rows from columns: lists of one length, or objects of the same keys, as pandas writes them."""
    columns = list(document.values())
    if all(isinstance(column, list) for column in columns) and len({len(column) for column in columns}) == 1:
        return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]
    if not all(isinstance(column, dict) for column in columns) or len(columns) < 2:
        return None
    keys = list(columns[0])
    if any(isinstance(value, dict) for column in columns for value in column.values()):
        return None
    if all(list(column) == keys for column in columns) and all(key.isdigit() for key in keys):
        return [{name: document[name][key] for name in document} for key in keys]
    return [{"key": key, **row} for key, row in document.items()]  # objects that are rows, by their key


def _feature(row: dict[str, Any]) -> Any:
    """The properties of a feature of GeoJSON, and its position: of a point, or the mean of its geometry's points."""
    geometry = row.get("geometry") or {}
    points = list(_points(geometry.get("coordinates")))
    mean = [sum(axis) / len(points) for axis in zip(*points, strict=False)]
    position = dict(zip(POSITION, mean, strict=False))
    if geometry.get("type") not in (None, "Point"):
        position |= {"geometry": geometry["type"], "points": len(points)}
    own = {name if name not in row["properties"] else f"geometry.{name}": value for name, value in position.items()}
    return ({"id": row["id"]} if "id" in row else {}) | row["properties"] | own


def _points(coordinates: Any) -> Iterator[Sequence[float]]:
    if isinstance(coordinates, list) and coordinates and isinstance(coordinates[0], int | float):
        yield coordinates
    elif isinstance(coordinates, list):
        for inner in coordinates:
            yield from _points(inner)


def _table(items: Sequence[dict[str, Any]]) -> tuple[pa.Table, list[str]]:
    names = list(dict.fromkeys(name for item in items for name in item))
    return table_from_rows(names, [[item.get(name) for name in names] for item in items])


# One object a line --------------------------------------------------------------------------------------------


def _table_of_lines(origin: Origin, encoding: str) -> tuple[pa.Table, list[str]]:
    """The table of one JSON object a line; where some values of a key are numbers and some texts, all are texts."""
    block, is_utf8 = BLOCK_BYTES, encoding.startswith("utf-8")
    while True:
        try:
            raw = origin.open()
            with raw if is_utf8 else pa.transcoding_input_stream(raw, encoding, "utf8") as stream:
                return arrow_json.read_json(stream, arrow_json.ReadOptions(block_size=block)), []
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if "straddling" not in str(error) or block >= LARGEST_BLOCK:
                return _table(_slowly(origin, encoding, error))
            block *= 8


def _slowly(origin: Origin, encoding: str, error: Exception) -> list[dict[str, Any]]:
    """The objects of lines that Arrow refuses, where texts among numbers are why; else the error with its line."""
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
    kinds = {type(None): "", bool: "true or false", int: NUMBER, float: NUMBER, str: TEXT, list: "a list"}
    return kinds.get(type(value), "an object")
