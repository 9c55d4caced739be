"""Series as rows: the windows that end at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from addml.errors import warn, warn_of_columns
from addml.inputs import Rows, RowShape, Vectorizer, labels_of, sides_of
from addml.inputs.series import Sampling, Series, Windows, choose_window, read_series, windows_of
from addml.preprocessing.groups import Groups
from addml.preprocessing.profile import ColumnProfile, channel_profiles
from addml.preprocessing.scaling import KNEE, Features
from addml.text import SERIES, counted


class WindowRows(Rows):
    """Windows of prepared steps, copied on demand."""

    def __init__(self, windows: Windows, sampling: Sampling | None = None) -> None:
        self.windows, self.sampling, self.values = windows, sampling, windows.values
        self.steps: np.ndarray | None = None  # of training, before they were prepared

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.windows.shape

    def take(self, ids: np.ndarray) -> np.ndarray:
        _, window, channels = self.windows.shape
        return self.windows[ids.reshape(-1)].reshape(*ids.shape, window * channels)

    def slice(self, start: int, size: int) -> np.ndarray:
        part = self.windows[start : start + size]
        return part.reshape(len(part), -1)

    def usable(self, stride: int) -> np.ndarray:
        """Windows without padding, every `stride` steps."""
        return self.windows.whole(stride)


@dataclass(frozen=True, kw_only=True)
class SeriesVectorizer(Vectorizer):
    """One or more series; every step is a row."""

    row_shape: RowShape
    entities: Groups | None = None
    noun: ClassVar[str] = "step"

    @classmethod
    def fit(cls, X: Any, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, WindowRows]:
        """Learn the scale of every channel, within every entity if there are any."""
        sampling = Sampling()
        series = read_series(X, config.by, sampling)
        names = None if series[0].names is None else tuple(series[0].names)
        channels = series[0].values.shape[1]
        labels = labels_of(names, channels)
        series = [_in_order(part, labels, has_names=names is not None) for part in series]
        entities = _entities(series, labels, config.by)
        series = [_on_common_scale(part, entities) for part in series]
        medians = _medians(series, labels)
        length = config.window.length
        if length == "auto":
            length, sampling.window = choose_window(max(series, key=lambda part: len(part.values)))
        windows = _windows(series, int(length), medians, sampling)
        _check_enough(windows)
        row_shape = RowShape(SERIES, windows.shape[1:], bool(config.window.causal))
        features = Features.fit(windows.steps, sides_of(config.one_sided, labels), robust=config.robust)
        if channels > 1 and not config.robust:  # a channel at a hundred deviations would hide all others
            features = replace(features, knee=np.array([KNEE]))
        features = replace(features, median=medians).spread(row_shape.channel_of())  # `read` fills gaps with them too
        vectorizer = cls(features=features, columns_in=channels, names=names, row_shape=row_shape, entities=entities)
        rows = vectorizer._rows(windows, sampling, series)
        rows.steps = np.concatenate([part.values for part in series])
        return vectorizer, rows

    def read(self, X: Any) -> WindowRows:
        sampling = Sampling()
        series = read_series(X, () if self.groups is None else self.groups.by, sampling)
        channels = series[0].values.shape[1]
        if channels != self.columns_in:
            raise ValueError(f"X has {counted(channels, 'channel')}, but the detector was fitted to {self.columns_in}")
        series = [_in_order(part, self.labels, has_names=self.names is not None) for part in series]
        series = [_on_common_scale(part, self.entities) for part in series]
        windows = _windows(series, self.row_shape.shape[0], self.step_features.median, sampling)
        return self._rows(windows, sampling, series)

    def _rows(self, windows: Windows, sampling: Sampling, series: Sequence[Series]) -> WindowRows:
        rows = WindowRows(windows.prepared(self.step_features.transform), sampling)
        if self.entities is not None:
            codes = [self.entities.code(part.key) for part in series]
            rows.groups = np.repeat(codes, [len(part.values) for part in series])
        return rows

    @property
    def groups(self) -> Groups | None:
        """The entities; each has its own scale and threshold."""
        return self.entities

    def with_groups(self, groups: Groups) -> Self:
        return replace(self, entities=groups)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"entities": None if self.entities is None else self.entities.to_json()}

    @property
    def step_features(self) -> Features:
        """The scaling of a single step."""
        return self.features.spread(np.arange(self.row_shape.channels))

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        steps = rows.steps if isinstance(rows, WindowRows) else None
        return () if steps is None else channel_profiles(self.labels, steps[normal])


def _entities(series: Sequence[Series], names: list[str], by: tuple[str, ...]) -> Groups | None:
    """The level and spread of every channel in each entity; None without `by`."""
    if not by:
        return None
    keys = np.repeat([str(part.key) for part in series], [len(part.values) for part in series])
    values = np.concatenate([part.values for part in series]).astype(np.float64)
    groups = Groups.fit(pa.table({by[0]: keys}), by[:1], dict(zip(names, values.T, strict=True)))
    return replace(groups, by=by)


def _on_common_scale(series: Series, entities: Groups | None) -> Series:
    """The series of an entity, rescaled to the level and spread of all series."""
    if entities is None:
        return series
    code = entities.code(series.key)
    return replace(series, values=series.values * entities.ratio[code] + entities.shift[code])


def _in_order(series: Series, names: list[str], *, has_names: bool) -> Series:
    if series.names is None or not has_names or series.names == names:
        return series
    if set(series.names) != set(names):
        raise ValueError(f"X has the channels {series.names}, other series have {names}; give all the same channels")
    return replace(series, values=series.values[:, [series.names.index(name) for name in names]], names=names)


def _windows(series: Sequence[Series], window: int, medians: np.ndarray, sampling: Sampling) -> Windows:
    """The windows of all series; warns of steps that were sorted, averaged or filled."""
    windows = windows_of(series, window, medians, sampling)
    for note in sampling.notes():
        warn(note)
    return windows


def _check_enough(windows: Windows) -> None:
    complete, longest = len(windows.whole(1)), int(windows.age.max()) + 1
    if complete < 2:
        most = 4 * longest // 5  # leaves room for more than one
        remedy = f"use a window of at most {most}, or " if longest > 1 else "use "
        raise ValueError(
            f"window={windows.window} leaves {counted(complete, 'complete window')}, as no series has more than "
            f"{counted(longest, 'step')} without a long gap; {remedy}a longer series"
        )


def _medians(series: Sequence[Series], names: list[str]) -> np.ndarray:
    """The median of every channel, 0 for one without values; it replaces values missing at the start of a series."""
    channels = np.concatenate([part.values for part in series]).astype(np.float64).T
    present = [values[~np.isnan(values)] for values in channels]
    empty = [channel for channel, values in enumerate(present) if not len(values)]
    warn_of_columns("channels without any value are ignored", empty, names)
    return np.array([2 * np.median(part / 2) if len(part) else 0.0 for part in present])  # halved: a sum may overflow
