"""Tables from Parquet files and folders, Arrow and Feather files, and NumPy and MATLAB arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from addml.io.image_folder import SUFFIXES, kinds_of
from addml.io.source import DAMAGE, PARQUET_NAMES, Origin, ReadError
from addml.io.values import numbered_names
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    from pyarrow import dataset

READ_AHEAD = {"batch_readahead": 2, "fragment_readahead": 1}
PARTIAL = "columns that some files do not have, read as missing values there"


def read_parquet(origin: Origin, columns: Sequence[str] | None) -> tuple[pa.Table, list[str]]:
    """The table of a Parquet file, or of all files in a folder; subfolders named year=2024 become columns."""
    with reading(origin.name):
        if origin.is_folder:
            files, notes = folder_dataset(origin)
            return files.to_table(columns=readable(columns, files.schema.names)), notes
        with origin.open_seekable() as stream, parquet.ParquetFile(stream) as file:
            return file.read(columns=readable(columns, file.schema_arrow.names)), []


def parquet_batches(
    origin: Origin, columns: Sequence[str] | None, rows: int, notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """As `read_parquet`, at most `rows` rows at a time."""
    with reading(origin.name):
        if origin.is_folder:
            files, folder_notes = folder_dataset(origin)
            notes.extend(folder_notes)
            yield from files.to_batches(columns=readable(columns, files.schema.names), batch_size=rows, **READ_AHEAD)
            return
        with origin.open_seekable() as stream, parquet.ParquetFile(stream) as file:
            yield from file.iter_batches(rows, columns=readable(columns, file.schema_arrow.names))


def read_arrow(origin: Origin, is_stream: bool = False) -> tuple[pa.Table, list[str]]:
    """The table of an Arrow (Feather 2) file, or of a stream."""
    with reading(origin.name, "Arrow"), origin.open_seekable() as stream:
        reader = ipc.open_stream(stream) if is_stream else ipc.open_file(stream)
        return reader.read_all(), []


def folder_dataset(origin: Origin, files: list[str] | None = None) -> tuple[dataset.Dataset, list[str]]:
    """The dataset of a folder, or of some of its files, with the columns of all files."""
    from pyarrow import dataset  # takes half a second to import, so not for single files

    files = files or parquet_files(origin)
    layout: dict[str, Any] = {"format": "parquet", "partitioning": "hive", "partition_base_dir": str(origin.path)}
    with reading(origin.name):
        first = dataset.dataset(files, **layout)
        fragments = list(first.get_fragments())
    schemas, schema = list[pa.Schema](), pa.schema([])
    for fragment in fragments:
        with reading(fragment.path):
            schemas.append(fragment.physical_schema)
        try:
            schema = pa.unify_schemas([schema, schemas[-1]], promote_options="permissive")
        except pa.ArrowException as error:
            raise ReadError(f"{fragment.path}: {error}. Write the column with one type in all files.") from None
    schema = pa.unify_schemas([schema, first.schema], promote_options="permissive")
    partial = [name for name in schema.names if 0 < sum(name in file.names for file in schemas) < len(schemas)]
    notes = [f"folder: {len(files):,} Parquet files"]
    if partial:
        notes.append(f"{PARTIAL}: {', '.join(partial[:8])}")
    return dataset.dataset(files, schema, **layout), notes


def is_parquet(path: Path) -> bool:
    """Whether this is a folder, or a file with the extension of Parquet."""
    return path.is_dir() or path.suffix.lower() in PARQUET_NAMES


def parquet_files(origin: Origin) -> list[str]:
    """The Parquet files of a folder and its subfolders."""
    assert origin.path is not None
    files = sorted(path for path in origin.path.rglob("*") if path.is_file() and not path.name.startswith(("_", ".")))
    parquet = [str(path) for path in files if path.suffix.lower() in PARQUET_NAMES]
    if parquet:
        return parquet
    if any(path.suffix.lower() in SUFFIXES for path in files):
        raise ReadError(f"{origin.name}: is a folder of images, not a table. Pass it to addml detect, fit or score.")
    content = kinds_of(path.name for path in files) or "nothing"
    raise ReadError(f"{origin.name}: is a folder without Parquet files or images (it holds: {content}). Name one file.")


def readable(columns: Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """The columns for Arrow to read; None (all) if names repeat or columns are parts of nested ones."""
    if columns is None or len(set(names)) < len(names) or not set(columns) <= set(names):
        return None
    return list(columns)


@contextmanager
def reading(source: str, kind: str = "Parquet") -> Iterator[None]:
    """Turn Arrow's errors into a ReadError that names the source."""
    try:
        yield
    except (pa.ArrowException, *DAMAGE) as error:
        problem = f"is empty, or its {kind} data is damaged or cut short ({error})"
        raise ReadError(f"{source}: {problem}. Copy or write it again.") from error


FEATURES = "X"
LABELS = (
    *("y", "label", "labels", "target", "targets", "class", "classes"),
    *("outlier", "outliers", "anomaly", "anomalies"),
)


def read_arrays(origin: Origin, kind: str, key: str | None, labels: Collection[str]) -> tuple[pa.Table, list[str]]:
    """The table of an .npz, .npy or MATLAB file (version 4 to 7), with the arrays that `labels` name as columns."""
    try:
        with origin.open_seekable() as stream:
            arrays = _load_arrays(stream, kind)
    except Exception as error:  # a damaged file may raise anything
        problem = f"the array file is damaged or cut short ({error}). Copy or save it again."
        if "pickle" in str(error):
            problem = "holds pickled Python objects, refused because reading them can run any code. Save arrays."
        raise ReadError(f"{origin.name}: {problem}") from error
    return _table(arrays, key, labels, origin.name)


def _load_arrays(stream: Any, kind: str) -> dict[str, Any]:
    if kind != "mat":
        loaded = np.load(stream, allow_pickle=False)
        return dict(loaded) if kind == "npz" else {FEATURES: loaded}
    from scipy.io import loadmat

    return {name: array for name, array in loadmat(stream).items() if not name.startswith("__")}


def _table(
    arrays: Mapping[str, Any], key: str | None, labels: Collection[str], source: str
) -> tuple[pa.Table, list[str]]:
    key = _choose_key(arrays, key, source)
    columns, notes = _columns(arrays[key], key, source)
    notes.insert(0, f"array: {key}, {counted(len(columns), 'column')}")
    n_rows = len(next(iter(columns.values())))
    others = {name: array for name, array in arrays.items() if name != key}
    for name, array in others.items():
        if name in labels and name not in columns:
            values = _native(np.asarray(array), name, source)
            if values.size != n_rows:
                problem = f"has {counted(values.size, 'label')} for {counted(n_rows, 'row')} of the table."
                raise ReadError(f"{source}: array {name} {problem}")
            columns[name] = values.reshape(n_rows)
            notes.append(f"labels: array {name}, as column {name}")
        elif name not in labels and name.lower() in LABELS:
            notes.append(f"labels left out: array {name} (--label {name} evaluates by it)")
    if unread := [name for name in others if name not in labels and name.lower() not in LABELS]:
        notes.append(f"not read: {', '.join(unread)}")
    return pa.table({name: pa.array(values) for name, values in columns.items()}), notes


def _choose_key(arrays: Mapping[str, Any], key: str | None, source: str) -> str:
    if key is not None and key not in arrays:
        raise ReadError(f"{source}: has no array {key!r}.{did_you_mean(key, arrays)} It has: {', '.join(arrays)}.")
    if key is not None or FEATURES in arrays:
        return key or FEATURES
    matrices = [name for name, array in arrays.items() if getattr(array, "ndim", 0) == 2]
    # MATLAB has no one-dimensional arrays: its labels are matrices with one column or row.
    tables = [name for name in matrices if name.lower() not in LABELS or 1 not in arrays[name].shape]
    if len(tables) == 1:
        return tables[0]
    shapes = ", ".join(f"{name} {getattr(array, 'shape', '')}" for name, array in arrays.items()) or "nothing"
    raise ReadError(f"{source}: has no array X (rows, columns). Choose one with --sheet (part=...). It has: {shapes}.")


def _columns(values: Any, name: str, source: str) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    notes = []
    if hasattr(values, "toarray"):
        values, notes = values.toarray(), ["sparse matrix: converted to a dense one"]
    array = np.asarray(values)
    if array.dtype.names:
        return {field: _native(array[field], field, source) for field in array.dtype.names}, notes
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.size == 0:
        raise ReadError(f"{source}: array {name} has shape {array.shape}; a table needs (rows, columns), not empty.")
    columns = np.ascontiguousarray(_native(array, name, source).T)
    return dict(zip(numbered_names(len(columns)), columns, strict=True)), notes


def _native(array: np.ndarray[Any, Any], name: str, source: str) -> np.ndarray[Any, Any]:
    if array.dtype.kind not in "biufUSmM":
        raise ReadError(f"{source}: array {name} holds {array.dtype} values; a table needs numbers or text.")
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        return array.astype(np.float32 if array.dtype.itemsize == 2 else np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
