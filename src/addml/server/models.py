"""The models that a server offers, each loaded once, and rows as JSON scored by them as `addml score` does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.errors import AddmlError
from addml.explain import ColumnProfile
from addml.io.values import shaped, table_from_rows
from addml.pipeline.about import about_model
from addml.pipeline.batches import BATCH_ROWS, highest
from addml.pipeline.fitted import Fitted
from addml.pipeline.options import Options
from addml.pipeline.usual import described
from addml.text import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.inputs.table import DriftCounter

KNOWN = ("rows", "reasons", "all")
MOST_REASONS = 20


class RefusedError(ValueError):
    """A request that the client can correct, with the status of the answer."""

    def __init__(self, message: str, status: int = 422) -> None:
        """The message, and the status."""
        super().__init__(message)
        self.status = status


# Rows -------------------------------------------------------------------------------------------------------


def score_rows(fitted: Fitted, asked: Any, is_over: Callable[[], bool]) -> dict[str, Any]:
    """The answer to {"rows": [{column: value}], "reasons": 3, "all": false}: one result a row, in the same order.

    Reasons are given for flagged rows, or for all. A column that only some rows name is missing in the others. The
    rest is left undone once the server stops.
    """
    rows, most, of_all = _checked(asked)
    names, drift = list(dict.fromkeys(name for row in rows for name in row)), fitted.drift()
    known = [name for name in names if name in _known(fitted)]
    ignored = sorted({*names} - {*known})
    try:
        batches = takewhile(
            lambda _: not is_over(), _table(fitted, known, ignored, rows).to_batches(max_chunksize=BATCH_ROWS)
        )
        results = list(_results(fitted, batches, drift, most, of_all))
    except ValueError as error:
        raise RefusedError(str(error)) from error
    if len(results) < len(rows):
        raise RefusedError("the server is stopping", 503)
    notes = [*drift.new_gaps, *drift.texts.words()]
    return {"threshold": fitted.threshold, "results": results, "ignored": ignored, "notes": notes}


def _table(fitted: Fitted, names: Sequence[str], ignored: Sequence[str], rows: list[dict[str, Any]]) -> pa.Table:
    """The columns that the model was trained on; an object within a row is spread out as name.part."""
    table, _ = table_from_rows(names, [[row.get(name) for name in names] for row in rows])
    table, _ = shaped(table, None, "rows")
    fitted.check_columns([*table.column_names, *ignored], "rows")
    return table.select(list(fitted.used)).combine_chunks()


def _known(fitted: Fitted) -> set[str]:
    """Names that a row may have: those of the columns, and for a.b, which is b within a, that of a."""
    columns = {*fitted.used, *fitted.ids}
    return columns | {name[:at] for name in columns for at, letter in enumerate(name) if letter == "."}


def _checked(asked: Any) -> tuple[list[dict[str, Any]], int, bool]:
    """Rows, how many reasons, and whether for all of them."""
    if not isinstance(asked, dict) or not isinstance(asked.get("rows"), list):
        raise RefusedError('send {"rows": [{"column": value, ...}, ...]}')
    unknown = [name for name in asked if name not in KNOWN]
    if unknown:
        raise RefusedError(f"{unknown[0]!r} is not known here; known are {', '.join(KNOWN)}")
    rows, most, of_all = asked["rows"], asked.get("reasons", 3), asked.get("all", False)
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not row:
            raise RefusedError(f"row {place} is {json.dumps(row)[:80]}; give an object: column names and values")
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST_REASONS:
        raise RefusedError(f"reasons={json.dumps(most)}: give a whole number of 0 to {MOST_REASONS}")
    if not isinstance(of_all, bool):
        raise RefusedError(f"all={json.dumps(of_all)}: give true or false")
    if not rows:
        raise RefusedError("there are no rows; give at least one")
    return rows, most, of_all


def _results(
    fitted: Fitted, batches: Iterable[pa.RecordBatch], drift: DriftCounter, most: int, of_all: bool
) -> Iterator[dict[str, Any]]:
    start = 0
    for batch in batches:
        features = fitted.features(batch, start, drift)
        yield from _of_batch(fitted, batch, features, most, of_all)
        start += batch.num_rows


def _of_batch(
    fitted: Fitted, batch: pa.RecordBatch, features: np.ndarray, most: int, of_all: bool
) -> Iterator[dict[str, Any]]:
    scores = fitted.scores(features)
    flagged = scores > fitted.threshold
    spoken = highest(scores, len(scores) if of_all else int(flagged.sum()))
    found = fitted.reasons(batch.take(spoken), features[spoken], most)
    place = np.full(len(scores), -1)
    place[spoken] = np.arange(len(spoken))
    likely, sure = fitted.probability(scores), fitted.confidence(scores)
    for row in range(len(scores)):
        reasons = found[int(place[row])] if place[row] >= 0 else ()
        yield {
            "score": float(scores[row]),
            "is_anomaly": bool(flagged[row]),
            "probability": float(likely[row]),
            "confidence": float(sure[row]),
            "reasons": [{"column": one.column, "share": one.share, "words": one.words} for one in reasons],
        }


# Models -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServedModel:
    """One model: its name, where it lies, what it is, and the detector, unless it is about images or series."""

    name: str
    folder: Path
    about: dict[str, Any]
    fitted: Fitted | None

    @property
    def takes_files(self) -> bool:
        """Whether a file can be uploaded for it; images come in folders."""
        return bool(self.about["noun"] != "image")

    def refusal(self) -> RefusedError:
        """What is said to whoever brings what it does not take."""
        way = "score folders of them by the command addml score"
        if self.takes_files:
            way = "upload files: POST /api/jobs"
        return RefusedError(f"{self.name} is about {self.about['noun']}s; {way}")

    def short(self) -> dict[str, Any]:
        """What a list says of it."""
        about = self.about
        kept = {key: about[key] for key in ("noun", "trained_rows", "threshold", "decided_by")}
        return {"name": self.name, **kept, "columns": len(about["columns"])}

    def whole(self) -> dict[str, Any]:
        """All that is known of it, but for where it lies."""
        columns = () if self.fitted is None else self.fitted.usual_columns
        usual = [asdict(described(one)) | {"value": _ordinary(one)} for one in columns]
        return {**self.about, "name": self.name, "model": self.name, "usual": usual}


def _ordinary(column: ColumnProfile) -> Any:
    """A value that is nothing special: the middle one, the most common one, a day between the first and the last."""
    if column.earliest is not None and column.latest is not None:
        return str(column.earliest + (column.latest - column.earliest) / 2)[:10]
    return (
        column.middle
        if column.kind == "number"
        else max(column.levels, key=lambda one: column.levels[one], default=None)
    )


class Models:
    """Models by their names."""

    def __init__(self, device: str) -> None:
        """None yet; they will compute on this device."""
        self.device, self._models = device, dict[str, ServedModel]()

    @classmethod
    def load(cls, folders: Sequence[str], device: str) -> Models:
        """The models in these folders, named after them."""
        models = cls(device)
        for folder in folders:
            path = Path(os.path.expanduser(folder)).resolve()  # jobs run in other folders
            name = path.name.removesuffix(".model")
            if name in models._models:
                raise AddmlError(
                    f"{folder}: {models._models[name].folder} is called {name} too; rename one of the two folders."
                )
            models.add(name, path)
        return models

    def add(self, name: str, folder: Path) -> ServedModel:
        """Load a model and serve it under a name, with a number behind it where that is taken."""
        about, number = about_model(str(folder)), 1
        is_table = about["noun"] == "row"
        fitted = Fitted.load(str(folder), Options(device=self.device), Options()) if is_table else None
        free = name
        while free in self._models:
            number += 1
            free = f"{name}-{number}"
        self._models[free] = ServedModel(free, folder, about, fitted)
        return self._models[free]

    def remove(self, name: str) -> None:
        """Offer it no longer."""
        self._models.pop(name, None)

    def __iter__(self) -> Any:
        return iter(list(self._models.values()))

    def __getitem__(self, name: str) -> ServedModel:
        try:
            return self._models[name]
        except KeyError:
            hint = did_you_mean(name, self._models)
            raise RefusedError(f"there is no model {name!r} here.{hint}", 404) from None
