"""Which columns are trained on, which name a row, and which one is the label."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from addml import parameters
from addml.errors import UserError
from addml.inputs.disk import LEAST_STREAMED, Source, open_source
from addml.io.image_folder import is_image_folder
from addml.io.read import STREAMED, Batches, csv_columns, line_of, open_batches, read_table, refuse_idle
from addml.io.source import COMPRESSION_NAMES, STANDARD_INPUT, Origin, ReadError, find_origin, format_of, is_special
from addml.io.sql import is_address
from addml.pipeline.options import Naming, Reading, Selection, Settings, Streaming
from addml.text import counted, did_you_mean, listed, without_password

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.pipeline.fitted import Fitted
    from addml.preprocessing.text_values import TextCells


@dataclass(frozen=True)
class Chosen:
    """Columns by their use, and those that the user left out with the reason in words."""

    features: tuple[str, ...]
    ids: tuple[str, ...]
    label: str | None
    left_out: tuple[tuple[str, str], ...]


def choose(
    names: Sequence[str],
    selection: Selection,
    naming: Naming,
    label: str | None,
    source: str,
    taught: str | None = None,
) -> Chosen:
    """Divide the columns of a table as the user said; every name given must be there."""
    taught = find(taught, names, "--learn-from", source)
    if taught is not None and taught == label:
        raise UserError(f"{taught!r} cannot be both --label, which training never sees, and --learn-from.")
    ids = resolve(naming.id, names, "--id", source)
    ignored = resolve(selection.ignore, names, "--ignore", source)
    wanted = resolve(selection.columns, names, "--columns", source)
    label = find(label, names, "--label", source)
    if label in (*wanted, *ids):
        other = "--columns" if label in wanted else "--id"
        raise UserError(f"{label!r} is the label, which training never sees; leave it out of {other}.")
    if taught in (*wanted, *ids):
        other = "--columns" if taught in wanted else "--id"
        raise UserError(f"{taught!r} holds labels (--learn-from); leave it out of {other}.")
    reasons = {
        **{name: "not among --columns" for name in names if wanted and name not in wanted},
        **dict.fromkeys(ignored, "--ignore"),
        **dict.fromkeys(ids, "names a row (--id)"),
        **({label: "the label, for evaluation only"} if label else {}),
        **({taught: "labels to learn from"} if taught else {}),
    }
    features = tuple(name for name in names if name not in reasons)
    if not features:
        raise UserError(
            f"{source}: no column is left to train on; {counted(len(names), 'column is', 'columns are')} left out."
        )
    return Chosen(features, tuple(ids), label, tuple((name, reasons[name]) for name in names if name in reasons))


def resolve(given: Sequence[str], names: Sequence[str], option: str, source: str) -> list[str]:
    """The columns named, where a name may hold several with commas between them."""
    known, found = set(names), []
    for text in given:
        parts = [text] if text in known else [part.strip() for part in text.split(",") if part.strip()]
        found += [_known(part, names, known, option, source) for part in parts]
    return list(dict.fromkeys(found))


def find(name: str | None, names: Sequence[str], option: str, source: str) -> str | None:
    """The one column named, if any."""
    return None if name is None else _known(name, names, set(names), option, source)


def beside(ids: Sequence[str], own: Collection[str]) -> list[str]:
    """What ids are called beside columns of ours: `id_NAME` for one of ours, and so on where that is taken too."""
    taken, found = {*ids, *own}, []
    for name in ids:
        new = name if name not in own else f"id_{name}"
        while new != name and new in taken:
            new = f"id_{new}"
        taken.add(new)
        found.append(new)
    return found


def unseen(label: str | None, trained_on: Sequence[str], model: str | None) -> None:
    """Refuse a label that the model was trained on: how well it foretells what it was told says nothing."""
    if label is not None and label in trained_on:
        raise UserError(
            f"{model}: was trained on the column {label!r}, so that it cannot be the label (--label); fit it again "
            f"with --label {label} or --ignore {label}."
        )


def _known(name: str, names: Sequence[str], known: set[str], option: str, source: str) -> str:
    if name not in known:
        has = f" Its columns: {listed(names, 20)}."
        raise UserError(f"{source}: has no column {name!r} ({option}).{did_you_mean(name, names)}{has}")
    return name


# A table that can be gone through more than once: held in memory, or read again where it is too large for that.


PACKED = 5  # how much larger a compressed table is in memory
HEAD = 1 << 22  # bytes from which the number of lines is estimated
ROOM = 4  # so many times its size a table must fit into memory to be held there


@dataclass
class Input:
    """A source, its columns, and its table unless that is too large."""

    file: str
    reading: Reading
    names: list[str]
    notes: list[str]
    table: pa.Table | None
    texts: tuple[str, ...] = ()  # columns of a CSV that are read as they are written
    loose: list[str] | None = None  # columns of numbers of a large CSV with texts among them, after the first time

    @property
    def source(self) -> str:
        """The file as it is named to people, without a password."""
        return shown(self.file)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """These columns, at most so many rows at a time, from the first row on."""
        if self.table is not None:
            return iter(self.table.select(list(columns)).to_batches(max_chunksize=rows))
        own = {"texts": self.texts, "loose": self.loose, **asdict(self.reading)}
        opened = open_batches(self.file, columns=list(columns), batch_rows=rows, **own)
        self.loose = opened.loose if self.loose is None else self.loose
        return iter(opened)


def open_input(settings: Settings, ids: Sequence[str] = ()) -> Input:
    """Read the table, or only its first rows where it is too large to be held in memory; what `--id` names as text.

    Where it names nothing, `ids` do.
    """
    file, reading = settings.file, settings.reading
    texts = _names(settings.naming.id or ids)
    is_series = settings.timing.time is not None  # in which all are numbers
    known = {"texts": texts, "codes": not is_series, "labels": (*texts, *_named(settings)), **asdict(reading)}
    if is_large(file):
        opened = open_batches(file, **known)
        notes = [*opened.notes, "larger than memory allows to hold: read twice, a part at a time"]
        return Input(file, reading, list(opened.schema.names), notes, None, texts)
    result = read_table(file, **known)
    return Input(file, reading, result.table.column_names, result.notes, result.table, texts)


def _named(settings: Settings) -> tuple[str, ...]:
    """The columns that the settings speak of, all but `--id`."""
    single = (settings.labelling.label, settings.learning.learn_from, settings.timing.time)
    return (*filter(None, single), *_names((*settings.selection.columns, *settings.selection.ignore)))


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Every column that may be meant, where a name may hold several with commas between them."""
    return tuple(name for text in given for name in (text, *map(str.strip, text.split(","))))


def on_disk_source(settings: Settings) -> Source | None:
    """The Parquet files of a run on all rows, where learning from them takes more memory than it may."""
    path = Path(os.path.expanduser(settings.file))
    if is_image_folder(path):
        return None
    is_parquet = path.is_dir() or path.suffix.lower() in (".parquet", ".pq")
    if not settings.training.all_rows or is_address(settings.file) or not is_parquet:
        _not_streamed(settings)
        return None
    refuse_idle(shown(settings.file), "parquet", asdict(settings.reading))
    source, most = open_source(path), parameters.size("--memory", settings.streaming.most)
    return source if source.size > most and len(source) >= LEAST_STREAMED else None


def _not_streamed(settings: Settings) -> None:
    """What bounds memory bounds nothing where a table is held in it, or a sample of its rows is."""
    names = ["memory", "no_cache"]
    if "writing" not in settings.groups:  # else the folder is for scored rows too
        names.append("cache_dir")
    for name in names:
        if getattr(settings.streaming, name) != getattr(Streaming(), name):
            raise UserError(
                f"{shown(settings.file)}: --{name.replace('_', '-')} is about training on all rows of Parquet files; "
                "give --all-rows and such files, or leave it out."
            )


@contextmanager
def on_disk(file: str) -> Iterator[str]:
    """A name under which a source can be opened again and again: what comes only once is copied to a file."""
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
        except (ReadError, UserError) as error:  # which names the copy
            raise type(error)(str(error).replace(str(copy), file if is_pipe else copy.name)) from error


def open_for_model(settings: Settings, fitted: Fitted, rows: int) -> tuple[Batches, list[str]]:
    """The columns that a model was trained on, with ids and label beside them; and the ids."""
    file, source, reading = settings.file, shown(settings.file), asdict(settings.reading)
    kind = "database" if is_address(file) else format_of(find_origin(file))[0]
    label = settings.labelling.label
    asked = (*fitted.used, *fitted.ids, *_names(settings.naming.id), *([label] if label else []))
    opened = None if kind == "csv" else open_batches(file, labels=asked, batch_rows=rows, **reading)
    names = csv_columns(file, **reading) if opened is None else opened.schema.names
    fitted.check_columns(names, source)
    find(label, names, "--label", source)
    unseen(label, fitted.used, settings.using.model)
    ids = resolve(settings.naming.id, names, "--id", source)
    if label in ids:
        raise UserError(f"{label!r} is the label (--label); leave it out of --id.")
    ids = ids or fitted.identifiers([name for name in names if name != label])
    if opened is not None and kind not in STREAMED:
        return opened, ids
    columns = list(dict.fromkeys([*fitted.used, *ids, *([label] if label else [])]))
    schema = fitted.schema if kind == "csv" else None  # other files know their types
    return open_batches(file, schema=schema, columns=columns, batch_rows=rows, **reading), ids


def refuse_text(settings: Settings, cells: TextCells) -> None:
    """With --strict, stop at the first of texts in columns of numbers, if there are any."""
    if not settings.strictness.strict or not cells:
        return
    cell = cells.earliest
    line = line_of(settings.file, cell.row, cell.column, **asdict(settings.reading))
    place = f"row {cell.row:,}" if line is None else f"line {line}"
    raise UserError(
        f"{shown(settings.file)}, {place}: column {cell.column!r} holds {cell.shown} where a number is expected "
        "(--strict). Correct the value, or leave the cell empty if it is not known; without --strict it counts as "
        "missing and makes its row strange."
    )


def expected_rows(file: str, known: int | None = None) -> int | None:
    """About how many rows a file has, without reading it, unless it is known; None where that cannot be told."""
    path = Path(os.path.expanduser(file))
    if known is not None or is_address(file):
        return known
    try:
        if path.is_dir() or path.suffix.lower() in (".parquet", ".pq"):
            return len(open_source(path))
        return _expected_lines(find_origin(path))
    except (ReadError, OSError):
        return None


def _expected_lines(origin: Origin) -> int | None:
    """About how many lines a text has, by its beginning and how much of the file that takes."""
    import pyarrow as pa

    with pa.OSFile(os.fsencode(str(origin.path)), "rb") as file:
        stream = file if origin.compression is None else pa.CompressedInputStream(file, origin.compression)
        head = stream.read(HEAD)
        taken, size = file.tell(), file.size()
    if origin.compression and taken == size and len(head) == HEAD:  # the rest was read ahead, and may be long
        return None
    lines: float = head.count(b"\n") * size / max(1, taken)
    return max(1, round(lines))


def is_large(file: str) -> bool:
    """Whether a file might not fit into memory."""
    path = Path(os.path.expanduser(file))
    parts = [part for part in path.rglob("*") if part.is_file()] if path.is_dir() else [path] if path.is_file() else []
    return ROOM * sum(map(_size_in_memory, parts)) > free_memory()


def _size_in_memory(path: Path) -> int:
    packed = path.suffix.lower() in (*COMPRESSION_NAMES, ".parquet", ".pq")
    return path.stat().st_size * (PACKED if packed else 1)


def free_memory() -> int:
    """Bytes of memory that may be used."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 32


def name_of(file: str) -> str:
    """What the files of a run are called after: transactions for data/transactions.csv.gz."""
    if file == STANDARD_INPUT:
        return "stdin"
    if "://" in file:
        return Path(re.sub(r"[?#].*", "", file).rpartition("/")[2]).stem or file.partition("://")[0]
    path = Path(os.path.abspath(os.path.expanduser(file)))
    stem = path.stem if path.suffix.lower() in COMPRESSION_NAMES else path.name
    return Path(stem).stem if path.is_file() or not path.is_dir() else path.name


def shown(file: str) -> str:
    """A file or an address without its password."""
    return without_password(file)
