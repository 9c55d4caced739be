"""Rows that come as JSON, scored by a model at once, exactly as `addml score` does those of a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.detection.inputs import open_for_model
from addml.detection.scoring import BATCH_ROWS, highest
from addml.detection.settings import Settings
from addml.web.bodies import RefusedError

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.data.columns import DriftCounter
    from addml.detection.fitted import Fitted

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
