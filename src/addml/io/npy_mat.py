"""NumPy and MATLAB array files: X becomes the columns x0, x1, ..., labels beside it a column only if asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from addml.io.source import Origin, ReadError
from addml.io.values import numbered_names
from addml.text import counted, did_you_mean

FEATURES = "X"
LABELS = (
    *("y", "label", "labels", "target", "targets", "class", "classes"),
    *("outlier", "outliers", "anomaly", "anomalies"),
)


def read_npz(origin: Origin, key: str | None, asked: Collection[str]) -> tuple[pa.Table, list[str]]:
    """The table of an .npz file, with the labels that are asked for by their name."""
    with _reading(origin), origin.open_seekable() as stream, np.load(stream, allow_pickle=False) as archive:
        known = archive.files
        arrays = {name: archive[name] for name in known if key in (None, name) or name in asked}
    return _table(arrays, known, key, asked, origin.name)


def read_npy(origin: Origin) -> tuple[pa.Table, list[str]]:
    """The table of an .npy file, which holds one array."""
    with _reading(origin), origin.open_seekable() as stream:
        array = np.load(stream, allow_pickle=False)
    return _table({FEATURES: array}, [FEATURES], None, (), origin.name)


def read_mat(origin: Origin, key: str | None, asked: Collection[str]) -> tuple[pa.Table, list[str]]:
    """The table of a MATLAB file of version 4 to 7, with the labels that are asked for by their name."""
    from scipy.io import loadmat

    with _reading(origin), origin.open_seekable() as stream:
        arrays = {name: array for name, array in loadmat(stream).items() if not name.startswith("__")}
    return _table(arrays, list(arrays), key, asked, origin.name)


@contextmanager
def _reading(origin: Origin) -> Iterator[None]:
    """Name the file and the remedy where it cannot be read: a damaged file may raise anything."""
    try:
        yield
    except NotImplementedError as error:
        raise ReadError(f"{origin.name}: is a MATLAB 7.3 (HDF5) file. Save it with save(..., '-v7').") from error
    except Exception as error:
        problem = f"the array file is damaged or cut short ({error}). Copy or save it again."
        if "pickle" in str(error):
            problem = "holds pickled Python objects, which are refused: reading them can run any code. Save arrays."
        raise ReadError(f"{origin.name}: {problem}") from error


def _table(
    arrays: Mapping[str, Any], known: list[str], key: str | None, asked: Collection[str], source: str
) -> tuple[pa.Table, list[str]]:
    chosen = _chosen_key(arrays, known, key, source)
    columns, notes = _columns(arrays[chosen], chosen, source)
    notes.insert(0, f"array: {chosen}, {counted(len(columns), 'column')}")
    rows, others = len(next(iter(columns.values()))), [name for name in known if name != chosen and name not in columns]
    for name in (name for name in others if name in asked):
        label = _native(np.asarray(arrays[name]), name, source)
        if label.size != rows:
            problem = f"has {counted(label.size, 'label')} for {counted(rows, 'row')} of the table."
            raise ReadError(f"{source}: array {name} {problem}")
        columns[name] = label.reshape(rows)
        notes.append(f"labels: array {name}, as column {name}")
    unread = [name for name in known if name != chosen and name not in asked]
    labels = [name for name in unread if name.lower() in LABELS]
    notes += [f"left out, being labels: array {name} (--label {name} evaluates by it)" for name in labels]
    if unread != labels:
        notes.append(f"not read: {', '.join(name for name in unread if name not in labels)}")
    return pa.table({name: pa.array(values) for name, values in columns.items()}), notes


def _chosen_key(arrays: Mapping[str, Any], known: list[str], key: str | None, source: str) -> str:
    if key is not None and key not in arrays:
        raise ReadError(f"{source}: has no array {key!r}.{did_you_mean(key, known)} It has: {', '.join(known)}.")
    if key is not None or FEATURES in arrays:
        return key or FEATURES
    matrices = [name for name in known if getattr(arrays[name], "ndim", 0) == 2]
    # MATLAB knows no arrays of one axis: labels have one column
    tables = [name for name in matrices if name.lower() not in LABELS or 1 not in arrays[name].shape]
    if len(tables) == 1:
        return tables[0]
    shapes = ", ".join(f"{name} {getattr(arrays[name], 'shape', '')}" for name in known) or "nothing"
    raise ReadError(f"{source}: has no array X (rows, columns). Say which part is the table; it has: {shapes}.")


def _columns(values: Any, name: str, source: str) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    notes = []
    if hasattr(values, "toarray"):
        values, notes = values.toarray(), ["sparse matrix: written out in full"]
    array = np.asarray(values)
    if array.dtype.names:
        return {field: _native(array[field], field, source) for field in array.dtype.names}, notes
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.size == 0:
        raise ReadError(f"{source}: array {name} has shape {array.shape}; a table needs (rows, columns), both over 0.")
    turned = np.ascontiguousarray(_native(array, name, source).T)
    return dict(zip(numbered_names(len(turned)), turned, strict=True)), notes


def _native(array: np.ndarray[Any, Any], name: str, source: str) -> np.ndarray[Any, Any]:
    """The array in this machine's byte order and in a type that Arrow computes with."""
    if array.dtype.kind not in "biufUSmM":
        raise ReadError(f"{source}: array {name} holds {array.dtype} values; a table needs numbers or text.")
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        return array.astype(np.float32 if array.dtype.itemsize == 2 else np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
