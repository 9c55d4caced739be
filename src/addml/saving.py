"""A fitted detector as a folder of JSON and safetensors, and back."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from addml import __version__, fitting, model_file, plain
from addml.deciding import Decides
from addml.decisions.decision import OWN_ARRAYS, Decision, TrainingScores
from addml.explain.attribution import Examples
from addml.model import MetricModel
from addml.recipe import Recipe


class Saves(Decides, Recipe, BaseEstimator):
    """What an estimator has learned, and how it is written down."""

    model_: MetricModel
    center_: np.ndarray
    anomaly_scores_: np.ndarray
    baseline_: np.ndarray
    history_: list[dict[str, Any]]
    n_features_in_: int
    feature_names_in_: np.ndarray
    _examples: Examples
    _held_out: np.ndarray
    _kept_bits: np.ndarray
    _ids: tuple[str, ...] = ()  # columns that name a row, as `addml fit` was told: for `addml score` to know

    def _take(self, model: MetricModel, history: list[dict[str, Any]], kept_bits: np.ndarray) -> None:
        self.model_, self.encoder_, self.history_, self._kept_bits = model, model.encoder, history, kept_bits
        self._n_features_out = len(model.encoder.weights) * model.encoder.outputs

    def _plain_settings(self) -> dict[str, Any]:
        """The settings that a training depends on, as JSON values."""
        given = self.get_params(deep=False)
        settings, objects = plain.plain_settings(given)
        kinds = {name: getattr(given[name], "__qualname__", type(given[name]).__qualname__) for name in objects}
        return {name: settings[name] for name in settings if name != "verbose"} | kinds

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector as a folder of JSON and safetensors for `addml.load`; nothing is pickled."""
        check_is_fitted(self, "threshold_")
        self._check_parameters()
        if not os.fspath(path):
            raise ValueError(f"path={path!r} names no folder; give the one to write")
        document, arrays = self.model_.to_plain()
        settings, left_out = plain.plain_settings(self.get_params(deep=False))
        if left_out:
            fitting.warn(f"not saved, being objects: {', '.join(left_out)}; pass them again to refit")
        document |= {
            "addml": __version__,
            "parameters": settings,
            "columns_in": self.n_features_in_,
            "names": list(map(str, getattr(self, "feature_names_in_", []))) or None,
            "ids": list(self._ids),
            "threshold": self.threshold_,
            "decision": {"method": self.decision_.method, "share": self.decision_.share},
            "labelled": self.training_.labelled,
            "history": [plain.plain_record(record) for record in self.history_],
        }
        arrays |= {
            "center": self.center_,
            "anomaly_scores": self.anomaly_scores_,
            "kept": self._kept_bits,
            "held_out": np.packbits(self._held_out, axis=1),
            "baseline": self.baseline_,
            "examples.rows": self._examples.rows,
            "examples.features": self._examples.features,
            "probability.scores": self.training_.probability.scores,
            "probability.values": self.training_.probability.values,
        }
        model_file.save(path, document, arrays)

    def _restore(self, document: dict[str, Any], arrays: dict[str, np.ndarray], encoder: Any) -> None:
        """Take what a saved detector has learned; raises an error where its parts do not fit together."""
        own = {name: arrays.pop(name) for name in OWN_ARRAYS}
        model = MetricModel.from_plain(document, arrays, encoder)
        self._take(model, [plain.record_from_plain(record) for record in document["history"]], own["kept"])
        _check_own_arrays(model, own, len(self.history_))
        self.center_, self.anomaly_scores_, self.baseline_ = own["center"], own["anomaly_scores"], own["baseline"]
        self._examples = Examples(own["examples.rows"], own["examples.features"])
        self.training_ = TrainingScores.from_plain(document, own)
        self.n_features_in_ = _checked_width(model, document["columns_in"], document["names"])
        if document["names"] is not None:
            self.feature_names_in_ = plain.names_from_plain(document["names"], self.n_features_in_)
        if ids := plain.ids_from_plain(document):
            self._ids = ids
        self._set(Decision.from_plain(document))
        self._held_out = np.unpackbits(own["held_out"], axis=1, count=len(self.anomaly_scores_)).astype(bool)


def _checked_width(model: MetricModel, columns: Any, names: list[str] | None) -> int:
    """How many columns the detector is given, which must be those that its model takes."""
    if model.columns is not None:
        fits = names is not None and set(model.columns.used) <= set(names)
    elif model.form is not None:
        fits = columns == (model.form.channels if model.form.is_series else model.form.size)
    else:
        fits = columns == len(model.features.median)
    if type(columns) is not int or not fits:
        raise ValueError(f"columns_in={columns!r} and the names {names} are not those of the model")
    return columns


def _check_own_arrays(model: MetricModel, own: dict[str, np.ndarray], epochs: int) -> None:
    """The arrays that are the detector's, not its model's."""
    encoder, scores = model.encoder, own["anomaly_scores"]
    members, inputs, w = len(encoder.weights), encoder.inputs, encoder.outputs
    model_file.expect("center", own["center"], np.float32, (members, w))
    model_file.expect("anomaly_scores", scores, np.float64, (None,))
    bits = (epochs, members, -(-len(scores) // 8))
    model_file.expect("kept", own["kept"], np.uint8, bits if own["kept"].ndim > 1 else (0,))
    model_file.expect("held_out", own["held_out"], np.uint8, bits[1:])
    model_file.expect("baseline", own["baseline"], np.float32, (inputs,))
    examples = len(own["examples.rows"])
    model_file.expect("examples.rows", own["examples.rows"], np.int64, (examples,))
    model_file.expect("examples.features", own["examples.features"], np.float32, (examples, inputs))
