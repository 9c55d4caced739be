"""The fitted model: rows -> columns -> features -> encoder -> scorer -> one score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.arrays import Array, no_grad, to_numpy
from addml.compute import on_device
from addml.distances import DISTANCES, Distance
from addml.encoders import Network, WrongModuleError, from_plain
from addml.encoders.module import ModuleNetwork
from addml.inputs.forms import Form
from addml.inputs.rows import LazyRows, Rows, WindowRows, as_rows
from addml.inputs.series import over_windows
from addml.inputs.vectorizer import Vectorizer
from addml.inputs.vectorizers import vectorizer_of
from addml.model_file import FORMAT, ModelFileError, expect
from addml.preprocessing.scaling import Features
from addml.scoring import scorer_from_plain
from addml.scoring.base import (
    BLOCK,
    EnsembleScale,
    Scorer,
    Shapes,
    ViewScale,
    block_of_images,
    in_blocks,
    in_resident_blocks,
    score_rows,
)
from addml.scoring.self_matches import Overlaps
from addml.scoring.views import embedded_places

if TYPE_CHECKING:
    from addml.inputs.table import Columns

MANY_ROWS, NARROW = 2**18, 256  # of one product on a device, where rows have so few numbers
ROWS_SENT = 2**20  # to a device at once
ROWS_LOOKED_UP = 2**12  # windows at a time


@dataclass(frozen=True)
class MetricModel:
    """The best networks with the vectorizer before them and the scorer behind them, as plain arrays."""

    vectorizer: Vectorizer
    encoder: Network
    distance: Distance
    scorer: Scorer
    scorer_arrays: dict[str, np.ndarray]
    scale: EnsembleScale | ViewScale | None = None

    @property
    def features(self) -> Features:
        """The scaling."""
        return self.vectorizer.features

    @property
    def columns(self) -> Columns | None:
        """The columns of a table that are not all numbers."""
        return self.vectorizer.columns

    @property
    def form(self) -> Form | None:
        """The form of images and windows."""
        return self.vectorizer.form

    def prepare(self, X: Any) -> np.ndarray:
        """Rows of X, an array or a table as training had them, as features (n, d)."""
        return self.vectorizer.prepare(X)

    def scores(self, rows: Rows | np.ndarray, device: str, threads: int, *, learned: bool = False) -> np.ndarray:
        """One score a row, float64, whatever the rows beside it; `learned` of those that were learned from.

        An array holds features.
        """
        rows = as_rows(rows)
        scores = self.member_scores(rows, device, threads, learned=learned)
        return np.asarray(self.combine(scores, self.incomplete(rows)))

    def combine(self, member_scores: Array, incomplete: np.ndarray | None = None) -> Array:
        """One score a row (n,) from scores of all members (E, n); embeddings are neutral in `incomplete` rows (n,)."""
        assert self.scale is not None
        if incomplete is not None:
            member_scores = self.neutral_scores(member_scores, incomplete)
        return self.scale.combine(member_scores)

    def incomplete(self, rows: Rows | np.ndarray) -> np.ndarray | None:
        """Where the past alone counts, which steps (n,) have windows that are not whole yet.

        A window that is filled up is flat, as hardly any other is: strange to embeddings for no reason.
        """
        if self.form is None or not self.form.causal or not isinstance(rows, WindowRows):
            return None
        return ~rows.windows.is_whole

    def neutral_scores(self, member_scores: np.ndarray, incomplete: np.ndarray) -> np.ndarray:
        """The scores (E, n) in which embeddings say what is usual of the steps marked in `incomplete` (n,)."""
        assert self.scale is not None
        embedded = self.scorer.embedded(len(self.encoder.weights))
        return np.where(embedded[:, None] & incomplete, self.scale.neutral, member_scores)

    def with_scale(self, member_scores: np.ndarray, incomplete: np.ndarray | None = None) -> MetricModel:
        """The model that weighs its members by these scores of the training rows, without those in `incomplete`."""
        if incomplete is not None and not incomplete.all():
            member_scores = member_scores[:, ~incomplete]
        return replace(self, scale=self.scorer.scale.fit(member_scores))

    def member_scores(self, rows: Rows | np.ndarray, device: str, threads: int, *, learned: bool = False) -> np.ndarray:
        """The scores of every member by itself, (E, n), and from every view where the scorer has several.

        What embeddings say of a window counts for all steps in it, unless only the past may count; what plain columns
        say is of the step at its end alone.
        """
        rows = as_rows(rows)
        result = self._row_scores(rows, device, threads, self.overlaps(rows, learned=learned))
        if isinstance(rows, WindowRows) and self.form is not None and not self.form.causal:
            embedded = self.scorer.embedded(len(self.encoder.weights))
            result[embedded] = over_windows(result[embedded], rows.windows)
        return result

    def _row_scores(self, rows: Rows, device: str, threads: int, overlaps: Overlaps | None) -> np.ndarray:
        """The same of rows by themselves."""
        result = np.empty((self.scorer.count(len(self.encoder.weights)), len(rows)))
        if device != "cpu" and self.prepares_there and isinstance(rows, LazyRows):  # numbers go there as they are
            for start in range(0, len(rows), ROWS_SENT):
                part = on_device(rows.values[start : start + ROWS_SENT], device)
                result[:, start : start + ROWS_SENT] = to_numpy(self._resident_scores(part))
            return result

        def write(own: slice, block: np.ndarray) -> None:
            result[:, own] = block

        compute = self._compute(device, overlaps)
        self._through(rows, compute, write, device, min(threads, self.scorer.max_threads))
        return result

    def overlaps(self, rows: Rows, *, learned: bool = False) -> Overlaps | None:
        """What windows of a series share with references.

        Where the past alone counts, nobody knows what will come: only what was learned from is measured so.
        """
        if not isinstance(rows, WindowRows) or self.form is None or (self.form.causal and not learned):
            return None
        keys = self.scorer_ready("cpu").get("keys")
        if keys is None:
            return None
        blocks = (rows.slice(start, ROWS_LOOKED_UP) for start in range(0, len(rows), ROWS_LOOKED_UP))
        return Overlaps.of(blocks, keys, rows.windows.first, rows.windows.window)

    @property
    def prepares_there(self) -> bool:
        """Whether numbers may be prepared on a device: not to the last bit as in main memory, where references were."""
        is_series = self.form is not None and self.form.is_series
        return self.columns is None and not self.scorer.on_columns and not is_series

    def resident_scores(self, X: Array) -> Array:
        """One score a row of X, a tensor on a device, where the scores stay, float64."""
        return self.combine(self._resident_scores(X).double())

    def _resident_scores(self, X: Array) -> Array:
        """The scores of every member and view, (E, n), of a tensor on a device."""
        with no_grad(X):
            whole = not X.is_floating_point() or bool(X.sum().isfinite())  # one quick pass; the slow look follows
            if not whole and bool(X.isinf().any()):
                raise ValueError("X holds infinity; replace it by NaN (a gap) or by a finite value")
            whole = whole or not bool(X.isnan().any())

            def prepare(rows: Array) -> Array:
                rows = rows.reshape(len(rows), len(self.features.median))
                return self.features.transform_resident(rows, whole=whole)

            block = MANY_ROWS if self.encoder.inputs <= NARROW else self.block(str(X.device))
            return in_resident_blocks(X, prepare, self._compute(str(X.device)), block)

    def _compute(self, device: str, overlaps: Overlaps | None = None) -> Callable[[Array, slice], Array]:
        """What makes scores (s, views, b) of a stack of blocks that hold certain prepared rows."""
        encoder, ready = self._encoder_on(device), self.scorer_ready(device)
        return lambda x, rows: score_rows(self.scorer, x, encoder.embed(x), ready, self.distance, rows, overlaps)

    def embeddings(self, rows: Rows | np.ndarray, device: str, threads: int) -> np.ndarray:
        """The members' embeddings side by side, (n, E w), float32."""
        rows = as_rows(rows)
        result = np.empty((len(rows), len(self.encoder.weights) * self.encoder.outputs), np.float32)

        def write(own: slice, block: np.ndarray) -> None:
            result[own] = block.transpose(1, 0, 2).reshape(block.shape[1], -1)

        encoder = self._encoder_on(device)
        self._through(rows, lambda x, own: encoder.embed(x), write, device, threads)
        return result

    def scorer_ready(self, device: str) -> dict[str, Any]:
        """What the scorer works with, on a device; worked out once."""
        if device not in self._ready:
            arrays = {name: on_device(array, device) for name, array in self.scorer_arrays.items()}
            self._ready[device] = self.scorer.ready(arrays, self.distance)
        return self._ready[device]

    @cached_property
    def _ready(self) -> dict[str, dict[str, Any]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: nothing that can be worked out again, on a device perhaps."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _encoder_on(self, device: str) -> Network:
        return self.encoder.with_weights(on_device(self.encoder.weights, device))

    def _through(
        self,
        rows: Rows,
        compute: Callable[[Array, slice], Array],
        write: Callable[[slice, np.ndarray], None],
        device: str,
        threads: int,
    ) -> None:
        in_blocks(rows, lambda part: part, compute, write, device, threads, self.block(device))

    def block(self, device: str) -> int:
        """Rows of one product: a row gets the same bits in every block of that size."""
        if self.form is not None and not self.form.is_series:
            return block_of_images(self.form.size, device)
        return BLOCK["cpu" if device == "cpu" else "accelerator"]

    @property
    def step_features(self) -> Features:
        """How one step of a series becomes features."""
        assert self.form is not None
        return self.features.first(self.form.channels)

    # Plain values -------------------------------------------------------------------------------------------

    def to_plain(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The model as a JSON document and arrays."""
        assert self.scale is not None
        document = {
            "encoder": self.encoder.to_plain() | _answers(self.encoder),
            "form": None if self.form is None else self.form.to_plain(),
            "distance": self.distance,
            "scorer": {"name": self.scorer.name, **self.scorer.settings()},
            "columns": None if self.columns is None else self.columns.to_plain(),
            "columns_in": self.vectorizer.columns_in,
            "names": self.vectorizer.names and list(self.vectorizer.names),
        }
        arrays = {"encoder.weights": self.encoder.weights}
        arrays |= {f"features.{field.name}": getattr(self.features, field.name) for field in fields(Features)}
        arrays |= {f"scale.{field.name}": getattr(self.scale, field.name) for field in fields(self.scale)}
        return document, arrays | {f"scorer.{name}": array for name, array in self.scorer_arrays.items()}

    @classmethod
    def from_plain(cls, document: dict[str, Any], arrays: dict[str, np.ndarray], module: Any = None) -> MetricModel:
        """The model of a document and arrays, after checking that they fit together, with the user's own module."""
        try:
            _check_format(document)
            encoder = from_plain(document["encoder"], arrays["encoder.weights"], module)
            scorer = scorer_from_plain(document["scorer"])
            features, scale = Features(**_under("features", arrays)), scorer.scale(**_under("scale", arrays))
            vectorizer = vectorizer_of(document, features)
            model = cls(vectorizer, encoder, document["distance"], scorer, _under("scorer", arrays), scale)
            _check_arrays(model, arrays)
        except ModelFileError:
            raise
        except WrongModuleError as error:
            raise ModelFileError(str(error)) from None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFileError(f"the model's parts do not fit together ({error!r}); fit and save it again") from None
        return model


def _answers(encoder: Network) -> dict[str, Any]:
    """What tells whether a user's own module, which no file holds, is given again as it was."""
    return {"answers": encoder.answers().tolist()} if isinstance(encoder, ModuleNetwork) else {}


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def _check_format(document: dict[str, Any]) -> None:
    """A score that has since become another one would be compared with training scores of its old kind."""
    written = document.get("format", FORMAT)
    if written < FORMAT:
        raise ModelFileError(
            f"the model was saved by an earlier version of addml (format {written}, this version's is {FORMAT}), "
            "whose scores were other ones; fit and save the model again"
        )


def _check_arrays(model: MetricModel, arrays: dict[str, np.ndarray]) -> None:
    """Every array against the layers: a file may be whole, hashed and still not a model."""
    _check_features(model)
    _check_scale(model)
    shapes = _check_scorer(model)
    unknown = set(arrays) - set(model.to_plain()[1]) | set(model.scorer_arrays) - set(shapes)
    if unknown:
        raise ModelFileError(f"the arrays {sorted(unknown)} belong to no part of the model; fit and save it again")
    _check_values(model)


def _check_features(model: MetricModel) -> None:
    features, inputs, columns = model.features, model.encoder.inputs, len(model.features.median)
    expect("features.median", features.median, np.float64, (None,))
    expect("features.sides", features.sides, np.int64, (columns,))
    expect("features.knee", features.knee, np.float64, (1,))
    if model.columns is not None and len(model.columns.names) != columns:
        raise ModelFileError(
            f"{len(model.columns.names)} features of columns for {columns} medians; fit and save it again"
        )
    if model.form is not None and (model.form.size != inputs or columns != inputs or model.columns is not None):
        raise ModelFileError(f"rows of shape {model.form.shape} for {inputs} inputs; fit and save the model again")
    if model.columns is None and model.form is None and model.vectorizer.columns_in != columns:
        raise ModelFileError(
            f"columns_in={model.vectorizer.columns_in} for {columns} medians; fit and save the model again"
        )
    for name in ("mean", "scale", "shift", "reach"):
        expect(f"features.{name}", getattr(features, name), np.float64, (inputs,))
    expect("features.gaps", features.gaps, np.int64, (inputs - columns,))


def _check_scale(model: MetricModel) -> None:
    assert model.scale is not None
    for field in fields(model.scale):
        rows = model.scorer.count(len(model.encoder.weights))
        expect(f"scale.{field.name}", getattr(model.scale, field.name), np.float64, (rows, 1))


def _check_scorer(model: MetricModel) -> Shapes:
    """The shapes of the scorer's arrays, which those of the model must have; a name is one length in all of them."""
    if model.distance not in DISTANCES:
        raise ModelFileError(f"the distance {model.distance!r} is not known; update addml, or fit and save it again")
    encoder, lengths = model.encoder, {"inputs": model.encoder.inputs}
    shapes = model.scorer.shapes(model.distance, len(encoder.weights), encoder.outputs)
    for name, shape in shapes.items():
        array = model.scorer_arrays[name]
        expect(f"scorer.{name}", array, np.float32, tuple(lengths.get(n) if isinstance(n, str) else n for n in shape))
        lengths |= {n: have for n, have in zip(shape, array.shape, strict=True) if isinstance(n, str)}
    if "embedded" in lengths and lengths["embedded"] != len(embedded_places(lengths["references"])):
        raise ModelFileError(
            f"scorer.references has {lengths['embedded']} embeddings, which do not belong to the "
            f"{lengths['references']} references of scorer.rows; fit and save the model again"
        )
    return shapes


def _check_values(model: MetricModel) -> None:
    features, scale, columns = model.features, model.scale, len(model.features.median)
    assert scale is not None
    if features.knee[0] < 0:
        raise ModelFileError(f"the knee {features.knee[0]} is below 0; fit and save the model again")
    inside = (features.gaps >= 0) & (features.gaps < columns) & (np.diff(features.gaps, prepend=-1) > 0)
    positive = [features.scale, features.reach]
    positive += [scale.unit] if isinstance(scale, ViewScale) else [scale.deviation, scale.floor]
    weight = model.scorer_arrays.get("column_weight", np.ones(1))
    positive += [weight[weight != 0]] if weight.any() else []  # 0 for numbers that do not count
    if not inside.all() or min(array.min() for array in positive) <= 0:
        raise ModelFileError("a column of gaps or a deviation is out of range; fit and save the model again")
