"""Original files become arrays, and are checked against what is known of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from addml.data.sets.entries import DataSet
from addml.data.sets.errors import WrongSetError

TEXT_BLOCK = 1 << 23  # bytes; one row of a wide table must fit in
SHARE_PRECISION = 0.5e-4 + 1e-9  # shares are known to four decimals


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """A table of numbers, X (n, d), and whether each row is an anomaly, y (n,): 1 if so, 0 if not."""

    name: str
    X: np.ndarray[Any, np.dtype[np.float64]]
    y: np.ndarray[Any, np.dtype[np.int8]]


def read_original(one: DataSet, path: Path) -> LabelledSet:
    """The data set in its original file, its shape and its share of anomalies checked."""
    try:
        X, y = READERS[path.suffix](path)
        X = np.ascontiguousarray(X, np.float64)
        y = np.asarray(y).ravel()
        is_binary = bool(np.isin(y, (0, 1)).all())
    except Exception as error:  # a damaged file may raise anything
        raise WrongSetError(f"{one.name}: {path} is damaged or no such file ({error}). Get it again.") from error
    if X.ndim != 2 or len(y) != len(X) or not is_binary:
        raise WrongSetError(f"{one.name}: {path} does not hold a table and a label, 0 or 1, for each of its rows.")
    table = LabelledSet(one.name, X, y.astype(np.int8))
    check_table(one, table, path)
    return table


def check_digest(one: DataSet, path: Path) -> str:
    """The SHA-256 of an original file, which must be the known one."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WrongSetError(f"{one.name}: {path} cannot be read: {error.strerror}.") from error
    if one.sha256 is not None and found != one.sha256:
        raise WrongSetError(
            f"{one.name}: {path} is another file than the known one: its SHA-256 is {found}, not {one.sha256}. "
            "Get it again."
        )
    return found


def check_table(one: DataSet, table: LabelledSet, path: Path) -> None:
    """Refuse a table whose shape or share of anomalies is not the known one."""
    for what, known, found in zip(("rows", "columns"), (one.rows, one.columns), table.X.shape, strict=True):
        if known is not None and found != known:
            raise WrongSetError(f"{one.name}: {path} has {found:,} {what}, not {known:,}. Get it again.")
    share = float(table.y.mean()) if len(table.y) else 0.0
    if one.anomalies is not None and abs(share - one.anomalies) > SHARE_PRECISION:
        raise WrongSetError(
            f"{one.name}: {path} has {100 * share:.2f}% anomalies, not {100 * one.anomalies:.2f}%. Get it again."
        )


def _read_mat(path: Path) -> tuple[Any, Any]:
    from scipy.io import loadmat

    arrays = loadmat(path, variable_names=["X", "y"])
    return arrays["X"], arrays["y"]


def _read_npz(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return archive["X"], archive["y"]


def _read_text(path: Path) -> tuple[Any, Any]:
    """Comma-separated numbers without a header, compressed with gzip, the label last."""
    from pyarrow import csv

    options = csv.ReadOptions(autogenerate_column_names=True, block_size=TEXT_BLOCK)
    columns = [column.to_numpy() for column in csv.read_csv(str(path), options).columns]
    return np.column_stack(columns[:-1]), columns[-1]


READERS = {".mat": _read_mat, ".npz": _read_npz, ".gz": _read_text}
