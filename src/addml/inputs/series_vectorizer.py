"""One series or many as rows: the windows that end at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from addml.errors import warn, warn_of_columns
from addml.inputs import Form, Rows, Vectorizer, names_or_places, sides_of
from addml.inputs.series import Sampling, Series, Windows, choose_window, read_series, windows_of
from addml.preprocessing.groups import Groups
from addml.preprocessing.profile import ColumnProfile, channel_profiles
from addml.preprocessing.scaling import KNEE, Features
from addml.text import counted


class WindowRows(Rows):
    """Windows of a series whose steps have been prepared, copied when they are asked for."""

    def __init__(self, windows: Windows, sampling: Sampling | None = None) -> None:
        """The windows (n, window, channels) of prepared steps, and what was done to make these even."""
        self.windows, self.sampling, self.values = windows, sampling, windows.values
        self.steps: np.ndarray | None = None  # of training, as they were given

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.windows.shape

    def take(self, ids: np.ndarray) -> np.ndarray:
        _, window, channels = self.windows.shape
        return self.windows[ids.reshape(-1)].reshape(*ids.shape, window * channels)

    def slice(self, start: int, size: int) -> np.ndarray:
        part = self.windows.slice(start, size)
        return part.reshape(len(part), -1)

    def usable(self, stride: int) -> np.ndarray:
        """Whole windows, every `stride` steps."""
        return self.windows.whole(stride)


@dataclass(frozen=True, kw_only=True)
class SeriesVectorizer(Vectorizer):
    """One series or many, of which every step is a row."""

    form: Form
    entities: Groups | None = None
    noun: ClassVar[str] = "step"

    @classmethod
    def fit(cls, X: Any, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, WindowRows]:
        """Learn the scale of every channel, and of every entity where there are some."""
        sampling = Sampling()
        series = read_series(X, config.by, sampling)
        names = None if series[0].names is None else tuple(series[0].names)
        channels = series[0].values.shape[1]
        labels, length = names_or_places(names, channels), config.window.length
        series = [_in_order(one, labels, named=names is not None) for one in series]
        entities = _entities(series, labels, config.by)
        series = [_on_whole_scale(one, entities) for one in series]
        medians = _medians(series, labels)
        if length == "auto":
            length, sampling.window = choose_window(max(series, key=lambda one: len(one.values)))
        windows = _windows(series, int(length), medians, sampling)
        _check_enough(windows)
        form = Form("series", windows.shape[1:], bool(config.window.causal))
        features = Features.fit(windows.steps, sides_of(config.one_sided, labels), robust=config.robust)
        if channels > 1 and not config.robust:
            features = replace(
                features, knee=np.array([KNEE])
            )  # a channel a hundred deviations out would be all that counts
        features = replace(features, median=medians).spread(form.channel_of())  # later series are filled alike
        one = cls(features=features, columns_in=channels, names=names, form=form, entities=entities)
        rows = one._rows(windows, sampling, series)
        rows.steps = np.concatenate([own.values for own in series])
        return one, rows

    def read(self, X: Any) -> WindowRows:
        sampling = Sampling()
        series = read_series(X, () if self.groups is None else self.groups.by, sampling)
        channels = series[0].values.shape[1]
        if channels != self.columns_in:
            raise ValueError(
                f"X has {counted(channels, 'channel')}, the detector was fitted to {self.columns_in}; "
                "give the same ones"
            )
        series = [_in_order(one, self.labels, named=self.names is not None) for one in series]
        series = [_on_whole_scale(one, self.entities) for one in series]
        windows = _windows(series, self.form.shape[0], self.step_features.median, sampling)
        return self._rows(windows, sampling, series)

    def _rows(self, windows: Windows, sampling: Sampling, series: Sequence[Series]) -> WindowRows:
        rows = WindowRows(windows.prepared(self.step_features.transform), sampling)
        if self.entities is not None:
            codes = [self.entities.code(one.key) for one in series]
            rows.groups = np.repeat(codes, [len(one.values) for one in series])
        return rows

    @property
    def groups(self) -> Groups | None:
        """The entities, each with a scale and a threshold of its own."""
        return self.entities

    def with_groups(self, groups: Groups) -> Self:
        return replace(self, entities=groups)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"entities": None if self.entities is None else self.entities.to_json()}

    @property
    def step_features(self) -> Features:
        """How one step becomes features."""
        return self.features.spread(np.arange(self.form.channels))

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        steps = rows.steps if isinstance(rows, WindowRows) else None
        return () if steps is None else channel_profiles(self.labels, steps[normal])


def _entities(series: Sequence[Series], names: list[str], by: tuple[str, ...]) -> Groups | None:
    """The level and spread of every channel in each entity; None without entities."""
    if not by:
        return None
    keys = np.repeat([str(one.key) for one in series], [len(one.values) for one in series])
    values = np.concatenate([one.values for one in series]).astype(np.float64)
    groups = Groups.fit(pa.table({by[0]: keys}), by[:1], dict(zip(names, values.T, strict=True)))
    return replace(groups, by=by)


def _on_whole_scale(one: Series, entities: Groups | None) -> Series:
    """The series on the level and spread of all of them, where it is that of an entity."""
    if entities is None:
        return one
    code = entities.code(one.key)
    return replace(one, values=one.values * entities.ratio[code] + entities.shift[code])


def _in_order(one: Series, names: list[str], *, named: bool) -> Series:
    """The channels in the order of training, where both have names."""
    if one.names is None or not named or one.names == names:
        return one
    if set(one.names) != set(names):
        raise ValueError(f"X has the channels {one.names} where others have {names}; give the same ones everywhere")
    return replace(one, values=one.values[:, [one.names.index(name) for name in names]], names=names)


def _windows(series: Sequence[Series], window: int, usual: np.ndarray, sampling: Sampling) -> Windows:
    windows = windows_of(series, window, usual, sampling)
    for sentence in sampling.words():
        warn(sentence)
    return windows


def _check_enough(windows: Windows) -> None:
    whole, longest = len(windows.whole(1)), int(windows.age.max()) + 1
    if whole < 2:
        most = 4 * longest // 5  # so that a second one begins a quarter of it later
        remedy = f"give a window of at most {most}, or " if longest > 1 else "give "
        raise ValueError(
            f"window={windows.window} makes {counted(whole, 'whole window')} of X, whose longest series has "
            f"{counted(longest, 'step')} in a row at most; {remedy}a longer series"
        )


def _medians(series: Sequence[Series], names: list[str]) -> np.ndarray:
    """The median of every channel, 0 where there is no value; stands for what is missing before any value is known."""
    channels = np.concatenate([one.values for one in series]).astype(np.float64).T
    known = [values[~np.isnan(values)] for values in channels]
    empty = np.array([place for place, values in enumerate(known) if not len(values)], np.int64)
    warn_of_columns("channels without a single value tell nothing", empty, names)
    return np.array([2 * np.median(own / 2) if len(own) else 0.0 for own in known])  # halves: two may overflow
