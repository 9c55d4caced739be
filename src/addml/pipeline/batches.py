"""Rows through a model batch by batch: scores of all rows, reasons for the flagged ones, and findings from them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.arrays import mapped
from addml.arrow import as_text
from addml.compute import blas_threads, max_threads, on_threads, resolve_device
from addml.errors import rows_before
from addml.inputs import MemoryRows
from addml.pipeline.sources import check_text
from addml.pipeline.workers import Batch, in_processes
from addml.preprocessing.profile import moments
from addml.progress import Advance

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.explain import Reason, Reasons
    from addml.explain.reasons import GroupProfiles
    from addml.inputs.table import TableVectorizer
    from addml.model import Model
    from addml.pipeline.known import Known
    from addml.pipeline.options import Options
    from addml.preprocessing.profile import Counts, DriftCounter

IN_MEMORY = 256 << 20  # bytes


class Pieces:
    """Record batches of one schema that are written once and read as often as wanted."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder` is for what memory should not hold."""
        self.folder = folder
        self._writer: Any = None
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=folder)  # noqa: SIM115

    def add(self, batch: pa.RecordBatch) -> None:
        from pyarrow import PythonFile, ipc

        if self._writer is None:
            self._writer = ipc.new_stream(PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from pyarrow import PythonFile, ipc

        if self._writer is not None:
            self._writer.close()
        self._file.seek(0)
        yield from ipc.open_stream(PythonFile(self._file, "r"))


def joined(pieces: Pieces, name: str, rows: int) -> np.ndarray:
    """One column of all pieces, numbers without gaps, as an array; on disk where it is large."""
    folder = pieces.folder or tempfile.gettempdir()
    large = rows * 8 > IN_MEMORY
    whole, done = mapped(folder, (rows,), np.float64) if large else np.empty(rows), 0
    for batch in pieces:
        whole[done : done + batch.num_rows] = batch[name].to_numpy()
        done += batch.num_rows
    return whole


# Scoring ----------------------------------------------------------------------------------------------------

BATCH_ROWS = 32768
THREADS = 4  # at most that share the interpreter's lock
WORTH_PROCESSES = 250_000  # rows, in which processes win what their start takes
LISTED = 200  # rows that findings hold with their values, if --top does not ask for more
MAPPED = 3000  # rows in the map of the metric space, besides the listed ones
SCORE, WORDS, KNOWN = "\0score", "\0words", "\0known"  # columns of a piece that no table has


@dataclass(frozen=True)
class Candidate:
    """A row that may be listed, with its values."""

    place: int  # from 0
    score: float
    values: pa.RecordBatch  # of one row
    features: np.ndarray  # (d',)
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Sample:
    """Some rows, each with the random number that keeps it."""

    keys: np.ndarray
    places: np.ndarray
    features: np.ndarray  # (k, d')

    def joined(self, other: Sample, most: int) -> Sample:
        """The rows of both with the smallest keys."""
        keys, places, features = (
            np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)
        )
        kept = np.sort(np.argsort(keys)[:most])
        return Sample(keys[kept], places[kept], features[kept])


@dataclass(frozen=True)
class Explained:
    """The rows of a batch that may be listed, the highest score first."""

    places: np.ndarray
    scores: np.ndarray
    values: pa.RecordBatch
    features: np.ndarray  # (k, d')
    reasons: Sequence[tuple[Reason, ...]]

    def candidate(self, at: int) -> Candidate:
        place, score, values = int(self.places[at]), float(self.scores[at]), self.values.slice(at, 1)
        return Candidate(place, score, values, self.features[at].copy(), self.reasons[at])


@dataclass(frozen=True)
class Part:
    """What came of one batch."""

    piece: pa.RecordBatch
    explained: Explained
    sample: Sample
    counts: Counts | None = None  # of its values, against training


@dataclass
class Scored:
    """What came of all batches so far: carried columns, score and reasons of every row, and the rows to be listed."""

    most_listed: int
    most_mapped: int
    pieces: Pieces = field(default_factory=Pieces)
    rows: int = 0
    listed: list[Candidate] = field(default_factory=list)
    sample: Sample | None = None

    def add(self, part: Part) -> None:
        self.pieces.add(part.piece)
        self.rows += part.piece.num_rows
        self.sample = part.sample if self.sample is None else self.sample.joined(part.sample, self.most_mapped)
        # Of equal scores the first row stays, so that only a higher one takes the place of the last.
        last = self.listed[-1].score if len(self.listed) == self.most_listed else -np.inf
        count = min(int((part.explained.scores > last).sum()), self.most_listed)
        both = [*self.listed, *map(part.explained.candidate, range(count))]
        self.listed = sorted(both, key=lambda one: (-one.score, one.place))[: self.most_listed]


def piece_of(
    scores: np.ndarray, carried: pa.RecordBatch, spoken: np.ndarray, words: pa.Array, known: np.ndarray | None = None
) -> pa.RecordBatch:
    """The columns that only pass through, the scores, the words of the rows that have some, and which are known."""
    import pyarrow as pa

    places = np.full(len(scores), -1)
    places[spoken] = np.arange(len(spoken))
    codes = np.full(len(scores), -1) if known is None else known
    own = [pa.array(scores), words.take(pa.array(places, mask=places < 0)), pa.array(codes.astype(np.int32))]
    return pa.record_batch([*carried.columns, *own], names=[*carried.schema.names, SCORE, WORDS, KNOWN])


def scoring_place(options: Options, model: Model) -> tuple[str, int]:
    """The device that scores, and how many batches at once: a table, unless a device is named, where it is read."""
    device = "cpu" if options.device == "auto" and model.form is None else resolve_device(options.device)
    return device, max_threads(options.jobs) if device == "cpu" else 1


def score_all(
    model: Model,
    options: Options,
    batches: Iterable[pa.RecordBatch],
    carried: Sequence[str],
    known: Known,
    advance: Advance,
    rows: int | None,
    mapped: bool,
    folder: str | None = None,
) -> tuple[Scored, DriftCounter]:
    """Score every batch, several at a time, holding a few; and count how they differ from training.

    `rows` is about how many there are, where that is known; rows for a map of the metric space are kept only where one
    is wanted; `folder` is for what memory should not hold; rows that are `known` are not listed.
    """
    (device, threads), top, drift = scoring_place(options, model), max(options.top, options.flag or 0), drift_of(model)
    scored = Scored(max(LISTED, top), MAPPED if mapped else 0, Pieces(folder))
    most = scored.most_listed, scored.most_mapped
    work = ScorePart(model, device, tuple(carried), top, options.reasons, *most, known)
    with blas_threads(1):
        for part in _at_once(work, with_starts(batches), rows, threads):
            scored.add(part)
            if part.counts is not None:
                drift.add(part.counts)
            check_text(options, drift.texts)
            advance(part.piece.num_rows)
    return scored, drift


def with_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, each with how many rows came before it."""
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _at_once(work: ScorePart, batches: Iterator[Batch], rows: int | None, threads: int) -> Iterator[Part]:
    """In processes where rows are many and their scores keep threads waiting for each other, else on threads."""
    waiting = threads > 1 and work.model.scorer.max_threads <= THREADS
    if waiting and (rows or 0) >= WORTH_PROCESSES:
        with suppress(OSError):  # where a system has no room for them, threads do as well
            return in_processes(work, batches, threads)
    return on_threads(work, batches, min(threads, THREADS))


@dataclass(frozen=True)
class ScorePart:
    """What is done with every batch, and how many of its rows may be listed and mapped."""

    model: Model
    device: str
    carried: tuple[str, ...]
    top: int
    reasons: int
    most_listed: int
    most_mapped: int
    known: Known

    def __call__(self, item: Batch) -> Part:
        """Score a batch that so many rows came before, and explain the rows that stand out."""
        from addml.explain import reason_texts

        start, batch = item
        model, drift = self.model, drift_of(self.model)
        features = features_of(model, batch, start, drift)
        scores = scores_of(model, batch, features, self.device)
        known = self.known.codes(batch, model.columns)
        shown = np.where(known < 0, scores, -np.inf)
        chosen = highest(shown, max(int((shown > model.threshold).sum()), self.top))
        chosen = chosen[known[chosen] < 0]
        rows, own = batch.take(chosen), features[chosen]
        reasons = reasons_for(model, rows, own, self.reasons)
        first = slice(min(self.most_listed, len(chosen)))
        top = chosen[first]
        explained = Explained(top + start, scores[top], batch.take(top), own[first], reasons[first])
        piece = piece_of(scores, batch.select(list(self.carried)), chosen, reason_texts(reasons), known)
        return Part(piece, explained, sample_of(features, start, self.most_mapped), drift.counts)


# Rows of a batch --------------------------------------------------------------------------------------------


def drift_of(model: Model) -> DriftCounter:
    """A count of what is scored, against training."""
    from addml.preprocessing.profile import DriftCounter

    assert model.columns is not None
    return DriftCounter(model.columns)


def features_of(model: Model, batch: pa.RecordBatch, start: int, drift: DriftCounter | None = None) -> np.ndarray:
    """The rows of a batch as the encoder takes them (n, d'); `start` rows came before them."""
    vectorizer: TableVectorizer = model.vectorizer  # type: ignore[assignment]
    with rows_before(start):
        return vectorizer.prepare(batch, drift)


def scores_of(model: Model, batch: pa.RecordBatch, features: np.ndarray, device: str) -> np.ndarray:
    """The scores of a batch, which has these features, within the groups of its rows."""
    return model.scores(MemoryRows(features, model.vectorizer.groups_of(batch)), device, 1)


def reasons_for(model: Model, batch: pa.RecordBatch, features: np.ndarray, most: int) -> Reasons:
    """Why each row of a batch, which has these features, is unusual; at most so many reasons."""
    from addml.explain import columns_of, reasons

    if not most or not batch.num_rows:
        return [()] * batch.num_rows
    return reasons(
        model,
        features,
        _baseline(model),
        columns_of(model),
        model.profiles,
        *_raw_values(model, batch),
        within=_group_profiles(model, batch),
        groups=model.vectorizer.groups_of(batch),
        most=most,
    )


def _group_profiles(model: Model, batch: pa.RecordBatch) -> GroupProfiles | None:
    groups, codes = model.vectorizer.groups, model.vectorizer.groups_of(batch)
    if groups is None or codes is None:
        return None
    found, which = np.unique(codes, return_inverse=True)
    return [groups.profiles(model.profiles, code) for code in found.tolist()], which


def _baseline(model: Model) -> np.ndarray:
    """The usual value in every column; where no row is like that, the row that `explain` counts from."""
    from addml.explain.contributions import views_of

    if views_of(model) is not None or model.columns is None:  # which count from nothing
        return model.baseline
    usual = np.asarray(model.features.transform(model.columns.usual[None])[0])
    is_ordinary = model.scores(usual[None], "cpu", 1)[0] <= np.median(model.training.values)
    return usual if is_ordinary else model.baseline


def _raw_values(model: Model, batch: pa.RecordBatch) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """The values of the columns used, read as in training, and the texts in columns of numbers, null elsewhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert model.columns is not None
    parts = [np.concatenate(blocks) for blocks in zip(*model.columns.read(batch), strict=True)]
    kinds, found = model.columns.kinds, dict(zip(model.used, parts, strict=True))
    values = {name: _readable(part, kinds[name], batch[name]) for name, part in found.items()}
    texts = {name: np.isinf(part) for name, part in found.items() if kinds[name] == "number" and part.dtype.kind == "f"}
    return values, {
        name: pc.if_else(pa.array(own), as_text(batch[name]), None) for name, own in texts.items() if own.any()
    }


def _readable(values: np.ndarray, kind: str, column: pa.Array) -> Any:
    if kind == "number":
        return np.where(np.isinf(values), np.nan, values)
    if kind == "date":
        return moments(values)
    if kind == "category":
        return as_text(column)
    import pyarrow as pa

    return pa.array(["false", "true"]).take(pa.array(np.nan_to_num(values).astype(np.int8), mask=values != values))


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores, the highest first, of equal ones the first first."""
    places = np.arange(len(scores))
    if count < len(scores):
        places = np.sort(np.argpartition(-scores, count)[:count])
    return places[np.argsort(-scores[places], kind="stable")]


def sample_of(features: np.ndarray, start: int, most: int) -> Sample:
    """At most so many of the rows, drawn at random; `start` rows came before them."""
    keys = np.random.default_rng([start, 2]).random(len(features) if most else 0)
    kept = np.sort(np.argpartition(keys, most)[:most]) if len(keys) > most else np.arange(len(keys))
    return Sample(keys[kept], kept + start, features[kept])
