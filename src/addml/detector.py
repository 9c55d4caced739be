"""ADDML, the detector: a scikit-learn estimator that wires the stages, which never import each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from addml import __version__, model_file, parameters, plain
from addml.arrays import as_like, is_resident, to_numpy
from addml.checkpoint import Storage
from addml.compute import max_threads, resolve_device
from addml.config import Config
from addml.decisions.decision import BY_HAND, OWN_ARRAYS, Decision, TrainingScores
from addml.decisions.thresholds import METHODS, WITH_SHARE
from addml.encoders.module import is_module
from addml.errors import DroppedColumnsWarning as DroppedColumnsWarning
from addml.errors import TextCellsWarning as TextCellsWarning
from addml.errors import warn
from addml.explain.attribution import Examples, Nearest, attributions
from addml.explain.contributions import SeriesContext, views_of
from addml.fit import Trained, fit
from addml.inputs.array import ArrayVectorizer, check_exact, not_numbers
from addml.inputs.disk import Source, is_on_disk, is_part, open_source
from addml.inputs.frame import settled
from addml.inputs.image import heat_map
from addml.inputs.rows import LazyRows, Rows, WindowRows
from addml.inputs.series import Sampling
from addml.inputs.vectorizer import names_or_places
from addml.inputs.vectorizers import vectorizer_for
from addml.model import MetricModel
from addml.preprocessing.text_values import TextCells
from addml.progress import on_standard_error
from addml.scoring.base import Scorer
from addml.stream import Stream

PAPER: dict[str, Any] = {
    "metric_dim": 64,
    "scorer": "center",
    "scaling": "standard",
    "members": 1,
    "epochs": 50,
    "learning_rate": 1e-3,
}
FAST: dict[str, Any] = {**PAPER, "epochs": 5, "learning_rate": 3e-3}


class ADDML(ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin, BaseEstimator):
    """Anomaly detection by deep metric learning, without labels.

    Learns metric spaces in which normal rows lie close together and scores every row by its distance from them:
    by four plain views of it in `ADDML()`, the default for tables nobody has seen, from one centre in
    `ADDML.paper()`, the paper's settings, and in `ADDML.fast()`, which trains for a tenth of the time.

    Parameters
    ----------
    encoder : the kind of network, "mlp", for images "conv", for series "recurrent"; a torch module of your own, which
        every member starts from; or what makes such modules, called once a member. See docs/method.md.
    hidden : widths of the hidden layers, channels of the convolutions of "conv"; () for none, None for the encoder's
        own, (64,) for "mlp" and (16, 32) for "conv".
    metric_dim : dimensions of the metric space.
    activation, output_activation : "tanh", "relu", "leaky_relu", "elu", "sigmoid" or "linear".
    loss : "instance", the distances of all pairs of a mini-batch, or "center", those to the centre.
    distance : "sqeuclidean", "euclidean" or "cosine".
    margin : how far labelled anomalies are pushed from normal rows; None for the mean distance before training.
    anomaly_pairs : whether labelled anomalies are pulled together too.
    normal_ratio : share of the training rows that each epoch learns from; 1 for rows known to be normal.
    hard_ratio : share of a mini-batch's distances, the largest, that its loss takes.
    miner : a pair miner of pytorch-metric-learning in place of the hard normal mining, or None.
    scorer : "views", "center", "dissimilarity", "knn", or a scorer of `addml.scoring`.
    scaling : "robust", by median and quartiles and bent in the tails, "standard", by mean and deviation, or "auto",
        standard for series and robust for all else.
    one_sided : columns where only one direction matters, by name, or by place in an array: {"amount": "high"}.
    window : steps of a series that are looked at together, which makes X a series, (steps,) or (steps, channels), or a
        list of such; None for rows. Scores are then of steps.
    stride : steps between two windows to learn from; None for a quarter of the window.
    causal : whether a step is scored by the steps up to it alone, as `stream` does, not by all windows over it.
    cell, pooling : of encoder="recurrent": "tanh", the paper's recurrence, "gru", or "tcn", dilated convolutions; the
        "mean" of the states over a window, or the "last" one, which is the paper's.
    contamination : share of the training rows that the threshold calls anomalies, in (0, 0.5]; "auto" to find it out
        from the scores; or a thresholder of PyThresh. See `set_threshold`.
    examples : kept training rows to remember, at the most, for `nearest_normal`; 0 for none.
    members : networks trained together and averaged.
    epochs, batch_size, learning_rate, weight_decay : training by Adam; a learning_rate of None is the encoder's own,
        1e-3, and 3e-5 for "conv".
    validation_ratio, patience : rows held out for early stopping, and epochs without improvement before it.
    device : "auto", "cpu", "cuda", "cuda:N" or "mps".
    n_jobs : threads at most; None for all cores, or OMP_NUM_THREADS of them. The default score takes up to four.
    random_state : None, a number, a RandomState or a Generator.
    memory : a table on disk (see `fit`) that needs more to be learned from is not held in memory, and what a fit does
        hold stays within it: bytes, or a text such as "2GiB".
    verbose : 1 to log every epoch.

    Attributes
    ----------
    encoder_ : the best networks, one stack of layers for all members.
    center_ : their centres of the training rows, (members, metric_dim).
    threshold_ : a row scoring above it is an anomaly.
    decision_ : the threshold and how it was chosen.
    offset_ : scikit-learn's offset, minus the threshold.
    anomaly_scores_, training_ : scores of the training rows, and what decisions take from them; of over a million rows
        on disk, the scores at a million even steps through all of them in order. Those of a series with `causal=True`
        are measured as those of new steps are, without references that overlap with them.
    baseline_ : the usual row as the encoder takes it; `explain` counts from it.
    history_ : one dict an epoch.
    sampling_ : of the series read last, what was done to make its steps even.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    """

    def __init__(
        self,
        *,
        encoder: Any = "mlp",
        hidden: tuple[int, ...] | None = None,
        metric_dim: int = 32,
        activation: str = "tanh",
        output_activation: str = "tanh",
        loss: str = "instance",
        distance: str = "sqeuclidean",
        margin: float | None = None,
        anomaly_pairs: bool = False,
        normal_ratio: float = 2 / 3,
        hard_ratio: float = 1 / 3,
        miner: Callable[..., Any] | None = None,
        scorer: str | Scorer = "views",
        scaling: str = "auto",
        one_sided: dict[Any, str] | None = None,
        window: int | None = None,
        stride: int | None = None,
        causal: bool = False,
        cell: str = "tanh",
        pooling: str = "mean",
        contamination: Any = 0.1,
        examples: int = 0,
        members: int = 5,
        epochs: int = 10,
        batch_size: int = 256,
        learning_rate: float | None = None,
        weight_decay: float = 1e-5,
        validation_ratio: float = 0.1,
        patience: int = 5,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        memory: int | str = "2GiB",
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.hidden = hidden
        self.metric_dim = metric_dim
        self.activation = activation
        self.output_activation = output_activation
        self.loss = loss
        self.distance = distance
        self.margin = margin
        self.anomaly_pairs = anomaly_pairs
        self.normal_ratio = normal_ratio
        self.hard_ratio = hard_ratio
        self.miner = miner
        self.scorer = scorer
        self.scaling = scaling
        self.one_sided = one_sided
        self.window = window
        self.stride = stride
        self.causal = causal
        self.cell = cell
        self.pooling = pooling
        self.contamination = contamination
        self.examples = examples
        self.members = members
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_ratio = validation_ratio
        self.patience = patience
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose

    sampling_: Sampling
    _texts: TextCells  # in columns of numbers of the table read last
    _ids: tuple[str, ...] = ()  # columns that name a row, as `addml fit` was told: for `addml score` to know

    @classmethod
    def paper(cls, **changes: Any) -> ADDML:
        """The paper's detector. Give `normal_ratio=1` for one-class data."""
        return cls(**{**PAPER, **changes})

    @classmethod
    def fast(cls, **changes: Any) -> ADDML:
        """The paper's detector after a tenth of its training: about as fast as a forest, scoring in constant time."""
        return cls(**{**FAST, **changes})

    # Fit ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        labels: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        scratch: str | os.PathLike[str] | None = None,
        cache: bool = True,
    ) -> ADDML:
        """Learn from the rows of X; y is ignored, labels (0 normal, 1 anomaly, -1 unknown) are learned from.

        X may be the path of a Parquet file or folder, or a dataset of pyarrow. One that does not fit into `memory` is
        read in several passes, after one that writes the prepared rows into a nameless file in the folder
        `scratch`; with `cache=False` they are read and prepared every time. See docs/scale.md.

        `checkpoint` names a folder that keeps the state of training after every epoch. After a kill the same call
        resumes from there and gives the same model; at the end the folder is removed.
        """
        return self._learn(X, labels, None, Storage(checkpoint, scratch, cache))

    def refit(self, X: Any, y: Any = None, labels: Any = None) -> ADDML:
        """Go on learning from the present networks with the rows of X, as more rows or more labels come in.

        Rows are prepared as before, and settings that ask for more than that (`scaling`, `one_sided`, `window`) are
        refused; what is learned from the rows, the scale of the scores and the threshold are new.
        """
        check_is_fitted(self, "threshold_")
        self._config().check_preparation(self.model_.vectorizer)
        return self._learn(X, labels, self.model_, Storage())

    def _learn(self, X: Any, labels: Any, start: MetricModel | None, storage: Storage) -> ADDML:
        before = dict(vars(self))
        try:
            with on_standard_error(self.verbose):
                config = self._config()
                X, names = self._checked(X, config, start)
                return self._take(fit(config, X, labels, start=start, storage=storage, names=names))
        except BaseException:  # an interrupt too: the estimator stays as it was, and a second one cannot part this line
            self.__dict__ = before
            raise

    def _config(self) -> Config:
        return Config.resolve(self.get_params(deep=False))

    def _checked(self, X: Any, config: Config, start: MetricModel | None) -> tuple[Any, tuple[str, ...] | None]:
        """X to learn from, and the names of its columns; an array is checked as scikit-learn does it."""
        X = settled(X)
        X = to_numpy(X) if is_resident(X) else X
        kind = vectorizer_for(X, config, config.encoder) if start is None else type(start.vectorizer)
        if is_on_disk(X) or kind is not ArrayVectorizer:
            return X, None
        X = self._numbers(X, reset=start is None)
        names = getattr(self, "feature_names_in_", None)
        return X, None if names is None else tuple(names)

    def _numbers(self, given: Any, *, reset: bool) -> np.ndarray:
        """A table of numbers as an array, checked as scikit-learn does it."""
        if isinstance(given, np.ma.MaskedArray):
            given = np.ma.filled(given.astype(object), np.nan)
        least = 2 if reset else 1
        try:
            X: np.ndarray = validate_data(
                self, given, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=least
            )
            X = X.astype(np.float64) if X.dtype.kind == "O" else X  # of a frame of Python objects
            if X.dtype.kind not in "biuf":
                raise TypeError(f"X has dtype {X.dtype}")
        except (TypeError, ValueError) as error:
            raise not_numbers(given, error) from None
        check_exact(given, X, names_or_places(getattr(self, "feature_names_in_", None), self.n_features_in_))
        if X.dtype.kind == "b":
            return X.astype(np.float32)
        with np.errstate(over="ignore"):
            return X.astype(np.float64) if X.dtype.itemsize > 8 else X

    def _take(self, trained: Trained) -> ADDML:
        """What a fit gave."""
        self._take_model(trained.model, trained.history, trained.kept)
        self.center_, self.baseline_, self._examples = trained.center, trained.baseline, trained.examples
        self.training_, self.anomaly_scores_ = trained.training, trained.training.values
        self._held_out = trained.held_out
        self._hear(trained.rows)
        return self._set(trained.decision)

    def _take_model(self, model: MetricModel, history: list[dict[str, Any]], kept: np.ndarray) -> None:
        self.model_, self.encoder_, self.history_, self._kept_bits = model, model.encoder, history, kept
        self._n_features_out = len(model.encoder.weights) * model.encoder.outputs
        self.n_features_in_ = model.vectorizer.columns_in
        self.__dict__.pop("feature_names_in_", None)
        if model.vectorizer.names is not None:
            self.feature_names_in_ = np.array(model.vectorizer.names, dtype=object)

    def _read(self, X: Any) -> Rows:
        """The rows of X, checked once, here."""
        X = settled(X)
        X = to_numpy(X) if is_resident(X) else X
        vectorizer = self.model_.vectorizer
        if is_on_disk(X) and vectorizer.form is None:
            raise TypeError(
                f"{X!r} is a table on disk, which fit, the methods that score and write_scores take; "
                "read the rows to look at, and give them: pyarrow.parquet.read_table(...)"
            )
        if isinstance(vectorizer, ArrayVectorizer) and not self._is_plain(X):
            X = self._numbers(X, reset=False)
        rows = vectorizer.read(X)
        self._hear(rows)
        return rows

    def _hear(self, rows: Rows) -> None:
        if isinstance(rows, WindowRows) and rows.sampling is not None:
            self.sampling_ = rows.sampling
        if isinstance(rows, LazyRows) and rows.texts is not None:
            self._texts = rows.texts

    def _is_plain(self, X: Any) -> bool:
        """An array that needs none of scikit-learn's checks, which cost more than scoring a row."""
        plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X) > 0
        return plain and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")

    # Score --------------------------------------------------------------------------------------------------

    def anomaly_score(self, X: Any) -> Any:
        """How anomalous each row of X is: higher is more. A row's score does not depend on the others.

        Scores of a torch tensor on an accelerator are a tensor there.
        """
        check_is_fitted(self, "threshold_")
        if is_on_disk(X) and self.model_.form is None:
            return np.concatenate([scores for _, scores in self._scored(self._source(X))])
        if is_resident(X) and self.model_.prepares_there:
            return self.model_.resident_scores(self._resident(X))
        scores = self.model_.scores(self._read(X), resolve_device(self.device), max_threads(self.n_jobs))
        return as_like(scores, X.new_empty(0).double()) if is_resident(X) else scores

    def _resident(self, X: Any) -> Any:
        shape = self.model_.vectorizer.shape if self.model_.form is not None else (self.n_features_in_,)
        if tuple(X.shape[1:]) != shape or not len(X) or X.is_complex():
            raise ValueError(f"X has shape {tuple(X.shape)} ({X.dtype}); the detector was fitted to rows of {shape}")
        return X

    def write_scores(self, X: Any, path: str | os.PathLike[str]) -> None:
        """Write row, score and decision of every row of X, a path or a dataset as for `fit`, to a file, part by part.

        The name of the file says its format: .parquet, .csv or .jsonl. It appears when it is whole.
        """
        check_is_fitted(self, "threshold_")
        source = self._source(X)
        if is_part(path, X if isinstance(X, (str, os.PathLike)) else source):
            raise ValueError(f"{path} is the table itself or a part of it, which is not overwritten; write elsewhere")
        import pyarrow as pa

        from addml.io.write import open_writer

        schema = pa.schema([("row", pa.int64()), ("score", pa.float64()), ("is_anomaly", pa.bool_())])
        with open_writer(path, schema) as writer:
            for start, scores in self._scored(source):
                rows = np.arange(start + 1, start + len(scores) + 1)
                writer.write(pa.table([rows, scores, scores > self.threshold_], schema=schema))

    def _source(self, X: Any) -> Source:
        """The rows of a table on disk, with the columns that count."""
        columns = self.model_.columns
        return open_source(X, None if columns is None else columns.used)

    def _scored(self, source: Source) -> Iterator[tuple[int, np.ndarray]]:
        """The scores of rows on disk, part by part, each with the rows before it."""
        import pyarrow as pa

        device, threads, start = resolve_device(self.device), max_threads(self.n_jobs), 0
        for batch in source.batches():
            try:
                scores = self.model_.scores(self._read(pa.Table.from_batches([batch])), device, threads)
            except ValueError as error:
                if hasattr(error, "row"):
                    error.row += start
                raise
            yield start, scores
            start += len(scores)

    def stream(self) -> Stream:
        """A series scored step by step as it arrives, in constant time: exactly the scores of `causal=True`."""
        check_is_fitted(self, "threshold_")
        names = self.model_.vectorizer.names
        return Stream.of(self.model_, self.threshold_, None if names is None else list(names))

    def transform(self, X: Any) -> np.ndarray:
        """Embeddings of the rows of X, the members' side by side: (n, members * metric_dim), float32."""
        check_is_fitted(self, "threshold_")
        return self.model_.embeddings(self._read(X), resolve_device(self.device), max_threads(self.n_jobs))

    def embed(self, X: Any) -> np.ndarray:
        """The method's name for `transform`."""
        return self.transform(X)

    def rows_kept(self) -> np.ndarray:
        """Which training rows distillation kept, (epochs, members, n); a stopped member keeps none."""
        check_is_fitted(self, "threshold_")
        n = len(self.anomaly_scores_)
        if len(self._kept_bits) != len(self.history_):
            raise ValueError("which rows were kept is not remembered for a table of over a million rows")
        return np.unpackbits(self._kept_bits, axis=-1, count=n).astype(bool)

    # Decide -------------------------------------------------------------------------------------------------

    def is_anomaly(self, X: Any) -> Any:
        """Whether each row of X scores above the threshold."""
        return self.anomaly_score(X) > self.threshold_

    def score_samples(self, X: Any) -> Any:
        """scikit-learn's sign: higher is more normal."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Any:
        """scikit-learn's sign, shifted: below zero is an anomaly."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for anomalies, +1 for normal rows."""
        return np.where(to_numpy(self.is_anomaly(X)), -1, 1)

    def set_threshold(self, *, method: Any = None, contamination: Any = None, tau: float | None = None) -> ADDML:
        """Decide anew, without refitting.

        Parameters
        ----------
        method : "quantile", the given share of the training rows; "mad", three deviations above the median score;
            "iqr", the whisker of a box plot; "tail", the score that a share `contamination` of ordinary rows would
            pass (0.01 if not given), by the law of their tail; "mixture", where the upper of two laws becomes the
            likelier one; "auto", see docs/decisions.md; or a thresholder of PyThresh.
        contamination : the share, or "auto" or a thresholder of PyThresh as for the constructor.
        tau : the score itself.
        """
        check_is_fitted(self, "anomaly_scores_")
        if tau is not None:
            if method is not None or contamination is not None:
                raise ValueError(f"tau={tau!r} is the threshold itself; give no method and no contamination with it")
            parameters.number("tau", tau, -np.inf, with_low=False)
            return self._set(Decision(float(tau), BY_HAND))
        if method is None and contamination is None:
            raise ValueError("give a method, contamination or tau: set_threshold(method='auto'), for example")
        return self._decide(contamination, method)

    def _decide(self, contamination: Any, method: Any = None) -> ADDML:
        asked = parameters.threshold_method(method, contamination, METHODS, WITH_SHARE)
        return self._set(self.training_.decide(*asked))

    def _set(self, decision: Decision) -> ADDML:
        self.decision_, self.threshold_, self.offset_ = decision, decision.tau, -decision.tau
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of normal and of anomaly, (n, 2); the second one rises with the score.

        Two columns as in scikit-learn and PyOD. Without labels they rest on how the training scores lie, see
        docs/decisions.md; labels given to `fit` bend them. The threshold has no part in them.
        """
        scores = to_numpy(self.anomaly_score(X))
        anomalous = self.training_.probability(scores)
        return np.column_stack([1 - anomalous, anomalous])

    def confidence(self, X: Any) -> np.ndarray:
        """How often each row's decision would be the same with other training rows of the same kind, 0 to 1."""
        return self._stability(to_numpy(self.anomaly_score(X)))

    def _stability(self, scores: np.ndarray) -> np.ndarray:
        return self.training_.stability(scores, self.threshold_)

    # Explain ------------------------------------------------------------------------------------------------

    def explain(self, X: Any, rows: Any = None) -> np.ndarray:
        """How much each column adds to each row's score, `(n, n_features_in_)`: above 0 makes it stranger.

        Of images it is a map (n, height, width): how much each place adds.

        A row of it adds up to the row's score, and is made of the view that finds the row strangest; a score below 0,
        where nothing is strange, has only parts below 0. With other scorers (center, dissimilarity, knn) a row adds up
        to its score less that of the usual row, `baseline_`. Columns that the detector does not use add nothing. In a
        series a column is a channel, and a step's score is shared as in the window that ends there; with `causal=True`
        networks judge no window that is not whole yet. `rows` are the places of the rows to explain, where not all are
        wanted.
        """
        check_is_fitted(self, "threshold_")
        read = self._read(X)
        asked, incomplete = parameters.places("rows", rows, len(read)), self.model_.incomplete(read)
        device, threads, series = resolve_device(self.device), max_threads(self.n_jobs), None
        if isinstance(read, WindowRows) and views_of(self.model_) is not None:
            series = SeriesContext.of(self.model_, read, asked, device, threads)
        used = attributions(
            self.model_,
            read.take(asked),
            self.baseline_,
            device,
            threads,
            None if incomplete is None else incomplete[asked],
            series,
        )
        if self.model_.form is not None and self.model_.form.kind == "images":
            return heat_map(used, self.model_.form)
        if self.model_.columns is None:
            return used
        places = {name: place for place, name in enumerate(self.feature_names_in_)}
        result = np.zeros((len(used), self.n_features_in_))
        result[:, [places[name] for name in self.model_.columns.used]] = used
        return result

    def nearest_normal(self, X: Any, k: int = 5) -> Nearest:
        """The kept training rows most like each row of X, among `examples` of them: their places and distances."""
        check_is_fitted(self, "threshold_")
        parameters.whole("k", k)
        if not len(self._examples.rows):
            raise ValueError("no training rows were remembered; fit with examples=1000, for example")
        rows = self._read(X)
        return self._examples.nearest(self.model_, rows.take(np.arange(len(rows))), k)

    # Save ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector as a folder of JSON and safetensors for `addml.load`; nothing is pickled."""
        check_is_fitted(self, "threshold_")
        self._config()
        if not os.fspath(path):
            raise ValueError(f"path={path!r} names no folder; give the one to write")
        document, arrays = self.model_.to_plain()
        settings, left_out = plain.plain_settings(self.get_params(deep=False))
        if left_out:
            warn(f"not saved, being objects: {', '.join(left_out)}; pass them again to refit")
        document |= {
            "addml": __version__,
            "parameters": settings,
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
        self._take_model(model, [plain.record_from_plain(record) for record in document["history"]], own["kept"])
        _check_own_arrays(model, own, len(self.history_))
        self.center_, self.anomaly_scores_, self.baseline_ = own["center"], own["anomaly_scores"], own["baseline"]
        self._examples = Examples(own["examples.rows"], own["examples.features"])
        self.training_ = TrainingScores.from_plain(document, own)
        if ids := plain.ids_from_plain(document):
            self._ids = ids
        self._set(Decision.from_plain(document))
        self._held_out = np.unpackbits(own["held_out"], axis=1, count=len(self.anomaly_scores_)).astype(bool)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def load(path: str | os.PathLike[str], *, device: str = "auto", encoder: Any = None) -> ADDML:
    """The detector that `save` wrote, ready to score on any device; no file is ever unpickled.

    A file holds no code: an encoder of your own has to be given again, as it was given to the constructor.
    """
    resolve_device(device)
    if encoder is not None and not is_module(encoder):
        raise ValueError(
            f"encoder={encoder!r} is no network of your own; give the one that was fitted, or leave it out"
        )
    document, arrays = model_file.load(path)
    with model_file.told(path, document):
        own_settings = {"device": device} | ({} if encoder is None else {"encoder": encoder})
        detector = ADDML(**{**plain.settings_from_plain(document["parameters"]), **own_settings})
        detector._config()
        detector._restore(document, arrays, encoder)
    return detector


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
