"""Rows that come as JSON, scored by a model at once, exactly as `addml score` does those of a file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.errors import UserError
from addml.explain import ColumnProfile
from addml.pipeline.about import about_model
from addml.pipeline.batches import BATCH_ROWS, highest
from addml.pipeline.fitted import Fitted
from addml.pipeline.options import Computing, Deciding, Settings
from addml.pipeline.sources import open_for_model
from addml.pipeline.usual import described
from addml.server.bodies import RefusedError
from addml.text import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.inputs.table import DriftCounter

KNOWN = ("rows", "reasons", "all")
MOST_REASONS = 20
NAME = "rows.jsonl"


def score(fitted: Fitted, asked: Any, is_over: Callable[[], bool]) -> dict[str, Any]:
    """The answer to {"rows": [{column: value}], "reasons": 3, "all": false}: one result a row, in the same order.

    Reasons are given for the rows that are anomalies, or for all. What only some rows name is missing in the others.
    When it is over, since the server ends, the rest is left undone.
    """
    rows, most, of_all = _checked(asked)
    named, drift = {name for row in rows for name in row}, fitted.drift()
    ignored = sorted(named - _known(fitted))
    with tempfile.TemporaryDirectory(prefix="addml-") as folder:
        file = Path(folder) / NAME
        lacking, empty = dict.fromkeys(named), dict.fromkeys(ignored)  # whose kinds do not matter
        file.write_text("".join(json.dumps(lacking | row | empty) + "\n" for row in rows), encoding="utf-8")
        try:
            data, _ = open_for_model(Settings(file=str(file)), fitted, BATCH_ROWS)
            results = list(_results(fitted, takewhile(lambda _: not is_over(), data), drift, most, of_all))
        except ValueError as error:  # which names the file
            raise RefusedError(str(error).replace(str(file), "rows")) from error
    if len(results) < len(rows):
        raise RefusedError("the server ends", 503)
    notes = [*drift.new_gaps, *drift.texts.words()]
    return {"threshold": fitted.threshold, "results": results, "ignored": ignored, "notes": notes}


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


# The models that a server offers, each loaded once.


@dataclass(frozen=True)
class Shelved:
    """One model: its name, where it lies, what it is, and the detector, unless it is about images or series."""

    name: str
    folder: Path
    about: dict[str, Any]
    fitted: Fitted | None

    @property
    def takes_files(self) -> bool:
        """Whether a file can be handed in to it; images come in folders."""
        return bool(self.about["noun"] != "image")

    def refusal(self) -> RefusedError:
        """What is said to whoever brings what it does not take."""
        way = "score folders of them by the command addml score"
        if self.takes_files:
            way = "hand in files: POST /api/jobs"
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


class Shelf:
    """Models by their names."""

    def __init__(self, computing: Computing) -> None:
        """None yet; they will compute as is said."""
        self._computing, self._models = computing, dict[str, Shelved]()
        self.device = computing.device

    @classmethod
    def of(cls, folders: Sequence[str], computing: Computing) -> Shelf:
        """Models in these folders, called after them."""
        shelf = cls(computing)
        for folder in folders:
            path = Path(os.path.expanduser(folder)).resolve()  # jobs run elsewhere
            name = path.name.removesuffix(".model")
            if name in shelf._models:
                raise UserError(
                    f"{folder}: {shelf._models[name].folder} is called {name} too; rename one of the two folders."
                )
            shelf.add(name, path)
        return shelf

    def add(self, name: str, folder: Path) -> Shelved:
        """Load a model and offer it under a name; where that is taken, with a number behind it."""
        about, number = about_model(str(folder)), 1
        is_table = about["noun"] == "row"
        fitted = Fitted.load(str(folder), self._computing, Deciding()) if is_table else None
        free = name
        while free in self._models:
            number += 1
            free = f"{name}-{number}"
        self._models[free] = Shelved(free, folder, about, fitted)
        return self._models[free]

    def remove(self, name: str) -> None:
        """Offer it no longer."""
        self._models.pop(name, None)

    def __iter__(self) -> Any:
        return iter(list(self._models.values()))

    def __getitem__(self, name: str) -> Shelved:
        try:
            return self._models[name]
        except KeyError:
            hint = did_you_mean(name, self._models)
            raise RefusedError(f"there is no model {name!r} here.{hint}", 404) from None
