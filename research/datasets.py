"""Labelled data sets: the paper's and ADBench's, from the folder ADDML_DATA, from the cache, or from their sources."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from addml.errors import AddmlError
from addml.text import did_you_mean

TABLE = Path(__file__).with_name("datasets.toml")
TEXT_BLOCK = 1 << 23  # bytes; must hold one row of a wide table
SHARE_PRECISION = 0.5e-4 + 1e-9  # shares are known to four decimals
LIST = "List them: python -m research list."

State = Literal["local", "cached", "missing"]

logger = logging.getLogger("addml")


class DataSetError(ValueError):
    """A data set that is missing, damaged or not the expected one; the message names the set and the remedy."""


class NetworkError(DataSetError):
    """A server that cannot be reached."""


@dataclass(frozen=True, eq=False)
class LabelledArray:
    """Numbers X (n, d) and labels y (n,): 1 for an anomaly, 0 for a normal row."""

    name: str
    X: np.ndarray
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape[0], self.X.shape[1]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """These rows, for a detector with its own preprocessing."""
        return np.asarray(self.X[ids])

    def standardised(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """The rows of each part, scaled by the training mean and deviation; constant columns are only centred."""
        mean, deviation = self.X[train].mean(axis=0), self.X[train].std(axis=0)
        constant = self.X[train].min(axis=0) == self.X[train].max(axis=0)
        scale = np.where(constant | (deviation == 0), 1.0, deviation)
        return [(self.X[part] - mean) / scale for part in parts]


@dataclass(frozen=True)
class DataSet:
    """One known data set; unknown properties are None."""

    name: str
    title: str
    collection: str
    group: str | None
    path: Path  # of the original file, under ADDML_DATA
    address: str | None
    licence: str | None = None
    rows: int | None = None
    columns: int | None = None
    anomalies: float | None = None  # share of the rows, to four decimals
    sha256: str | None = None  # of the original file


def _read_table() -> dict[str, DataSet]:
    document = tomllib.loads(TABLE.read_text("utf-8"))
    datasets = {}
    for collection in document["collections"]:
        for entry in collection["sets"]:
            source, file = document["sources"][entry.pop("source")], entry.pop("file")
            address = f"{source['address']}/{file}" if "address" in source else None
            shared = {"collection": collection["name"], "group": collection.get("group"), "address": address}
            datasets[entry["name"]] = DataSet(path=Path(source["folder"]) / file, **shared, **entry)
    return datasets


SETS = _read_table()


# Names -------------------------------------------------------------------------------------------------------


def named(name: str) -> DataSet:
    """The known data set of this name."""
    if name not in SETS:
        raise AddmlError(f"{name!r} is not a known data set.{did_you_mean(name.lower(), SETS)} {LIST}")
    return SETS[name]


def names(collection: str | None = None, group: str | None = None) -> list[str]:
    """All data sets, or those of a collection or group: the paper's in the order of its Table II."""
    return [
        dataset.name
        for dataset in SETS.values()
        if collection in (None, dataset.collection) and group in (None, dataset.group)
    ]


def parse_names(texts: Sequence[str]) -> list[str]:
    """The sets of comma-separated names, in upper or lower case; an unknown name is an error."""
    names = [part.strip().lower() for text in texts for part in text.split(",") if part.strip()]
    if texts and not names:
        raise AddmlError(f"--sets is empty. {LIST}")
    return list(dict.fromkeys(named(name).name for name in names))


def title(name: str) -> str:
    """The set as tables name it."""
    return SETS[name].title if name in SETS else name


# Files -------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """The folder ADDML_CACHE, by default the folder addml in the system's folder for caches."""
    if folder := os.environ.get("ADDML_CACHE"):
        return Path(os.path.expanduser(folder))
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "addml"


def _local_file(dataset: DataSet) -> Path | None:
    folder = os.environ.get("ADDML_DATA")
    path = Path(os.path.expanduser(folder)) / dataset.path if folder else None
    return path if path is not None and path.is_file() else None


def _cached_file(dataset: DataSet) -> Path:
    return cache_folder() / "downloads" / dataset.path.name


def state(name: str) -> State:
    """Whether the data set is local (its file lies under ADDML_DATA), cached (downloaded), or missing."""
    dataset = named(name)
    if _local_file(dataset) is not None:
        return "local"
    return "cached" if _cached_file(dataset).is_file() else "missing"


def available(name: str) -> bool:
    """Whether the data set can be loaded without a download."""
    return state(name) != "missing"


def load(name: str) -> LabelledArray:
    """The data set, verified: from ADDML_DATA if its file is there, else from the cache."""
    dataset = named(name)
    path = _local_file(dataset) or _cached_file(dataset)
    if not path.is_file():
        remedy = f"set ADDML_DATA to a folder that holds {dataset.path.as_posix()}"
        if dataset.address is not None:
            remedy = f"run python -m research data {name} or {remedy}"
        raise DataSetError(f"{name}: {dataset.title} is not on this machine; {remedy}.")
    return read(dataset, path)


def size(name: str) -> tuple[int, int]:
    """Rows and columns, without reading the set if they are known."""
    dataset = SETS[name]
    return (dataset.rows, dataset.columns) if dataset.rows and dataset.columns else load(name).shape


# Reading -----------------------------------------------------------------------------------------------------


def read(dataset: DataSet, path: Path) -> LabelledArray:
    """The data set of a file, after checking its hash, shape and share of anomalies where they are known."""
    _check_hash(dataset, path)
    try:
        X, y = READERS[path.suffix](path)
        X, y = np.ascontiguousarray(X, np.float64), np.asarray(y).ravel()
        is_binary = bool(np.isin(y, (0, 1)).all())
    except Exception as error:  # a damaged file may raise anything
        raise DataSetError(f"{dataset.name}: {path} is damaged ({error}). Get it again.") from error
    if X.ndim != 2 or len(y) != len(X) or not is_binary:
        raise DataSetError(f"{dataset.name}: {path} does not hold a table and a label, 0 or 1, for each of its rows.")
    for axis, expected, count in zip(("rows", "columns"), (dataset.rows, dataset.columns), X.shape, strict=True):
        if expected is not None and count != expected:
            raise DataSetError(f"{dataset.name}: {path} has {count:,} {axis}, not {expected:,}. Get it again.")
    share = float(y.mean()) if len(y) else 0.0
    if dataset.anomalies is not None and abs(share - dataset.anomalies) > SHARE_PRECISION:
        expected_share = f"{100 * dataset.anomalies:.2f}%"
        raise DataSetError(
            f"{dataset.name}: {path} has {100 * share:.2f}% anomalies, not {expected_share}. Get it again."
        )
    return LabelledArray(dataset.name, X, y.astype(np.int8))


def _check_hash(dataset: DataSet, path: Path) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataSetError(f"{dataset.name}: {path} cannot be read: {error.strerror}.") from error
    if dataset.sha256 is not None and found != dataset.sha256:
        raise DataSetError(
            f"{dataset.name}: {path} is not the known file: its SHA-256 is {found}, not {dataset.sha256}. Get it again."
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


# Downloads ---------------------------------------------------------------------------------------------------


def pull(names: Iterable[str], mirror: str | None = None, report: Callable[[str], None] = logger.info) -> None:
    """Download and verify missing data sets; failures are raised after all others are done."""
    failed = []
    for dataset in [named(name) for name in names]:
        try:
            report(f"{dataset.name}: {_pull(dataset, mirror)}")
        except NetworkError:
            raise  # the next one would fail too
        except DataSetError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise DataSetError(f"{len(failed)} data sets failed.\n" + "\n".join(map(str, failed)))


def _pull(dataset: DataSet, mirror: str | None) -> str:
    local = _local_file(dataset)
    if local is not None:
        read(dataset, local)
        return f"local, {local}"
    file = _cached_file(dataset)
    try:
        read(dataset, file)
    except DataSetError:
        file.unlink(missing_ok=True)
    else:
        return "already there"
    _download(dataset, mirror, file)
    try:
        data = read(dataset, file)
    except DataSetError:
        file.unlink()
        raise
    rows, columns = data.shape
    return f"{rows:,} rows, {columns:,} columns, {100 * data.y.mean():.2f}% anomalies"


def _download(dataset: DataSet, mirror: str | None, file: Path) -> None:
    """Fetch the original file through pooch, which checks its hash and leaves no broken file behind."""
    try:
        import pooch
        from requests import ConnectionError, RequestException, Timeout
    except ImportError as error:
        raise ImportError("downloads need pooch: pip install 'addml[data]'") from error
    address = address_of(dataset, mirror)
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(address, dataset.sha256, file.name, file.parent, downloader=pooch.HTTPDownloader())
    except (ConnectionError, Timeout) as error:
        raise NetworkError(
            f"{dataset.name}: {address}: cannot be reached ({error}). Check the network and the proxy (HTTPS_PROXY), "
            "name a mirror (--mirror or ADDML_MIRROR), or set ADDML_DATA to a folder that holds "
            f"{dataset.path.as_posix()}."
        ) from error
    except RequestException as error:
        raise DataSetError(f"{dataset.name}: {address}: {error}. Pull again, or from another mirror.") from error
    except ValueError as error:  # pooch's, which names both hashes
        raise DataSetError(f"{dataset.name}: {address}: {error} Pull again, or from another mirror.") from error
    except OSError as error:
        raise DataSetError(
            f"{dataset.name}: {file.parent} cannot be written: {error.strerror or error}. Free some space there, or "
            "set ADDML_CACHE to another folder."
        ) from error


def address_of(dataset: DataSet, mirror: str | None = None) -> str:
    """The address of the original file: its source, or the same path on a mirror (or ADDML_MIRROR)."""
    if dataset.address is None:
        raise DataSetError(
            f"{dataset.name}: cannot be downloaded, {dataset.title} has no address. Set ADDML_DATA to a folder "
            f"that holds {dataset.path.as_posix()}."
        )
    base = mirror or os.environ.get("ADDML_MIRROR")
    return base.rstrip("/") + urlsplit(dataset.address).path if base else dataset.address
