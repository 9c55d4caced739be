"""Two models over one table or series: which rows moved in rank, and which decisions changed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.errors import AddmlError
from addml.pipeline.batches import BATCH_ROWS, drift_of, scored_batches, scoring_place
from addml.pipeline.options import SERIES, TABLE, Options
from addml.pipeline.ranking import ranks
from addml.pipeline.run import load_model
from addml.pipeline.series_source import SeriesSource
from addml.pipeline.sources import check_text, expected_rows, names_beside, on_disk, open_for_model
from addml.pipeline.table_source import use_threads
from addml.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa


FIRST = 100  # ranks whose rows are compared


@dataclass(frozen=True)
class ModelDiff:
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
        names = names_beside(self.ids.column_names, own)
        return pa.table(dict(zip(names, self.ids.columns, strict=True)) | own)

    def to_json(self, top: int) -> dict[str, Any]:
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


def compare_tables(before: str, after: str, options: Options, progress: Progress) -> ModelDiff:
    """Score a table with two saved models, each by its own threshold; ids of the first that knows them."""
    import pyarrow as pa

    use_threads(options.jobs)
    models = [load_model(replace(options, model=folder), TABLE) for folder in (before, after)]
    scores: list[np.ndarray] = []
    ids, texts = None, dict[str, None]()
    with on_disk(options.file) as file:
        own = replace(options, file=file)
        for folder, model in zip((before, after), models, strict=True):
            data, names = open_for_model(own, model, BATCH_ROWS)
            drift, device = drift_of(model), scoring_place(options, model)[0]
            with progress.stage(f"Scoring by {folder}", expected_rows(file, data.rows)) as advance:
                parts = [
                    (one.scores, one.batch.select(names)) for one in scored_batches(model, data, device, advance, drift)
                ]
            check_text(own, drift.texts)
            texts |= dict.fromkeys(drift.texts.words())
            scores.append(np.concatenate([found for found, _ in parts]))
            ids = ids or (pa.Table.from_batches([carried for _, carried in parts]) if names else pa.table({}))
    assert ids is not None
    for sentence in texts:
        warnings.warn(sentence, stacklevel=2)
    if len(scores[0]) != len(scores[1]):
        raise AddmlError(f"{options.source}: has changed between the two models; run it again.")
    thresholds = (models[0].threshold, models[1].threshold)
    return _diff(options, (before, after), (scores[0], scores[1]), thresholds, ids)


def compare_series(before: str, after: str, options: Options, progress: Progress) -> ModelDiff:
    """Score the steps of a series with two saved models, each by its own threshold."""
    scores, reads, thresholds = [], [], []
    with on_disk(options.file) as file:
        for folder in (before, after):
            own = replace(options, file=file, model=folder)
            model = load_model(own, SERIES)
            read, _, found = SeriesSource(own).score(model, progress)
            reads.append(read)
            scores.append(found[read.steps])
            thresholds.append(model.threshold)
    names = (str(options.time), *(reads[0].chosen.ids or reads[1].chosen.ids))
    ids = reads[0].table.select(list(names))
    return _diff(options, (before, after), (scores[0], scores[1]), (thresholds[0], thresholds[1]), ids, "step")


def _diff(
    options: Options,
    models: tuple[str, str],
    scores: tuple[np.ndarray, np.ndarray],
    thresholds: tuple[float, float],
    ids: pa.Table,
    noun: str = "row",
) -> ModelDiff:
    both = (ranks(scores[0]), ranks(scores[1]))
    flagged = (scores[0] > thresholds[0], scores[1] > thresholds[1])
    return ModelDiff(options.source, models, *scores, both, flagged, ids, noun)
