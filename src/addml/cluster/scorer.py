"""One scorer for all engines: a path and a hash travel, the model is loaded once per process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from addml import __version__, model_file
from addml.compute import blas_threads
from addml.errors import AddmlError
from addml.explain import reason_texts
from addml.inputs.frame import as_table
from addml.pipeline.batches import BATCH_ROWS, features_of, reasons_for, scores_of
from addml.pipeline.sources import names_beside

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.model import Model

ADDED = ("score", "is_anomaly", "p_value", "reasons")


@dataclass(frozen=True)
class BatchScorer:
    """Adds score, decision, p-value and reasons to batches of rows, with the bits of `addml score`.

    It holds the path of a saved model and the hash of its description, which names the hash of the weights. Engines
    copy it to their processes; one whose addml or whose model file differs refuses to score.
    """

    path: str
    digest: str
    reasons: int = 0  # of a flagged row, at most
    threshold: float | None = None  # that of the model
    columns: tuple[str, ...] | None = None  # that are kept beside the results; all of them
    threads: int = 1
    device: str = "cpu"  # bits are those of `addml score` on the CPU alone
    version: str = __version__

    @classmethod
    def of(cls, path: str | os.PathLike[str], **settings: Any) -> BatchScorer:
        """The scorer of a saved model of a table, which every process must find under this path."""
        where = os.path.abspath(os.path.expanduser(path))
        scorer = cls(where, digest_of(where), **settings)
        scorer.model  # a model that cannot be used is refused here, not in the cluster  # noqa: B018
        return scorer

    @property
    def model(self) -> Model:
        """The model, loaded once per process and checked against the hash."""
        check_version(self.version)
        return _loaded(self.path, self.digest)

    def __call__(self, batch: Any) -> Any:
        """A batch of Arrow, pandas or polars with the results behind its columns; rows keep their order."""
        import pyarrow as pa

        table = as_table(batch)
        kept = list(table.column_names if self.columns is None else self.columns)
        results = self._results(table)
        names = dict(zip(kept, names_beside(kept, ADDED), strict=True))
        if isinstance(batch, pa.Table | pa.RecordBatch):
            whole = pa.table({**{names[name]: table[name] for name in kept}, **results})
            if isinstance(batch, pa.Table):
                return whole
            return pa.record_batch([column.combine_chunks() for column in whole.columns], schema=whole.schema)
        import narwhals as nw

        frame = nw.from_native(batch, eager_only=True)
        new = (
            nw.new_series(name, one.to_pylist(), _dtype(one), backend=frame.implementation)
            for name, one in results.items()
        )
        return frame.select(kept).rename(names).with_columns(*new).to_native()

    def stream(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Record batches in, record batches out, as Spark's mapInArrow wants it."""
        yield from map(self, batches)

    def _results(self, table: pa.Table) -> dict[str, pa.Array]:
        import pyarrow as pa

        parts = [self._scored(part) for part in table.combine_chunks().to_batches(BATCH_ROWS) if part.num_rows]
        scores = np.concatenate([np.empty(0), *(part[0] for part in parts)])
        words = [word for part in parts for word in part[1]]
        own = [scores, scores > self._tau, self.model.training.p_values(scores), pa.array(words, pa.string())]
        return {name: pa.array(value) for name, value in zip(ADDED, own[: len(own) - (not self.reasons)], strict=False)}

    @property
    def _tau(self) -> float:
        return self.model.threshold if self.threshold is None else self.threshold

    def _scored(self, batch: pa.RecordBatch) -> tuple[np.ndarray, list[str | None]]:
        """The scores of some rows, and the reasons of the flagged ones among them."""
        model = self.model
        with blas_threads(self.threads):
            features = features_of(model, batch, 0)
            scores = scores_of(model, batch, features, self.device)
            flagged = np.flatnonzero(scores > self._tau) if self.reasons else np.empty(0, np.int64)
            words = reason_texts(reasons_for(model, batch.take(flagged), features[flagged], self.reasons))
        found: list[str | None] = [None] * len(scores)
        for row, text in zip(flagged, words.to_pylist(), strict=True):
            found[row] = text or None
        return scores, found


def check_version(sender: str) -> None:
    """Refuse work that another version of addml has sent."""
    if sender != __version__:
        raise AddmlError(
            f"this process runs addml {__version__}, the one that sent the work {sender}; "
            "install one version on all machines."
        )


def digest_of(path: str) -> str:
    """The hash of a model's description, which names the hash of its weights."""
    file = Path(path) / "model.json"
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise AddmlError(
            f"{file}: cannot be read ({error.strerror}); every machine needs the model under this path."
        ) from None


@lru_cache(maxsize=8)
def _loaded(path: str, digest: str) -> Model:
    if digest_of(path) != digest:
        raise AddmlError(f"{path}: is another model than the one that was sent; copy one model to all machines.")
    model = model_file.load(path)
    if model.columns is None or model.form is not None:
        raise AddmlError(f"{path}: is no model of a table with named columns; fit it to one: addml fit.")
    return model


def _dtype(array: pa.Array) -> Any:
    import narwhals as nw

    return {"double": nw.Float64, "bool": nw.Boolean, "string": nw.String}[str(array.type)]
