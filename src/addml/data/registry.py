"""Known labelled data sets: the paper's and ADBench's, from a local folder, the cache, or their sources."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from addml.data.sets.cache import cache_folder, cached_path, keep, recall
from addml.data.sets.download import address_of, download
from addml.data.sets.entries import DataSet, find, read_sets
from addml.data.sets.errors import (
    DownloadError,
    MissingSetError,
    NoNetworkError,
    SetError,
    UnknownSetError,
    WrongSetError,
)
from addml.data.sets.originals import LabelledSet, check_digest, read_original
from addml.data.sets.resuming import Stage, no_bar
from addml.io.write import WriteError

__all__ = [
    "SETS",
    "DataSet",
    "DownloadError",
    "LabelledSet",
    "MissingSetError",
    "NoNetworkError",
    "SetError",
    "UnknownSetError",
    "WrongSetError",
    "address_of",
    "available",
    "cache_folder",
    "load_set",
    "named",
    "names",
    "pull",
    "state",
]

State = Literal["local", "cached", "missing"]

SETS = read_sets()

logger = logging.getLogger("addml")


def named(name: str) -> DataSet:
    """What is known of the data set of this name."""
    return find(name, SETS)


def names(collection: str | None = None, group: str | None = None) -> list[str]:
    """The names of all data sets, or of those of a collection or group: the paper's in the order of its Table II."""
    return [
        one.name
        for one in SETS.values()
        if collection in (None, one.collection) and (group is None or group == one.group)
    ]


def state(name: str) -> State:
    """Whether the data set is local (its original file lies under ADDML_DATA), cached, or missing."""
    one = named(name)
    if _original(one) is not None:
        return "local"
    return "cached" if cached_path(one).is_file() else "missing"


def available(name: str) -> bool:
    """Whether the data set can be loaded without a download."""
    return state(name) != "missing"


def load_set(name: str) -> LabelledSet:
    """The data set, verified: from ADDML_DATA if its original file is there, else from the cache."""
    one = named(name)
    original = _original(one)
    if original is not None:
        return _load_original(one, original)
    if cached_path(one).is_file():
        return recall(one, one.sha256)
    raise MissingSetError(f"{name}: {one.title} is not on this machine. {_remedy(one)}")


def pull(
    names: Iterable[str],
    *,
    mirror: str | None = None,
    stage: Stage = no_bar,
    said: Callable[[str], None] = logger.info,
) -> None:
    """Download, verify and convert the data sets that are not there; those that fail are told of after the others."""
    failed = []
    for one in [named(name) for name in names]:
        try:
            said(f"{one.name}: {_pull(one, mirror, stage)}")
        except NoNetworkError:
            raise  # for the next one too
        except (SetError, WriteError) as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise SetError(f"{len(failed)} data sets failed.\n" + "\n".join(map(str, failed)))


def _pull(one: DataSet, mirror: str | None, stage: Stage) -> str:
    original = _original(one)
    if original is not None:
        _load_original(one, original)
        return f"local, {original}"
    if _is_kept(one, one.sha256):
        return "already there"
    file = download(one, mirror, stage)
    try:
        table = read_original(one, file)
    except WrongSetError:
        file.unlink(missing_ok=True)
        raise
    keep(one, table, check_digest(one, file))
    file.unlink(missing_ok=True)
    return f"{table.X.shape[0]:,} rows, {table.X.shape[1]:,} columns, {100 * table.y.mean():.2f}% anomalies"


def _original(one: DataSet) -> Path | None:
    folder = os.environ.get("ADDML_DATA")
    path = Path(os.path.expanduser(folder)) / one.path if folder else None
    return path if path is not None and path.is_file() else None


def _load_original(one: DataSet, path: Path) -> LabelledSet:
    """From the cache where it was converted from this very file, else from the file, which is then converted."""
    digest = check_digest(one, path)
    if cached_path(one).is_file():
        try:
            return recall(one, digest)
        except WrongSetError:
            logger.info("%s: the cache is of another file or damaged, and made anew", one.name)
    table = read_original(one, path)
    try:
        keep(one, table, digest)
    except WriteError as error:
        logger.warning("%s: not kept in the cache: %s", one.name, error)
    return table


def _is_kept(one: DataSet, digest: str | None) -> bool:
    if not cached_path(one).is_file():
        return False
    try:
        recall(one, digest)
    except WrongSetError:
        return False
    return True


def _remedy(one: DataSet) -> str:
    local = f"ADDML_DATA names a folder that holds {one.path.as_posix()}"
    return f"{local}." if one.address is None else f"addml data pull {one.name} downloads it, or {local}."
