"""A fitted detector as the commands need it: tables in; numbers, scores and reasons out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from addml import model_file, parameters
from addml.arrow import as_text
from addml.compute import max_threads, resolve_device
from addml.decisions.decision import BY_HAND, OWN_ARRAYS, Decision, TrainingScores
from addml.decisions.thresholds import METHODS, WITH_SHARE
from addml.errors import UserError
from addml.explain import ColumnProfile, Reasons, attributions, columns_of, reasons
from addml.findings import Usual
from addml.inputs.image import heat_map
from addml.inputs.table import CellError, Columns, DriftCounter, Standardised
from addml.model import MetricModel
from addml.pipeline import usual
from addml.pipeline.options import Options as Computing
from addml.pipeline.options import Options as Deciding
from addml.plain import ids_from_plain, record_from_plain
from addml.text import did_you_mean, listed
from addml.text_formats import PLAIN_NUMBERS

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from addml.detector import ADDML

TRIED = 8  # columns of a row whose replacement is worked out, the farthest from the usual
CLOSELY = 64  # rows of a batch, those of the highest scores, for which all columns are tried
IDENTIFIER = "identifier"  # how the reason begins for which such a column is left out


@dataclass(frozen=True)
class Fitted:
    """A model that was fitted to a table, its training, and what is usual in the columns of that table."""

    model: MetricModel
    center: np.ndarray  # (E, w)
    training: TrainingScores
    history: tuple[dict[str, Any], ...]
    decision: Decision
    device: str
    threads: int  # how many batches are worked on at once
    usual_columns: Sequence[ColumnProfile] = ()
    detector: ADDML | None = None  # where it was just trained
    baseline: np.ndarray | None = None  # the usual row as the encoder takes it
    ids: tuple[str, ...] = ()  # the columns that name a row, where the user said which

    @classmethod
    def of(cls, detector: ADDML, table: pa.Table | None = None) -> Fitted:
        """A detector that was just fitted to this table, to rows on disk or to images."""
        training, device = detector.training_, resolve_device(detector.device)
        history, threads = tuple(detector.history_), _threads(device, detector.n_jobs)
        fitted = cls(detector.model_, detector.center_, training, history, detector.decision_, device, threads)
        fitted = replace(fitted, detector=detector, baseline=detector.baseline_, ids=detector._ids)
        if fitted.model.columns is None:
            return fitted
        normal = None if table is None else table.filter(training.values <= fitted.threshold)
        return replace(fitted, usual_columns=usual.usual_columns(fitted.columns, normal))

    @classmethod
    def load(cls, folder: str, computing: Computing, deciding: Deciding) -> Fitted:
        """A saved model, with another threshold if one is asked for; without scikit-learn, a second of imports."""
        document, arrays = model_file.load(folder)
        with model_file.told(folder, document):
            own = {name: arrays.pop(name) for name in OWN_ARRAYS}
            model = MetricModel.from_plain(document, arrays)
            history = tuple(map(record_from_plain, document["history"]))
            training = TrainingScores.from_plain(document, own)
            present, ids = Decision.from_plain(document), ids_from_plain(document)
        decision = _decided(present, training, deciding)
        if model.form is not None and model.form.is_series:
            raise UserError(
                f"{folder}: was trained on a series, which addml score, evaluate and diff take with --time NAME."
            )
        if model.columns is None and model.form is None:
            raise UserError(f"{folder}: was fitted to an array without named columns; fit it to a table: addml fit.")
        device = _device(computing.device, model)
        known = () if model.columns is None else usual.load_columns(folder, document["weights"], model.columns)
        rest = (_threads(device, computing.jobs), known, None, own["baseline"], ids)
        return cls(model, own["center"], training, history, decision, device, *rest)

    def save(self, folder: Path) -> None:
        """Write the model, and beside it what is usual."""
        assert self.detector is not None
        self.detector.save(folder)
        if self.model.columns is not None:
            usual.save(folder, self.usual_columns)

    # What it decides ----------------------------------------------------------------------------------------

    @property
    def threshold(self) -> float:
        """Scores above it are anomalies."""
        return self.decision.tau

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """Of an anomaly, for each score."""
        return self.training.probability(scores)

    def confidence(self, scores: np.ndarray) -> np.ndarray:
        """How often each decision would be the same with other training rows."""
        return self.training.stability(scores, self.threshold)

    # What it is ---------------------------------------------------------------------------------------------

    @property
    def columns(self) -> Columns:
        """How the columns of a table become numbers."""
        if self.model.columns is None:
            raise UserError("the model was fitted to a folder of images, not to a table; score such a folder.")
        return self.model.columns

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that it was trained on."""
        return () if self.model.columns is None else tuple(self.columns.used)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """The columns that were given and not trained on, with the reasons."""
        return () if self.model.columns is None else tuple(self.columns.left_out)

    def identifiers(self, names: Sequence[str]) -> list[str]:
        """The columns among these that name a row: those that the user named, or those that were found."""
        found = [name for name, why in self.left_out if why.startswith(IDENTIFIER)]
        return [name for name in self.ids if name in names] or [name for name in found if name in names]

    @property
    def usual(self) -> tuple[Usual, ...]:
        """What is usual in each column, in words."""
        return tuple(map(usual.described, self.usual_columns))

    # A table to be scored -----------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The types in which a text file is to be read: those of training."""
        import pyarrow as pa

        documents = self.columns.to_plain()["columns"]
        return pa.schema([(document["name"], _type_of(document)) for document in documents])

    def check_columns(self, names: Sequence[str], source: str) -> None:
        """Every column of training must be there."""
        missing = [name for name in self.used if name not in set(names)]
        if missing:
            hint = did_you_mean(missing[0], names)
            raise UserError(f"{source}: has no column {listed(list(map(repr, missing)))}, which the model needs.{hint}")

    def drift(self) -> DriftCounter:
        """A count of what is scored, against training."""
        return DriftCounter(self.columns)

    # Rows ---------------------------------------------------------------------------------------------------

    def features(self, batch: pa.RecordBatch, start: int, drift: DriftCounter | None) -> np.ndarray:
        """The rows as the encoder takes them (n, d'), float32; `start` rows came before them."""
        try:
            return self._standardised.transform(batch, drift)
        except CellError as error:
            error.row += start
            raise

    def scores(self, features: np.ndarray) -> np.ndarray:
        """One score a row (n,)."""
        return self._model.scores(features, self.device, 1)

    def embedded(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The members' embeddings side by side (n, E w), in deviations of each, and their centres (E w,)."""
        center = self.center
        embedded = self._model.embeddings(features, self.device, 1).reshape(len(features), *center.shape)
        spread = np.sqrt(((embedded - center) ** 2).sum(axis=2).mean(axis=0))[:, None]
        spread = np.where(spread > 0, spread, 1)
        return (embedded / spread).reshape(len(features), -1), (center / spread).reshape(-1)

    def reasons(self, batch: pa.RecordBatch, features: np.ndarray, most: int) -> Reasons:
        """Why each row of a batch, which has these features, stands out."""
        if not most or not batch.num_rows:
            return Reasons.none(batch.num_rows)
        return reasons(
            self._model,
            features,
            self._baseline,
            self._origins,
            self.usual_columns,
            *self._values(batch),
            most=most,
            tried=max(TRIED, 2 * most),
            closely=CLOSELY,
            device=self.device,
        )

    def heat(self, images: np.ndarray) -> np.ndarray:
        """How much each place of images (n, channels, height, width) adds to their scores: (n, height, width)."""
        assert self.model.form is not None
        assert self.baseline is not None
        rows = self.model.prepare(images)
        return heat_map(attributions(self.model, rows, self.baseline, self.device, self.threads), self.model.form)

    def _values(self, batch: pa.RecordBatch) -> tuple[dict[str, Any], dict[str, pa.Array]]:
        """The values of the columns used, read as in training, and the texts in columns of numbers."""
        parts = [np.concatenate(blocks) for blocks in zip(*self.columns.read(batch), strict=True)]
        kinds, found = self.columns.kinds, dict(zip(self.used, parts, strict=True))
        values = {name: _readable(part, kinds[name], batch[name]) for name, part in found.items()}
        numbers = {name: part for name, part in found.items() if kinds[name] == "number" and part.dtype.kind == "f"}
        return values, {name: _texts(part, batch[name]) for name, part in numbers.items() if np.isinf(part).any()}

    @cached_property
    def _standardised(self) -> Standardised:
        return Standardised(self.columns, self.model.features)

    @cached_property
    def _model(self) -> MetricModel:
        return self.model

    @cached_property
    def _baseline(self) -> np.ndarray:
        """What is usual in each column; where no row is like that, the usual row that `explain` counts from."""
        usual = np.asarray(self.model.features.transform(self.columns.usual[None])[0])
        is_ordinary = self.scores(usual[None])[0] <= np.median(self.training.values)
        return usual if is_ordinary or self.baseline is None else self.baseline

    @cached_property
    def _origins(self) -> list[int]:
        return columns_of(self.model)


def _device(asked: str, model: MetricModel) -> str:
    """Where a file is scored: rows of a table, if nothing is said, where they are read, prepared and explained."""
    return "cpu" if asked == "auto" and model.form is None else resolve_device(asked)


def _threads(device: str, jobs: int | None) -> int:
    return max_threads(jobs) if device == "cpu" else 1


def _decided(present: Decision, training: TrainingScores, deciding: Deciding) -> Decision:
    """The model's own decision, or the one that is asked for."""
    if deciding.tau is not None:
        return Decision(deciding.tau, BY_HAND)
    if deciding.contamination is None and deciding.threshold is None:
        return present
    asked = parameters.threshold_method(deciding.threshold, deciding.contamination, METHODS, WITH_SHARE)
    return training.decide(*asked)


def _readable(values: np.ndarray, kind: str, column: pa.Array) -> Any:
    """Values as words are made of them."""
    if kind == "number":
        return np.where(np.isinf(values), np.nan, values)
    if kind == "date":
        return usual.moments(values)
    if kind == "category":
        return as_text(column)
    import pyarrow as pa

    return pa.array(["false", "true"]).take(pa.array(np.nan_to_num(values).astype(np.int8), mask=values != values))


def _texts(values: np.ndarray, column: pa.Array) -> pa.Array:
    """The texts in a column of numbers, null in other rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(np.isinf(values)), as_text(column), None)


def _type_of(document: dict[str, Any]) -> pa.DataType:
    """The Arrow type of a column of a text file; text that was read as something else in training stays text."""
    import pyarrow as pa

    kind = document["kind"]
    styled = document.get("written") not in (None, asdict(PLAIN_NUMBERS))  # else the file says how it is written
    if kind == "category" or styled or document.get("form") not in (None, "iso"):
        return pa.string()
    if kind == "date":
        return pa.timestamp("us", document["zone"]) if "time" in document["parts"] else pa.time32("s")
    return pa.bool_() if kind == "boolean" else pa.float64()
