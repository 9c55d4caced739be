"""Input tables: the roles of their columns; reading in memory, in several passes, or from disk."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from addml import parameters
from addml.arrow import PLAIN_NUMBERS
from addml.errors import AddmlError
from addml.inputs.disk import LEAST_STREAMED, Source, open_source
from addml.io.binary import is_parquet
from addml.io.documents import is_address
from addml.io.image_folder import is_image_folder
from addml.io.read import STREAMED, Batches, check_options_apply, csv_columns, format_of, open_batches, read_table
from addml.io.source import PACKED_NAMES, STANDARD_INPUT, ReadError, download, find_origin, is_remote, is_special
from addml.model import Model
from addml.pipeline.options import MEMORY, Options
from addml.preprocessing.profile import TextCells
from addml.text import counted, did_you_mean, listed

IDENTIFIER, PROSE = "identifier", "free text"  # prefixes of the reasons for dropping a column
READABLE = ("a value of its own", "a value of their own")  # suffixes of the reason if the identifier is text
NUMBER_TYPES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
ALL = "all"  # value of --keep
PACKED = 5  # size in memory of a compressed file, as a multiple of its size on disk
HEAD = 1 << 22  # bytes read to estimate the number of lines
ROOM = 4  # free memory needed to hold a table, as a multiple of its size


@dataclass(frozen=True)
class Roles:
    """The role of every column; `left_out` pairs dropped columns with reasons."""

    features: tuple[str, ...]
    ids: tuple[str, ...]
    label: str | None
    left_out: tuple[tuple[str, str], ...]
    by: tuple[str, ...] = ()


def choose(names: Sequence[str], options: Options, source: str) -> Roles:
    """Assign the columns of a table to their roles; an unknown name is an error."""
    train_label = find(options.train_labels, names, "--train-labels", source)
    ids = resolve(options.id, names, "--id", source)
    ignored = resolve(options.ignore, names, "--ignore", source)
    columns = resolve(options.columns, names, "--columns", source)
    label = find(options.label, names, "--label", source)
    by = resolve(options.by, names, "--by", source)
    kept_columns(options, names)  # fails early on a wrong name
    if train_label is not None and train_label == label:
        raise AddmlError(f"{train_label!r} cannot be both --label, which training must not see, and --train-labels.")
    for option, named in (("--by", by), ("--columns", columns), ("--id", ids)):
        for name in {label, train_label} & {*named}:
            raise AddmlError(f"{name!r} holds labels; remove it from {option}.")
    reasons = {
        **{name: "not in --columns" for name in names if columns and name not in columns},
        **dict.fromkeys(ignored, "--ignore"),
        **dict.fromkeys(ids, "identifies a row (--id)"),
        **({label: "the label, for evaluation only"} if label else {}),
        **({train_label: "labels to train on"} if train_label else {}),
    }
    features = tuple(name for name in names if name not in reasons or name in by)
    if not set(features) - set(by):
        dropped = counted(len(names), "column is", "columns are")
        raise AddmlError(f"{source}: no column is left to train on; {dropped} dropped.", file=source)
    left_out = tuple((name, reasons[name]) for name in names if name not in features)
    return Roles(features, tuple(ids), label, left_out, tuple(by))


def resolve(texts: Sequence[str], names: Sequence[str], option: str, source: str) -> list[str]:
    """Split comma-separated column names, unless the whole text is a column's name."""
    columns, result = set(names), []
    for text in texts:
        parts = [text] if text in columns else [part.strip() for part in text.split(",") if part.strip()]
        for part in parts:
            if part not in columns:
                find(part, names, option, source)  # raises
        result += parts
    return list(dict.fromkeys(result))


def find(name: str | None, names: Sequence[str], option: str, source: str) -> str | None:
    """Return `name`; raise if it is not among the columns."""
    if name is not None and name not in names:
        hint = f"{did_you_mean(name, names)} Its columns: {listed(names, 20)}"
        raise AddmlError(f"{source}: has no column {name!r} ({option}).{hint}.", file=source, option=option)
    return name


def why_not_numeric(column: pa.ChunkedArray) -> str | None:
    """None for a numeric column; else "no numbers" with the first text, unless that is in row 1."""
    if any(test(column.type) for test in NUMBER_TYPES):
        return None
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            float(value or 0)
        except (TypeError, ValueError):
            return f"no numbers ({value!r} in row {row:,})" if row > 1 else "no numbers"
    return "no numbers"


def unclashing_names(ids: Sequence[str], columns: Collection[str]) -> list[str]:
    """The names of id columns beside `columns`; one that clashes becomes `id_NAME`."""
    taken, names = {*ids, *columns}, []
    for name in ids:
        new = name if name not in columns else f"id_{name}"
        while new != name and new in taken:
            new = f"id_{new}"
        taken.add(new)
        names.append(new)
    return names


def check_unseen(label: str | None, columns: Sequence[str], model: str | None) -> None:
    """Refuse a label that is among the training columns of the model."""
    if label is not None and label in columns:
        remedy = f"fit it again with --label {label} or --ignore {label}"
        raise AddmlError(f"{model}: was trained on the column {label!r}, so it cannot be the label; {remedy}.")


@dataclass
class Input:
    """A table in memory, or its column names if it is too large and read in several passes."""

    options: Options
    names: list[str]
    notes: list[str]
    table: pa.Table | None
    texts: tuple[str, ...] = ()  # CSV columns read as text
    loose: list[str] | None = None  # numeric columns of a large CSV that contain text, known after the first pass

    @property
    def source(self) -> str:
        return self.options.source

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read these columns from the first row, at most `rows` at a time."""
        if self.table is not None:
            return iter(self.table.select(list(columns)).to_batches(max_chunksize=rows))
        reading = {"texts": self.texts, "loose": self.loose, **self.options.reading}
        opened = open_batches(self.options.file, columns=list(columns), batch_rows=rows, **reading)
        self.loose = opened.loose if self.loose is None else self.loose
        return iter(opened)


def open_input(options: Options, ids: Sequence[str] = ()) -> Input:
    """Read the table, or only its schema if it is too large for memory; ids (default: `ids`) and times as text."""
    named = tuple(name for name in (options.time, options.label, options.train_labels) if name)
    texts = possible_names((*(options.id or ids), *options.by, *filter(None, [options.time])))
    labels = (*texts, *named, *possible_names((*options.columns, *options.ignore)))
    reading = {"texts": texts, "codes": options.time is None, "labels": labels, **options.reading}
    if is_large(options.file):
        opened = open_batches(options.file, **reading)
        notes = [*opened.notes, "larger than memory: read twice, in parts"]
        return Input(options, list(opened.schema.names), notes, None, texts)
    result = read_table(options.file, **reading)
    return Input(options, result.table.column_names, result.notes, result.table, texts)


def possible_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Every column that comma-separated names may refer to."""
    return tuple(name for text in texts for name in (text, *map(str.strip, text.split(","))))


def on_disk_source(options: Options, command: str = "detect") -> Source | None:
    """The Parquet files to train on from disk: with --all-rows, if larger than --memory or on a cluster."""
    path = Path(os.path.expanduser(options.file))
    if is_image_folder(path):
        return None
    if not options.all_rows or is_address(options.file) or not is_parquet(path):
        unused = ("memory", "scratch", "engine") if command == "fit" else ("memory",)  # detect scores into scratch
        for name in unused:
            if getattr(options, name) is not None:
                scope = f"--{name} applies to training on Parquet files with --all-rows"
                raise AddmlError(f"{options.source}: {scope}; remove it, or train that way.")
        return None
    check_options_apply(options.source, "parquet", options.reading)
    source, memory = open_source(path), parameters.size("--memory", options.memory or MEMORY)
    is_larger = source.size > memory and len(source) >= LEAST_STREAMED
    return source if is_larger or options.engine is not None else None


@contextmanager
def on_disk(file: str) -> Iterator[str]:
    """A path that can be opened several times; standard input and pipes are copied to a file."""
    path = Path(os.path.expanduser(file))
    is_pipe = is_special(path)
    if file != STANDARD_INPUT and not is_pipe:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="addml-") as folder:
        copy = Path(folder) / "standard input"
        with copy.open("wb") as target, nullcontext(sys.stdin.buffer) if not is_pipe else path.open("rb") as stream:
            shutil.copyfileobj(stream, target, 1 << 20)
        try:
            yield str(copy)
        except (ReadError, AddmlError) as error:  # it names the copy
            raise type(error)(str(error).replace(str(copy), file if is_pipe else copy.name)) from error


def open_for_model(
    options: Options, model: Model, rows: int, beside: Sequence[tuple[str, str]] = ()
) -> tuple[Batches, list[str]]:
    """Open the columns of a model, ids, label and `beside` (columns and who needs them); also return the ids."""
    file, source, reading, label = options.file, options.source, options.reading, options.label
    kind = "database" if is_address(file) else format_of(find_origin(file, options.sheet))[0]
    others = (*([label] if label else []), *(name for name, _ in beside))
    labels = (*model.used, *model.by, *model.ids, *possible_names(options.id), *others)
    opened = None if kind == "csv" else open_batches(file, labels=labels, batch_rows=rows, **reading)
    names = csv_columns(file, **reading) if opened is None else opened.schema.names
    check_columns(model, names, source)
    for name, who in ((label, "--label"), *beside):
        find(name, names, who, source)
    check_unseen(label, model.used, options.model)
    ids = resolve(options.id, names, "--id", source)
    if label in ids:
        raise AddmlError(f"{label!r} is the label (--label); remove it from --id.")
    ids = ids or identifiers(model, [name for name in names if name != label])
    ids = list(dict.fromkeys([*model.by, *ids, *kept_columns(options, names)]))
    if opened is not None and kind not in STREAMED:
        return opened, ids
    columns = list(dict.fromkeys([*model.used, *ids, *others]))
    schema = schema_of(model) if kind == "csv" else None  # other files know their types
    return open_batches(file, schema=schema, columns=columns, batch_rows=rows, **reading), ids


def check_columns(model: Model, names: Sequence[str], source: str) -> None:
    present = set(names)
    missing = [name for name in (*model.used, *model.by) if name not in present]
    if missing:
        columns = f"{counted(len(missing), 'column')} that the model needs: {listed(list(map(repr, missing)))}"
        raise AddmlError(f"{source}: lacks {columns}.{did_you_mean(missing[0], names)}")


def identifiers(model: Model, names: Sequence[str]) -> list[str]:
    """The id columns among these: given by the user, or detected in training."""
    dropped = [] if model.columns is None else [(name, why) for name, why in model.columns.left_out if name in names]
    detected = [name for name, why in dropped if why.startswith(IDENTIFIER)]
    distinct = {name: int(re.findall(r"(\d+)%", why)[-1]) for name, why in dropped if why.startswith(PROSE)}  # percent
    if distinct and not any(why.endswith(READABLE) for _, why in dropped):
        detected.append(max(distinct, key=distinct.__getitem__))
    return [name for name in model.ids if name in names] or detected


def kept_columns(options: Options, names: Sequence[str]) -> list[str]:
    if options.keep == (ALL,) and ALL not in names:
        return list(names)
    return resolve(options.keep, names, "--keep", options.source)


def schema_of(model: Model) -> pa.Schema:
    """The column types of training, for reading text files; columns in other notations are read as text."""
    assert model.columns is not None
    types, fitted = [], list[Any](model.columns.fitted)
    for column in fitted:
        styled = getattr(column, "written", None) not in (None, PLAIN_NUMBERS)
        if column.kind == "category" or styled or getattr(column, "form", None) not in (None, "iso"):
            kind = pa.string()
        elif column.kind == "date":
            kind = pa.timestamp("us", column.zone) if "time" in column.parts else pa.time32("s")
        else:
            kind = pa.bool_() if column.kind == "boolean" else pa.float64()
        types.append((column.name, kind))
    return pa.schema(types)


def check_text(options: Options, cells: TextCells) -> None:
    """With --strict, fail on the first text in a numeric column."""
    if not options.strict or not cells:
        return
    cell = min((first for first, *_ in cells.first.values()), key=lambda cell: cell.row)
    where, source = f"{options.source}, row {cell.row:,}: column {cell.column!r}", options.source
    remedy = "Correct the value, or leave the cell empty if it is unknown."
    message = f"{where} holds {cell.shown} where a number is expected (--strict). {remedy}"
    raise AddmlError(message, file=source, row=cell.row, column=cell.column)


def expected_rows(file: str, rows: int | None = None) -> int | None:
    """The number of rows if known, else an estimate without reading the file, for a progress bar; None if unknown."""
    path = Path(os.path.expanduser(file))
    if rows is not None or is_address(file):
        return rows
    try:
        if is_parquet(path):
            return len(open_source(path))
        origin = find_origin(path)
        if origin.path is None or origin.compression is not None:
            return None
        with origin.path.open("rb") as stream:
            head, size = stream.read(HEAD), os.fstat(stream.fileno()).st_size
    except (ReadError, OSError):
        return None
    return max(1, round(head.count(b"\n") * size / max(1, len(head))))


def is_large(file: str) -> bool:
    """Whether a table may not fit into memory."""
    path = download(file) if is_remote(file) else Path(os.path.expanduser(file))
    size = 0
    for part in (path, *path.rglob("*")):
        if part.is_file():
            is_packed = part.suffix.lower() in PACKED_NAMES or is_parquet(part)
            size += part.stat().st_size * (PACKED if is_packed else 1)
    return ROOM * size > free_memory()


def free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 32
