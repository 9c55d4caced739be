"""The fitted model, which scores rows: columns -> features -> encoder -> scorer -> one score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from addml import __version__, parameters
from addml.arrays import Array
from addml.compute import in_threads, on_device
from addml.decisions.decision import ALARM_RATE, EVENT_RATE, EVENTS, GIVEN, Decision, TrainingScores
from addml.decisions.events import FALSE_RATE, Event, event_budget_threshold, events, peaks, tail_threshold
from addml.distances import Distance
from addml.encoders import Network
from addml.inputs import Rows, RowShape, Vectorizer, as_rows
from addml.inputs.series import Sampling, over_windows, smoothed
from addml.inputs.series_vectorizer import WindowRows
from addml.inputs.table import Columns
from addml.preprocessing.groups import Groups
from addml.preprocessing.profile import ColumnProfile
from addml.preprocessing.scaling import Features
from addml.scoring.patches import PatchMemory
from addml.scoring.references import Overlaps
from addml.scoring.scorer import BLOCK, EnsembleScale, Scorer, ViewScale, block_of_images, in_blocks, score_rows
from addml.scoring.views import embedded_indices
from addml.text import IMAGE, SERIES

WINDOWS_AT_ONCE = 2**12  # when looking for references that overlap windows
_unknown = partial(np.empty, 0)


@dataclass(frozen=True, eq=False)
class Examples:
    """A bounded number of the training rows that distillation kept."""

    rows: np.ndarray  # (R,) their numbers in the training table
    features: np.ndarray  # (R, d')


@dataclass(frozen=True, eq=False)
class Model:
    """The vectorizer, the best networks, the scorer, and what training recorded."""

    vectorizer: Vectorizer
    encoder: Network
    distance: Distance
    scorer: Scorer
    scorer_arrays: dict[str, np.ndarray]
    scale: EnsembleScale | ViewScale = None  # type: ignore[assignment]  # set at the end of a fit, like those below
    center: np.ndarray = field(default_factory=_unknown)  # (members, w)
    training: TrainingScores = field(default_factory=lambda: TrainingScores(_unknown(), _unknown()))
    decision: Decision = field(default_factory=lambda: Decision(np.inf, ""))
    history: list[dict[str, Any]] = field(default_factory=list)  # one dict per epoch
    kept: np.ndarray = field(default_factory=_unknown)  # the rows that distillation kept in each epoch, as bits
    held_out: np.ndarray = field(default_factory=_unknown)  # (members, rows), for early stopping
    baseline: np.ndarray = field(default_factory=_unknown)  # the features of a typical row
    examples: Examples = field(default_factory=lambda: Examples(_unknown(), _unknown()))
    profiles: tuple[ColumnProfile, ...] = ()  # of the training rows that are not flagged
    sampling: Sampling | None = None  # how the steps of the training series were made even
    ids: tuple[str, ...] = ()  # the columns that name a row, if the user chose some
    settings: dict[str, Any] = field(default_factory=dict)  # the detector's, as JSON values
    version: str = __version__

    @property
    def threshold(self) -> float:
        """Scores above it are flagged."""
        return self.decision.tau

    def decided(
        self, method: Any = None, contamination: Any = None, tau: float | None = None, alarm_rate: float | None = None
    ) -> Model:
        """The model with another threshold: the score `tau`, or one found by a method, a share or an alarm rate."""
        arguments = {"contamination": contamination, "alarm_rate": alarm_rate, "method": method, "tau": tau}
        passed = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
        if len(passed) != 1:
            raise ValueError(f"{', '.join(passed) or 'nothing'}: give one of contamination, alarm_rate, method and tau")
        if tau is not None:
            parameters.check_number("tau", tau, -np.inf, with_low=False)
            return replace(self, decision=Decision(float(tau), GIVEN))
        if alarm_rate is not None:
            parameters.check_number("alarm_rate", alarm_rate, 0, 1, with_low=False)
            return replace(self, decision=self.training.decide(ALARM_RATE, float(alarm_rate)))
        method, share = parameters.threshold_method(method, contamination)
        if method == EVENTS:
            if self.kind != SERIES:
                raise ValueError("method='events' is for series; give contamination=0.1, or method='auto'")
            top = peaks(self.training.values, self.row_shape.shape[0], self.sampling.begins if self.sampling else ())
            return replace(self, decision=Decision(tail_threshold(top), EVENT_RATE, FALSE_RATE))
        return replace(self, decision=self.training.decide(method, share))

    def events(
        self, scores: np.ndarray, sampling: Sampling | None, count: int | None = None, shortest: int = 1
    ) -> tuple[float, list[Event]]:
        """The events in the scores of a series, and the threshold: the model's own, or one with at most `count`."""
        if self.kind != SERIES:
            raise ValueError("events(X) is for series; fit with window='auto'")
        runs = (() if sampling is None else sampling.begins, self.row_shape.shape[0], shortest)
        tau = self.threshold if count is None else event_budget_threshold(scores, count, *runs)
        return tau, events(scores, tau, *runs)

    def rows_kept(self) -> np.ndarray:
        """Which training rows distillation kept, (epochs, members, n); a stopped member keeps none."""
        if not self.history:
            raise ValueError("the encoder is pretrained and was not trained: no epoch kept or dropped rows")
        if len(self.kept) != len(self.history):
            raise ValueError("the rows that distillation kept are not stored for tables of over a million rows")
        return np.unpackbits(self.kept, axis=-1, count=len(self.training.values)).astype(bool)

    # the columns of a table that the model was trained on, and those that name the group of a row
    used = property(lambda self: [] if self.columns is None else self.columns.used)
    by = property(lambda self: () if self.vectorizer.groups is None else self.vectorizer.groups.by)

    @property
    def features(self) -> Features:
        return self.vectorizer.features

    @property
    def columns(self) -> Columns | None:
        return self.vectorizer.columns

    @property
    def kind(self) -> str:
        """The kind of row: TABLE, IMAGE or SERIES."""
        return self.vectorizer.kind

    @property
    def row_shape(self) -> RowShape:
        """The shape of an image, or of a window: (steps, channels)."""
        assert self.vectorizer.row_shape is not None
        return self.vectorizer.row_shape

    @property
    def looks_ahead(self) -> bool:
        """Whether a step of a series is scored by all windows that contain it, including later ones."""
        return self.kind == SERIES and not self.row_shape.causal

    def scores(self, rows: Rows | np.ndarray, device: str, threads: int, *, learned: bool = False) -> np.ndarray:
        """The score of each row, float64; it does not depend on the batch. An array holds features.

        `learned` means that these are the training rows, some of which are references.
        """
        rows = as_rows(rows)
        scores = self.member_scores(rows, device, threads, learned=learned)
        return self.within_groups(self.combined(scores, rows), rows, device, threads)

    def within_groups(self, scores: np.ndarray, rows: Rows, device: str, threads: int) -> np.ndarray:
        """The scores (n,) of these rows, adjusted by the references and the divisors of their groups."""
        features: Any = None  # prepared once, for all groups
        for model, index, weight in self.group_models(rows.groups):
            features = rows.take(np.arange(len(rows))) if features is None else features
            in_group = model.combine(model.member_scores(features[index], device, threads))
            scores[index] = (1 - weight) * scores[index] + weight * in_group
        return self.divided(scores, rows.groups)

    def divided(self, scores: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
        """Scores (n,) divided by group, so that one threshold flags the same share of every group."""
        if groups is None or self.vectorizer.groups is None:
            return scores
        return self.vectorizer.groups.divided(scores, groups, compressed=isinstance(self.scale, ViewScale))

    def group_models(self, codes: np.ndarray | None) -> Iterator[tuple[Model, np.ndarray, float]]:
        """For each group with references of its own: the model with only these, the index of its rows, its weight."""
        groups = self.vectorizer.groups
        if codes is None or groups is None:
            return
        order = np.argsort(codes, kind="stable")
        present, starts = np.unique(codes[order], return_index=True)
        for code, index in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            if groups.own_weight[code] > 0:
                yield self._own_model(groups, code), index, float(groups.own_weight[code])

    def _own_model(self, groups: Groups, code: int) -> Model:
        if code not in self._own_models:
            before, count = groups.own[:code], int(groups.own[code])  # numbers of references
            start = int(before.sum())
            embedded = sum(len(embedded_indices(int(references))) for references in before if references)
            arrays = {
                "rows": groups.own_rows[start : start + count],
                "column_weight": self.scorer_arrays["column_weight"],
                "references": groups.own_embedded[:, embedded : embedded + len(embedded_indices(count))],
            }
            scale = ViewScale(*groups.own_scale[:, :, np.count_nonzero(before), None])
            self._own_models[code] = replace(self, scorer_arrays=arrays, scale=scale)
        return self._own_models[code]

    @cached_property
    def _own_models(self) -> dict[int, Model]:
        return {}

    def combine(self, member_scores: np.ndarray, incomplete: np.ndarray | None = None) -> np.ndarray:
        """One score per row (n,) from the member scores (E, n); embeddings are neutral in `incomplete` rows (n,)."""
        if incomplete is not None:
            member_scores = self.neutral_scores(member_scores, incomplete)
        return np.asarray(self.scale.combine(member_scores))

    def combined(self, member_scores: np.ndarray, rows: Rows | np.ndarray) -> np.ndarray:
        """One score per row (n,) from the member scores (E, n), smoothed along a series."""
        scores = self.combine(member_scores, self.incomplete(rows))
        return smoothed(scores, rows.windows, self.smoothing) if isinstance(rows, WindowRows) else scores

    @property
    def smoothing(self) -> int:
        """Steps over which scores are averaged; 1 if windows are causal."""
        return int(self.scorer.smoothing) if self.looks_ahead else 1

    def incomplete(self, rows: Rows | np.ndarray) -> np.ndarray | None:
        """With causal windows, which steps (n,) end an incomplete window.

        Copies of its first step fill such a window. It is flat, so scores from embeddings would be too high.
        """
        if self.looks_ahead or not isinstance(rows, WindowRows):
            return None
        return ~rows.windows.is_whole

    def neutral_scores(self, member_scores: np.ndarray, incomplete: np.ndarray) -> np.ndarray:
        """The scores (E, n), with neutral ones from embeddings for the steps marked in `incomplete` (n,)."""
        embedded = self.scorer.embedded(len(self.encoder.weights))
        return np.where(embedded[:, None] & incomplete, self.scale.neutral, member_scores)

    def with_scale(self, member_scores: np.ndarray, incomplete: np.ndarray | None = None) -> Model:
        """The model with the scale of its members fitted to these scores, except those marked in `incomplete`."""
        if incomplete is not None and not incomplete.all():
            member_scores = member_scores[:, ~incomplete]
        return replace(self, scale=self.scorer.fit_scale(member_scores))

    def member_scores(self, rows: Rows | np.ndarray, device: str, threads: int, *, learned: bool = False) -> np.ndarray:
        """The scores of each member, (E, n), or of each view of the scorer.

        A score from the embedding of a window counts for all its steps, unless windows are causal. A score from plain
        columns counts for the last step only.
        """
        rows, members = as_rows(rows), len(self.encoder.weights)
        result = np.empty((self.scorer.count(members), len(rows)))

        def write(part: slice, scores: np.ndarray) -> None:
            result[:, part] = scores

        def compute(x: Array, part: slice) -> Array:
            return score_rows(self.scorer, x, embed(x), ready, self.distance, part, overlaps)

        encoder = self.encoder.with_weights(on_device(self.encoder.weights, device))
        embed = encoder.patches if self.scorer.on_patches else encoder.embed  # type: ignore[attr-defined]
        ready, overlaps = self.scorer_ready(device), self.overlaps(rows, learned=learned)
        in_blocks(rows, compute, write, device, min(threads, self.scorer.max_threads), self.block(device))
        if isinstance(rows, WindowRows) and self.looks_ahead:
            embedded = self.scorer.embedded(members)
            result[embedded] = over_windows(result[embedded], rows.windows)
        return result

    def overlaps(self, rows: Rows, *, learned: bool = False) -> Overlaps | None:
        """The references that overlap windows of a series; with causal windows, only for the training rows."""
        if not isinstance(rows, WindowRows) or not (self.looks_ahead or learned):
            return None
        keys = self.scorer_ready("cpu").get("keys")
        if keys is None:
            return None
        blocks = (rows.slice(start, WINDOWS_AT_ONCE) for start in range(0, len(rows), WINDOWS_AT_ONCE))
        return Overlaps.of(blocks, keys, rows.windows.first, rows.windows.window)

    def maps(self, rows: Rows | np.ndarray, threads: int) -> np.ndarray:
        """The anomaly maps of images: the score of each patch of the network, (n, height, width)."""
        network: Any = self.encoder  # a PretrainedNetwork
        rows, ready, scorer = as_rows(rows), self.scorer_ready("cpu"), self.scorer
        assert isinstance(scorer, PatchMemory)
        result = np.empty((len(rows), *network.levels[0][1:]))

        def work(row: int) -> None:
            x = rows.slice(row, 1)
            result[row] = scorer.maps(network.patches(x), ready, scorer.locate(x, ready))[0]

        in_threads(work, len(rows), threads)
        return result

    def embeddings(self, rows: Rows | np.ndarray, device: str, threads: int) -> np.ndarray:
        """The members' embeddings side by side, (n, E w), float32."""
        rows = as_rows(rows)
        result = np.empty((len(rows), len(self.encoder.weights) * self.encoder.outputs), np.float32)

        def write(part: slice, z: np.ndarray) -> None:
            result[part] = z.transpose(1, 0, 2).reshape(z.shape[1], -1)

        encoder = self.encoder.with_weights(on_device(self.encoder.weights, device))
        in_blocks(rows, lambda x, part: encoder.embed(x), write, device, threads, self.block(device))
        return result

    def scorer_ready(self, device: str) -> dict[str, Any]:
        """The scorer's arrays, prepared for scoring on a device; cached."""
        if device not in self._ready:
            arrays = {name: on_device(array, device) for name, array in self.scorer_arrays.items()}
            self._ready[device] = self.scorer.ready(arrays, self.distance)
        return self._ready[device]

    @cached_property
    def _ready(self) -> dict[str, dict[str, Any]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without caches, which may lie on a device."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def block(self, device: str) -> int:
        """Rows per product. All products have this size, so that a row gets the same bits in any batch."""
        if self.scorer.on_patches:
            return 1
        if self.kind == IMAGE:
            return block_of_images(self.row_shape.size, device)
        if device == "cpu" and self.scorer.tile == 1:
            return 1
        return BLOCK["cpu" if device == "cpu" else "accelerator"]

    @property
    def step_features(self) -> Features:
        """The scaling of one step of a series."""
        return self.features.spread(np.arange(self.row_shape.channels))
