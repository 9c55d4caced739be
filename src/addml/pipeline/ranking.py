"""Scored rows as findings: ranked, grouped by their reasons, and placed on the map of the metric space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from addml.compute import blas_threads
from addml.findings import Finding, Findings, Group, Reason, SpaceMap
from addml.pipeline.batches import SCORE, Candidate, Scored, joined
from addml.pipeline.options import versions

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from addml.pipeline.fitted import Fitted


class Saved(Protocol):
    """A model that can be saved."""

    def save(self, folder: Path) -> None:
        """Write the model to a folder."""
        ...


@dataclass(frozen=True)
class Result:
    """What a run found, the scored table in pieces, and the model."""

    findings: Findings
    scored: Iterable[pa.Table]
    model: Saved


def ranked_findings(
    fitted: Fitted, scored: Scored, ids: Sequence[str], top: int, source: str, notes: Sequence[str]
) -> Findings:
    """The findings of scored rows."""
    from addml.explain import groups

    scores = joined(scored.pieces, SCORE, scored.rows)
    flagged = int((scores > fitted.threshold).sum())
    listed = scored.listed[: max(flagged, top)]
    alike = groups([candidate.reasons for candidate in listed])
    return replace(
        training_findings(fitted, source, notes),
        rows=len(scores),
        scores=scores,
        ranked=_ranked(fitted, listed, ids),
        groups=tuple(Group(columns, words, tuple(place + 1 for place in places)) for columns, words, places in alike),
        space=_space(fitted, scored, listed, scores),
    )


def training_findings(fitted: Fitted, source: str, notes: Sequence[str], **more: Any) -> Findings:
    """The findings of training alone, in which no row is ranked."""
    known: dict[str, Any] = {
        "source": source,
        "rows": 0,
        "columns": fitted.used,
        "left_out": fitted.left_out,
        "notes": tuple(notes),
        "scores": fitted.training.values,
        "threshold": fitted.threshold,
        "decided_by": fitted.decision.words,
        "ranked": (),
        "usual": fitted.usual,
        "history": fitted.history,
        "versions": versions(),
    }
    return Findings(**known | more)


def _ranked(fitted: Fitted, listed: Sequence[Candidate], ids: Sequence[str]) -> tuple[Finding, ...]:
    scores = np.array([candidate.score for candidate in listed])
    likely, sure = fitted.probability(scores).tolist(), fitted.confidence(scores).tolist()
    return tuple(
        _finding(fitted, candidate, rank, ids, likely[rank - 1], sure[rank - 1])
        for rank, candidate in enumerate(listed, start=1)
    )


def _finding(
    fitted: Fitted, candidate: Candidate, rank: int, ids: Sequence[str], probability: float, confidence: float
) -> Finding:
    values = candidate.values.to_pylist()[0]
    return Finding(
        row=candidate.place + 1,
        rank=rank,
        score=candidate.score,
        is_anomaly=candidate.score > fitted.threshold,
        probability=probability,
        confidence=confidence,
        ids={name: values[name] for name in ids},
        values={name: values[name] for name in fitted.used},
        reasons=tuple(Reason(one.column, one.share, one.words) for one in candidate.reasons),
    )


def left_out_epochs(fitted: Fitted, places: np.ndarray | None, ranked: Sequence[Finding]) -> np.ndarray | None:
    """(epochs, len(ranked)): of the members that train on a row, the share that dropped it; NaN where none does."""
    assert fitted.detector is not None
    try:
        kept = fitted.detector.rows_kept()  # (epochs, members, n)
    except ValueError:  # not remembered for so many rows
        return None
    rows = np.array([finding.row - 1 for finding in ranked], np.int64)
    places = np.arange(kept.shape[2]) if places is None else places
    where = np.searchsorted(places, rows).clip(0, len(places) - 1)
    active = np.asarray(kept.any(axis=2))[:, :, None]  # a stopped member keeps no row
    training = (active & ~fitted.detector._held_out[:, where]).sum(axis=1)
    share = 1 - kept[:, :, where].sum(axis=1) / np.maximum(training, 1)
    return np.where((training > 0) & (places[where] == rows), share, np.nan)


def _space(fitted: Fitted, scored: Scored, listed: Sequence[Candidate], scores: np.ndarray) -> SpaceMap | None:
    """Two dimensions in which the rows lie farthest apart: a sample, the listed rows and the centre."""
    if scored.sample is None or not len(scored.sample.places):
        return None
    rows = np.concatenate([scored.sample.places, [one.place for one in listed]]).astype(np.int64)
    rows, first = np.unique(rows, return_index=True)
    features = np.concatenate([scored.sample.features, *[one.features[None] for one in listed]])[first]
    with blas_threads(1):  # a second thread costs more than it brings here
        embedded, center = fitted.embedded(features)
        away = embedded - center
        _, axes = np.linalg.eigh(away.T @ away)
    flat = away @ axes[:, :-3:-1] if away.shape[1] > 1 else np.repeat(away, 2, axis=1) * [1, 0]
    return SpaceMap(flat[:, 0], flat[:, 1], rows + 1, scores[rows], (0.0, 0.0))
