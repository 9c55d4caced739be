"""Events of a series: flagged steps within a window of each other, and the threshold that clean steps rarely exceed.

The threshold comes from the peaks of the training steps, the highest score of every window. The upper half of them
(of many the highest twentieth) is taken to fall off exponentially (extreme value theory with shape 0), at a rate that
the median of the excesses gives, so that a few anomalies among the training steps hardly count. The fewer excesses, the
less certain the rate: the threshold is a quantile of the next peak given those seen, and lies higher. `python -m
benchmarks.events` compares it with other rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FALSE_RATE = 1 / 1000  # events per window of clean steps that the default threshold promises at most
AIM = 0.2 * FALSE_RATE  # new steps drift away from training: clean parts of the dev series had 4 times as many
TAIL, LEAST_TAIL, TAIL_PEAKS = 0.5, 0.05, 200  # share of the peaks that are a tail: fewer, but so many, of many peaks

THRESHOLDS_TRIED = 64  # from the highest to the lowest peak, until there are too many events


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
    starts, stops = _spans(scores, threshold, begins, window, shortest)
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    found = [Event(start, stop, start + int(scores[start:stop].argmax())) for start, stop in spans]
    return sorted(found, key=lambda event: -scores[event.peak])


def _spans(
    scores: np.ndarray, threshold: float, begins: Sequence[int], window: int, shortest: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first step of every event, and the one behind its last."""
    flagged = np.flatnonzero(scores > threshold)
    series = np.searchsorted(np.asarray(begins, np.int64), flagged, side="right")
    apart = (np.diff(flagged) > window) | (np.diff(series) > 0)
    ends = np.ones(min(len(flagged), 1), bool)
    starts, stops = flagged[np.append(ends, apart)], flagged[np.append(apart, ends)] + 1
    kept = stops - starts >= shortest
    return starts[kept], stops[kept]


def peaks(scores: np.ndarray, window: int, begins: Sequence[int] = ()) -> np.ndarray:
    """The highest score of every `window` steps, ascending."""
    edges = np.union1d(np.arange(0, len(scores), window), np.asarray(begins, np.int64)).astype(np.int64)
    return np.sort(np.maximum.reduceat(scores, edges))


def tail_threshold(ordered: np.ndarray, rate: float = AIM) -> float:
    """tau, which a share `rate` of windows of clean steps is expected to exceed, by the ascending peaks of training."""
    share = min(TAIL, max(LEAST_TAIL, TAIL_PEAKS / len(ordered)))
    start = float(np.quantile(ordered, 1 - share))
    excess = ordered[ordered > start] - start
    count = len(excess)
    if not count:
        return float(ordered[-1])
    unit = float(np.median(excess)) / np.log(2)
    # count * expm1(log(ratio) / count) of a predictive law for log(ratio) of the exponential one, its limit
    return float(start + unit * count * np.expm1(np.log(share / rate) / count))


def budget_threshold(
    scores: np.ndarray, count: int, begins: Sequence[int] = (), window: int = 1, shortest: int = 1
) -> float:
    """tau, above which as many events lie as possible, but at most `count`; far below that events merge again."""
    levels = np.append(np.unique(peaks(scores, window, begins))[::-1], np.nextafter(scores.min(), -np.inf))

    def found(place: int) -> int:
        return len(_spans(scores, levels[place], begins, window, shortest)[0])

    best, most = 0, 0
    for place in np.unique(np.linspace(0, len(levels) - 1, THRESHOLDS_TRIED).astype(int)).tolist():
        number = found(place)
        if number > count:
            best += bisect_right(range(best + 1, place), count, key=found)
            break
        if number > most:
            best, most = place, number
    return float(levels[best])


def event_figures(found: Sequence[Event], marks: np.ndarray, begins: Sequence[int] = ()) -> dict[str, Any]:
    """How events, ranked, agree with labelled steps (1 anomaly, 0 normal, -1 unknown).

    A labelled range is found by an event that overlaps it. Its delay are the steps from its start to the first step of
    such an event. Events that overlap none and hold a step labelled normal are false.
    """
    starts, stops = _spans((marks == 1).astype(float), 0.5, begins, 1, 1)
    spans = [(one.start, one.stop) for one in found]
    true = [bool(((starts < stop) & (stops > start)).any()) for start, stop in spans]
    first = [
        min((a for a, b in spans if a < stop and b > start), default=None)
        for start, stop in zip(starts, stops, strict=True)
    ]
    delays = [max(0, at - int(start)) for start, at in zip(starts, first, strict=True) if at is not None]
    missed = [span for span, hit in zip(spans, true, strict=True) if not hit]
    return {
        "labelled": len(starts),
        "found": len(delays),
        "false": sum(bool((marks[start:stop] == 0).any()) for start, stop in missed),
        "delay": float(np.median(delays)) if delays else None,
        "true_of_first": sum(true[: len(starts)]),
    }
