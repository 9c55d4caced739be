"""Series of any kind, read as evenly spaced steps, and the windows that end at each step.

A series is padded with `window - 1` copies of its first step, so that every step has a window within its own series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from addml.inputs.frame import as_table, column_values, is_frame
from addml.inputs.times import Ordered, check_times, order_notes, utc_times
from addml.preprocessing.groups import keys_of
from addml.text import counted, listed


class Windows:
    """The windows (n, window, channels) that end at each of n steps: a sequence of rows, one per step."""

    def __init__(self, values: np.ndarray, first: np.ndarray, age: np.ndarray, window: int) -> None:
        """Padded values (m, channels) of all series; for each step, where its window begins, and its age in steps."""
        self.values, self.first, self.age, self.window = values, first, age, window
        self._views = sliding_window_view(values, window, axis=0).swapaxes(1, 2)
        self._is_single = len(first) == len(self._views)

    @classmethod
    def of(cls, series: Sequence[np.ndarray], window: int, masks: Sequence[np.ndarray] | None = None) -> Windows:
        """The windows of series (steps, channels) that end at the steps of the masks (default: at all steps)."""
        parts = [part for values in series for part in (np.repeat(values[:1], window - 1, axis=0), values)]
        ages = [np.arange(len(values)) for values in series] if masks is None else list(map(np.flatnonzero, masks))
        starts = np.cumsum([0, *(len(values) + window - 1 for values in series)])
        first = np.concatenate([start + age for start, age in zip(starts, ages, strict=False)])
        return cls(np.concatenate(parts), first, np.concatenate(ages), window)

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self), self.window, self.values.shape[1]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, key: slice | np.ndarray) -> np.ndarray:
        """The windows that end at these steps; a view for a slice of a single series."""
        if isinstance(key, slice) and self._is_single:
            return np.asarray(self._views[key])
        return np.asarray(self._views[self.first[key]])

    @property
    def steps(self) -> np.ndarray:
        """The values of the steps themselves, (n, channels)."""
        return np.asarray(self.values[self.first + self.window - 1])

    @property
    def is_whole(self) -> np.ndarray:
        """Which steps have windows without padding, (n,)."""
        return np.asarray(self.age >= self.window - 1)

    def whole(self, stride: int) -> np.ndarray:
        """The steps (k,) whose windows have no padding, every `stride` steps of each series."""
        return np.flatnonzero(self.is_whole & ((self.age - (self.window - 1)) % stride == 0))

    def half(self, steps: int) -> int:
        """The steps to either side in a centred mean over `steps`; fewer than a window stay within the series."""
        return min(steps // 2, self.window - 1)

    def around(self, step: int, steps: int) -> np.ndarray:
        """The steps that `smoothed` averages for this one."""
        half = self.half(steps)
        steps_near = np.arange(max(0, step - half), min(len(self), step + half + 1))
        return np.asarray(steps_near[abs(self.first[steps_near] - self.first[step]) <= half])

    def prepared(self, prepare: Callable[[np.ndarray], np.ndarray]) -> Windows:
        """The same windows of prepared steps; each step is prepared once, not once per window."""
        return Windows(prepare(self.values), self.first, self.age, self.window)


def over_windows(scores: np.ndarray, windows: Windows) -> np.ndarray:
    """For each step, the mean of the scores (k, n) of the windows that contain it, without padded ones if possible."""
    total, count = _sums(scores, windows, windows.is_whole)  # padding is flat and would look anomalous
    is_uncovered = count == 0
    if is_uncovered.any():  # as in a series that is shorter than a window
        padded_total, padded_count = _sums(scores, windows, np.ones(len(windows), bool))
        total, count = np.where(is_uncovered, padded_total, total), np.where(is_uncovered, padded_count, count)
    return np.asarray(total / count)


def smoothed(scores: np.ndarray, windows: Windows, steps: int) -> np.ndarray:
    """The centred mean of scores (n,) over `steps` steps of a series, over fewer at its ends."""
    half, first = windows.half(steps), windows.first
    total, count = scores.copy(), np.ones(len(scores))
    for lag in range(1, min(half + 1, len(scores))):
        is_near = first[lag:] - first[:-lag] <= half
        total[:-lag] += np.where(is_near, scores[lag:], 0)
        total[lag:] += np.where(is_near, scores[:-lag], 0)
        count[:-lag] += is_near
        count[lag:] += is_near
    return np.asarray(total / count)


def _sums(scores: np.ndarray, windows: Windows, included: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each step, the sum (k, n) of the scores of the included windows that contain it, and their number (n,)."""
    scores = np.where(included, scores, 0)
    total, count = scores.copy(), included.astype(np.float64)
    for lag in range(1, min(windows.window, len(windows))):
        covers = windows.first[lag:] - windows.first[:-lag] < windows.window  # false across series
        total[:, :-lag] += np.where(covers, scores[:, lag:], 0)
        count[:-lag] += covers & included[lag:]
    return total, count


LAGS = 400  # largest lag of the autocorrelation, as in TSB-AD
CLEAR_RISE = 0.5  # rise of the autocorrelation to a clear maximum
PERIODS = (6, 303)  # steps of the shortest and longest period, as in TSB-AD
NO_PERIOD = 125  # steps of a window without a period, as in TSB-AD
SHORT_WINDOW = 10  # steps of a window over several channels, which tell more at one time than a long past
REGULAR = 0.1  # of the median step: how far a regular step may differ from it
REGULAR_SHARE = 0.9  # share of regular steps from which the sampling is regular


@dataclass
class Series:
    """One series: steps (n, channels) with NaN for missing values, times (n,) in UTC or None, and its entity."""

    values: np.ndarray
    names: list[str] | None = None
    times: np.ndarray | None = None
    key: str | None = None


@dataclass
class Sampling:
    """How steps were sorted, averaged and filled to space them evenly; part of reports and saved models."""

    filled_steps: int = 0
    gaps: int = 0
    breaks: int = 0
    irregular: int = 0
    missing_values: int = 0
    unsorted: int = 0
    repeated: int = 0
    window: str = ""  # the reason for the window's length; empty if the user set it
    begins: list[int] = field(default_factory=list, repr=False)  # original steps at which a series begins or restarts
    steps: list[int] | None = field(default=None, repr=False)  # the step of each row, if rows were sorted or averaged

    def notes(self) -> list[str]:
        """One sentence per change."""
        notes = order_notes(self.unsorted, self.repeated)
        if self.gaps:
            notes.append(f"{counted(self.filled_steps, 'missing step')} ({counted(self.gaps, 'gap')}) forward-filled")
        if self.breaks:
            notes.append(f"{counted(self.breaks, 'gap')} longer than the window: the series restarts after each")
        if self.irregular:
            notes.append(
                f"{self.irregular} series sampled irregularly: steps are used in order, whatever their spacing"
            )
        if self.missing_values:
            values = counted(self.missing_values, "missing value")
            notes.append(f"{values} forward-filled (at the start of a series: the channel's median)")
        return notes


def read_series(X: Any, by: Sequence[str] = (), sampling: Sampling | None = None) -> list[Series]:
    """The series of X: one, or a list or dict of arrays, columns, frames with a time column, pandas with a time index.

    With `by`, frames are split by these columns; other series are entities, named by key or position. `sampling`
    records how rows were sorted by time.
    """
    sampling = sampling or Sampling()
    result, steps, count = list[Series](), list[np.ndarray](), 0
    for item, label, key in _items(X):
        is_split = is_frame(item) and bool(by) and (key is None or not set(by).isdisjoint(as_table(item).column_names))
        rows = _read_rows(item, label, by if is_split else ())
        if is_split:
            keys, codes = entity_codes(as_table(item), by)
        else:
            keys, codes = [rows.key or (key if by else None)], np.zeros(len(rows.values), np.int64)
        ordered = Ordered.of(rows.values, rows.times, codes)
        sampling.unsorted += ordered.unsorted
        sampling.repeated += ordered.repeated
        steps.append(ordered.steps + count)
        count += len(ordered.values)
        result += split(ordered, keys, rows.names)
    channels = [series.values.shape[1] for series in result]
    for index, number in enumerate(channels):
        if number != channels[0]:
            has = counted(number, "channel")
            raise ValueError(f"series {index} of X has {has}, series 0 has {channels[0]}; give all the same channels")
    all_steps = np.concatenate(steps)
    sampling.steps = None if np.array_equal(all_steps, np.arange(len(all_steps))) else all_steps.tolist()
    return result


def entity_codes(table: Any, by: Sequence[str]) -> tuple[list[str | None], np.ndarray]:
    """The keys of the entities of a table, and the index of each row's key; without `by`, the only key is None."""
    if not by:
        return [None], np.zeros(table.num_rows, np.int64)
    keys, codes = np.unique(keys_of(table, by).to_numpy(zero_copy_only=False), return_inverse=True)
    return keys.tolist(), codes


def split(ordered: Ordered, keys: Sequence[str | None], names: list[str] | None) -> list[Series]:
    """One series per key."""
    edges = np.flatnonzero(np.diff(ordered.codes)) + 1
    times = [None] * len(keys) if ordered.times is None else np.split(ordered.times, edges)
    parts = zip(np.split(ordered.values, edges), times, keys, strict=True)
    return [Series(values, names, part_times, key) for values, part_times, key in parts]


def _items(X: Any) -> list[tuple[Any, str, str | None]]:
    """Every series of X, its name in messages, and its key or position."""
    if isinstance(X, dict) and X:
        return [(item, f"series {key!r} of X", str(key)) for key, item in X.items()]
    if isinstance(X, (list, tuple)) and any(
        isinstance(item, np.ndarray | Series) or is_frame(item) or column_values(item) is not None for item in X
    ):
        return [(item, f"series {index} of X", str(index)) for index, item in enumerate(X)]
    return [(X, "X", None)]


def _read_rows(X: Any, label: str, by: Sequence[str]) -> Series:
    """The rows of X in their order, without the columns `by`; `label` is the name of X in messages."""
    if isinstance(X, Series):
        return X
    if is_frame(X):
        return _from_frame(X, label, by)
    times, column = _index_times(X), column_values(X)
    if times is not None:
        check_times(times, label)
    try:
        if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
            X = np.ma.filled(X.astype(np.float64), np.nan)
        values = np.asarray(X if column is None else column)
        values = values.astype(np.float64) if values.dtype.kind in "biuO" else values
    except (TypeError, ValueError):
        values = np.empty(0, "U1")
    if values.dtype.kind != "f":
        raise ValueError(f"{label} does not hold numbers; pass an array of shape (steps,) or (steps, channels)")
    return Series(_checked(values, label), None, times)


def _checked(values: np.ndarray, label: str) -> np.ndarray:
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{label} has shape {values.shape}; give (steps,), (steps, channels) or a list of such series")
    if len(infinite := np.argwhere(np.isinf(values))):
        step, channel = infinite[0]
        raise ValueError(f"{label} holds infinity at step {step}, channel {channel}; replace it by NaN or a number")
    return values.astype(np.float64) if values.dtype.itemsize != 4 else values


def _from_frame(X: Any, label: str, by: Sequence[str]) -> Series:
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True)
    for name in by:
        if name not in frame.columns:
            raise ValueError(f"by={list(by)!r}: {label} has no column {name!r}; it has {listed(frame.columns)}")
    frame = frame.drop(list(by))
    dates = [name for name, dtype in frame.schema.items() if dtype in (nw.Datetime, nw.Date)]
    if len(dates) > 1:
        raise ValueError(f"{label} has {len(dates)} time columns, {dates}; keep only the one that orders the steps")
    times = utc_times(frame.get_column(dates[0]).to_numpy(), f"column {dates[0]!r}") if dates else _index_times(X)
    names = [name for name in frame.columns if name not in dates]
    others = [name for name in names if not (frame.schema[name].is_numeric() or frame.schema[name] == nw.Boolean)]
    if others or not names:
        problem = f"{counted(len(others), 'column')} without numbers, {others}" if others else "no column of numbers"
        raise ValueError(f"{label} has {problem}; pass numbers and at most one column of dates (pandas.to_datetime)")
    columns = [np.asarray(frame.get_column(name).cast(nw.Float64).to_numpy(), np.float64) for name in names]
    values = _checked(np.column_stack(columns), label)
    if times is not None:
        check_times(times, f"column {dates[0]!r} of {label}" if dates else label)
    return Series(values, [str(name) for name in names], times)


def _index_times(X: Any) -> np.ndarray | None:
    """The times of a pandas index of times, periods (their starts) or durations; None for any other index."""
    index: Any = getattr(X, "index", None)
    kind = getattr(getattr(index, "dtype", None), "kind", "")
    if kind == "m":
        return np.datetime64(0, "ns") + np.asarray(index, "timedelta64[ns]")
    is_period = type(index).__name__ == "PeriodIndex"
    if kind != "M" and not is_period:
        return None
    from pandas import DatetimeIndex

    times = DatetimeIndex(index.to_timestamp() if is_period else index)
    return utc_times(times if times.tz is None else times.tz_convert(None), "the index")


def period_of(values: np.ndarray) -> int | None:
    """The lag of the highest local maximum of the autocorrelation of the first 20,000 values (n,), None without one.

    If that exceeds the longest period, as a week of half hours does, a clear maximum at a shorter lag counts: the day.
    """
    values = values[:20_000] - values[:20_000].mean()
    spectrum = np.fft.rfft(values, 2 * len(values))
    correlation = np.fft.irfft(spectrum * spectrum.conj())[: min(LAGS + 1, len(values))]
    inner = correlation[4:-1]
    lags = np.flatnonzero((inner > correlation[3:-2]) & (inner > correlation[5:])) + 4
    if not len(lags):
        return None
    lag = int(lags[correlation[lags].argmax()])
    if lag > PERIODS[1] and len(lags := lags[(lags >= PERIODS[0]) & (lags <= PERIODS[1])]):
        shorter = int(lags[correlation[lags].argmax()])
        rise = correlation[shorter] - correlation[3 : shorter + 1].min()
        lag = shorter if rise > CLEAR_RISE * (values @ values) else lag
    return lag if PERIODS[0] <= lag <= PERIODS[1] else None


def choose_window(series: Series) -> tuple[int, str]:
    """The length of windows that suits a series, and the reason."""
    steps, channels = series.values.shape
    if channels > 1:
        return SHORT_WINDOW, f"the default for {channels} channels"
    present = series.values[~np.isnan(series.values)]
    values, _ = forward_filled(series.values, np.array([np.median(present) if len(present) else 0.0]))
    period = period_of(values[:, 0])
    window = min(period or NO_PERIOD, max(4, steps // 4))
    if window == period:
        return window, "the period of the series, from its autocorrelation"
    if period is None:
        return window, f"the series has no clear period of {PERIODS[0]} to {PERIODS[1]} steps"
    return window, f"a quarter of the series; its period of {period} is too long"


def windows_of(series: Sequence[Series], window: int, medians: np.ndarray, sampling: Sampling) -> Windows:
    """The windows of all series; `medians` (channels,) replace values missing at the start of a series."""
    parts = list[tuple[np.ndarray, np.ndarray]]()
    for item in series:
        values, missing = forward_filled(item.values, medians)
        sampling.missing_values += missing
        parts += _even_parts(values, item.times, window, sampling)
    windows = Windows.of([part for part, _ in parts], window, [mask for _, mask in parts])
    sampling.begins = np.flatnonzero(windows.age == 0).tolist()
    return windows


def forward_filled(values: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, int]:
    """Values (n, channels) forward-filled, from `first` (channels,) at the start; and how many were missing."""
    missing = np.isnan(values)
    count = int(missing.sum())
    if not count:
        return values, 0
    last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(values))[:, None]), axis=0)
    result = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last < 0, first, result), count  # float64, as in a stream


def _even_parts(
    values: np.ndarray, times: np.ndarray | None, window: int, sampling: Sampling
) -> list[tuple[np.ndarray, np.ndarray]]:
    """A series split at long gaps, with short gaps forward-filled; for each part, the mask of its original steps."""
    if times is None or len(times) < 3:
        return [(values, np.ones(len(values), bool))]
    steps = np.diff(times.astype(np.int64) if times.dtype.kind == "M" else times).astype(np.float64)
    median = float(np.median(steps))
    if (abs(steps - median) <= REGULAR * median).mean() < REGULAR_SHARE:
        sampling.irregular += 1
        return [(values, np.ones(len(values), bool))]
    lengths = np.maximum(np.rint(steps / median).astype(np.int64), 1)  # in median steps
    is_break = lengths > window
    sampling.breaks += int(is_break.sum())
    sampling.gaps += int(((lengths > 1) & ~is_break).sum())
    result = []
    for part in np.split(np.arange(len(values)), np.flatnonzero(is_break) + 1):
        repeats = np.append(lengths[part[:-1]], 1)
        is_original = np.zeros(repeats.sum(), bool)
        is_original[np.cumsum(repeats) - repeats] = True
        sampling.filled_steps += int((~is_original).sum())
        result.append((np.repeat(values[part], repeats, axis=0), is_original))
    return result
