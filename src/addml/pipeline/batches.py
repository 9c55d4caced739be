"""Rows through a model batch by batch: scores of all rows, reasons for the flagged ones, and findings from them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.compute import blas_threads, on_threads
from addml.pipeline.sources import names_beside
from addml.pipeline.workers import Batch, in_processes
from addml.progress import Advance
from addml.scratch import folder_of, mapped, room

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.explain import Reason
    from addml.pipeline.fitted import Fitted
    from addml.preprocessing.drift import Counts, DriftCounter
    from addml.preprocessing.text_values import TextCells

IN_MEMORY = 256 << 20  # bytes
AT_ONCE = 1 << 20  # rows


class Pieces:
    """Record batches of one schema that are written once and read as often as wanted."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder` is for what memory should not hold."""
        self.folder = folder
        self._writer: Any = None
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=folder)  # noqa: SIM115

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep another batch."""
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


def ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of every score: 1 is the highest, of equal ones the first."""
    found = room(scores.shape, np.int64, scores)
    if folder_of(scores) is None:
        found[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
        return found
    keys = room(scores.shape, np.complex128, scores)  # sorted by the score and then by the place, where they lie
    for start in range(0, len(scores), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        keys.real[part], keys.imag[part] = -scores[part], np.arange(start, start + len(scores[part]))
    keys.sort()
    for start in range(0, len(scores), AT_ONCE):
        places = keys.imag[start : start + AT_ONCE].astype(np.int64)
        found[places] = np.arange(start + 1, start + len(places) + 1)
    return found


# Scoring ----------------------------------------------------------------------------------------------------

BATCH_ROWS = 32768
THREADS = 4  # at the most that share the interpreter's lock
WORTH_PROCESSES = 250_000  # rows, in which processes win what their start takes
LISTED = 200  # rows that findings hold with their values, if --top does not ask for more
MAPPED = 3000  # rows in the map of the metric space, besides the listed ones
SCORE, LIKELY, SURE, WORDS = "\0score", "\0likely", "\0sure", "\0words"  # columns of a piece that no table has
RESERVED = ("row", "score", "rank", "is_anomaly", "probability", "confidence", "reasons")


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
        """One of them."""
        place, score, values = int(self.places[at]), float(self.scores[at]), self.values.slice(at, 1)
        return Candidate(place, score, values, self.features[at].copy(), self.reasons[at])


@dataclass(frozen=True)
class Part:
    """What came of one batch."""

    scores: np.ndarray
    likely: np.ndarray  # the probability of an anomaly
    sure: np.ndarray  # how sure the decision is
    carried: pa.RecordBatch  # columns that only pass through: ids, the label
    explained: Explained
    spoken: np.ndarray  # the places in the batch of the rows that are explained
    words: pa.Array  # of these
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
        """Take in the next batch; of the rows to be listed only the most anomalous stay."""
        self.pieces.add(_piece(part))
        self.rows += len(part.scores)
        self._list(part.explained)
        self.sample = part.sample if self.sample is None else self.sample.joined(part.sample, self.most_mapped)

    def _list(self, explained: Explained) -> None:
        """Of equal scores the first row stays, so that only a higher one takes the place of the last."""
        last = self.listed[-1].score if len(self.listed) == self.most_listed else -np.inf
        count = min(int((explained.scores > last).sum()), self.most_listed)
        both = [*self.listed, *map(explained.candidate, range(count))]
        self.listed = sorted(both, key=lambda one: (-one.score, one.place))[: self.most_listed]


def _piece(part: Part) -> pa.RecordBatch:
    """The carried columns, the scores, and the words in the rows that have some."""
    import pyarrow as pa

    places = np.full(len(part.scores), -1)
    places[part.spoken] = np.arange(len(part.spoken))
    words = part.words.take(pa.array(places, mask=places < 0))
    numbers = {SCORE: part.scores, LIKELY: part.likely, SURE: part.sure}
    own = [*part.carried.columns, *map(pa.array, numbers.values()), words]
    return pa.record_batch(own, names=[*part.carried.schema.names, *numbers, WORDS])


def score_all(
    fitted: Fitted,
    batches: Iterable[pa.RecordBatch],
    carried: Sequence[str],
    top: int,
    reasons: int,
    advance: Advance,
    drift: DriftCounter,
    check: Callable[[TextCells], None],
    *,
    rows: int | None = None,
    mapped: bool = True,
    folder: str | None = None,
) -> Scored:
    """Score every batch, several at a time, holding a few.

    `drift` counts them in passing, and `check` may stop at texts in columns of numbers; `rows` is about how many there
    are, where that is known; rows for a map of the metric space are kept only where one is wanted; `folder` is for what
    memory should not hold.
    """
    scored = Scored(max(LISTED, top), MAPPED if mapped else 0, Pieces(folder))
    work = ScorePart(fitted, tuple(carried), top, reasons, scored.most_listed, scored.most_mapped)
    with blas_threads(1):
        for part in _at_once(work, _with_starts(batches), rows):
            scored.add(part)
            if part.counts is not None:
                drift.add(part.counts)
            check(drift.texts)
            advance(len(part.scores))
    return scored


def _with_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _at_once(work: ScorePart, batches: Iterator[Batch], rows: int | None) -> Iterator[Part]:
    """In processes where rows are many and their scores keep threads waiting for each other, else on threads."""
    fitted = work.fitted
    waiting = fitted.threads > 1 and fitted.model.scorer.max_threads <= THREADS
    if waiting and (rows or 0) >= WORTH_PROCESSES:
        sent = replace(work, fitted=replace(fitted, detector=None))  # and nothing that was worked out of it
        with suppress(OSError):  # where a system has no room for them, threads do as well
            return in_processes(sent, batches, fitted.threads)
    return on_threads(work, batches, min(fitted.threads, THREADS))


@dataclass(frozen=True)
class ScorePart:
    """What is done with every batch, and how many of its rows may be listed and mapped."""

    fitted: Fitted
    carried: tuple[str, ...]
    top: int
    reasons: int
    most_listed: int
    most_mapped: int

    def __call__(self, item: Batch) -> Part:
        """Score a batch that so many rows came before, and explain the rows that stand out."""
        start, batch = item
        fitted, drift = self.fitted, self.fitted.drift()
        features = fitted.features(batch, start, drift)
        scores = fitted.scores(features)
        flagged = int((scores > fitted.threshold).sum())
        chosen = highest(scores, max(flagged, self.top))
        rows, own = batch.take(chosen), features[chosen]
        reasons = fitted.reasons(rows, own, self.reasons)
        first = slice(min(self.most_listed, len(chosen)))
        top = chosen[first]
        explained = Explained(top + start, scores[top], batch.take(top), own[first], reasons[first])
        return Part(
            scores,
            fitted.probability(scores),
            fitted.confidence(scores),
            batch.select(list(self.carried)),
            explained,
            chosen,
            reasons.texts(),
            sample_of(features, start, self.most_mapped),
            drift.counts,
        )


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


@dataclass(frozen=True)
class ScoredRows:
    """The scored table, in pieces: ids, row, score, rank, decision, how likely and how sure it is, and the reasons."""

    scored: Scored
    scores: np.ndarray
    fitted: Fitted
    ids: Sequence[str]
    top: int

    def __iter__(self) -> Iterator[pa.Table]:
        start, places = 0, ranks(self.scores)
        for piece in self.scored.pieces:
            yield self._table(piece, start, places[start : start + piece.num_rows])
            start += piece.num_rows

    def _table(self, piece: pa.RecordBatch, start: int, places: np.ndarray) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        scores = piece[SCORE].to_numpy()
        flagged, words = scores > self.fitted.threshold, piece[WORDS]
        wanted = pc.and_(pa.array(flagged | (places <= self.top)), pc.not_equal(words, ""))
        return pa.table(
            {
                **dict(zip(names_beside(self.ids, RESERVED), map(piece.column, self.ids), strict=True)),
                "row": pa.array(np.arange(start + 1, start + len(scores) + 1)),
                "score": piece[SCORE],
                "rank": pa.array(places),
                "is_anomaly": pa.array(flagged),
                "probability": piece[LIKELY],
                "confidence": piece[SURE],
                "reasons": pc.if_else(pc.fill_null(wanted, False), words, None),
            }
        )
