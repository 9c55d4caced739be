"""Two days under one model: kinds of anomaly that are new, grown, gone or as before, each with an identity that lasts.

The kind of a flagged row is what its first reason says without the row's values, within its group: "sales unusually
low". Its identity is a hash of these words, so it is the same on every day and under every model of these columns.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from addml.findings import Hidden
from addml.pipeline.batches import (
    BATCH_ROWS,
    ScoredBatch,
    drift_of,
    highest,
    reasons_for,
    scored_batches,
    scoring_place,
)
from addml.pipeline.known import Known
from addml.pipeline.labels import NORMAL
from addml.pipeline.options import TABLE, Options
from addml.pipeline.run import load_model
from addml.pipeline.sources import check_text, expected_rows, on_disk, open_for_model
from addml.pipeline.table_source import use_threads
from addml.preprocessing.drift import drift_warning
from addml.progress import Progress
from addml.text import without_password

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.model import Model

STATUSES = ("new", "grown", "gone", "fewer", "as before")
CLEARLY = 2.0  # deviations of a difference of counts
EXPECTED = 3.0  # rows, of which one in twenty days has none by chance


@dataclass(frozen=True)
class Example:
    """The strangest row of a kind."""

    row: int  # counted from 1
    ids: dict[str, Any]
    score: float
    words: str


@dataclass(frozen=True)
class Kind:
    """Flagged rows that stand out for the same reason."""

    id: str
    words: str
    before: int  # rows
    after: int
    status: str
    example: Example  # of the second day, or of the first where it is gone


@dataclass(frozen=True)
class DayDiff:
    """The kinds of anomaly of two days."""

    model: str
    files: tuple[str, str]
    rows: tuple[int, int]
    kinds: tuple[Kind, ...]  # new ones first, then those that grew; within these the strangest first
    hidden: tuple[Hidden, ...] = ()  # of the second day, known to be normal

    def flagged(self, day: int) -> int:
        """How many rows are flagged on the first (0) or second day (1)."""
        return sum((one.before, one.after)[day] for one in self.kinds)

    @property
    def counts(self) -> dict[str, int]:
        """How many kinds have each status."""
        return {status: sum(one.status == status for one in self.kinds) for status in STATUSES}

    @property
    def table(self) -> pa.Table:
        """Every kind, for a file."""
        import pyarrow as pa

        own = [{"row": x.example.row, "score": x.example.score, "reason": x.example.words} for x in self.kinds]
        columns = ("id", "words", "before", "after", "status")
        kinds = [{name: getattr(one, name) for name in columns} for one in self.kinds]
        return pa.Table.from_pylist([first | second for first, second in zip(kinds, own, strict=True)])

    def to_json(self, top: int) -> dict[str, Any]:
        """The comparison as plain values, for `--json`."""
        return {
            "model": self.model,
            "files": list(self.files),
            "rows": list(self.rows),
            "flagged": [self.flagged(0), self.flagged(1)],
            "kinds": self.counts,
            "hidden": [asdict(one) for one in self.hidden],
            "listed": [asdict(one) for one in self.kinds[:top]],
        }


def compare_days(model: str, before: str, options: Options, progress: Progress) -> DayDiff:
    """The flagged rows of two files by one saved model, the second being `options.file`."""
    use_threads(options.jobs)
    options = replace(options, model=model)
    fitted = load_model(options, TABLE)
    known = Known.of(options.known_normal, NORMAL)
    first = _scored(fitted, replace(options, file=before), known, progress, is_today=False)
    second = _scored(fitted, options, known, progress, is_today=True)
    rows, words = (len(first.scores), len(second.scores)), {**second.kinds, **first.kinds}
    found = [kind_of(one, first.kinds.get(one, []), second.kinds.get(one, []), rows) for one in words]
    found.sort(key=lambda one: (STATUSES.index(one.status), -one.example.score, one.words))
    hidden = known.hidden(second.known, second.scores, fitted.threshold)
    return DayDiff(model, (without_password(before), options.source), rows, tuple(found), hidden)


class Day(NamedTuple):
    """The rows of a file: scores, the entries by which they are known, and the flagged ones that are not, by kind."""

    scores: np.ndarray
    known: np.ndarray
    kinds: dict[str, list[Example]]  # the strangest of each first


def _scored(model: Model, options: Options, known: Known, progress: Progress, *, is_today: bool) -> Day:
    parts, kinds = list[tuple[np.ndarray, np.ndarray]](), dict[str, list[Example]]()
    drift, device = drift_of(model), scoring_place(options, model)[0]
    with on_disk(options.file) as file:
        own = replace(options, file=file)
        data, ids = open_for_model(own, model, BATCH_ROWS, known.columns)
        known = known.naming_rows(ids, model.by)
        with progress.stage(f"Scoring {options.source}", expected_rows(file, data.rows)) as advance:
            for part in scored_batches(model, data, device, advance, drift):
                codes = known.codes(part.batch, model.columns)
                shown = np.where(codes < 0, part.scores, -np.inf)
                for words, example in _examples(model, part, highest(shown, int((shown > model.threshold).sum())), ids):
                    kinds.setdefault(words, []).append(example)
                parts.append((part.scores, codes))
        check_text(own, drift.texts)
    if is_today:
        for sentence in filter(None, (drift_warning(drift.summary(), hidden=False), *drift.unseen_words)):
            warnings.warn(f"{options.source}: {sentence}", stacklevel=2)
    scores, entries = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
    return Day(scores, entries, {words: sorted(own, key=lambda one: -one.score) for words, own in kinds.items()})


def _examples(
    model: Model, part: ScoredBatch, flagged: np.ndarray, ids: Sequence[str]
) -> Iterator[tuple[str, Example]]:
    """The flagged rows of a batch, each with the words of its kind."""
    rows = part.batch.take(flagged)
    reasons, named = reasons_for(model, rows, part.features[flagged], 1), rows.select(list(ids)).to_pylist()
    for place, own, (reason,) in zip(flagged.tolist(), named or [{}] * len(flagged), reasons, strict=True):
        group = ", ".join(f"{name} {own[name]}" for name in model.by)
        words = f"{group}: {reason.summary}" if group else reason.summary
        yield words, Example(part.start + place + 1, own, float(part.scores[place]), reason.words)


def kind_of(words: str, before: list[Example], after: list[Example], rows: tuple[int, int]) -> Kind:
    """The kind of these rows, of so many rows on each day."""
    identity = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    status = _status(len(before), len(after), rows[1] / max(rows[0], 1))
    return Kind(identity, words, len(before), len(after), status, (after or before)[0])


def _status(before: int, after: int, ratio: float) -> str:
    """What became of a kind, beyond what chance explains of counts; the second day has `ratio` times the rows.

    A kind is gone where at least EXPECTED rows were to be expected; below that none is found by chance.
    """
    if not before:
        return "new"
    if not after:
        return "gone" if before * ratio >= EXPECTED else "fewer"
    away = (after - before * ratio) / math.sqrt(after + before * ratio**2)
    return "grown" if away > CLEARLY else "fewer" if away < -CLEARLY else "as before"
