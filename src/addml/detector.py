"""ADDML, the detector: a scikit-learn estimator that wires the stages, which never import each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from addml import fitting, model_file, parameters, plain
from addml.arrays import as_like, is_resident, to_numpy
from addml.checkpoint import Storage, described, kept_safe
from addml.compute import blas_threads, max_threads, resolve_device
from addml.decisions.decision import Decision, TrainingScores
from addml.decisions.thresholds import METHODS, WITH_SHARE
from addml.encoders.module import is_module
from addml.explain.attribution import Examples
from addml.explaining import Explains
from addml.fitting import LostWarning as LostWarning
from addml.fitting import TextCellsWarning as TextCellsWarning
from addml.inputs.disk import LEAST_STREAMED, Source, is_part, open_source
from addml.inputs.series import Windows
from addml.learning.learner import MetricLearner
from addml.learning.state import TrainingState
from addml.learning.training import train
from addml.model import MetricModel
from addml.progress import on_standard_error
from addml.scoring.base import Scorer
from addml.scoring.guidance import Guided
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


class ADDML(Explains, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin, BaseEstimator):
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
        gone through again and again, after one pass that writes the prepared rows into a nameless file in the folder
        `scratch`; with `cache=False` they are read and prepared every time. See docs/scale.md.

        `checkpoint` names a folder that keeps the state of training after every epoch. After a kill the same call goes
        on from there and gives the same model; at the end the folder is removed.
        """
        storage = Storage(checkpoint, scratch, cache)
        return self._whole_or_not(lambda: self._fit(X, labels, None, storage))

    def refit(self, X: Any, y: Any = None, labels: Any = None) -> ADDML:
        """Go on learning from the present networks with the rows of X, as more rows or more labels come in.

        Rows are prepared as before, and settings that ask for more than that (`scaling`, `one_sided`, `window`) are
        refused; what is learned from the rows, the scale of the scores and the threshold are new.
        """
        check_is_fitted(self, "threshold_")
        self._check_preparation(self.model_)
        return self._whole_or_not(lambda: self._fit(X, labels, self.model_, Storage()))

    def _whole_or_not(self, work: Callable[[], ADDML]) -> ADDML:
        before = dict(vars(self))
        try:
            with on_standard_error(self.verbose):
                return work()
        except BaseException:  # an interrupt too: the estimator stays as it was, and a second one cannot part this line
            self.__dict__ = before
            raise

    def _fit(self, X: Any, labels: Any, start: MetricModel | None, storage: Storage) -> ADDML:
        self._check_parameters()
        if self._is_on_disk(X, fitting=start is None):
            source = open_source(X)
            for note in source.partial:
                fitting.warn(note, LostWarning)
            if source.size > parameters.size("memory", self.memory) and len(source) >= LEAST_STREAMED:
                return self._fit_streamed(source, labels, start, storage)
            X = source.table()
        device, X = resolve_device(self.device), self._read(X, fitting=start is None)
        if len(X) < 2:
            raise ValueError(f"X has {len(X)} row, which is too few to learn from: give at least two")
        form, (columns, features, numbers) = fitting.form_of(X, self.causal), self._prepared(X, start)
        marks = parameters.read_labels(labels, len(numbers))
        rows, randoms = fitting.training_rows(numbers, features, device), self._randoms()
        shape = (features.width,) if form is None else form.shape
        encoder = self._present(start, shape, device) if start else self._new_encoder(shape, randoms, device)
        usable = X.whole(self._stride) if isinstance(X, Windows) else np.arange(len(numbers))
        members = [self._member(usable, marks, random) for random in randoms]
        learner = MetricLearner(encoder, self._objective())
        if marks is not None and self.margin is None:
            learner.objective = fitting.with_margin(learner, rows, members)
        state = TrainingState.begin(encoder.weights, self.patience)
        with kept_safe(storage.checkpoint, self._plain_settings(), lambda: described(rows.values, marks)) as kept:
            state = kept.restored(state, members, device)
            train(learner, rows, members, self._schedule(encoder), state, lambda state: kept.save(state, members))
        with blas_threads(1):
            space = fitting.metric_space(learner, rows, members, state.best, marks, features, form, randoms[0])
        fitting.warn_of_collapse(state)
        best, scorer = encoder.with_weights(to_numpy(state.best)), self._scorer(images=form is not None)
        scorer = Guided(scorer) if len(space.anomalies) or len(space.normals) else scorer
        model = MetricModel(features, best, self.distance, scorer, scorer.fit(space), None, columns, form)  # type: ignore[arg-type]
        model, scores = fitting.fitted_model(model, X, space, device, max_threads(self.n_jobs))
        self._take(model, state.history, np.array(state.kept, np.uint8))
        self.center_ = space.center
        self._held_out = fitting.held_out(members, len(numbers))
        self.training_, self.anomaly_scores_ = TrainingScores(scores, marks), scores
        with blas_threads(1):
            self._remember(space, scores)
        return self._decide(self.contamination)

    def _fit_streamed(self, source: Source, labels: Any, start: MetricModel | None, storage: Storage) -> ADDML:
        """Learn from rows that do not fit into memory."""
        if labels is not None:
            raise ValueError(f"labels cannot be learned from rows on disk; give memory > {source.size}, or a table")
        from addml import streamed  # pyarrow, only where there is a table

        found = streamed.fit(self, source, start, resolve_device(self.device), storage, self._plain_settings())
        self._take(found.model, found.state.history, np.array(found.state.kept, np.uint8))
        self.center_, self._held_out = found.space.center, found.held_out
        with blas_threads(1):
            self._remember(found.space, found.sample_scores)
        self._examples = Examples(found.places[self._examples.rows], self._examples.features)
        self.training_, self.anomaly_scores_ = TrainingScores(found.scores), found.scores
        method, share = parameters.threshold_method(None, self.contamination, METHODS, WITH_SHARE)
        if method != "quantile" or share is None:
            return self._decide(self.contamination)
        return self._set(Decision(streamed.exact_quantile(found.ordered, 1 - share), method, share))

    # Score --------------------------------------------------------------------------------------------------

    def anomaly_score(self, X: Any) -> Any:
        """How anomalous each row of X is: higher is more. A row's score does not depend on the others.

        Scores of a torch tensor on an accelerator are a tensor there.
        """
        check_is_fitted(self, "threshold_")
        if self._is_on_disk(X):
            return np.concatenate([scores for _, scores in self._scored(self._source(X))])
        rows = self._read(X, resident=self.model_.prepares_there)
        if is_resident(rows):
            return self.model_.resident_scores(rows)
        scores = self.model_.scores(rows, resolve_device(self.device), max_threads(self.n_jobs))
        return as_like(scores, X.new_empty(0).double()) if is_resident(X) else scores

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
        names = self._names() if hasattr(self, "feature_names_in_") else None
        return Stream.of(self.model_, self.threshold_, names)

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
        detector._check_parameters()
        detector._restore(document, arrays, encoder)
    return detector
