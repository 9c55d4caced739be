"""What a fit puts together from its stages: columns, members' rows, the metric space of the best networks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.arrays import Array, evenly_spaced_with_ends, index_like, to_numpy
from addml.compute import on_device
from addml.inputs.forms import Form
from addml.inputs.rows import LazyRows, MemoryRows, WindowRows
from addml.inputs.series import Windows
from addml.learning.distillation import distill, padded
from addml.learning.learner import MetricLearner
from addml.learning.losses import Objective
from addml.learning.state import Member, TrainingState
from addml.model import MetricModel
from addml.preprocessing.scaling import Features
from addml.scoring.base import MetricSpace
from addml.scoring.guidance import Guided, calibrated, drop_doubtful_labels, with_label_weight
from addml.text import listed

if TYPE_CHECKING:
    from addml.inputs.table import Columns
    from addml.preprocessing.text_values import TextCells

ROWS_AT_ONCE = 65536
GUIDING_ROWS = 20_000  # training rows, at even steps, that say how much labelled anomalies are to count
MARGIN_ROWS = 1024  # of each member, that say how far rows lie apart before training
VALUES = 2**24  # numbers of images or windows, at even steps, that scales are learned from


Rows = MemoryRows | LazyRows | WindowRows


class LostWarning(UserWarning):
    """Columns that are not learned from, and values that cannot be read, which the commands say by themselves."""


class TextCellsWarning(LostWarning):
    """Texts in columns of numbers, which are missing values and make their rows strange."""

    def __init__(self, cells: TextCells) -> None:
        """What they are."""
        super().__init__("; ".join(cells.words()))
        self.cells = cells


def fitted_columns(table: Any) -> Columns:
    """How the columns of a table become numbers; what was left out is said."""
    from addml.inputs.table import Columns

    columns = Columns.fit(table)
    say_what_is_lost(columns)
    return columns


def say_what_is_lost(columns: Columns) -> None:
    """Warn of the columns that are not learned from, and of values that became gaps."""
    if columns.left_out:
        reasons = [f"{name!r} ({reason})" for name, reason in columns.left_out]
        warn(f"columns left out: {listed(reasons, between='; ')}", LostWarning)
    for note in columns.unread:
        warn(note, LostWarning)


def form_of(X: Any, causal: bool = True) -> Form | None:
    """The form of the rows of X; none where they are those of a table."""
    kind = {3: "series", 4: "images"}.get(len(X.shape))
    return None if kind is None else Form(kind, tuple(X.shape[1:]), causal or kind == "images")


def channel_features(X: np.ndarray | Windows, form: Form, sides: np.ndarray, *, robust: bool) -> Features:
    """How the numbers of images or windows X (n, ...) become features: those of a channel alike."""
    if isinstance(X, Windows):
        features = Features.fit(X.steps, sides, robust=robust)
        median = features.median if X.usual is None else X.usual  # later series are filled as this one was
        return replace(features, median=median).spread(form.channel_of())
    some = X[evenly_spaced_with_ends(np.arange(len(X)), max(2, VALUES // form.size))].reshape(-1, form.size)
    channel = form.channel_of()
    values = np.stack([some[:, channel == c].ravel() for c in range(form.channels)], axis=1)
    return Features.fit(values, sides, robust=robust).spread(channel)


def training_rows(numbers: Any, features: Features, device: str) -> Rows:
    """Prepared rows where the training is; on the CPU images and windows stay as they are until they are asked for."""
    if numbers.ndim == 2:
        return MemoryRows(on_device(features.transform(numbers), device))
    rows: LazyRows | WindowRows = LazyRows(numbers, features)
    if isinstance(numbers, Windows):  # every step is prepared once
        rows = WindowRows(numbers.prepared(features.first(numbers.shape[2]).transform))
    if device == "cpu":
        return rows
    parts = [np.arange(start, min(start + ROWS_AT_ONCE, len(rows))) for start in range(0, len(rows), ROWS_AT_ONCE)]
    return MemoryRows(on_device(np.concatenate([rows.take(part) for part in parts]), device))


def held_out(members: list[Member], rows: int) -> np.ndarray:
    """Which rows each member only validated with, (members, rows)."""
    marks = np.zeros((len(members), rows), bool)
    for mark, member in zip(marks, members, strict=True):
        mark[member.validation], mark[member.train] = True, False
    return marks


def with_margin(learner: MetricLearner, rows: Rows, members: list[Member]) -> Objective:
    """The objective with a margin of the data's own scale: about the mean distance of two rows before training."""
    ids = padded([evenly_spaced_with_ends(member.train, MARGIN_ROWS) for member in members], learner.encoder.weights)
    _, scores = learner.row_scores(rows, ids, [ids.shape[1]] * len(members))
    margin = 2 * float(to_numpy(scores).mean())
    return replace(learner.objective, margin=margin) if margin > 0 else learner.objective


def metric_space(
    learner: MetricLearner,
    rows: Rows,
    members: list[Member],
    weights: Array,
    marks: np.ndarray | None,
    features: Features,
    form: Form | None,
    random: np.random.Generator,
    center: Array | None = None,
) -> MetricSpace:
    """The metric space of the best networks: their centres over M, the distances to them, what they keep of M.

    The rows may be a sample; the centre is then that of all rows.
    """
    learner.set_weights(weights)
    ids = padded([member.train for member in members], weights)
    center, scores = learner.row_scores(rows, ids, [len(member.train) for member in members], center)
    kept = [member.train[keep] for member, keep in zip(members, distill(scores, members)[1], strict=True)]
    weight = np.ones(features.width, np.float32) if form is None else form.counts()
    labels = np.full(len(rows), -1) if marks is None else marks
    not_anomalous = np.flatnonzero(labels != 1)

    def prepared(chosen: np.ndarray) -> np.ndarray:
        return to_numpy(rows.take(index_like(chosen, weights)))

    return MetricSpace(
        center=to_numpy(center),
        scores=to_numpy(scores),
        train=[member.train for member in members],
        kept=kept,
        not_anomalous=not_anomalous,
        column_weight=weight,
        norms=_norms(prepared, not_anomalous, weight),
        prepared=prepared,
        embed=lambda chosen: learner.embed(rows, padded(chosen, weights)),
        distance=learner.objective.distance,
        random=random,
        anomalies=np.flatnonzero(labels == 1),
        normals=np.flatnonzero(labels == 0),
    )


def _norms(prepared: Callable[[np.ndarray], np.ndarray], ids: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """How far rows lie from the middle along their columns, prepared some at a time."""
    size = max(256, min(ROWS_AT_ONCE, VALUES // len(weight)))
    with np.errstate(invalid="ignore"):  # OpenBLAS reads beyond the ends here and may take what lies there for numbers
        return np.concatenate([abs(prepared(ids[start : start + size])) @ weight for start in range(0, len(ids), size)])


def fitted_model(
    model: MetricModel, X: Any, space: MetricSpace, device: str, threads: int
) -> tuple[MetricModel, np.ndarray]:
    """The model with the scale of its members, guided where rows are labelled, and the training scores."""
    scorer, rows, distance, incomplete = model.scorer, X.shape[0], space.distance, model.incomplete(X)
    if not isinstance(scorer, Guided):
        scores = model.member_scores(X, device, threads, learned=True)
        model = model.with_scale(scores, incomplete)
        return model, model.combine(scores, incomplete)
    some = np.unique(np.concatenate([space.anomalies, evenly_spaced_with_ends(np.arange(rows), GUIDING_ROWS)]))
    prepared, anomalous = space.prepared(some), np.isin(some, space.anomalies)
    arrays = drop_doubtful_labels(scorer, model.scorer_arrays, prepared, distance)
    model = replace(model, scorer_arrays=calibrated(scorer, arrays, prepared, distance))
    scores = model.member_scores(X, device, threads, learned=True)
    model = model.with_scale(scores, incomplete)
    assert model.scale is not None
    base = model.combine(scores, incomplete)[some]
    arrays = with_label_weight(scorer, model.scorer_arrays, prepared, base, anomalous, model.scale, distance)
    model = replace(model, scorer_arrays=arrays)
    return model, model.scores(X, device, threads, learned=True)


def warn_of_collapse(state: TrainingState) -> None:
    """Say which members collapsed."""
    for e in np.flatnonzero(state.collapsed):
        warn(
            f"member {e} collapsed in epoch {state.collapsed[e]}: its embeddings met in one point or left all bounds; "
            f"the network of epoch {state.best_epoch[e]} is used. Fewer epochs or a lower learning_rate avoid this."
        )


def warn_of_columns(message: str, columns: np.ndarray, names: list[str]) -> None:
    """Say something of some columns, if of any."""
    if len(columns):
        warn(f"{message}: {listed([repr(names[column]) for column in columns])}")


def warn_of_texts(cells: TextCells) -> None:
    """Say which cells of columns of numbers are text, if any."""
    if cells:
        warn(TextCellsWarning(cells))


def warn(message: str | Warning, kind: type[UserWarning] = UserWarning) -> None:
    """Warn at the line that called into this package, however deep the warning arose, or through scikit-learn."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("addml.", "sklearn.")):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, kind, stacklevel=depth)
