"""Distributed computing: a batch scorer for any engine, and fits and scores on Ray clusters (docs/cluster.md).

A scorer sends only a path and a hash; each process loads the model once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from addml import __version__, model_file
from addml.compute import blas_threads
from addml.errors import AddmlError
from addml.explain import reason_texts
from addml.inputs.frame import as_table
from addml.model import Model
from addml.pipeline.batches import BATCH_ROWS, features_of, reasons_for, scores_of
from addml.pipeline.sources import unclashing_names
from addml.text import TABLE

ADDED = ("score", "is_anomaly", "p_value", "reasons")


@dataclass(frozen=True)
class BatchScorer:
    """Adds score, decision, p-value and reasons to batches of rows, bit-identical to `addml score`.

    Holds the path of a saved model and its hash. Engines copy the scorer to their processes, where another version of
    addml or another model is refused.
    """

    path: str
    digest: str
    reasons: int = 0  # maximum per flagged row
    threshold: float | None = None  # default: the model's
    columns: tuple[str, ...] | None = None  # columns to keep; default: all
    threads: int = 1
    device: str = "cpu"  # scores are bit-identical on the CPU only
    version: str = __version__

    @classmethod
    def of(cls, path: str | os.PathLike[str], **settings: Any) -> BatchScorer:
        """A scorer with a saved table model. Every process must find the model under this path."""
        path = os.path.abspath(os.path.expanduser(path))
        scorer = cls(path, model_file.digest(path), **settings)
        scorer.model  # fail here rather than in the cluster  # noqa: B018
        return scorer

    @property
    def model(self) -> Model:
        """The model, checked against the hash and loaded once per process."""
        check_version(self.version)
        return _loaded(self.path, self.digest)

    def __call__(self, batch: Any) -> Any:
        """Append the results to a batch of Arrow, pandas or polars. Rows keep their order."""
        import narwhals as nw

        if isinstance(batch, pa.RecordBatch):
            table = self(pa.Table.from_batches([batch]))
            return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
        frame = nw.from_native(batch, eager_only=True)
        results = nw.from_arrow(self._results(as_table(batch)), backend=frame.implementation)
        columns = list(frame.columns if self.columns is None else self.columns)
        if not columns:
            return results.to_native()
        names = dict(zip(columns, unclashing_names(columns, ADDED), strict=True))
        return frame.select(columns).rename(names).with_columns(*results.iter_columns()).to_native()

    def stream(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Score an iterator of record batches, as Spark's mapInArrow needs."""
        yield from map(self, batches)

    def _results(self, table: pa.Table) -> pa.Table:
        model = self.model
        threshold = model.threshold if self.threshold is None else self.threshold
        score_blocks, reasons = [np.empty(0)], list[str | None]()
        for batch in table.combine_chunks().to_batches(BATCH_ROWS):
            with blas_threads(self.threads):
                features = features_of(model, batch, 0)
                scores = scores_of(model, batch, features, self.device)
                flagged = np.flatnonzero(scores > threshold)
                texts = reason_texts(reasons_for(model, batch.take(flagged), features[flagged], self.reasons))
            batch_reasons = np.full(len(scores), None)
            batch_reasons[flagged] = [text or None for text in texts.to_pylist()]
            score_blocks.append(scores)
            reasons += batch_reasons.tolist()
        scores = np.concatenate(score_blocks)
        columns = {"score": scores, "is_anomaly": scores > threshold, "p_value": model.training.p_values(scores)}
        return pa.table(columns | ({"reasons": pa.array(reasons, pa.string())} if self.reasons else {}))


def check_version(sender: str) -> None:
    if sender != __version__:
        raise AddmlError(f"this process runs addml {__version__}, the sender {sender}; install one version everywhere.")


@lru_cache(maxsize=8)
def _loaded(path: str, digest: str) -> Model:
    try:
        local_digest = model_file.digest(path)
    except OSError as error:
        remedy = "every machine needs the model under this path"
        raise AddmlError(f"{path}: cannot be read ({error.strerror}); {remedy}.") from None
    if local_digest != digest:
        raise AddmlError(f"{path}: differs from the sender's model; copy the same model to all machines.")
    model = model_file.load(path)
    if model.columns is None or model.kind != TABLE:
        raise AddmlError(f"{path}: is not the model of a table with named columns; fit one with addml fit.")
    return model
