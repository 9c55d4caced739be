"""The table of known data sets, from sets.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addml.data.sets.errors import UnknownSetError
from addml.text import did_you_mean

TABLE = Path(__file__).with_name("sets.toml")


@dataclass(frozen=True)
class DataSet:
    """One known data set; None for what is not known of it."""

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


def read_sets(table: Path = TABLE) -> dict[str, DataSet]:
    """The data sets of a table by name, in its order."""
    document = tomllib.loads(table.read_text("utf-8"))
    made = [
        _entry(dict(entry), collection, document["sources"])
        for collection in document["collections"]
        for entry in collection["sets"]
    ]
    return {one.name: one for one in made}


def _entry(entry: dict[str, Any], collection: dict[str, Any], sources: dict[str, Any]) -> DataSet:
    source, file = sources[entry.pop("source")], entry.pop("file")
    address = f"{source['address']}/{file}" if "address" in source else None
    path = Path(source["folder"]) / file
    return DataSet(collection=collection["name"], group=collection.get("group"), path=path, address=address, **entry)


def find(name: str, sets: dict[str, DataSet]) -> DataSet:
    """The data set of this name."""
    if name in sets:
        return sets[name]
    hint = did_you_mean(name.lower(), sets)
    raise UnknownSetError(f"{name!r} is no data set that addml knows.{hint} addml data list names them all.")
