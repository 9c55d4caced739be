"""The models of a server, reloaded when they change on disk, and scoring of rows sent by clients."""

from __future__ import annotations

import json
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from addml import model_file
from addml.errors import AddmlError
from addml.findings import Usual
from addml.io.read import csv_columns, open_batches
from addml.io.source import Origin
from addml.io.values import shaped, table_from_rows
from addml.model import Model
from addml.pipeline.batches import drift_of, features_of, reasons_for, scores_of, scoring_device
from addml.pipeline.options import Options
from addml.pipeline.ranking import highest
from addml.pipeline.run import info, load_model
from addml.pipeline.sources import check_columns, schema_of
from addml.preprocessing.profile import ColumnProfile
from addml.server import RefusedError
from addml.text import TABLE, did_you_mean


def _modification_times(folder: Path) -> tuple[int, ...]:
    try:
        return folder.stat().st_mtime_ns, (folder / "model.json").stat().st_mtime_ns
    except OSError:
        return ()


@dataclass(frozen=True)
class ServedModel:
    """One model. `model` is None if it scores images or series, which clients can only send as files."""

    name: str
    folder: Path
    metadata: dict[str, Any]  # as in addml info
    model: Model | None
    device: str = "cpu"
    hash: str = ""
    modified: tuple[int, ...] = ()

    def short(self) -> dict[str, Any]:
        """The fields shown in a list."""
        fields = {key: self.metadata[key] for key in ("noun", "trained_rows", "threshold", "decided_by")}
        return {"name": self.name, "hash": self.hash, **fields, "columns": len(self.metadata["columns"])}

    def full(self) -> dict[str, Any]:
        """All fields except the folder."""
        profiles = () if self.model is None else self.model.profiles
        usual = [asdict(Usual.of(profile)) | {"value": typical_value(profile)} for profile in profiles]
        return {**self.metadata, "name": self.name, "model": self.name, "hash": self.hash, "usual": usual}


def typical_value(profile: ColumnProfile) -> Any:
    """A typical value: the median, the most common category, or a day halfway between the first and the last."""
    if profile.earliest is not None and profile.latest is not None:
        return str(profile.earliest + (profile.latest - profile.earliest) / 2)[:10]
    if profile.kind == "number":
        return profile.middle
    return max(profile.levels, key=lambda level: profile.levels[level], default=None)


class Models(dict[str, ServedModel]):
    """Models by name; a model that changes on disk is reloaded."""

    def __init__(self, device: str, folders: Sequence[str] = ()) -> None:
        """Load the models in these folders and name them after the folders."""
        super().__init__()
        self.device, self._lock = device, threading.Lock()
        for folder in folders:
            path = Path(os.path.expanduser(folder)).resolve()  # each job runs in another folder
            name = path.name.removesuffix(".model")
            if name in self:
                raise AddmlError(f"{folder}: {self[name].folder} is called {name} too; rename one of the two folders.")
            self.add(name, path)

    def add(self, name: str, folder: Path) -> ServedModel:
        """Load a model and serve it under this name, with a number appended if the name is taken."""
        model = self._load(name, folder)
        with self._lock:
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            free_name = next(name for name in names if name not in self)
            self[free_name] = replace(model, name=free_name)
            return self[free_name]

    def _load(self, name: str, folder: Path) -> ServedModel:
        for _ in range(10):
            modified, metadata = _modification_times(folder), info(str(folder))
            options = Options(device=self.device, model=str(folder))
            model = load_model(options, TABLE) if metadata["noun"] == "row" else None
            device = "cpu" if model is None else scoring_device(options, model)[0]
            served = ServedModel(name, folder, metadata, model, device, model_file.digest(folder), modified)
            if modified == _modification_times(folder):
                return served
        raise AddmlError(f"{folder}: is still being written; start the server when that is done")

    def current(self, name: str) -> ServedModel:
        """The model as it is on disk now, or the version already loaded if the new one is unreadable."""
        modified = _modification_times(self[name].folder)
        if modified in ((), self[name].modified):
            return self[name]
        with self._lock:
            if modified != self[name].modified:  # another request may have loaded it
                try:
                    self[name] = self._load(name, self[name].folder)
                except (ValueError, OSError) as error:
                    logging.getLogger("addml").error("%s: cannot be reloaded, keeping the old model: %s", name, error)
                    self[name] = replace(self[name], modified=modified)
            return self[name]

    def __missing__(self, name: str) -> ServedModel:
        raise RefusedError(f"there is no model {name!r} here.{did_you_mean(name, self)}", 404)


JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
DEFAULT_TYPE = "application/x-www-form-urlencoded"  # sent by curl -d and urllib unless set
DEFAULT_REASONS, MAX_REASONS = 3, 20  # per row
MAX_ROWS = 100_000  # per request
LARGE = 10**6  # bytes of a body
BATCH_ROWS = 4096  # the server can stop between batches

Batches = tuple[list[str], Iterator[pa.RecordBatch]]  # all column names sent, and the columns the model uses


def score_rows(
    served: ServedModel, body: bytes, content_type: str = JSON, is_stopping: Callable[[], bool] = lambda: False
) -> bytes:
    """The response as JSON: one result per row in order; flagged rows get reasons, on request all of them."""
    model = served.model
    if model is None:
        raise RefusedError(f"{served.name} scores {served.metadata['noun']}s; upload files: POST /api/v1/jobs")
    drift, results = drift_of(model), list[dict[str, Any]]()
    reasons, explain_all = DEFAULT_REASONS, False
    try:
        if content_type in (JSON, DEFAULT_TYPE):
            rows, reasons, explain_all = _parse_request(body)
            names, batches = _from_dicts(model, rows)
        else:
            names, batches = _read(model, body, content_type)
        for batch in batches:
            if is_stopping():
                raise RefusedError("the server is stopping", 503)
            _check_count(len(results) + batch.num_rows)
            features = features_of(model, batch, len(results), drift)
            results += _results(model, batch, features, reasons, explain_all, served.device)
    except RefusedError:
        raise
    except (ValueError, OSError) as error:  # including Arrow's
        raise RefusedError(str(error)) from error
    _check_count(len(results))
    response = {
        "model": served.name,
        "model_hash": served.hash,
        "threshold": model.threshold,
        "ignored": sorted({*names} - _accepted_keys(model)),
        "notes": [*drift.new_gaps, *drift.texts.words()],
        "results": results,
    }
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)


def _check_count(rows: int) -> None:
    if not rows:
        raise RefusedError("there are no rows; send at least one")
    if rows > MAX_ROWS:
        raise RefusedError(f"more than {MAX_ROWS:,} rows; send fewer per request", 413)


def _parse_json(body: bytes) -> Any:
    if len(body) <= LARGE:
        with suppress(ValueError):  # orjson refuses NaN, json accepts it
            return orjson.loads(body)
    try:  # the hook makes the parser release the GIL now and then; otherwise a large body blocks all other requests
        return json.loads(body, object_hook=lambda item: item)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON ({error})") from None


def _parse_request(body: bytes) -> tuple[list[Any], int, bool]:
    """The rows of a JSON body, the number of reasons per row, and whether all rows get them."""
    request = _parse_json(body)
    if not isinstance(request, dict) or not isinstance(rows := request.pop("rows", None), list):
        raise RefusedError('send {"rows": [{"column": value, ...}, ...]}')
    reasons, explain_all = request.pop("reasons", DEFAULT_REASONS), request.pop("all", False)
    if request:
        raise RefusedError(f"unknown key {next(iter(request))!r}; the keys are rows, reasons and all")
    if type(reasons) is not int or not 0 <= reasons <= MAX_REASONS:
        raise RefusedError(f"reasons={json.dumps(reasons)}: give a whole number from 0 to {MAX_REASONS}")
    if not isinstance(explain_all, bool):
        raise RefusedError(f"all={json.dumps(explain_all)}: give true or false")
    return rows, reasons, explain_all


def _read(model: Model, body: bytes, content_type: str) -> Batches:
    if content_type == NDJSON:
        _check_count(1 + body.count(b"\n", 0, -1))
        return _from_dicts(model, [_parse_json(line) for line in body.split(b"\n") if line.strip()])
    if content_type == ARROW:
        return _from_arrow(model, body)
    if content_type != CSV:
        raise RefusedError(f"content-type {content_type!r}: send {JSON}, {NDJSON}, {CSV} or {ARROW}", 415)
    if len(body.partition(b"\n")[0]) > LARGE:
        raise RefusedError("the first line has more than 1 MB; send only the model's columns", 413)
    origin = Origin("rows", content=body)
    names = csv_columns(origin)
    check_columns(model, names, "rows")
    return names, open_batches(origin, schema=schema_of(model), batch_rows=BATCH_ROWS).batches


def _from_dicts(model: Model, rows: list[Any]) -> Batches:
    """Rows given as dicts. Nested objects become columns `name.part`; keys that a row lacks are missing values."""
    _check_count(len(rows))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row:
            raise RefusedError(f"row {number} is {json.dumps(row)[:80]}; send an object of column names and values")
    names, accepted = list(dict.fromkeys(chain.from_iterable(rows))), _accepted_keys(model)
    keys = [name for name in names if name in accepted]
    table, _ = table_from_rows(keys, [[row.get(key) for key in keys] for row in rows])
    return names, _batches(model, table, names)


def _from_arrow(model: Model, body: bytes) -> Batches:
    """Rows of an uncompressed Arrow stream: the unpacked size of a compressed one is not known in advance."""
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if _is_compressed(message):
            raise RefusedError("the Arrow stream is compressed; send it without compression")
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        table = stream.read_all()
    _check_count(table.num_rows)
    table.validate(full=True)
    return table.column_names, _batches(model, table, table.column_names)


def _is_compressed(message: pa.ipc.Message) -> bool:
    """Whether the body of an Arrow message is compressed, read from its flatbuffer: pyarrow does not tell."""
    if message.type not in ("record batch", "dictionary"):
        return False
    metadata = message.metadata.to_pybytes()

    def integer(form: str, offset: int) -> int:
        return int(struct.unpack_from(form, metadata, offset)[0])

    def field(table: int, number: int) -> int:
        """The offset of a field in a flatbuffer table; 0 if it is absent."""
        vtable, entry = table - integer("<i", table), 4 + 2 * number
        relative = integer("<H", vtable + entry) if entry < integer("<H", vtable) else 0
        return table + relative if relative else 0

    try:
        batch = field(integer("<I", 0), 2)
        batch += integer("<I", batch)
        if message.type == "dictionary":  # contains a record batch
            batch = field(batch, 1)
            batch += integer("<I", batch)
        return field(batch, 3) != 0
    except struct.error:
        raise RefusedError("the body is not an Arrow stream") from None


def _batches(model: Model, table: pa.Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    table, _ = shaped(table, None, "rows")
    needed = [*model.used, *model.by]
    others = [name for name in names if name not in needed]  # for "did you mean"
    check_columns(model, [*table.column_names, *others], "rows")
    return iter(table.select(needed).combine_chunks().to_batches(max_chunksize=BATCH_ROWS))


def _accepted_keys(model: Model) -> set[str]:
    """The keys that rows may have: column names, and `a` for a column `a.b` of a nested object."""
    columns = {*model.used, *model.by, *model.ids}
    return columns | {name[:index] for name in columns for index, letter in enumerate(name) if letter == "."}


def _results(
    model: Model, batch: pa.RecordBatch, features: np.ndarray, max_reasons: int, explain_all: bool, device: str
) -> Iterator[dict[str, Any]]:
    scores = scores_of(model, batch, features, device)
    flagged = scores > model.threshold
    explained = highest(scores, len(scores) if explain_all else int(flagged.sum()))
    reasons = reasons_for(model, batch.take(explained), features[explained], max_reasons)
    by_row = dict(zip(explained.tolist(), reasons, strict=True))
    p_values, probability = model.training.p_values(scores), model.training.probability(scores)
    columns = {"score": scores, "is_anomaly": flagged, "p_value": p_values, "probability": probability}
    for row, result in enumerate(pa.table(columns).to_pylist()):
        entries = [{"column": why.column, "share": why.share, "words": why.words} for why in by_row.get(row, ())]
        yield result | {"reasons": entries}
