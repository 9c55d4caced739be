"""Scored rows: collected batch by batch, then ranked and grouped by their reasons."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrays import empty_beside, folder_of, mapped
from addml.decisions.decision import FLAG, MAX_FALSE_ALARMS, PER_DAY, Decision, budget_threshold, discovery_threshold
from addml.explain import Reason as ColumnReason
from addml.explain import groups
from addml.findings import Finding, Findings, Group, Hidden, Reason, Usual, versions
from addml.model import Model
from addml.pipeline.options import Options
from addml.pipeline.sources import unclashing_names
from addml.preprocessing.profile import DriftCounter
from addml.text import TABLE

IN_MEMORY = 256 << 20  # bytes
AT_ONCE = 1 << 20  # rows
LISTED = 200  # rows that findings hold with their values, unless --top asks for more
SCORE, WORDS, KNOWN = "\0score", "\0words", "\0known"  # columns added to a piece; no table has these names
RESERVED = ("row", "score", "rank", "is_anomaly", "p_value", "probability", "reasons", "known")


class Candidate(NamedTuple):
    """A row that may be listed."""

    row_index: int  # counted from 0
    score: float
    values: dict[str, Any]
    reasons: tuple[ColumnReason, ...]


class Part(NamedTuple):
    piece: pa.RecordBatch
    listed: list[Candidate]  # highest score first
    drift: DriftCounter | None = None


class Scored:
    """The results of all batches so far: the rows to list, and a piece per batch, spooled to `folder` when large."""

    def __init__(self, most_listed: int, folder: str | None = None) -> None:
        self.most_listed, self.rows, self.listed = most_listed, 0, list[Candidate]()
        self.folder = folder or tempfile.gettempdir()
        self._writer: Any = None
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=folder)  # noqa: SIM115

    def add(self, part: Part) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), part.piece.schema)
        self._writer.write_batch(part.piece)
        self.rows += part.piece.num_rows
        merged = sorted([*self.listed, *part.listed], key=lambda row: (-row.score, row.row_index))
        self.listed = merged[: self.most_listed]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The pieces; can be repeated."""
        if self._writer is not None:
            self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(pa.PythonFile(self._file, "r"))

    def column(self, name: str) -> np.ndarray:
        """A numeric column of all pieces as an array, memory-mapped if large."""
        is_large = self.rows * 8 > IN_MEMORY
        column = mapped(self.folder, (self.rows,), np.float64) if is_large else np.empty(self.rows)
        start = 0
        for piece in self:
            column[start : start + piece.num_rows] = piece[name].to_numpy()
            start += piece.num_rows
        return column


def piece_of(
    scores: np.ndarray, carried: pa.RecordBatch, explained: np.ndarray, words: pa.Array, known: np.ndarray | None = None
) -> pa.RecordBatch:
    """Passed-through columns, scores, reasons (`words`, of the `explained` rows) and codes of known entries."""
    indices = np.full(len(scores), -1)  # of the words of each row
    indices[explained] = np.arange(len(explained))
    codes = np.full(len(scores), -1) if known is None else known
    added = [pa.array(scores), words.take(pa.array(indices, mask=indices < 0)), pa.array(codes.astype(np.int32))]
    return pa.record_batch([*carried.columns, *added], names=[*carried.schema.names, SCORE, WORDS, KNOWN])


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Indices of the highest scores in descending order; ties in row order."""
    indices = np.arange(len(scores))
    if count < len(scores):
        indices = np.sort(np.argpartition(-scores, count)[:count])
    return indices[np.argsort(-scores[indices], kind="stable")]


@dataclass(frozen=True)
class Result:
    findings: Findings
    scored: Iterable[pa.Table]  # the scored table in pieces
    model: Model
    maps: Iterable[tuple[str, bytes]] = ()  # file names and PNG contents, made lazily


def with_batch_threshold(model: Model, scores: np.ndarray, options: Options, days: int = 0) -> Model:
    """Apply the options whose threshold depends on all scored rows: a row budget or a limit of false alarms."""
    if options.max_false_alarms is not None:
        tau = discovery_threshold(scores, model.training.calibration, options.max_false_alarms)
        decision = Decision(tau, MAX_FALSE_ALARMS, options.max_false_alarms)
    elif options.flag is not None:
        decision = Decision(budget_threshold(scores, options.flag), FLAG, options.flag)
    elif options.per_day is not None:
        decision = Decision(budget_threshold(scores, options.per_day * days), PER_DAY, options.per_day)
    else:
        return model
    return replace(model, decision=decision)


def ranked_findings(
    model: Model,
    listed: Sequence[Candidate],
    scores: np.ndarray,
    ids: Sequence[str],
    top: int,
    source: str,
    notes: Sequence[str],
    *,
    are_new: bool,
    hidden: Sequence[Hidden] = (),
) -> Findings:
    """The findings of scored rows; `are_new` says that they are not the training rows."""
    flagged = int((scores > model.threshold).sum()) - sum(entry.rows for entry in hidden)
    listed = listed[: max(flagged, top)]
    similar = groups([candidate.reasons for candidate in listed])
    return replace(
        training_findings(model, source, notes),
        rows=len(scores),
        scores=scores,
        ranked=_ranked(model, listed, ids, scores if are_new else None),
        least_p_value=1 / (1 + len(model.training.calibration)) if are_new else 0.0,
        clear=int((scores > model.training.clear).sum()),
        groups=tuple(Group(columns, words, tuple(i + 1 for i in indices)) for columns, words, indices in similar),
        hidden=tuple(hidden),
    )


def training_findings(model: Model, source: str, notes: Sequence[str], **more: Any) -> Findings:
    """The findings of training alone; no row is ranked."""
    values: dict[str, Any] = {
        "source": source,
        "rows": 0,
        "columns": tuple(model.used),
        "left_out": () if model.columns is None else tuple(model.columns.left_out),
        "notes": tuple(notes),
        "scores": model.training.values,
        "threshold": model.threshold,
        "decided_by": model.decision.words_for(model.vectorizer.noun),
        "ranked": (),
        "usual": tuple(map(Usual.of, model.profiles)),
        "history": tuple(model.history),
        "versions": versions(),
    }
    return Findings(**values | more)


def _ranked(
    model: Model, listed: Sequence[Candidate], ids: Sequence[str], batch: np.ndarray | None
) -> tuple[Finding, ...]:
    p_values, probabilities = model.training.rarity(np.array([row.score for row in listed]), batch)
    is_array = model.columns is None and model.kind == TABLE
    return tuple(
        Finding(
            row=row.row_index + 1,
            rank=i + 1,
            score=row.score,
            is_anomaly=row.score > model.threshold,
            p_value=float(p_values[i]),
            probability=float(probabilities[i]),
            ids={name: row.values[name] for name in ids},
            values=row.values if is_array else {name: row.values[name] for name in model.used},
            reasons=tuple(Reason(reason.column, reason.share, reason.words) for reason in row.reasons),
        )
        for i, row in enumerate(listed)
    )


def scored_tables(
    scored: Scored,
    scores: np.ndarray,
    model: Model,
    ids: Sequence[str],
    top: int,
    known: Sequence[str] = (),
    *,
    are_new: bool,
) -> Iterator[pa.Table]:
    """The scored table, in pieces; `known`: descriptions of the entries that mark rows as known."""
    start, all_ranks, names = 0, ranks(scores), unclashing_names(ids, RESERVED)
    for piece in scored:
        score, codes, words = piece[SCORE].to_numpy(), piece[KNOWN].to_numpy(), piece[WORDS]
        rank = all_ranks[start : start + len(score)]
        p_values, probabilities = model.training.rarity(score, scores if are_new else None)
        flagged = (score > model.threshold) & (codes < 0)
        has_reasons = pc.and_(pa.array(flagged | (rank <= top)), pc.not_equal(words, ""))
        yield pa.table(
            {
                **dict(zip(names, map(piece.column, ids), strict=True)),
                "row": pa.array(np.arange(start + 1, start + len(score) + 1)),
                "score": piece[SCORE],
                "rank": pa.array(rank),
                "is_anomaly": pa.array(flagged),
                "p_value": pa.array(p_values),
                "probability": pa.array(probabilities),
                "reasons": pc.if_else(pc.fill_null(has_reasons, False), words, None),
                **({"known": pa.array(known).take(pa.array(codes, mask=codes < 0))} if known else {}),
            }
        )
        start += len(score)


def ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of every score: 1 is the highest; ties in row order."""
    result = empty_beside(scores.shape, np.int64, scores)
    if folder_of(scores) is None:
        result[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
        return result
    keys = empty_beside(
        scores.shape, np.complex128, scores
    )  # (-score, row) as a complex number: sorts in place on disk
    for start in range(0, len(scores), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        keys.real[part], keys.imag[part] = -scores[part], np.arange(start, start + len(scores[part]))
    keys.sort()
    for start in range(0, len(scores), AT_ONCE):
        rows = keys.imag[start : start + AT_ONCE].astype(np.int64)
        result[rows] = np.arange(start + 1, start + len(rows) + 1)
    return result


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's correlation of two scorings of the same rows; with constant scores, 1 if both are constant, else 0."""
    from scipy.stats import spearmanr

    is_constant = np.ptp(a) == 0, np.ptp(b) == 0
    return float(all(is_constant)) if any(is_constant) else float(spearmanr(a, b).statistic)
