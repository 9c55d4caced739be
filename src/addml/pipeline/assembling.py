"""What batches gave, put together as findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from addml.compute import blas_threads
from addml.findings import Finding, Findings, Group, Reason, SpaceMap
from addml.pipeline.batches import SCORE, Candidate, Scored, joined
from addml.pipeline.options import Explaining, versions

if TYPE_CHECKING:
    from addml.pipeline.fitted import Fitted


def findings(
    fitted: Fitted, scored: Scored, ids: Sequence[str], explaining: Explaining, source: str, notes: Sequence[str]
) -> Findings:
    """The findings of a run; what only some runs have is filled in by them."""
    from addml.explain import groups

    scores = joined(scored.pieces, SCORE, scored.rows)
    anomalies = int((scores > fitted.threshold).sum())
    listed = scored.listed[: max(anomalies, explaining.top)]
    alike = groups([candidate.reasons for candidate in listed])
    return Findings(
        source=source,
        rows=len(scores),
        columns=fitted.used,
        left_out=fitted.left_out,
        notes=tuple(notes),
        scores=scores,
        threshold=fitted.threshold,
        decided_by=fitted.decision.words,
        ranked=_ranked(fitted, listed, ids),
        groups=tuple(Group(columns, words, tuple(place + 1 for place in places)) for columns, words, places in alike),
        usual=fitted.usual,
        history=fitted.history,
        space=_space(fitted, scored, listed, scores),
        versions=versions(),
    )


def without_rows(fitted: Fitted, source: str, notes: Sequence[str]) -> Findings:
    """The findings of training alone."""
    return Findings(
        source=source,
        rows=0,
        columns=fitted.used,
        left_out=fitted.left_out,
        notes=tuple(notes),
        scores=fitted.training.values,
        threshold=fitted.threshold,
        decided_by=fitted.decision.words,
        ranked=(),
        usual=fitted.usual,
        history=fitted.history,
        versions=versions(),
    )


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


def in_order(left_out: Sequence[tuple[str, str]], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What was left out, in the order of the table's columns."""
    place = {name: number for number, name in enumerate(names)}
    return tuple(sorted(left_out, key=lambda one: place.get(one[0], len(place))))


def dropped(fitted: Fitted, places: np.ndarray | None, ranked: Sequence[Finding]) -> np.ndarray | None:
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
