"""Stored results: one row of a Parquet file per run, written so that a stopped experiment can resume.

Every finished task becomes a small file in NAME.parts, written whole or not at all. Gathering joins them into
NAME.parquet and then removes them. If a run is killed in between, no row is lost or counted twice. Only one run at a
time may write to a folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from addml.errors import AddmlError
from addml.io.write import write_table
from addml.pipeline.rivals import Row

KEY = ("set", "method", "variant")  # these identify a task; its rows are replaced together
REQUIRED = (*KEY, "setting", "settings", "auc", "ap")  # in every row
TEXT, WHOLE, REAL = "string", "int64", "double"
COLUMNS = {
    "experiment": TEXT,
    "set": TEXT,
    "method": TEXT,
    "variant": TEXT,
    "setting": TEXT,
    "seed": WHOLE,
    "fold": WHOLE,
    "auc": REAL,
    "ap": REAL,
    "fit_seconds": REAL,
    "score_seconds": REAL,
    "together": WHOLE,
    "rows": WHOLE,
    "columns": WHOLE,
    "settings": TEXT,
    "versions": TEXT,
    "device": TEXT,
    "when": TEXT,
    "command": TEXT,
}


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as JSON, identical for equal settings."""
    return json.dumps(dict(settings), sort_keys=True)


def agree(text: str, other_text: str) -> bool:
    """Whether two texts of settings agree on the settings in both: a new setting does not invalidate old runs."""
    settings, others = json.loads(text), json.loads(other_text)
    return all(settings[name] == others[name] for name in settings.keys() & others.keys())


def key_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The task that a row belongs to."""
    return tuple(str(row[name]) for name in KEY)


def label_of(row: Mapping[str, Any]) -> str:
    """The name of its case in tables."""
    return str(row["variant"] or row["method"])


class Store:
    """The runs of one experiment in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        """Writes nothing before the first part."""
        self.file, self.parts = folder / f"{name}.parquet", folder / f"{name}.parts"

    def rows(self) -> list[Row]:
        """All rows, gathered or not; of a repeated task, the newest."""
        by_task: dict[tuple[str, ...], list[Row]] = {}
        for file in [self.file, *sorted(self.parts.glob("*.parquet"))]:
            by_task |= _by_task(_read(file))
        return [row for rows in by_task.values() for row in rows]

    def add(self, rows: Sequence[Row]) -> None:
        """Store the rows of one finished task."""
        self.parts.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256("\n".join(key_of(rows[0])).encode()).hexdigest()[:16]
        _write(self.parts / f"{name}.parquet", rows)

    def gather(self) -> None:
        """Join the parts into the one file, then remove them."""
        parts = sorted(self.parts.glob("*.parquet"))
        if parts:
            _write(self.file, self.rows())
        for part in parts:
            part.unlink()
        with suppress(OSError):  # not there, or something is left in it
            self.parts.rmdir()


def _by_task(rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    by_task: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_task.setdefault(key_of(row), []).append(row)
    return by_task


def _read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    try:
        table = parquet.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise _not_runs(file, f"cannot be read: {error}") from error
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise _not_runs(file, f"holds no runs: it has no column {missing[0]!r}.")
    return list(table.to_pylist())


def _not_runs(file: Path, problem: str) -> AddmlError:
    return AddmlError(f"{file}: {problem} Move it away to run its tasks again, or name another folder (--output).")


def _write(file: Path, rows: Sequence[Row]) -> None:
    """Write the rows with all COLUMNS, in their order."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    write_table(pa.Table.from_pylist([{name: row.get(name) for name in COLUMNS} for row in rows], schema), file)
