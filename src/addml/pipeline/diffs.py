"""`addml diff`: two models on one table or series (ranks and decisions that changed), or two days under one model
(kinds of anomaly that are new, grown, gone or as before).

The kind of a flagged row is its group and its first reason without values, such as "sales unusually low". Its id is a
hash of these words, so it stays the same from day to day and across models of the same columns.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from addml.compute import blas_threads
from addml.errors import AddmlError
from addml.findings import Hidden
from addml.model import Model
from addml.pipeline import batches
from addml.pipeline.labels import NORMAL, KnownRows
from addml.pipeline.options import Options, check_applies
from addml.pipeline.ranking import rank_correlation, ranks
from addml.pipeline.run import kind_of, load_model
from addml.pipeline.series_source import SeriesSource
from addml.pipeline.sources import check_text, expected_rows, on_disk, open_for_model, unclashing_names
from addml.pipeline.table_source import use_threads
from addml.preprocessing.profile import DriftCounter, drift_warning
from addml.progress import Progress
from addml.text import IMAGE, SERIES, TABLE, without_password

FIRST = 100  # top ranks to compare
STATUSES = ("new", "grown", "gone", "fewer", "as before")
CLEARLY = 2.0  # standard deviations of a difference of counts
EXPECTED = 3.0  # rows: with this expectation, one day in twenty has none by chance


def compare(before: str, after: str, options: Options, progress: Progress) -> ModelDiff | DayDiff:
    """Compare two saved models on `options.file`, or the file `after` with `options.file` under one model."""
    kind = kind_of(options)
    check_applies(options, kind)
    use_threads(options.jobs)
    is_model = (Path(os.path.expanduser(after)) / "model.json").exists()
    if kind == IMAGE:
        raise AddmlError(f"{options.source}: is a folder of images; addml diff compares tables and series.")
    if kind == SERIES and not is_model:
        raise AddmlError(f"{options.source}: addml diff compares days of tables; give two models, or remove --time.")
    return (compare_models if is_model else compare_days)(before, after, options, progress)


def _scored_batches(
    model: Model,
    options: Options,
    stage: str,
    progress: Progress,
    drift: DriftCounter,
    beside: Sequence[tuple[str, str]] = (),
) -> Iterator[tuple[int, pa.RecordBatch, list[str], np.ndarray, np.ndarray]]:
    """Yield the first row's index, the rows, the id columns, features and scores of each batch; `drift` is updated."""
    device = batches.scoring_device(options, model)[0]
    data, ids = open_for_model(options, model, batches.BATCH_ROWS, beside)
    with progress.stage(stage, expected_rows(options.file, data.rows)) as advance, blas_threads(1):
        for start, batch in batches.with_starts(data):
            features = batches.features_of(model, batch, start, drift)
            yield start, batch, ids, features, batches.scores_of(model, batch, features, device)
            advance(batch.num_rows)
    check_text(options, drift.texts)


@dataclass(frozen=True)
class ModelDiff:
    """The scores and decisions of two models for the same rows; rank 1 is the highest score."""

    source: str
    models: tuple[str, str]
    scores: tuple[np.ndarray, np.ndarray]
    flagged: tuple[np.ndarray, np.ndarray]
    ids: pa.Table
    noun: str = "row"

    @cached_property
    def columns(self) -> dict[str, Any]:
        (before, after), (flagged, flagged_after) = self.scores, self.flagged
        changes = [flagged_after & ~flagged, flagged & ~flagged_after, flagged]
        return {
            "row": np.arange(1, len(before) + 1),
            "score_before": before,
            "rank_before": ranks(before),
            "is_anomaly_before": flagged,
            "score_after": after,
            "rank_after": ranks(after),
            "is_anomaly_after": flagged_after,
            "decision": np.select(changes, ["new", "gone", "anomaly"], "normal").tolist(),
        }

    @property
    def table(self) -> pa.Table:
        names = unclashing_names(self.ids.column_names, self.columns)
        return pa.table(dict(zip(names, self.ids.columns, strict=True)) | self.columns)

    def listed(self, top: int) -> list[dict[str, Any]]:
        """The rows that moved: changed decisions first, then by the ratio of ranks."""
        before, after = self.columns["rank_before"], self.columns["rank_after"]
        changed, ratio = self.flagged[0] != self.flagged[1], abs(np.log(after / before))
        order = np.lexsort((np.minimum(before, after), -ratio, ~changed))[:top]
        moved = order[changed[order] | (ratio[order] > 0)]
        ids = self.ids.take(moved).to_pylist() or [{}] * len(moved)
        rows = pa.table(self.columns).drop_columns(["is_anomaly_before", "is_anomaly_after"]).take(moved).to_pylist()
        return [row | {"ids": row_ids} for row, row_ids in zip(rows, ids, strict=True)]

    def to_json(self, top: int) -> dict[str, Any]:
        rows = len(self.scores[0])
        first = min(FIRST, rows)
        is_shared = (self.columns["rank_before"] <= first) & (self.columns["rank_after"] <= first)
        decisions = self.columns["decision"]
        return {
            "source": self.source,
            "models": list(self.models),
            "rows": rows,
            "rank_agreement": rank_correlation(*self.scores),
            "compared_first": first,
            "shared_first": int(is_shared.sum()),
            "decisions": {name: decisions.count(name) for name in ("new", "gone", "anomaly", "normal")},
            "moved": self.listed(top),
        }


def compare_models(before: str, after: str, options: Options, progress: Progress) -> ModelDiff:
    """Score a file with two saved models, each with its own threshold."""
    is_series, folders = options.time is not None, (before, after)
    models = [load_model(replace(options, model=folder), SERIES if is_series else TABLE) for folder in folders]
    score = _score_series if is_series else _score_table
    with on_disk(options.file) as file:
        pairs = zip(models, folders, strict=True)
        results = [score(model, replace(options, file=file, model=folder), progress) for model, folder in pairs]
    scores, ids, messages = zip(*results, strict=True)
    for sentence in dict.fromkeys([*messages[0], *messages[1]]):
        warnings.warn(sentence, stacklevel=2)
    if len(scores[0]) != len(scores[1]):
        raise AddmlError(f"{options.source}: changed while it was being scored; run the command again.")
    return ModelDiff(
        options.source,
        folders,
        (scores[0], scores[1]),
        flagged=(scores[0] > models[0].threshold, scores[1] > models[1].threshold),
        ids=next((table for table in ids if table.num_columns > is_series), ids[0]),  # of the first model that has ids
        noun="step" if is_series else "row",
    )


def _score_table(model: Model, options: Options, progress: Progress) -> tuple[np.ndarray, pa.Table, list[str]]:
    drift = batches.drift_of(model)
    parts = _scored_batches(model, options, f"Scoring by {options.model}", progress, drift)
    scores, ids = zip(*((scores, batch.select(ids)) for _, batch, ids, _, scores in parts), strict=True)
    table = pa.Table.from_batches(ids) if ids[0].num_columns else pa.table({})
    return np.concatenate(scores), table, drift.texts.words()


def _score_series(model: Model, options: Options, progress: Progress) -> tuple[np.ndarray, pa.Table, list[str]]:
    data, _, scores = SeriesSource(options).score(model, progress)
    return scores[data.steps], data.table.select([str(options.time), *data.roles.ids]), []


@dataclass(frozen=True)
class Example:
    """The row of a kind with the highest score."""

    row: int  # counted from 1
    ids: dict[str, Any]
    score: float
    words: str


@dataclass(frozen=True)
class Kind:
    """Flagged rows with the same reason."""

    id: str
    words: str
    before: int  # rows
    after: int
    status: str
    example: Example  # from the second day, or from the first if the kind is gone


@dataclass(frozen=True)
class DayDiff:
    """The kinds of anomaly of two days."""

    model: str
    files: tuple[str, str]
    rows: tuple[int, int]
    kinds: tuple[Kind, ...]  # by status, then the strangest first
    hidden: tuple[Hidden, ...] = ()  # known rows of the second day

    @property
    def table(self) -> pa.Table:
        rows = [asdict(kind) for kind in self.kinds]
        for row in rows:
            example = row.pop("example")
            row |= {"row": example["row"], "score": example["score"], "reason": example["words"]}
        return pa.Table.from_pylist(rows)

    def to_json(self, top: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "files": list(self.files),
            "rows": list(self.rows),
            "flagged": [sum(kind.before for kind in self.kinds), sum(kind.after for kind in self.kinds)],
            "kinds": {status: sum(kind.status == status for kind in self.kinds) for status in STATUSES},
            "hidden": [asdict(entry) for entry in self.hidden],
            "listed": [asdict(kind) for kind in self.kinds[:top]],
        }


def compare_days(model: str, before: str, options: Options, progress: Progress) -> DayDiff:
    """Compare the flagged rows of the files `before` and `options.file`."""
    options = replace(options, model=model)
    fitted, known = load_model(options, TABLE), KnownRows.of(options.known_normal, NORMAL)
    scores_before, _, examples_before, _ = _scored_day(fitted, replace(options, file=before), known, progress)
    scores, codes, examples, drift = _scored_day(fitted, options, known, progress)
    for sentence in filter(None, (drift_warning(drift.summary(), hidden=False), *drift.unseen_words)):
        warnings.warn(f"{options.source}: {sentence}", stacklevel=2)
    rows = (len(scores_before), len(scores))
    names = examples | examples_before
    kinds = [anomaly_kind(name, examples_before.get(name, []), examples.get(name, []), rows) for name in names]
    kinds.sort(key=lambda kind: (STATUSES.index(kind.status), -kind.example.score, kind.words))
    hidden = known.hidden(codes, scores, fitted.threshold)
    return DayDiff(model, (without_password(before), options.source), rows, tuple(kinds), hidden)


def _scored_day(
    model: Model, options: Options, known: KnownRows, progress: Progress
) -> tuple[np.ndarray, np.ndarray, dict[str, list[Example]], DriftCounter]:
    """Scores, codes of known entries, examples of each kind of flagged row, and drift of a file."""
    all_scores, all_codes, kinds, drift = [], [], dict[str, list[Example]](), batches.drift_of(model)
    stage = f"Scoring {options.source}"
    with on_disk(options.file) as file:
        parts = _scored_batches(model, replace(options, file=file), stage, progress, drift, known.columns)
        for start, batch, id_columns, features, scores in parts:
            codes = known.with_ids(id_columns, model.by).codes(batch, model.columns)
            all_scores.append(scores)
            all_codes.append(codes)
            flagged = np.flatnonzero((codes < 0) & (scores > model.threshold))
            rows = batch.take(flagged)
            reasons = batches.reasons_for(model, rows, features[flagged], 1)
            row_ids = rows.select(id_columns).to_pylist() or [{}] * len(flagged)
            for row, ids, (reason,) in zip(flagged.tolist(), row_ids, reasons, strict=True):
                group = ", ".join(f"{name} {ids[name]}" for name in model.by)
                example = Example(start + row + 1, ids, float(scores[row]), reason.words)
                kinds.setdefault(f"{group}: {reason.summary}" if group else reason.summary, []).append(example)
    return np.concatenate(all_scores), np.concatenate(all_codes), kinds, drift


def anomaly_kind(words: str, before: list[Example], after: list[Example], rows: tuple[int, int]) -> Kind:
    """Compare a kind's rows on two days of `rows` rows; only differences beyond chance count as grown or fewer."""
    identity = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    ratio = rows[1] / max(rows[0], 1)
    expected = len(before) * ratio
    if not before:
        status = "new"
    elif not after:
        status = "gone" if expected >= EXPECTED else "fewer"
    else:
        deviations = (len(after) - expected) / math.sqrt(len(after) + expected * ratio)
        status = "grown" if deviations > CLEARLY else "fewer" if deviations < -CLEARLY else "as before"
    strangest = max(after or before, key=lambda example: example.score)
    return Kind(identity, words, len(before), len(after), status, strangest)
