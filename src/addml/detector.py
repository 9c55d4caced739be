"""ADDML, the detector: a scikit-learn estimator that wires the stages, which never import each other. Level 2."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from addml import __version__, model_file, parameters, plain
from addml.arrays import Array, to_numpy
from addml.compute import blas_threads, most_threads, on_device, resolve_device, threads_for
from addml.data.features import Features
from addml.data.frames import has_other_than_numbers, is_frame
from addml.data.rows import MemoryRows
from addml.encoders import ACTIVATIONS, MLP
from addml.geometry import DISTANCES, count_of
from addml.learning.distillation import distill, padded
from addml.learning.losses import LOSSES, Objective
from addml.learning.metric import MetricLearner
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train
from addml.model import MetricModel
from addml.model_file import ModelFileError
from addml.scoring.scorers import SCORERS, MetricSpace, Scorer
from addml.scoring.thresholds import quantile_threshold

logger = logging.getLogger("addml")

LEFT_OUT = "columns left out"  # how the warning begins that says so


if TYPE_CHECKING:
    from addml.data.columns import Columns


class ADDML(ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin, BaseEstimator):
    """Anomaly detection by deep metric learning, without labels.

    Learns a metric space in which normal rows lie close together and scores every row by its distance from
    their centre. `ADDML()` is the default for tables nobody has seen, `ADDML.paper()` the paper's settings.

    Parameters
    ----------
    encoder : the kind of network, "mlp".
    hidden : widths of the hidden layers; () for none.
    metric_dim : dimensions of the metric space.
    activation, output_activation : "tanh", "relu", "leaky_relu", "elu", "sigmoid" or "linear".
    loss : "instance", the distances of all pairs of a mini-batch, or "center", those to the centre.
    distance : "sqeuclidean", "euclidean" or "cosine".
    margin : how far labelled anomalies are pushed from normal rows.
    anomaly_pairs : whether labelled anomalies are pulled together too.
    normal_ratio : share of the training rows that each epoch learns from; 1 for rows known to be normal.
    hard_ratio : share of a mini-batch's distances, the largest, that its loss takes.
    miner : a pair miner of pytorch-metric-learning in place of the hard normal mining, or None.
    scorer : "center", "dissimilarity", "knn", or a scorer of `addml.scoring`.
    one_sided : columns where only one direction matters, by name or place: {"amount": "high"}.
    contamination : share of the training rows that the threshold calls anomalies, in (0, 0.5].
    members : networks trained together and averaged.
    epochs, batch_size, learning_rate, weight_decay : training by Adam.
    validation_ratio, patience : rows held out for early stopping, and epochs without improvement before it.
    device : "auto", "cpu", "cuda", "cuda:N" or "mps".
    n_jobs : threads at most; None for all cores.
    random_state : None, a number, a RandomState or a Generator.
    verbose : 1 to log every epoch.

    Attributes
    ----------
    encoder_ : the best networks, one stack of layers for all members.
    center_ : their centres of the training rows, (members, metric_dim).
    threshold_ : a row scoring above it is an anomaly.
    offset_ : scikit-learn's offset, minus the threshold.
    anomaly_scores_ : scores of the training rows.
    history_ : one dict an epoch.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    """

    def __init__(
        self,
        *,
        encoder: str = "mlp",
        hidden: tuple[int, ...] = (64,),
        metric_dim: int = 64,
        activation: str = "tanh",
        output_activation: str = "tanh",
        loss: str = "instance",
        distance: str = "sqeuclidean",
        margin: float = 1.0,
        anomaly_pairs: bool = False,
        normal_ratio: float = 2 / 3,
        hard_ratio: float = 1 / 3,
        miner: Callable[..., Any] | None = None,
        scorer: str | Scorer = "center",
        one_sided: dict[Any, str] | None = None,
        contamination: float = 0.1,
        members: int = 5,
        epochs: int = 50,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-5,
        validation_ratio: float = 0.1,
        patience: int = 5,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
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
        self.one_sided = one_sided
        self.contamination = contamination
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
        self.verbose = verbose

    @classmethod
    def paper(cls, **changes: Any) -> ADDML:
        """The paper's detector: one member, batches of 128. Give `normal_ratio=1` for one-class data."""
        return cls(**{"members": 1, "batch_size": 128, **changes})

    # Fit ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, labels: Any = None) -> ADDML:
        """Learn from the rows of X; y is ignored, labels (0 normal, 1 anomaly, -1 unknown) are learned from."""
        before = dict(vars(self))
        try:
            with _logging(self.verbose):
                return self._fit(X, labels)
        except BaseException:  # an interrupt too: the estimator stays as it was, and a second one cannot part this line
            self.__dict__ = before
            raise

    def _fit(self, X: Any, labels: Any) -> ADDML:
        self._check_parameters()
        device, X = resolve_device(self.device), self._read(X, fitting=True)
        columns, numbers = (None, X) if isinstance(X, np.ndarray) else _fitted_columns(X)
        names = self._names() if columns is None else columns.names
        marks = parameters.read_labels(labels, len(numbers))
        features = Features.fit(numbers, parameters.sides(self.one_sided, names))
        if columns is not None:
            features = columns.rescaled(features)
        _warn_of_columns("columns without a single value tell nothing", features.empty, names)
        rows = MemoryRows(on_device(features.transform(numbers), device))
        randoms = self._randoms()
        encoder = self._new_encoder(features.width, randoms, device)
        members = [self._member(len(numbers), marks, random) for random in randoms]
        learner = MetricLearner(encoder, self._objective())
        state = TrainingState.begin(encoder.weights, self.patience)
        train(learner, rows, members, self._schedule(encoder), state)
        with blas_threads(1):
            space = _metric_space(learner, rows, members, state.best, randoms[0])
        _warn_of_collapse(state)
        best, scorer = encoder.with_weights(to_numpy(state.best)), self._scorer()
        model = MetricModel(features, best, self.distance, scorer, scorer.fit(space), columns=columns)  # type: ignore[arg-type]
        scores = model.member_scores(X, device, most_threads(self.n_jobs))
        self._take(model.with_scale(scores), state.history, np.array(state.kept, np.uint8))
        self.center_ = space.center
        self._held_out = _held_out(members, len(numbers))
        self.anomaly_scores_ = self.model_.combine(scores)
        return self.set_threshold(contamination=self.contamination)

    def _take(self, model: MetricModel, history: list[dict[str, Any]], kept_bits: np.ndarray) -> None:
        self.model_, self.encoder_, self.history_, self._kept_bits = model, model.encoder, history, kept_bits
        self._n_features_out = len(model.encoder.weights) * model.encoder.widths[-1]

    def set_threshold(self, *, contamination: float | None = None, tau: float | None = None) -> ADDML:
        """Decide anew, without refitting: by the share of anomalies among the training rows, or by the score itself."""
        check_is_fitted(self, "anomaly_scores_")
        if (contamination is None) == (tau is None):
            raise ValueError(f"give contamination or tau, not both or neither (got {contamination!r} and {tau!r})")
        if tau is not None:
            parameters.number("tau", tau, -np.inf, with_low=False)
            self.threshold_ = float(tau)
        else:
            parameters.number("contamination", contamination, 0, 0.5, with_low=False)
            self.threshold_ = quantile_threshold(self.anomaly_scores_, float(contamination))  # type: ignore[arg-type]
        self.offset_ = -self.threshold_
        return self

    # Score --------------------------------------------------------------------------------------------------

    def anomaly_score(self, X: Any) -> np.ndarray:
        """How anomalous each row of X is: higher is more. A row's score does not depend on the others."""
        check_is_fitted(self, "threshold_")
        return self.model_.scores(self._read(X), resolve_device(self.device), most_threads(self.n_jobs))

    def is_anomaly(self, X: Any) -> np.ndarray:
        """Whether each row of X scores above the threshold."""
        return self.anomaly_score(X) > self.threshold_

    def score_samples(self, X: Any) -> np.ndarray:
        """scikit-learn's sign: higher is more normal."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """scikit-learn's sign, shifted: below zero is an anomaly."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """-1 for anomalies, +1 for normal rows."""
        return np.where(self.is_anomaly(X), -1, 1)

    def transform(self, X: Any) -> np.ndarray:
        """Embeddings of the rows of X, the members' side by side: (n, members * metric_dim), float32."""
        check_is_fitted(self, "threshold_")
        return self.model_.embeddings(self._read(X), resolve_device(self.device), most_threads(self.n_jobs))

    def embed(self, X: Any) -> np.ndarray:
        """The method's name for `transform`."""
        return self.transform(X)

    def rows_kept(self) -> np.ndarray:
        """Which training rows distillation kept, (epochs, members, n); a stopped member keeps none."""
        check_is_fitted(self, "threshold_")
        n = len(self.anomaly_scores_)
        if len(self._kept_bits) != len(self.history_):
            raise ValueError(f"which rows were kept is not remembered for {n} rows, over a million")
        return np.unpackbits(self._kept_bits, axis=-1, count=n).astype(bool)

    # Save ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector as a folder of JSON and safetensors for `addml.load`; nothing is pickled."""
        check_is_fitted(self, "threshold_")
        self._check_parameters()
        document, arrays = self.model_.to_plain()
        settings, left_out = plain.plain_settings(self.get_params(deep=False))
        if left_out:
            _warn(f"not saved, being objects: {', '.join(left_out)}; pass them again to refit")
        document |= {
            "addml": __version__,
            "parameters": settings,
            "columns_in": self.n_features_in_,
            "names": list(map(str, getattr(self, "feature_names_in_", []))) or None,
            "threshold": self.threshold_,
            "history": [plain.plain_record(record) for record in self.history_],
        }
        arrays |= {
            "center": self.center_,
            "anomaly_scores": self.anomaly_scores_,
            "kept": self._kept_bits,
            "held_out": np.packbits(self._held_out, axis=1),
        }
        model_file.save(path, document, arrays)

    # Input --------------------------------------------------------------------------------------------------

    def _read(self, X: Any, *, fitting: bool = False) -> Any:
        """The table, checked once, here: an array of numbers with NaN for gaps, or a pyarrow table."""
        if has_other_than_numbers(X) if fitting else self.model_.columns is not None:
            return self._table(X, fitting)
        if fitting or not self._is_plain(X):
            X = self._numbers(X, fitting)
        parameters.finite(X, self._names())
        if not fitting:
            message = "gaps in columns that had none in training took the median"
            _warn_of_columns(message, self.model_.features.new_gaps(X), self._names())
        return np.asarray(X)

    def _table(self, X: Any, fitting: bool) -> Any:
        """A frame with columns that are not numbers, as a pyarrow table; columns go by name."""
        if not fitting and not is_frame(X):
            raise TypeError(f"the detector was fitted to a table with named columns; give such a table, not {type(X)}")
        if fitting:
            validate_data(self, X, skip_check_array=True)
            if len(X) < 2:
                raise ValueError(f"X has {len(X)} sample(s), 1 sample is not enough: give at least two rows")
        from addml.data.columns import as_table  # pyarrow, only where there is a table

        return as_table(X)

    def _numbers(self, given: Any, fitting: bool) -> np.ndarray:
        if isinstance(given, np.ma.MaskedArray):
            given = np.ma.filled(given.astype(object), np.nan)
        least = 2 if fitting else 1
        try:
            X: np.ndarray = validate_data(
                self, given, reset=fitting, dtype="numeric", ensure_all_finite=False, ensure_min_samples=least
            )
            X = X.astype(np.float64) if X.dtype.kind == "O" else X  # of a frame of Python objects
            if X.dtype.kind not in "biuf":
                raise TypeError(f"X has dtype {X.dtype}")
        except (TypeError, ValueError) as error:
            raise parameters.not_numbers(given, error) from None
        parameters.exact(given, X, self._names())
        if X.dtype.kind == "b":
            return X.astype(np.float32)
        with np.errstate(over="ignore"):
            return X.astype(np.float64) if X.dtype.itemsize > 8 else X

    def _is_plain(self, X: Any) -> bool:
        """An array that needs none of scikit-learn's checks, which cost more than scoring a row."""
        plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X) > 0
        return plain and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")

    def _names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", map(str, range(self.n_features_in_))))

    # Settings -----------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        parameters.one_of("encoder", self.encoder, ["mlp"])
        parameters.one_of("activation", self.activation, ACTIVATIONS)
        parameters.one_of("output_activation", self.output_activation, ACTIVATIONS)
        parameters.one_of("loss", self.loss, LOSSES)
        parameters.one_of("distance", self.distance, DISTANCES)
        parameters.widths("hidden", self.hidden)
        for name in ("metric_dim", "members", "epochs", "patience"):
            parameters.whole(name, getattr(self, name))
        parameters.whole("batch_size", self.batch_size, least=2)
        for name in ("normal_ratio", "hard_ratio"):
            parameters.number(name, getattr(self, name), 0, 1, with_low=False)
        parameters.number("validation_ratio", self.validation_ratio, 0, 1, with_low=False, with_high=False)
        parameters.number("contamination", self.contamination, 0, 0.5, with_low=False)
        parameters.number("margin", self.margin, 0, with_low=False)
        parameters.number("learning_rate", self.learning_rate, 0, with_low=False)
        parameters.number("weight_decay", self.weight_decay, 0, with_low=True)
        parameters.flag("anomaly_pairs", self.anomaly_pairs)
        parameters.jobs("n_jobs", self.n_jobs)
        if self.loss == "center" and (self.miner is not None or self.anomaly_pairs):
            raise ValueError("miner and anomaly_pairs are about pairs, which loss='center' has not; use 'instance'")
        if self.miner is not None and not callable(self.miner):
            raise ValueError(f"miner={self.miner!r} must be None or a pair miner of pytorch-metric-learning")
        self._scorer()

    def _scorer(self) -> Scorer:
        if isinstance(self.scorer, tuple(SCORERS.values())):
            return self.scorer  # type: ignore[return-value]
        parameters.one_of("scorer", self.scorer, SCORERS)
        return SCORERS[str(self.scorer)]()

    def _objective(self) -> Objective:
        return Objective(self.loss, self.distance, self.hard_ratio, self.margin, self.anomaly_pairs, self.miner)  # type: ignore[arg-type]

    def _schedule(self, encoder: MLP) -> Schedule:
        operations = 3 * encoder.operations * self.batch_size  # of one step: forward, and twice that back
        return Schedule(
            self.epochs,
            self.batch_size,
            self.learning_rate,
            self.weight_decay,
            self.patience,
            least_batch=1 if self.loss == "center" else 2,
            threads=threads_for(operations, most_threads(self.n_jobs)),
        )

    def _randoms(self) -> list[np.random.Generator]:
        """One generator a member: member e draws the same whatever the number of members."""
        entropy = parameters.generator_seed(self.random_state).entropy
        seeds = [np.random.SeedSequence(entropy, spawn_key=(e,)) for e in range(self.members)]
        return [np.random.default_rng(seed) for seed in seeds]

    def _new_encoder(self, width: int, randoms: list[np.random.Generator], device: str) -> MLP:
        widths = (width, *parameters.widths("hidden", self.hidden), self.metric_dim)
        activations = [self.activation] * (len(widths) - 2) + [self.output_activation]
        encoder = MLP.initial(widths, activations, randoms)
        return encoder.with_weights(on_device(encoder.weights.astype(np.float32), device))

    def _member(self, rows: int, marks: np.ndarray | None, random: np.random.Generator) -> Member:
        """One member's rows: V drawn at random, the rest M; too few rows to spare serve as both."""
        usable = np.arange(rows) if marks is None else np.flatnonzero(marks != 1)
        held_out = count_of(self.validation_ratio, len(usable), least=2)
        order = random.permutation(usable)
        train, validation = np.sort(order[held_out:]), np.sort(order[:held_out])
        if len(train) < 2:
            train = validation = usable
        if marks is None:
            return Member(train, validation, random, self.normal_ratio)
        return Member(train, validation, random, self.normal_ratio, np.flatnonzero(marks == 1), marks[train] == 0)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def load(path: str | os.PathLike[str], *, device: str = "auto") -> ADDML:
    """The detector that `save` wrote, ready to score on any device; no file is ever unpickled."""
    resolve_device(device)
    document, arrays = model_file.load(path)
    try:
        own = {name: arrays.pop(name) for name in ("center", "anomaly_scores", "kept", "held_out")}
        model = MetricModel.from_plain(document, arrays)
        detector = ADDML(**{**plain.settings_from_plain(document["parameters"]), "device": device})
        detector._check_parameters()
        detector._take(model, [plain.record_from_plain(record) for record in document["history"]], own["kept"])
        detector.center_, detector.anomaly_scores_ = own["center"], own["anomaly_scores"]
        detector.n_features_in_ = int(document["columns_in"])
        if document["names"] is not None:
            detector.feature_names_in_ = plain.names_from_plain(document["names"], detector.n_features_in_)
        detector.set_threshold(tau=document["threshold"])
        _check_own_arrays(detector, own["held_out"])
        detector._held_out = np.unpackbits(own["held_out"], axis=1, count=len(detector.anomaly_scores_)).astype(bool)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{path}: model.json does not describe a detector ({error!r}); save it again") from None
    return detector


def _check_own_arrays(detector: ADDML, held_out: np.ndarray) -> None:
    """The arrays that are the detector's, not its model's."""
    members, scores, kept = len(detector.encoder_.weights), detector.anomaly_scores_, detector._kept_bits
    model_file.expect("center", detector.center_, np.float32, (members, detector.encoder_.widths[-1]))
    model_file.expect("anomaly_scores", scores, np.float64, (None,))
    bits = (len(detector.history_), members, -(-len(scores) // 8))
    model_file.expect("kept", kept, np.uint8, bits if kept.ndim > 1 else (0,))
    model_file.expect("held_out", held_out, np.uint8, bits[1:])


def _fitted_columns(table: Any) -> tuple[Columns, np.ndarray]:
    """How the columns of a table become numbers, and those numbers; what was left out is said."""
    from addml.data.columns import Columns

    columns = Columns.fit(table)
    if columns.left_out:
        listed = "; ".join(f"{name!r} ({reason})" for name, reason in columns.left_out[:5])
        more = f"; and {len(columns.left_out) - 5} more" if len(columns.left_out) > 5 else ""
        _warn(f"{LEFT_OUT}: {listed}{more}")
    return columns, columns.transform(table)


def _held_out(members: list[Member], rows: int) -> np.ndarray:
    """Which rows each member only validated with, (members, rows)."""
    marks = np.zeros((len(members), rows), bool)
    for mark, member in zip(marks, members, strict=True):
        mark[np.setdiff1d(member.validation, member.train)] = True
    return marks


def _metric_space(
    learner: MetricLearner, rows: MemoryRows, members: list[Member], weights: Array, random: np.random.Generator
) -> MetricSpace:
    """The metric space of the best networks: their centres over M, the distances to them, what they keep of M."""
    learner.set_weights(weights)
    ids = padded([member.train for member in members], weights)
    center, scores = learner.row_scores(rows, ids, [len(member.train) for member in members])
    kept = [np.flatnonzero(keep) for keep in distill(scores, members)[1]]

    def embed(places: np.ndarray) -> np.ndarray:
        chosen = [member.train[place] for member, place in zip(members, places, strict=True)]
        return learner.embed(rows, padded(chosen, weights))

    return MetricSpace(to_numpy(center), to_numpy(scores), kept, embed, learner.objective.distance, random)


def _warn_of_collapse(state: TrainingState) -> None:
    for e in np.flatnonzero(state.collapsed):
        _warn(
            f"member {e} collapsed in epoch {state.collapsed[e]}: its embeddings met in one point or left all bounds; "
            f"the network of epoch {state.best_epoch[e]} is used. Fewer epochs or a lower learning_rate avoid this."
        )


def _warn_of_columns(message: str, columns: np.ndarray, names: list[str]) -> None:
    if len(columns):
        listed = ", ".join(repr(names[column]) for column in columns[:5])
        more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
        _warn(f"{message}: {listed}{more}")


def _warn(message: str) -> None:
    """Warn at the line that called into this package, however deep the warning arose, or through scikit-learn."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("addml.", "sklearn.")):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, stacklevel=depth)


@contextmanager
def _logging(verbose: int) -> Iterator[None]:
    """Show the log of training on standard error while it runs, where verbose asks for it."""
    if not verbose:
        yield
        return
    handler, level = logging.StreamHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
