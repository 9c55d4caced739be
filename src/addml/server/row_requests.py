"""Rows that a client sends, read by their content type and scored as `addml score` scores a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from addml.io.source import Origin
from addml.io.values import shaped, table_from_rows
from addml.pipeline.batches import drift_of, features_of, highest, reasons_for, scores_of
from addml.pipeline.sources import check_columns, schema_of
from addml.server import RefusedError
from addml.server.models import ServedModel

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.model import Model

JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
UNSAID = "application/x-www-form-urlencoded"  # what curl -d and urllib send unless told otherwise
MOST_REASONS = 20
MOST_ROWS = 100_000  # in one request
LARGE = 10**6  # bytes of a body
BATCH_ROWS = 4096  # the server can stop after so many
FIELDS = ("score", "is_anomaly", "p_value", "probability", "reasons")
DICTIONARY, RECORDS = 2, 3  # kinds of messages in Arrow's IPC format

Batches = tuple[list[str], Iterator["pa.RecordBatch"]]  # all names that came, and the columns of training


@dataclass(frozen=True)
class RowRequest:
    """Rows to be scored: their bytes and type, the number of reasons per row, and whether all rows get reasons."""

    body: bytes
    type: str = JSON
    reasons: Any = 3
    all: Any = False


def score_rows(model: ServedModel, request: RowRequest, is_stopping: Callable[[], bool]) -> bytes:
    """The response as JSON: one result per row, in the same order.

    Flagged rows get reasons, or all rows. A column that only some rows name is missing in the others.
    """
    fitted = model.model
    if fitted is None:
        raise model.refusal()
    if request.type not in (JSON, UNSAID, NDJSON, CSV, ARROW):
        raise RefusedError(f"content-type {request.type!r}: send {JSON}, {NDJSON}, {CSV} or {ARROW}", 415)
    drift, results = drift_of(fitted), list[dict[str, Any]]()
    try:
        names, batches, request = _read(fitted, request)
        for batch in batches:
            if is_stopping():
                raise RefusedError("the server is stopping", 503)
            _check_count(len(results) + batch.num_rows)
            features = features_of(fitted, batch, len(results), drift)
            results += _results(fitted, model.device, batch, features, request)
    except (ValueError, OSError) as error:  # Arrow's are one or the other
        raise error if isinstance(error, RefusedError) else RefusedError(str(error)) from error
    _check_count(len(results))
    about = {
        "model": model.name,
        "model_hash": model.hash,
        "threshold": fitted.threshold,
        "ignored": sorted({*names} - _known(fitted)),
        "notes": [*drift.new_gaps, *drift.texts.words()],
    }
    return orjson.dumps(about | {"results": results}, option=orjson.OPT_SERIALIZE_NUMPY)


def _check_count(rows: int) -> None:
    if not rows:
        raise RefusedError("there are no rows; give at least one")
    if rows > MOST_ROWS:
        raise RefusedError(f"more than {MOST_ROWS:,} rows; send fewer at a time", 413)


def _read(fitted: Model, request: RowRequest) -> tuple[list[str], Iterator[pa.RecordBatch], RowRequest]:
    """The rows, and the request with the settings of a JSON body."""
    if request.type in (JSON, UNSAID):
        asked = _parsed(request.body)
        if not isinstance(asked, dict) or not isinstance(rows := asked.pop("rows", None), list):
            raise RefusedError('send {"rows": [{"column": value, ...}, ...]}')
        if unknown := [name for name in asked if name not in ("reasons", "all")]:
            raise RefusedError(f"{unknown[0]!r} is not known here; known are rows, reasons, all")
        request = replace(request, **asked)
    elif request.type == NDJSON:
        _check_count(1 + request.body.count(b"\n", 0, -1))
        rows = [_parsed(line) for line in request.body.split(b"\n") if line.strip()]
    if type(request.reasons) is not int or not 0 <= request.reasons <= MOST_REASONS:
        raise RefusedError(f"reasons={json.dumps(request.reasons)}: give a whole number of 0 to {MOST_REASONS}")
    if not isinstance(request.all, bool):
        raise RefusedError(f"all={json.dumps(request.all)}: give true or false")
    if request.type == CSV:
        return *_csv(fitted, request.body), request
    if request.type == ARROW:
        return *_arrow(fitted, request.body), request
    return *_objects(fitted, rows), request


def _parsed(body: bytes) -> Any:
    if len(body) <= LARGE:
        with suppress(ValueError):  # such as NaN, which Python takes
            return orjson.loads(body)
    try:  # with a hook, so that the parser does not hold the interpreter's lock to its end: nobody would be answered
        return json.loads(body, object_hook=lambda found: found)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON ({error})") from None


def _objects(fitted: Model, rows: list[Any]) -> Batches:
    """Rows as dicts; an object within a row is spread out as name.part."""
    _check_count(len(rows))
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row:
            raise RefusedError(f"row {place} is {json.dumps(row)[:80]}; give an object: column names and values")
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    possible = _known(fitted)
    known = [name for name in names if name in possible]
    within = (name for name in (*fitted.used, *fitted.by) if {*_above(name)} & {*known})
    check_columns(fitted, [*names, *within], "rows")
    table, _ = table_from_rows(known, [[row.get(name) for name in known] for row in rows])
    return names, _batches(fitted, table, names)


def _csv(fitted: Model, body: bytes) -> Batches:
    """A text with a header, read as a file is."""
    from addml.io.read import csv_columns, open_batches

    if len(body.partition(b"\n")[0]) > LARGE:
        raise RefusedError("the first line has more than 1 MB; send the columns that the model was trained on", 413)
    origin = Origin("rows", content=body)
    names = csv_columns(origin)
    check_columns(fitted, names, "rows")
    return names, open_batches(origin, schema=schema_of(fitted), batch_rows=BATCH_ROWS).batches


def _arrow(fitted: Model, body: bytes) -> Batches:
    """An uncompressed Arrow stream; the unpacked size of a compressed one cannot be known in advance."""
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if _is_compressed(message.metadata.to_pybytes()):
            raise RefusedError("the Arrow stream is compressed; send it without compression")
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        check_columns(fitted, stream.schema.names, "rows")
        batches, count = list[pa.RecordBatch](), 0
        for batch in stream:
            count += batch.num_rows
            _check_count(max(count, 1))
            batch.validate(full=True)
            batches.append(batch)
        table = pa.Table.from_batches(batches, stream.schema)
    return table.column_names, _batches(fitted, table, table.column_names)


def _is_compressed(metadata: bytes) -> bool:
    """Whether a message of Arrow's IPC format has a compressed body; pyarrow does not tell before it unpacks it."""

    def at(form: str, place: int) -> int:
        return int(struct.unpack_from(form, metadata, place)[0])

    def field(table: int, number: int, *, is_table: bool = False) -> int:
        """Where a field of a flatbuffer's table lies, or the table that it refers to; 0 where there is none."""
        layout, entry = table - at("<i", table), 4 + 2 * number
        offset = at("<H", layout + entry) if entry < at("<H", layout) else 0
        place = table + offset if offset else 0
        return place + at("<I", place) if place and is_table else place

    try:
        message = at("<I", 0)
        kind, header = field(message, 1), field(message, 2, is_table=True)
        if not kind or metadata[kind] not in (DICTIONARY, RECORDS):
            return False
        if metadata[kind] == DICTIONARY:  # which holds a batch of records
            header = field(header, 1, is_table=True)
        return field(header, 3) != 0
    except (struct.error, IndexError):
        raise RefusedError("the body is not an Arrow stream") from None


def _batches(fitted: Model, table: pa.Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of training, some rows at a time."""
    table, _ = shaped(table, None, "rows")
    check_columns(fitted, [*table.column_names, *names], "rows")
    return iter(table.select([*fitted.used, *fitted.by]).combine_chunks().to_batches(max_chunksize=BATCH_ROWS))


def _known(model: Model) -> set[str]:
    """Names that a row may have: those of the columns, and for a.b, which is b within a, that of a."""
    columns = {*model.used, *model.by, *model.ids}
    return columns.union(*map(_above, columns))


def _above(name: str) -> list[str]:
    return [name[:at] for at, letter in enumerate(name) if letter == "."]


def _results(
    model: Model, device: str, batch: pa.RecordBatch, features: np.ndarray, request: RowRequest
) -> Iterator[dict[str, Any]]:
    """One result per row; most have no reasons."""
    scores = scores_of(model, batch, features, device)
    flagged = scores > model.threshold
    explained = highest(scores, len(scores) if request.all else int(flagged.sum()))
    found = reasons_for(model, batch.take(explained), features[explained], request.reasons, device)
    reasons = dict(zip(explained.tolist(), found, strict=True))
    values = (scores, flagged, model.training.p_values(scores), model.training.probability(scores))
    for row, cells in enumerate(zip(*(one.tolist() for one in values), strict=True)):
        own = [{"column": one.column, "share": one.share, "words": one.words} for one in reasons.get(row, ())]
        yield dict(zip(FIELDS, (*cells, own), strict=True))
