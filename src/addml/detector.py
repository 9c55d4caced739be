"""ADDML, the detector: a scikit-learn estimator that wires the stages, which never import each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
from addml.encoders.mlp import MLP
from addml.errors import warn
from addml.explain import Nearest, contributions_of, nearest
from addml.fit import fit
from addml.inputs import Rows, Window, of_rows, vectorizer_for
from addml.inputs.array import ArrayVectorizer, as_numbers, is_plain
from addml.inputs.disk import is_on_disk
from addml.inputs.frame import as_table, is_pandas
from addml.inputs.series import Sampling
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from addml.progress import on_standard_error
from addml.stream import Stream, Streams

PAPER: dict[str, Any] = {"scorer": "center", "scaling": "standard", "members": 1, "epochs": 50, "learning_rate": 1e-3}


class ADDML(ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin, BaseEstimator):
    """Anomaly detection by deep metric learning, without labels.

    Learns metric spaces in which normal rows lie close together and scores every row by its distance from them:
    by four plain views of it in `ADDML()`, the default for tables nobody has seen, from one centre in
    `ADDML.paper()`, the paper's settings, and in `ADDML.fast()`, which trains for a tenth of the time.

    Parameters
    ----------
    encoder : the kind of network: "mlp", "conv" for images, "autoencoder" or "recurrent" for series, or "auto", by the
        kind of rows; or an object, `MLP(hidden=(64,))`, `Conv(...)`, `Recurrent(pooling="last")`; or a torch module of
        your own, which every member starts from, or what makes such modules, called once a member. See docs/method.md.
    loss : "instance", the distances of all pairs of a mini-batch, or "center", those to the centre; or an object,
        `InstanceCloseness(hard_ratio=1/3)` or `CenterCloseness(...)`.
    scorer : "views", "center", "dissimilarity" or "knn", or an object, `Views(references=1024)`, `KNN(k=20)`.
    normal_ratio : share of training rows each epoch learns from: 1 if all are normal; None: 2/3, or 0.9 for series.
    members : networks trained together and averaged.
    scaling : "robust" (median, quartiles, bent tails), "standard" (mean, deviation), or "auto": standard for series.
    one_sided : columns where only one direction matters, by name, or by place in an array: {"amount": "high"}.
    by : column or columns that name the group of a row, such as "store": a row is judged within its group, by its
        scale, references and threshold; small groups borrow from the whole, unseen ones are judged against it.
    window : steps of a series that are looked at together, "auto" to choose them, or `Window(50, causal=True)`. X is
        then a series, (steps,) or (steps, channels), or a list of such, and scores are of steps; None for rows.
    contamination : share of the training rows that the threshold calls anomalies, in (0, 0.5]; "auto" to find it out
        from the scores; or a thresholder of PyThresh. See `set_threshold`.
    epochs, batch_size, learning_rate, weight_decay : training by Adam; a learning_rate of None is the encoder's own,
        1e-3, 2e-3 for "autoencoder", and 3e-5 for "conv". An autoencoder takes batches of 64 rows at most.
    validation_ratio, patience : rows held out for early stopping, and epochs without improvement before it.
    device : "auto", "cpu", "cuda", "cuda:N" or "mps".
    n_jobs : threads at most; None for all cores, or OMP_NUM_THREADS of them. The default score takes up to four.
    random_state, verbose : None, a number, a RandomState or a Generator; 1 to log every epoch.

    Attributes
    ----------
    encoder_, center_ : the best networks of all members, and their centres of the training rows, (members, metric_dim).
    threshold_, decision_ : a row scoring above the threshold is an anomaly; and how it was chosen.
    anomaly_scores_, training_ : scores of the training rows, and what decisions take from them; of over a million rows
        on disk, those at a million even steps in order. With a causal `Window` they ignore overlapping references.
    baseline_ : the typical row as the encoder takes it; `explain` counts from it.
    history_, sampling_ : one dict an epoch; what was done to make the steps of the series read last even.
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
        contamination: Any = 0.1,
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

    model_: Model  # set once, when a fit is over
    sampling_: Sampling

    @classmethod
    def paper(cls, **changes: Any) -> ADDML:
        """The paper's detector. Give `normal_ratio=1` for one-class data."""
        return cls(**{"encoder": MLP(metric_dim=64), "normal_ratio": 2 / 3, **PAPER, **changes})

    @classmethod
    def fast(cls, **changes: Any) -> ADDML:
        """The paper's detector after a tenth of its training: about as fast as a forest, scoring in constant time."""
        return cls.paper(**{"epochs": 5, "learning_rate": 3e-3, **changes})

    def set_params(self, **changes: Any) -> ADDML:
        """Change parameters by name, those of a part as loss__hard_ratio=0.5, in which "instance" becomes its part."""
        super().set_params(**with_usual_parts(changes, self.get_params(deep=False)))
        return self

    encoder_ = property(lambda self: self.model_.encoder)
    center_ = property(lambda self: self.model_.center)
    threshold_ = property(lambda self: self.model_.threshold)
    decision_ = property(lambda self: self.model_.decision)
    offset_ = property(lambda self: -self.model_.threshold)
    training_ = property(lambda self: self.model_.training)
    anomaly_scores_ = property(lambda self: of_rows(self.model_.training.values, self.model_))
    baseline_ = property(lambda self: self.model_.baseline)
    history_ = property(lambda self: self.model_.history)
    _n_features_out = property(lambda self: len(self.encoder_.weights) * self.encoder_.outputs)
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
        """Learn from the rows of X; y is ignored, labels (0 normal, 1 anomaly, -1 unknown) are learned from.

        X may be the path of a Parquet file or folder, or a dataset of pyarrow. One that needs more than `memory`, bytes
        or a text such as "2GiB", is read in several passes, after one that writes the prepared rows into a nameless
        file in the folder `scratch`. See docs/scale.md.

        `checkpoint` names a folder that keeps the state of training after every epoch. After a kill the same call
        resumes from there and gives the same model; at the end the folder is removed.
        """
        return self._learn(X, labels, None, Storage(checkpoint, scratch, memory))

    def refit(self, X: Any, y: Any = None, labels: Any = None, *, memory: int | str = "2GiB") -> ADDML:
        """Go on learning from the present networks, as more rows or more labels come in.

        Rows are prepared as before: other values of `scaling`, `one_sided`, `by` and `window` are refused.
        """
        self._config().check_preparation(self._fitted.vectorizer)
        return self._learn(X, labels, self.model_, Storage(memory=memory))

    def _learn(self, X: Any, labels: Any, start: Model | None, storage: Storage) -> ADDML:
        before = dict(vars(self))
        try:
            with on_standard_error(self.verbose):
                config, X, names = self._config(), _settled(X), None
                kind = vectorizer_for(X, config) if start is None else type(start.vectorizer)
                if kind is ArrayVectorizer and not is_on_disk(X):
                    X = self._numbers(X, reset=start is None)
                    names = tuple(getattr(self, "feature_names_in_", ())) or None
                return self.with_model(fit(config, X, labels, start=start, storage=storage, names=names))
        except BaseException:  # an interrupt too: the estimator stays as it was, and a second one cannot part this line
            self.__dict__ = before
            raise

    def with_model(self, model: Model) -> ADDML:
        """The detector, now fitted: with a model that was trained by its settings."""
        self.n_features_in_, names = model.vectorizer.columns_in, model.vectorizer.names
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        if model.sampling is not None:
            self.sampling_ = model.sampling
        self.model_ = model
        return self

    def _config(self) -> Config:
        return Config.resolve(self.get_params(deep=False))

    def _numbers(self, given: Any, *, reset: bool) -> np.ndarray:
        known: dict[str, Any] = {"reset": reset, "dtype": "numeric", "ensure_all_finite": False}
        return as_numbers(given, lambda X: validate_data(self, X, ensure_min_samples=1 + reset, **known))

    def _read(self, X: Any) -> Rows:
        X, vectorizer = _settled(X), self._fitted.vectorizer
        if is_on_disk(X) and vectorizer.form is None:
            what = f"{X!r} is a table on disk, which fit, the methods that score and write_scores take"
            raise TypeError(f"{what}; read the rows to look at, and give them: pyarrow.parquet.read_table(...)")
        is_named = hasattr(self, "feature_names_in_")
        if isinstance(vectorizer, ArrayVectorizer) and (is_named or not is_plain(X, self.n_features_in_)):
            X = self._numbers(X, reset=False)
        rows = vectorizer.read(X)
        if isinstance(rows, WindowRows) and rows.sampling is not None:
            self.sampling_ = rows.sampling
        return rows

    def anomaly_score(self, X: Any) -> Any:
        """How anomalous each row of X is, whatever the others: higher is more."""
        if is_on_disk(X) and self._fitted.form is None:
            return np.concatenate([scores for _, scores in self._scored(X)])
        rows = self._read(X)
        return of_rows(self.model_.scores(rows, *self._engine), rows)

    def write_scores(self, X: Any, path: str | os.PathLike[str]) -> None:
        """Write row, score and decision of every row of X (see `fit`), all or nothing, as .parquet, .csv or .jsonl."""
        disk_fit.write_scores(path, X, self._scored(X), self._fitted.threshold)

    def _scored(self, X: Any) -> Iterator[tuple[int, np.ndarray]]:
        return disk_fit.scored(self._fitted, X, self._read, *self._engine)

    def stream(self, entity: str | None = None, *, adapt: int | None = None) -> Stream:
        """A series, with `by` that of an entity, scored step by step, in constant time, as by a causal `Window`.

        With `adapt` references and scale are renewed from so many recent steps: a new level becomes normal once it has
        been flagged for half of them.
        """
        return Stream.of(self._fitted, self.threshold_, self.model_.vectorizer.names, entity, adapt)

    def streams(self, entities: Sequence[str]) -> Streams:
        """One stream for each of many entities; their next steps are scored as one batch."""
        return Streams(self._fitted, self.threshold_, entities)

    def transform(self, X: Any) -> np.ndarray:
        """Embeddings of the rows of X, the members' side by side: (n, members * metric_dim), float32."""
        rows = self._read(X)
        return of_rows(self.model_.embeddings(rows, *self._engine), rows)

    embed = transform  # the method's name for it

    def rows_kept(self) -> np.ndarray:
        """Which training rows distillation kept, (epochs, members, n); a stopped member keeps none."""
        return self._fitted.rows_kept()

    def is_anomaly(self, X: Any, *, max_false_alarms: float | None = None) -> Any:
        """Whether each row of X is flagged; at most a share `max_false_alarms` of those is like training rows."""
        if max_false_alarms is None:
            return self.anomaly_score(X) > self.threshold_
        parameters.check_number("max_false_alarms", max_false_alarms, 0, 1, with_low=False)
        return adjusted(to_numpy(self.anomaly_score(X)), self.training_.calibration) <= max_false_alarms

    def score_samples(self, X: Any) -> Any:
        """scikit-learn's sign: higher is more normal."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Any:
        """scikit-learn's sign, shifted: below zero is an anomaly."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for anomalies, +1 for normal rows."""
        return np.where(to_numpy(self.is_anomaly(X)), -1, 1)

    def set_threshold(
        self,
        *,
        contamination: Any = None,
        alarm_rate: float | None = None,
        method: Any = None,
        tau: float | None = None,
    ) -> ADDML:
        """Decide anew, without refitting, by the share of the training rows to flag, the share of new rows like them to
        flag at most, a method ("auto", the rows that stand clear of the rest, or one of PyThresh), or the score itself.
        """
        self.model_ = self._fitted.decided(method, contamination, tau, alarm_rate)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """q and 1 - q, (n, 2); q is the share of ordinary rows among rows this unusual, by the tail of training."""
        anomalous = self._fitted.training.probability(to_numpy(self.anomaly_score(X)))
        return np.column_stack([1 - anomalous, anomalous])

    def p_values(self, X: Any) -> np.ndarray:
        """Conformal p-values of new rows: of rows like the training rows, a share p has a p-value of at most p."""
        return self._fitted.training.p_values(to_numpy(self.anomaly_score(X)))

    def explain(self, X: Any, rows: Any = None) -> Any:
        """How much each column adds to each row's score, `(n, n_features_in_)`: above 0 makes it stranger.

        A row adds up to its score, by the view that finds it strangest; with other scorers (center, dissimilarity, knn)
        to the score less that of `baseline_`. Of images it is a map (n, height, width). In a series a column is a
        channel, and a step is explained by the window that ends there. `rows` are the places of the rows to explain.
        """
        read = self._read(X)
        own = of_rows(np.arange(len(read)), read)
        asked = own[parameters.places("rows", rows, len(own))]
        used = contributions_of(self.model_, read, asked, *self._engine)
        if self.model_.columns is not None:
            places = {name: place for place, name in enumerate(self.feature_names_in_)}
            known, used = used, np.zeros((len(used), len(places)))
            used[:, [places[name] for name in self.model_.columns.used]] = known
        if not is_pandas(X) or self.model_.form is not None:
            return used
        return type(X)(used, X.index[asked], getattr(self, "feature_names_in_", X.columns))

    @property
    def _shown(self) -> Any:
        check_is_fitted(self)
        from addml.report import notebook  # conveniences as of the command line; the only import from above, late

        return notebook

    def reasons(self, X: Any) -> list[str]:
        """Why each row of X is unusual, as sentences: "fare 150, far above the usual 8.5; tolls 24, ..."."""
        return list(self._shown.sentences(self, X))

    def report(self, X: Any, path: str | os.PathLike[str], *, top: int = 20, redact: bool = False) -> Path:
        """Write a report of the rows of X, at least `top` of them in detail, as HTML or Markdown by the file's name."""
        return Path(self._shown.report(self, X, path, top, redact))

    def check(self, X: Any) -> tuple[Checked, ...]:
        """Plant known kinds of faults in held-out rows of X: which would a detector like this one find?"""
        return tuple(self._shown.checked(self, X))

    def plot_scores(self, X: Any = None, *, ax: Any = None) -> Any:
        """Draw the scores of X, or of the training rows, with the threshold (extra `plots`); gives back the axes."""
        return self._shown.plot_scores(self, X, ax)

    def plot_row(self, X: Any, row: int = 0, *, ax: Any = None) -> Any:
        """Draw what the columns of one row of X add to its score (extra `plots`); gives back the axes."""
        return self._shown.plot_row(self, X, row, ax)

    def _repr_html_(self) -> str:
        return str(self._shown.to_html(self) if hasattr(self, "model_") else super()._repr_html_())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def nearest_normal(self, X: Any, k: int = 5) -> Nearest:
        """The training rows most like each row of X, among 1,000 normal ones: their places and distances."""
        parameters.check_whole("k", k)
        if not len(self._fitted.examples.rows):
            raise ValueError(f"scorer={self.scorer!r} keeps no training rows; fit with scorer='views' or 'knn'")
        rows = self._read(X)
        return nearest(self.model_, rows.take(of_rows(np.arange(len(rows)), rows)), k)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector as a folder of JSON and safetensors for `addml.load`; nothing is pickled."""
        model, _ = self._fitted, self._config()
        settings, left_out = settings_to_json(self.get_params(deep=False))
        if left_out:
            warn(f"not saved, being objects: {', '.join(left_out)}; pass them again to refit")
        model_file.save(replace(model, settings=settings), path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _settled(X: Any) -> Any:
    """X itself, a batch of pyarrow as a table, a torch tensor as an array; a lazy frame is refused."""
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a lazy frame, which holds no rows yet; give its .collect()")
    if type(X).__module__.partition(".")[0] == "torch":
        return to_numpy(X)
    return as_table(X) if isinstance(X, pa.RecordBatch) else X
