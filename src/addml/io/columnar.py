"""Parquet files and folders, Arrow and Feather files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc, parquet

from addml.io.image_folder import SUFFIXES, kinds_of
from addml.io.source import Origin, ReadError

if TYPE_CHECKING:
    from pyarrow import dataset

READ_AHEAD = {"batch_readahead": 2, "fragment_readahead": 1}
PARTIAL = "columns that some files do not have, read as missing values there"


def read_parquet(origin: Origin, columns: Sequence[str] | None) -> tuple[pa.Table, list[str]]:
    """The table of one Parquet file."""
    with reading(origin.name), origin.open_seekable() as stream, parquet.ParquetFile(stream) as file:
        return file.read(columns=readable(columns, file.schema_arrow.names)), []


def parquet_batches(origin: Origin, columns: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
    """One Parquet file, at most `rows` rows at a time."""
    with reading(origin.name), origin.open_seekable() as stream, parquet.ParquetFile(stream) as file:
        yield from file.iter_batches(rows, columns=readable(columns, file.schema_arrow.names))


def read_arrow(origin: Origin, is_stream: bool) -> tuple[pa.Table, list[str]]:
    """The table of an Arrow (Feather 2) file or stream."""
    with reading(origin.name, "Arrow"), origin.open_seekable() as stream:
        return (ipc.open_stream if is_stream else ipc.open_file)(stream).read_all(), []


def read_folder(origin: Origin, columns: Sequence[str] | None) -> tuple[pa.Table, list[str]]:
    """The Parquet files of a folder as one table, with columns from subfolders named year=2024."""
    found, notes = folder_dataset(origin)
    with reading(origin.name):
        return found.to_table(columns=readable(columns, found.schema.names)), notes


def folder_batches(
    origin: Origin, columns: Sequence[str] | None, rows: int, notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """The Parquet files of a folder, at most `rows` rows at a time."""
    found, more = folder_dataset(origin)
    notes.extend(more)
    with reading(origin.name):
        yield from found.to_batches(columns=readable(columns, found.schema.names), batch_size=rows, **READ_AHEAD)


def folder_dataset(origin: Origin, files: list[str] | None = None) -> tuple[dataset.Dataset, list[str]]:
    """The folder, or some of its files, with a schema that has the columns of all of them."""
    files = files or parquet_files(origin)
    with reading(origin.name):
        first = _folder(files, origin, None)
        fragments = list(first.get_fragments())
    schemas = list[pa.Schema]()
    for fragment in fragments:
        with reading(fragment.path):
            schemas.append(fragment.physical_schema)
    schema = _joined(files, schemas, first.schema)
    partial = [name for name in schema.names if 0 < sum(name in one.names for one in schemas) < len(schemas)]
    notes = [f"folder: {len(files):,} Parquet files"]
    if partial:
        notes.append(f"{PARTIAL}: {', '.join(partial[:8])}")
    return _folder(files, origin, schema), notes


def _joined(files: Sequence[str], schemas: Sequence[pa.Schema], first: pa.Schema) -> pa.Schema:
    """One schema for all files; a column whose types have nothing in common is named, with the two files."""
    with suppress(pa.ArrowException):
        return pa.unify_schemas([*schemas, first], promote_options="permissive")
    seen: dict[str, tuple[pa.Schema, str]] = {}
    for file, own in ((file, pa.schema([own])) for file, schema in zip(files, schemas, strict=True) for own in schema):
        (name,) = own.names
        before, where = seen.get(name, (own, file))
        try:
            seen[name] = pa.unify_schemas([before, own], promote_options="permissive"), where
        except pa.ArrowException:
            kinds = f"{own.field(0).type} here and {before.field(0).type} in {where}"
            raise ReadError(f"{file}: the column {name!r} is {kinds}. Write both in one type.") from None
    return pa.unify_schemas([*schemas, first], promote_options="permissive")


def _folder(files: list[str], origin: Origin, schema: pa.Schema | None) -> dataset.Dataset:
    from pyarrow import dataset  # half a second, which reading one file need not take

    base = str(origin.path)
    return dataset.dataset(files, schema, "parquet", partitioning="hive", partition_base_dir=base)


def parquet_files(origin: Origin) -> list[str]:
    """The Parquet files of a folder and its subfolders."""
    assert origin.path is not None
    files = sorted(path for path in origin.path.rglob("*") if path.is_file() and not path.name.startswith(("_", ".")))
    parquet = [str(path) for path in files if path.suffix.lower() in (".parquet", ".pq")]
    if parquet:
        return parquet
    if any(path.suffix.lower() in SUFFIXES for path in files):
        raise ReadError(f"{origin.name}: is a folder of images, which addml detect, fit and score take, and no table.")
    held = kinds_of(path.name for path in files) or "nothing"
    raise ReadError(f"{origin.name}: is a folder without Parquet files or images (it holds: {held}). Name one file.")


def readable(columns: Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """The columns for Arrow to read; all where names repeat or columns are parts of nested ones."""
    if columns is None or len(set(names)) < len(names) or not set(columns) <= set(names):
        return None
    return list(columns)


@contextmanager
def reading(source: str, kind: str = "Parquet") -> Iterator[None]:
    """Name the source and the remedy where Arrow cannot read it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ReadError(
            f"{source}: is empty, or its {kind} data is damaged or cut short ({error}). Copy or write it again."
        ) from error
