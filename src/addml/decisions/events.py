"""Events of a series: flagged steps that lie within a window, and the threshold that clean steps rarely exceed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FALSE_RATE = 1 / 1000  # events per window of clean steps that the default threshold allows


@dataclass(frozen=True)
class Event:
    """Flagged steps within a window of each other: the first one, the one behind the last, and the highest one."""

    start: int
    stop: int
    peak: int


def events(
    scores: np.ndarray, threshold: float, begins: Sequence[int] = (), window: int = 1, shortest: int = 1
) -> list[Event]:
    """Runs of steps that score above the threshold, the one with the highest peak first; none goes over a beginning.

    Runs with fewer than `window` other steps between them are one event; one of fewer than `shortest` steps is none.
    """
    flagged = np.flatnonzero(scores > threshold)
    if not len(flagged):
        return []
    series = np.searchsorted(np.asarray(begins, np.int64), flagged, side="right")
    apart = (np.diff(flagged) > window) | (np.diff(series) > 0)
    starts, lasts = flagged[np.append(True, apart)], flagged[np.append(apart, True)]
    spans = zip(starts.tolist(), (lasts + 1).tolist(), strict=True)
    found = [Event(start, stop, start + int(scores[start:stop].argmax())) for start, stop in spans]
    return sorted((one for one in found if one.stop - one.start >= shortest), key=lambda one: -scores[one.peak])


def block_peaks(scores: np.ndarray, window: int, begins: Sequence[int] = ()) -> np.ndarray:
    """The highest score of every `window` steps, ascending."""
    edges = np.union1d(np.arange(0, len(scores), window), np.asarray(begins, np.int64)).astype(np.int64)
    return np.sort(np.maximum.reduceat(scores, edges))
