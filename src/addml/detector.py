"""ADDML, the detector: a scikit-learn estimator over the stages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from addml import disk_fit, model_file, parameters
from addml.arrays import to_numpy
from addml.checkpoint import Storage
from addml.compute import max_threads, resolve_device
from addml.config import Config, settings_to_json, with_usual_parts
from addml.decisions.check import Checked
from addml.decisions.decision import adjusted
from addml.decisions.events import Event
from addml.encoders.mlp import MLP
from addml.errors import warn
from addml.explain import Nearest, contributions_of, nearest
from addml.fit import fit
from addml.inputs import Rows, Window, in_row_order, vectorizer_for
from addml.inputs.array import ArrayVectorizer, as_numbers, is_plain
from addml.inputs.disk import is_on_disk
from addml.inputs.frame import collected, is_pandas
from addml.model import Model
from addml.progress import on_standard_error
from addml.stream import Stream, Streams
from addml.text import TABLE


class ADDML(ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin, BaseEstimator):
    """Unsupervised anomaly detection by deep metric learning.

    Learns metric spaces in which normal rows lie close together, and scores a row by its distance from them. `ADDML()`
    combines four views of a row: start with it. `ADDML.paper()` is the paper's detector, which measures the distance to
    one centre; `ADDML.fast()` is the same with a tenth of the training.

    Parameters
    ----------
    encoder : the network: "mlp", "conv" or "pretrained" (images), "autoencoder" or "recurrent" (series), or "auto" to
        choose by the kind of rows; an object such as `MLP(hidden=(64,))` or `Recurrent(pooling="last")`; or your own
        torch module: every member starts from an instance; a class or function is called once per member.
    loss : "instance", over all pairs of a mini-batch, or "center", over the distances to the centre; or an object such
        as `InstanceCloseness(hard_ratio=1/3)`.
    scorer : "views", "center", "dissimilarity" or "knn"; or an object such as `Views(references=1024)`.
    normal_ratio : share of training rows that an epoch learns from; 1 if all are normal. Default: 2/3, 0.9 for series.
    members : number of networks, which are trained together and whose scores are averaged.
    scaling : "robust" (median, quartiles, compressed tails), "standard" (mean, deviation), "auto": standard for series.
    one_sided : columns in which only one direction is anomalous, by name or array position: {"amount": "high"}.
    by : the column or columns that name a row's group, such as "store". A row is judged within its group, by the
        group's scale, references and threshold; small groups borrow from all rows, unseen groups use those of all rows.
    window : steps of a series to look at together, "auto" to choose their number, or `Window(50, causal=True)`. X is
        then a series, (steps,) or (steps, channels), or a list of series, and every step gets a score.
    contamination : share of the training rows to flag, in (0, 0.5]; "auto" to estimate it; or a PyThresh object. The
        default is 0.1, and "events" for series: at most one false event in 1,000 windows of clean steps.
    epochs, batch_size, learning_rate, weight_decay : training with Adam. The default learning rate is 1e-3, 2e-3 for
        "autoencoder" and 3e-5 for "conv". An autoencoder uses batches of at most 64 rows.
    validation_ratio, patience : share of rows held out for early stopping; epochs without improvement before it.
    device : "auto", "cpu", "cuda", "cuda:N" or "mps".
    n_jobs : number of threads. Default: all cores, or OMP_NUM_THREADS. The default scorer uses at most four.
    random_state, verbose : None, a whole number, a RandomState or a Generator; 1 to log every epoch.

    Attributes
    ----------
    encoder_, center_ : the best networks of all members; their centres of the training rows, (members, metric_dim).
    threshold_, decision_ : rows that score above the threshold are anomalies; how the threshold was chosen.
    anomaly_scores_, training_ : the scores of the training rows (a sample of a million for a larger table on disk); the
        same with what decisions need. With a causal `Window`, steps ignore references that overlap them.
    baseline_ : the typical row, as features; `explain` starts from it.
    history_, sampling_ : one dict per epoch; how the steps of the last series were made even.
    n_features_in_, feature_names_in_, offset_ : as in scikit-learn; the offset is minus the threshold.
    """

    def __init__(
        self,
        *,
        encoder: Any = "auto",
        loss: Any = "instance",
        scorer: Any = "views",
        normal_ratio: float | None = None,
        members: int = 5,
        scaling: str = "auto",
        one_sided: dict[Any, str] | None = None,
        by: str | Sequence[str] | None = None,
        window: int | Window | None = None,
        contamination: Any = None,
        epochs: int = 10,
        batch_size: int = 256,
        learning_rate: float | None = None,
        weight_decay: float = 1e-5,
        validation_ratio: float = 0.1,
        patience: int = 5,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.loss = loss
        self.scorer = scorer
        self.normal_ratio = normal_ratio
        self.members = members
        self.scaling = scaling
        self.one_sided = one_sided
        self.by = by
        self.window = window
        self.contamination = contamination
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_ratio = validation_ratio
        self.patience = patience
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    model_: Model  # set at the end of fit

    @classmethod
    def paper(cls, **changes: Any) -> ADDML:
        """The paper's detector. Use `normal_ratio=1` if all training rows are normal (one-class data)."""
        paper = {"encoder": MLP(metric_dim=64), "scorer": "center", "normal_ratio": 2 / 3, "scaling": "standard"}
        return cls(**{**paper, "members": 1, "epochs": 50, "learning_rate": 1e-3, **changes})

    @classmethod
    def fast(cls, **changes: Any) -> ADDML:
        """The paper's detector with a tenth of the training: about as fast as an isolation forest."""
        return cls.paper(**{"epochs": 5, "learning_rate": 3e-3, **changes})

    def set_params(self, **changes: Any) -> ADDML:
        """Set parameters by name, also those of a part: `loss__hard_ratio=0.5` works with `loss="instance"` too."""
        super().set_params(**with_usual_parts(changes, self.get_params(deep=False)))
        return self

    encoder_ = property(lambda self: self.model_.encoder)
    center_ = property(lambda self: self.model_.center)
    threshold_ = property(lambda self: self.model_.threshold)
    decision_ = property(lambda self: self.model_.decision)
    offset_ = property(lambda self: -self.model_.threshold)
    training_ = property(lambda self: self.model_.training)
    anomaly_scores_ = property(lambda self: in_row_order(self.model_.training.values, self.model_))
    baseline_ = property(lambda self: self.model_.baseline)
    history_ = property(lambda self: self.model_.history)
    _n_features_out = property(lambda self: len(self.encoder_.weights) * self.encoder_.outputs)
    _config = property(lambda self: Config.resolve(self.get_params(deep=False)))
    _engine = property(lambda self: (resolve_device(self.device), max_threads(self.n_jobs)))

    @property
    def _fitted(self) -> Model:
        check_is_fitted(self)
        return self.model_

    def fit(
        self,
        X: Any,
        y: Any = None,
        labels: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        scratch: str | os.PathLike[str] | None = None,
        memory: int | str = "2GiB",
    ) -> ADDML:
        """Learn from the rows of X, and from labels if given: 0 normal, 1 anomaly, -1 unknown. `y` is ignored.

        X may also be the path of a Parquet file or folder, or a pyarrow dataset. If it needs more than `memory`, bytes
        or text such as "2GiB", its prepared rows are written to an unnamed file in the folder `scratch`, which training
        reads in several passes. See docs/scale.md.

        `checkpoint` is a folder for the training state after each epoch. After a kill, the same call resumes from it
        and gives the same model. The folder is removed at the end.
        """
        return self._learn(X, labels, None, Storage(checkpoint, scratch, memory))

    def refit(self, X: Any, y: Any = None, labels: Any = None, *, memory: int | str = "2GiB") -> ADDML:
        """Continue training from the fitted networks, for example with more rows or labels.

        Rows are prepared as before, so `scaling`, `one_sided`, `by` and `window` must not have changed.
        """
        self._config.check_preparation(self._fitted.vectorizer)
        return self._learn(X, labels, self.model_, Storage(memory=memory))

    def _learn(self, X: Any, labels: Any, start: Model | None, storage: Storage) -> ADDML:
        attributes = dict(vars(self))
        try:
            with on_standard_error(self.verbose):
                config, X = self._config, collected(X)
                kind = vectorizer_for(X, config) if start is None else type(start.vectorizer)
                names = None
                if kind is ArrayVectorizer and not is_on_disk(X):
                    X = self._numbers(X, reset=start is None)
                    names = tuple(getattr(self, "feature_names_in_", ())) or None
                return self.with_model(fit(config, X, labels, start=start, storage=storage, names=names))
        except BaseException:  # including KeyboardInterrupt; one assignment restores everything
            self.__dict__ = attributes
            raise

    def with_model(self, model: Model) -> ADDML:
        """Make this a fitted detector, with a model that was trained with its settings."""
        self.n_features_in_ = model.vectorizer.columns_in
        self.__dict__.pop("feature_names_in_", None)
        if model.vectorizer.names is not None:
            self.feature_names_in_ = np.array(model.vectorizer.names, dtype=object)
        if model.sampling is not None:
            self.sampling_ = model.sampling
        self.model_ = model
        return self

    def _numbers(self, X: Any, *, reset: bool) -> np.ndarray:
        checks: dict[str, Any] = {"ensure_min_samples": 1 + reset, "dtype": "numeric", "ensure_all_finite": False}
        return as_numbers(X, lambda X: validate_data(self, X, reset=reset, **checks))

    def _read(self, X: Any) -> Rows:
        X, vectorizer = collected(X), self._fitted.vectorizer
        if is_on_disk(X) and vectorizer.kind == TABLE:
            methods = "fit, write_scores and the scoring methods"
            raise TypeError(f"X={X!r} is a table on disk, which only {methods} accept; use pyarrow.parquet.read_table")
        if isinstance(vectorizer, ArrayVectorizer) and not is_plain(X, vectorizer):
            X = self._numbers(X, reset=False)
        rows = vectorizer.read(X)
        if rows.sampling is not None:
            self.sampling_ = rows.sampling
        return rows

    def anomaly_score(self, X: Any) -> Any:
        """The anomaly score of each row of X; higher is more anomalous. It does not depend on the other rows."""
        if is_on_disk(X) and self._fitted.kind == TABLE:
            return np.concatenate([scores for _, scores in disk_fit.scored(self.model_, X, self._read, *self._engine)])
        rows = self._read(X)
        return in_row_order(self.model_.scores(rows, *self._engine), rows)

    def write_scores(self, X: Any, path: str | os.PathLike[str]) -> None:
        """Write the number, score and decision of each row of X, in memory or on disk, as .parquet, .csv or .jsonl."""
        disk_fit.write_scores(path, X, disk_fit.scored(self._fitted, X, self._read, *self._engine), self.threshold_)

    def stream(self, entity: str | None = None, *, adapt: int | None = None) -> Stream:
        """Score a series step by step in constant time, as a causal `Window` does; with `by`, the series of `entity`.

        With `adapt`, references and scale follow the last `adapt` steps: a new level becomes normal once it has been
        flagged for half of them.
        """
        return Stream(self._fitted, entity, adapt)

    def streams(self, entities: Sequence[str]) -> Streams:
        """One stream per entity; the next steps of all entities are scored as one batch."""
        return Streams(self._fitted, entities)

    def events(self, X: Any = None, *, count: int | None = None, min_steps: int = 1) -> list[Event]:
        """The events of a series (default: the training series), the strongest first; at most `count` if it is given.

        An event is a run of flagged steps, with gaps of less than a window. Its start, stop and peak are positions
        among the steps sorted by entity and time.
        """
        if X is None:
            return self._fitted.events(self.training_.values, self.model_.sampling, count, min_steps)[1]
        rows = self._read(X)
        return self.model_.events(self.model_.scores(rows, *self._engine), rows.sampling, count, min_steps)[1]

    def transform(self, X: Any) -> np.ndarray:
        """The embeddings of the rows of X, members side by side: (n, members * metric_dim), float32."""
        rows = self._read(X)
        return in_row_order(self.model_.embeddings(rows, *self._engine), rows)

    embed = transform  # the paper's word

    def rows_kept(self) -> np.ndarray:
        """Which training rows distillation kept, (epochs, members, n); a stopped member keeps none."""
        return self._fitted.rows_kept()

    def is_anomaly(self, X: Any, *, max_false_alarms: float | None = None) -> Any:
        """Whether each row of X is flagged; `max_false_alarms` limits the share of ordinary rows among the flagged."""
        if max_false_alarms is None:
            return self.anomaly_score(X) > self.threshold_
        parameters.check_number("max_false_alarms", max_false_alarms, 0, 1, with_low=False)
        return adjusted(to_numpy(self.anomaly_score(X)), self.training_.calibration) <= max_false_alarms

    def score_samples(self, X: Any) -> Any:
        """scikit-learn's score of each row: minus `anomaly_score`, so that higher is more normal."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Any:
        """scikit-learn's score relative to the threshold: negative for anomalies."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for anomalies, 1 for normal rows."""
        return np.where(to_numpy(self.is_anomaly(X)), -1, 1)

    def set_threshold(
        self,
        *,
        contamination: Any = None,
        alarm_rate: float | None = None,
        method: Any = None,
        tau: float | None = None,
    ) -> ADDML:
        """Set the threshold without refitting, by one argument: the share of training rows to flag (`contamination`),
        the largest share to flag of new rows like them (`alarm_rate`), the threshold itself (`tau`), or a `method`:
        "auto", which flags rows that stand clear of the rest, "events" for series, or a PyThresh object.
        """
        self.model_ = self._fitted.decided(method, contamination, tau, alarm_rate)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """q and 1 - q, (n, 2): q estimates the share of ordinary rows among the rows that are at least this unusual."""
        anomalous = self._fitted.training.probability(to_numpy(self.anomaly_score(X)))
        return np.column_stack([1 - anomalous, anomalous])

    def p_values(self, X: Any) -> np.ndarray:
        """Conformal p-values of new rows: at most a share p of rows like the training rows has p-values up to p."""
        return self._fitted.training.p_values(to_numpy(self.anomaly_score(X)))

    def explain(self, X: Any, rows: Any = None) -> Any:
        """The contributions of columns to scores, `(n, n_features_in_)`; positive ones make a row more anomalous.

        A row's contributions add up to its score in its most anomalous view; with the scorers center, dissimilarity and
        knn, to the score minus that of `baseline_`. An image has a map (height, width) instead. The columns of a series
        are its channels, and the window that ends with a step explains it. `rows` selects the rows to explain: row
        numbers, a mask or a slice.
        """
        data = self._read(X)
        row_ids = in_row_order(np.arange(len(data)), data)
        selected = row_ids[parameters.selected_rows("rows", rows, len(row_ids))]
        result = contributions = contributions_of(self.model_, data, selected, *self._engine)
        if self.model_.columns is not None:  # columns that were left out contribute nothing
            result = np.zeros((len(contributions), self.n_features_in_))
            result[:, np.isin(self.feature_names_in_, self.model_.columns.used)] = contributions
        if not is_pandas(X) or self.model_.kind != TABLE:
            return result
        return type(X)(result, X.index[selected], getattr(self, "feature_names_in_", X.columns))

    @property
    def _notebook(self) -> Any:
        check_is_fitted(self)
        return import_module("addml.report.notebook")  # late, because it is the only import from a higher level

    def reasons(self, X: Any) -> list[str]:
        """Why each row of X is unusual, in words: "fare 150, far above the usual 8.5; tolls 24, ..."."""
        return list(self._notebook.sentences(self._fitted, self._read(X)))

    def report(self, X: Any, path: str | os.PathLike[str], *, top: int = 20, redact: bool = False) -> Path:
        """Write a report on X, with at least `top` rows in detail, as .html or .md; `redact` hides the values of X."""
        rows = self._read(X)
        scores = self.model_.scores(rows, *self._engine)
        return Path(self._notebook.report(self.model_, rows, scores, path, top, redact))

    def check(self, X: Any) -> tuple[Checked, ...]:
        """Plant known kinds of faults in held-out rows of X and measure how many a detector like this one finds."""
        return tuple(self._notebook.checked(self, self._read(X).values if self._fitted.columns is None else X))

    def plot_scores(self, X: Any = None, *, ax: Any = None) -> Any:
        """Plot the scores of X, or of the training rows, with the threshold; returns the axes (extra `plots`)."""
        return self._notebook.plot_scores(self, X, ax)

    def plot_row(self, X: Any, row: int = 0, *, ax: Any = None) -> Any:
        """Plot the contributions of the columns to the score of one row of X; returns the axes (extra `plots`)."""
        rows = self._read(X)
        contributions = np.asarray(self.explain(X, rows=[row]))
        return self._notebook.plot_row(self.model_, rows, row, contributions[0], ax)

    def _repr_html_(self) -> str:
        return str(self._notebook.to_html(self) if hasattr(self, "model_") else super()._repr_html_())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def nearest_normal(self, X: Any, k: int = 5) -> Nearest:
        """The k training rows most like each row of X, among 1,000 normal ones: their row numbers and distances."""
        parameters.check_whole("k", k)
        if not len(self._fitted.examples.rows):
            raise ValueError(f"scorer={self.scorer!r} keeps no training rows; fit with scorer='views' or 'knn'")
        rows = self._read(X)
        return nearest(self.model_, rows.take(in_row_order(np.arange(len(rows)), rows)), k)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector to a folder of JSON and safetensors files, which `addml.load` reads; no pickle."""
        model = self._fitted
        params = self.get_params(deep=False)
        Config.resolve(params)  # checks them: they may have been set after the fit
        settings, left_out = settings_to_json(params)
        if left_out:
            warn(f"not saved, because they are objects: {', '.join(left_out)}; pass them again to refit")
        model_file.save(replace(model, settings=settings), path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags
