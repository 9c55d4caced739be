"""Two models over one table or series: which rows moved in rank, and which decisions changed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.compute import blas_threads
from addml.errors import UserError
from addml.pipeline import series_source
from addml.pipeline.batches import BATCH_ROWS, ranks
from addml.pipeline.fitted import Fitted
from addml.pipeline.options import Deciding, Settings, Using
from addml.pipeline.run import use_threads
from addml.pipeline.sources import beside, expected_rows, on_disk, open_for_model, refuse_text, shown
from addml.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.inputs.table import DriftCounter

FIRST = 100  # ranks whose rows are compared


@dataclass(frozen=True)
class Moved:
    """The scores of the rows of a table by two models, their ranks (1 is the highest) and decisions."""

    source: str
    models: tuple[str, str]
    before: np.ndarray
    after: np.ndarray
    ranks: tuple[np.ndarray, np.ndarray]
    flagged: tuple[np.ndarray, np.ndarray]
    ids: pa.Table
    noun: str = "row"

    @property
    def first(self) -> int:
        """How many of the highest ranks are compared."""
        return min(FIRST, len(self.before))

    @property
    def shared(self) -> int:
        """How many rows are among them by both models."""
        return int(((self.ranks[0] <= self.first) & (self.ranks[1] <= self.first)).sum())

    @property
    def agreement(self) -> float:
        """Spearman's correlation, equal scores sharing a rank; 1 where both models rank nothing, 0 where one does."""
        before, after = (_shared_ranks(scores) for scores in (self.before, self.after))
        spreads = float(before @ before), float(after @ after)
        if not all(spreads):
            return float(not any(spreads))
        return float(before @ after / np.sqrt(spreads[0] * spreads[1]))

    @property
    def decision(self) -> np.ndarray:
        """What became of each row: "new", "gone", "anomaly" or "normal"."""
        before, after = self.flagged
        return np.select([after & ~before, before & ~after, before], ["new", "gone", "anomaly"], "normal")

    def order(self) -> np.ndarray:
        """Rows by how much they moved: changed decisions first, then by the ratio of their ranks."""
        changed = self.flagged[0] != self.flagged[1]
        moved = abs(np.log(self.ranks[1] / self.ranks[0]))
        return np.lexsort((np.minimum(*self.ranks), -moved, ~changed))

    def listed(self, top: int) -> list[dict[str, Any]]:
        """The rows that moved most, without those that did not move."""
        decision = self.decision
        still = (self.ranks[0] == self.ranks[1]) & (self.flagged[0] == self.flagged[1])
        places = [int(place) for place in self.order()[:top] if not still[place]]
        return [
            {
                "row": place + 1,
                "ids": {name: self.ids[name][place].as_py() for name in self.ids.column_names},
                "rank_before": int(self.ranks[0][place]),
                "rank_after": int(self.ranks[1][place]),
                "score_before": float(self.before[place]),
                "score_after": float(self.after[place]),
                "decision": str(decision[place]),
            }
            for place in places
        ]

    @property
    def table(self) -> pa.Table:
        """Every row, for a file; an id with the name of a column of ours is called `id_NAME`."""
        import pyarrow as pa

        own = {
            "row": np.arange(1, len(self.before) + 1),
            "score_before": self.before,
            "rank_before": self.ranks[0],
            "is_anomaly_before": self.flagged[0],
            "score_after": self.after,
            "rank_after": self.ranks[1],
            "is_anomaly_after": self.flagged[1],
            "decision": self.decision.tolist(),
        }
        names = beside(self.ids.column_names, own)
        return pa.table(dict(zip(names, self.ids.columns, strict=True)) | own)

    def summary(self, top: int) -> dict[str, Any]:
        """The comparison as plain values, for `--json`."""
        decision = self.decision
        return {
            "source": self.source,
            "models": list(self.models),
            "rows": len(self.before),
            "rank_agreement": self.agreement,
            "compared_first": self.first,
            "shared_first": self.shared,
            "decisions": {name: int((decision == name).sum()) for name in ("new", "gone", "anomaly", "normal")},
            "moved": self.listed(top),
        }


def _shared_ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of every score, less the mean of all; equal scores share the middle one of theirs."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count + len(scores)) / 2
    return np.asarray(middle[place])


def compare_models(before: str, after: str, settings: Settings, progress: Progress) -> Moved:
    """Score a file by two saved models, each by its own threshold; the steps of a series where a time is named."""
    if settings.timing.time is not None:
        return _compare_series(before, after, settings, progress)
    use_threads(settings.computing)
    models = [Fitted.load(folder, settings.computing, Deciding()) for folder in (before, after)]
    scores: list[np.ndarray] = []
    ids, texts = None, dict[str, None]()
    with on_disk(settings.file) as file:
        for folder, fitted in zip((before, after), models, strict=True):
            data, names = open_for_model(replace(settings, file=file), fitted, BATCH_ROWS)
            with progress.stage(f"Scoring by {folder}", expected_rows(file, data.rows)) as advance, blas_threads(1):
                drift = fitted.drift()
                found, carried = _scored(data, fitted, [] if ids else names, advance, drift)
            refuse_text(replace(settings, file=file), drift.texts)
            texts |= dict.fromkeys(drift.texts.words())
            scores.append(found)
            ids = ids or carried  # of the first model that knows what names a row
    assert ids is not None
    for sentence in texts:
        warnings.warn(sentence, stacklevel=2)
    if len(scores[0]) != len(scores[1]):
        raise UserError(f"{shown(settings.file)}: has changed between the two models; run it again.")
    both = (ranks(scores[0]), ranks(scores[1]))
    flagged = (scores[0] > models[0].threshold, scores[1] > models[1].threshold)
    return Moved(shown(settings.file), (before, after), scores[0], scores[1], both, flagged, ids)


def _compare_series(before: str, after: str, settings: Settings, progress: Progress) -> Moved:
    with on_disk(settings.file) as file:
        own = [replace(settings, file=file, using=Using(folder)) for folder in (before, after)]
        (first, read, old), (second, other, new) = (series_source.scored(one, progress) for one in own)
    names = (str(settings.timing.time), *(read.chosen.ids or other.chosen.ids))
    flagged = (old > first.threshold_, new > second.threshold_)
    both, ids = (ranks(old), ranks(new)), read.table.select(list(names))
    return Moved(shown(settings.file), (before, after), old, new, both, flagged, ids, "step")


def _scored(
    data: Any, fitted: Fitted, ids: list[str], advance: Any, drift: DriftCounter
) -> tuple[np.ndarray, pa.Table]:
    import pyarrow as pa

    scores, carried, start = [], [], 0
    for batch in data:
        scores.append(fitted.scores(fitted.features(batch, start, drift)))
        carried.append(batch.select(ids))
        start += batch.num_rows
        advance(batch.num_rows)
    return np.concatenate(scores), pa.Table.from_batches(carried) if ids else pa.table({})
