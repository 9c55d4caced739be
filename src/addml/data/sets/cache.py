"""Data sets kept as Parquet: columns x0, x1, ... and y, with the SHA-256 of the original file in the schema."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from addml.data.sets.entries import DataSet
from addml.data.sets.errors import WrongSetError
from addml.data.sets.originals import LabelledSet, check_table
from addml.io.values import numbered_names
from addml.io.write import WriteError, write_table

ORIGIN = b"addml.sha256"  # key in the schema


def cache_folder() -> Path:
    """The folder that ADDML_CACHE names, or addml in the system's folder for caches."""
    named = os.environ.get("ADDML_CACHE")
    if named:
        return Path(os.path.expanduser(named))
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "addml"


def cached_path(one: DataSet) -> Path:
    """Where the data set is kept as Parquet, whether it is there or not."""
    return cache_folder() / "sets" / f"{one.name}.parquet"


def keep(one: DataSet, table: LabelledSet, digest: str) -> None:
    """Write the data set to the cache: whole, or not at all."""
    import pyarrow as pa

    columns = {name: pa.array(column) for name, column in zip(numbered_names(table.X.shape[1]), table.X.T, strict=True)}
    content = pa.table(columns | {"y": pa.array(table.y)})
    path = cached_path(one)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{path.parent}: cannot be made: {error.strerror}. ADDML_CACHE names another folder."
        raise WriteError(message) from error
    write_table(content.replace_schema_metadata({ORIGIN: digest.encode()}), path)


def recall(one: DataSet, digest: str | None) -> LabelledSet:
    """The data set from the cache; its origin must have this hash, where one is given."""
    import pyarrow as pa
    from pyarrow import parquet

    path = cached_path(one)
    try:
        content = parquet.read_table(path)
        columns = {name: content[name].to_numpy() for name in content.column_names}
        y = columns.pop("y").astype(np.int8)
        X = np.column_stack(list(columns.values())).astype(np.float64, copy=False)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise WrongSetError(f"{one.name}: {path} is damaged ({error}). {_remedy(one)}") from error
    origin = (content.schema.metadata or {}).get(ORIGIN, b"").decode()
    if digest is not None and origin != digest:
        raise WrongSetError(
            f"{one.name}: {path} was made from a file of SHA-256 {origin}, not {digest}. {_remedy(one)}"
        )
    table = LabelledSet(one.name, X, y)
    check_table(one, table, path)
    return table


def _remedy(one: DataSet) -> str:
    return f"addml data pull {one.name} makes it anew."
