"""Rows through a fitted detector, a batch at a time: scores of all, reasons for those that stand out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from addml.compute import blas_threads
from addml.detection.progress import Advance
from addml.detection.settings import Explaining

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.data.columns import DriftCounter
    from addml.detection.fitted import Fitted
    from addml.explain import Reason

BATCH_ROWS = 32768
LISTED = 200  # rows that findings hold with their values, if --top does not ask for more
MAPPED = 3000  # rows in the map of the metric space, besides the listed ones
RESERVED = ("row", "score", "rank", "is_anomaly", "reasons")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Candidate:
    """A row that may be listed, with its values."""

    place: int  # from 0
    score: float
    values: pa.RecordBatch  # of one row
    numbers: np.ndarray  # (d,), as the model sees it
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Sample:
    """Some rows as the model sees them, each with the random number that keeps it."""

    keys: np.ndarray
    places: np.ndarray
    numbers: np.ndarray  # (k, d)

    def joined(self, other: Sample, most: int) -> Sample:
        """The rows of both with the smallest keys."""
        keys, places, numbers = (
            np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)
        )
        kept = np.sort(np.argsort(keys)[:most])
        return Sample(keys[kept], places[kept], numbers[kept])


@dataclass(frozen=True)
class Part:
    """What came of one batch."""

    scores: np.ndarray
    carried: pa.RecordBatch  # columns that only pass through: ids, the label
    explained: np.ndarray  # places of rows with words
    words: list[str]
    listed: list[Candidate]
    sample: Sample


@dataclass
class Scored:
    """What came of all batches so far."""

    most_listed: int
    most_mapped: int
    scores: list[np.ndarray] = field(default_factory=list)
    carried: list[pa.RecordBatch] = field(default_factory=list)
    explained: list[np.ndarray] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    listed: list[Candidate] = field(default_factory=list)
    sample: Sample | None = None

    def add(self, part: Part) -> None:
        """Take in the next batch; of the rows to be listed only the most anomalous stay."""
        self.scores.append(part.scores)
        self.carried.append(part.carried)
        self.explained.append(part.explained)
        self.words += part.words
        both = sorted([*self.listed, *part.listed], key=lambda one: (-one.score, one.place))
        self.listed = both[: self.most_listed]
        self.sample = part.sample if self.sample is None else self.sample.joined(part.sample, self.most_mapped)


def score_all(
    fitted: Fitted,
    batches: Iterable[pa.RecordBatch],
    carried: Sequence[str],
    explaining: Explaining,
    advance: Advance,
    drift: DriftCounter | None = None,
    mapped: bool = True,
) -> Scored:
    """Score every batch on as many threads as allowed, holding a few at a time.

    `drift` counts them in passing; rows for a map of the metric space are kept only where one is wanted.
    """
    scored = Scored(max(LISTED, explaining.top), MAPPED if mapped else 0)

    def work(item: tuple[int, pa.RecordBatch]) -> Part:
        return _score_part(fitted, item[1], item[0], carried, explaining, drift, scored.most_mapped)

    with blas_threads(1):
        for part in in_order(work, _with_starts(batches), fitted.threads):
            scored.add(part)
            advance(len(part.scores))
    return scored


def _with_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """The results in the order of the items, a few of which are worked on at the same time."""
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # after a failure or an interrupt the others need not begin
            for one in waiting:
                one.cancel()


def _score_part(
    fitted: Fitted,
    batch: pa.RecordBatch,
    start: int,
    carried: Sequence[str],
    explaining: Explaining,
    drift: DriftCounter | None,
    most_mapped: int,
) -> Part:
    numbers = fitted.numbers(batch, start, drift)
    scores = fitted.scores(numbers)
    flagged = int((scores > fitted.threshold).sum())
    chosen = highest(scores, max(flagged, explaining.top))
    rows = batch.take(chosen)
    reasons = fitted.reasons(rows, numbers[chosen], explaining.reasons)
    listed = [
        Candidate(start + int(place), float(scores[place]), rows.slice(at, 1), numbers[place].copy(), reasons[at])
        for at, place in enumerate(chosen[: max(LISTED, explaining.top)])
    ]
    words = ["; ".join(reason.words for reason in of_row) for of_row in reasons]
    return Part(
        scores, batch.select(list(carried)), chosen + start, words, listed, _sample(numbers, start, most_mapped)
    )


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores, the highest first, of equal ones the first first."""
    places = np.arange(len(scores))
    if count < len(scores):
        places = np.sort(np.argpartition(-scores, count)[:count])
    return places[np.argsort(-scores[places], kind="stable")]


def _sample(numbers: np.ndarray, start: int, most: int) -> Sample:
    keys = np.random.default_rng([start, 2]).random(len(numbers) if most else 0)
    kept = np.sort(np.argpartition(keys, most)[:most]) if len(keys) > most else np.arange(len(keys))
    return Sample(keys[kept], kept + start, numbers[kept])


def scored_table(scored: Scored, scores: np.ndarray, threshold: float, ids: Sequence[str], top: int) -> pa.Table:
    """The ids, row, score, rank, decision and, where there are some, the reasons in words."""
    import pyarrow as pa

    ranks = np.empty(len(scores), np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    carried = pa.Table.from_batches(scored.carried)
    columns = {f"id_{name}" if name in RESERVED else name: carried[name] for name in ids}
    return pa.table(
        {
            **columns,
            "row": pa.array(np.arange(1, len(scores) + 1)),
            "score": pa.array(scores),
            "rank": pa.array(ranks),
            "is_anomaly": pa.array(scores > threshold),
            "reasons": _reason_column(scored, scores > threshold, ranks <= top),
        }
    )


def _reason_column(scored: Scored, flagged: np.ndarray, top: np.ndarray) -> pa.Array:
    """The words in the rows that are flagged or listed, nothing in the others."""
    import pyarrow as pa

    explained = np.concatenate(scored.explained)
    wanted = (flagged | top)[explained] & np.array([bool(words) for words in scored.words], bool)
    places = np.full(len(flagged), -1)
    places[explained[wanted]] = np.flatnonzero(wanted)
    return pa.array(scored.words, pa.string()).take(pa.array(places, mask=places < 0))
