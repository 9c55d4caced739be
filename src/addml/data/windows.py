"""Windows of one series or of many: every step stands for the window that ends there. Views, never copies.

Before the first step of a series its value stands `window - 1` times more, so that every step has a window of the past
alone, and no window reaches from one series into the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


class Windows:
    """The windows (n, window, channels) that end at each of n steps: a sequence of rows, one a step."""

    ndim = 3
    usual: np.ndarray | None = None  # (channels,): what stood for values missing before any was known

    def __init__(self, values: np.ndarray, first: np.ndarray, age: np.ndarray, window: int) -> None:
        """Values (m, channels) of all series, filled up; where each window begins in them; each step's age."""
        self.values, self.first, self.age, self.window = values, first, age, window
        self._views = sliding_window_view(values, window, axis=0).swapaxes(1, 2)
        self._is_one = len(first) == len(self._views)

    @classmethod
    def of(cls, series: Sequence[np.ndarray], window: int, given: Sequence[np.ndarray] | None = None) -> Windows:
        """The windows of series (steps, channels) that end at the steps given (all of them if None)."""
        parts = [part for one in series for part in (np.repeat(one[:1], window - 1, axis=0), one)]
        given = [np.ones(len(one), bool) for one in series] if given is None else given
        ages = [np.flatnonzero(mark) for mark in given]
        starts = np.cumsum([0, *(len(one) + window - 1 for one in series)])
        first = np.concatenate([start + age for start, age in zip(starts, ages, strict=False)])
        return cls(np.concatenate(parts), first, np.concatenate(ages), window)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Steps, the window, channels."""
        return len(self), self.window, self.values.shape[1]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, key: slice | np.ndarray) -> np.ndarray:
        """The windows that end at some steps; a view for a slice of one series."""
        if isinstance(key, slice) and self._is_one:
            return np.asarray(self._views[key])
        return np.asarray(self._views[self.first[key]])

    def slice(self, begin: int, size: int) -> np.ndarray:
        """The windows that end at `size` steps from `begin`."""
        return self[begin : begin + size]

    @property
    def steps(self) -> np.ndarray:
        """The steps themselves, (n, channels)."""
        return np.asarray(self.values[self.first + self.window - 1])

    @property
    def is_whole(self) -> np.ndarray:
        """Which steps have windows that are not filled up, (n,)."""
        return np.asarray(self.age >= self.window - 1)

    def whole(self, stride: int) -> np.ndarray:
        """Steps whose windows are not filled up, every `stride`-th of each series, (k,)."""
        return np.flatnonzero(self.is_whole & ((self.age - (self.window - 1)) % stride == 0))

    def prepared(self, prepare: Callable[[np.ndarray], np.ndarray]) -> Windows:
        """The windows of steps that are prepared once, not once for each window over them."""
        return Windows(prepare(self.values), self.first, self.age, self.window)


def over_windows(scores: np.ndarray, windows: Windows) -> np.ndarray:
    """The mean, for each step, of the scores (k, n) of the whole windows that it lies in, or of all if none is whole.

    A window that is filled up before its series begins is flat there, as hardly any other is: strange for no reason.
    """
    total, count = _sums(scores, windows, windows.is_whole)
    lone = count == 0
    if lone.any():  # as in a series that is shorter than a window
        every, number = _sums(scores, windows, np.ones(len(windows), bool))
        total, count = np.where(lone, every, total), np.where(lone, number, count)
    return np.asarray(total / count)


def _sums(scores: np.ndarray, windows: Windows, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each step the sum (k, n) of the scores of those windows over it that are counted, and their number (n,)."""
    scores = np.where(counted, scores, 0)
    total, count = scores.copy(), counted.astype(np.float64)
    for later in range(1, min(windows.window, len(windows))):
        covers = windows.first[later:] - windows.first[:-later] < windows.window  # never those of another series
        total[:, :-later] += np.where(covers, scores[:, later:], 0)
        count[:-later] += covers & counted[later:]
    return total, count
