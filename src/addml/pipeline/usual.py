"""What is usual in each column of the training rows: what reasons compare with, and what the report shows beside."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from addml import model_file
from addml.explain import ColumnProfile
from addml.findings import Usual
from addml.io.write import write_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.inputs.table import Columns

FILE = "usual.json"  # beside a saved model
EPOCH = datetime(1970, 1, 1)
MOST = 0.9  # of the values lie between low and high
WEEKS_FROM = 14  # days between first and last, from which weekdays mean something
COMMON = 5  # values named


def usual_columns(columns: Columns, table: pa.Table | None) -> list[ColumnProfile]:
    """What is usual in each used column of a table, or, without one, what the columns themselves remember."""
    blocks = [] if table is None else list(columns.read(table))
    documents = columns.to_plain()["columns"]
    if not blocks:
        return [_remembered(document) for document in documents]
    values = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return [_found(document, part) for document, part in zip(documents, values, strict=True)]


def _remembered(document: dict[str, Any]) -> ColumnProfile:
    name, kind = document["name"], document["kind"]
    if kind in ("category", "boolean"):
        return _levels(document)
    spread = document["spread"]
    if kind == "date":
        return ColumnProfile(
            name, kind, gaps=spread["gaps"], earliest=moment(spread["low"]), latest=moment(spread["high"])
        )
    ends = spread["edges"] or [spread["low"], spread["high"]]
    return ColumnProfile(name, kind, ends[0], spread["middle"], ends[-1], gaps=spread["gaps"])


def _found(document: dict[str, Any], values: np.ndarray) -> ColumnProfile:
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if document["kind"] in ("category", "boolean") or not len(known):
        return _remembered(document)
    name, kind, gaps = document["name"], document["kind"], 1 - len(known) / len(values)
    if kind == "number":
        return usual_number(name, known, gaps)
    first, last = float(known.min()), float(known.max())
    return ColumnProfile(
        name,
        kind,
        gaps=gaps,
        earliest=moment(first),
        latest=moment(last),
        hours=_hours(known),
        weekdays=_weekdays(known) if last - first >= WEEKS_FROM else (),
    )


def usual_number(name: str, known: np.ndarray, gaps: float = 0.0) -> ColumnProfile:
    """What is usual in a column of numbers, of which these are known, some at least."""
    low, middle, high = np.quantile(known, [(1 - MOST) / 2, 0.5, (1 + MOST) / 2])
    return ColumnProfile(name, "number", float(low), float(middle), float(high), gaps=gaps)


def _levels(document: dict[str, Any]) -> ColumnProfile:
    """Shares among all training rows: of what was seen in them nothing is unseen."""
    if document["kind"] == "boolean":
        counts = {"false": document["falses"], "true": document["trues"]}
        rows = sum(counts.values()) + document["gaps"]
    else:
        counts, rows = dict(zip(document["levels"], document["counts"], strict=True)), document["rows"]
    shares = {level: count / rows for level, count in counts.items() if count}
    unlisted = max(0.0, 1 - (sum(counts.values()) + document["gaps"]) / rows)
    return ColumnProfile(
        document["name"], document["kind"], levels=shares, unlisted=unlisted, gaps=document["gaps"] / rows
    )


def moment(days: float) -> datetime:
    """The moment so many days after the beginning of 1970."""
    return EPOCH + timedelta(seconds=round(days * 86_400))


def moments(days: np.ndarray) -> np.ndarray:
    """The same for many, datetime64; NaT for NaN."""
    known = np.where(np.isnan(days), 0, days)
    seconds = np.round(known * 86_400).astype("datetime64[s]")
    return np.where(np.isnan(days), np.datetime64("NaT"), seconds).astype("datetime64[us]")


def _hours(days: np.ndarray) -> tuple[int, int] | None:
    """The shortest stretch of hours with nine tenths of the moments; None where all are at midnight or at any hour."""
    if not (days % 1).any():
        return None
    counts = np.bincount(((days % 1) * 24 + 1e-6).astype(int) % 24, minlength=24)
    for length in range(1, 20):
        covered = [counts[np.arange(first, first + length) % 24].sum() for first in range(24)]
        if max(covered) >= MOST * len(days):
            first = int(np.argmax(covered))
            return first, (first + length - 1) % 24
    return None


def _weekdays(days: np.ndarray) -> tuple[float, ...]:
    counts = np.bincount((np.floor(days).astype(int) + 3) % 7, minlength=7)  # the first day of 1970 was a Thursday
    return tuple(float(count) for count in counts / len(days))


# A file beside the model ------------------------------------------------------------------------------------


def save(folder: Path, usual: Sequence[ColumnProfile]) -> None:
    """Write the file beside the model of this folder."""
    weights = model_file.load(folder)[0]["weights"]  # their hash
    content = {"weights": weights, "columns": [asdict(one) for one in usual]}
    write_whole(folder / FILE, json.dumps(content, default=datetime.isoformat, ensure_ascii=False).encode())


def load(folder: str, weights: str) -> list[ColumnProfile]:
    """What was saved beside the model whose weights have this hash; nothing where there is none, or another's."""
    try:
        content = json.loads((Path(os.path.expanduser(folder)) / FILE).read_text("utf-8"))
        saved = [_from_plain(one) for one in content["columns"]]
        return saved if content["weights"] == weights else []
    except (OSError, ValueError, TypeError, KeyError):
        return []


def load_columns(folder: str, weights: str, columns: Columns) -> list[ColumnProfile]:
    """What was saved beside the model of a table, or what its columns remember."""
    saved = load(folder, weights)
    fits = [(one.column, one.kind) for one in saved] == list(columns.kinds.items())
    return saved if fits else usual_columns(columns, None)


def _from_plain(document: dict[str, Any]) -> ColumnProfile:
    dates = {key: document[key] and datetime.fromisoformat(document[key]) for key in ("earliest", "latest")}
    hours = document["hours"] and (int(document["hours"][0]), int(document["hours"][1]))
    return ColumnProfile(**{**document, **dates, "hours": hours, "weekdays": tuple(document["weekdays"])})


# Words ------------------------------------------------------------------------------------------------------


def described(one: ColumnProfile) -> Usual:
    """The column as findings hold it."""
    common = tuple(sorted(one.levels.items(), key=lambda item: -item[1])[:COMMON])
    return Usual(one.column, one.kind, _words(one, common), one.low, one.middle, one.high, common)


def _words(one: ColumnProfile, common: Sequence[tuple[str, float]]) -> str:
    if one.kind == "number" and one.middle is not None:
        return f"{one.middle:.4g}, mostly {one.low:.4g} to {one.high:.4g}"
    if one.earliest is not None and one.latest is not None:
        hours = f", mostly {one.hours[0]:02} to {one.hours[1]:02} h" if one.hours else ""
        return f"{one.earliest:%Y-%m-%d} to {one.latest:%Y-%m-%d}{hours}"
    return ", ".join(f"{level} {share:.0%}" for level, share in common[:3])
