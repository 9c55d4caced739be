"""Events of a series, and their default threshold, which clean steps rarely exceed.

The threshold comes from the training peaks: the highest score of every window. The upper half of them (a twentieth if
there are many) is modelled as an exponential tail (extreme value theory with shape 0). Its rate is set by the median
excess, so that a few anomalies in training hardly count. The threshold is a predictive quantile of the next peak: with
fewer excesses it is higher. `python -m benchmarks.events` compares it with other rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FALSE_RATE = 1 / 1000  # events per window of clean steps, at most, with the default threshold
TARGET_RATE = 0.2 * FALSE_RATE  # stricter, as steps drift: clean parts of the development series had 4 times as many
TAIL, MIN_TAIL, TAIL_PEAKS = 0.5, 0.05, 200  # share of the peaks in the tail: lower if that leaves TAIL_PEAKS
THRESHOLDS_TRIED = 64  # from the highest to the lowest peak, until there are too many events


@dataclass(frozen=True)
class Event:
    """Flagged steps within a window of each other: the first step, the step after the last, and the highest step."""

    start: int
    stop: int
    peak: int


def events(
    scores: np.ndarray, threshold: float, begins: Sequence[int] = (), window: int = 1, shortest: int = 1
) -> list[Event]:
    """Runs of steps above the threshold, highest peak first; none crosses the start of a series (`begins`).

    Runs with fewer than `window` steps between them are joined; events of fewer than `shortest` steps are dropped.
    """
    starts, stops = _spans(scores, threshold, begins, window, shortest)
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    unsorted = [Event(start, stop, start + int(scores[start:stop].argmax())) for start, stop in spans]
    return sorted(unsorted, key=lambda event: -scores[event.peak])


def _spans(
    scores: np.ndarray, threshold: float, begins: Sequence[int], window: int, shortest: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first step of every event, and the step after its last."""
    flagged = np.flatnonzero(scores > threshold)
    series = np.searchsorted(np.asarray(begins, np.int64), flagged, side="right")
    is_break = (np.diff(flagged) > window) | (np.diff(series) > 0)
    edge = np.ones(min(len(flagged), 1), bool)
    starts, stops = flagged[np.append(edge, is_break)], flagged[np.append(is_break, edge)] + 1
    long_enough = stops - starts >= shortest
    return starts[long_enough], stops[long_enough]


def peaks(scores: np.ndarray, window: int, begins: Sequence[int] = ()) -> np.ndarray:
    """The highest score of every `window` steps, ascending."""
    edges = np.union1d(np.arange(0, len(scores), window), np.asarray(begins, np.int64)).astype(np.int64)
    return np.sort(np.maximum.reduceat(scores, edges))


def tail_threshold(ordered: np.ndarray, rate: float = TARGET_RATE) -> float:
    """tau, which a share `rate` of windows of clean steps is expected to exceed, from the ascending training peaks."""
    share = min(TAIL, max(MIN_TAIL, TAIL_PEAKS / len(ordered)))
    start = float(np.quantile(ordered, 1 - share))
    excess = ordered[ordered > start] - start
    count = len(excess)
    if not count:
        return float(ordered[-1])
    unit = float(np.median(excess)) / np.log(2)
    # predictive quantile: count * expm1(log(ratio) / count), which tends to log(ratio), the exponential quantile
    return float(start + unit * count * np.expm1(np.log(share / rate) / count))


def event_budget_threshold(
    scores: np.ndarray, count: int, begins: Sequence[int] = (), window: int = 1, shortest: int = 1
) -> float:
    """tau with as many events above it as possible, at most `count`; at far lower thresholds, events merge again."""
    levels = np.append(np.unique(peaks(scores, window, begins))[::-1], np.nextafter(scores.min(), -np.inf))

    def n_events(index: int) -> int:
        return len(_spans(scores, levels[index], begins, window, shortest)[0])

    best, most = 0, 0
    for index in np.unique(np.linspace(0, len(levels) - 1, THRESHOLDS_TRIED).astype(int)).tolist():
        number = n_events(index)
        if number > count:
            best += bisect_right(range(best + 1, index), count, key=n_events)
            break
        if number > most:
            best, most = index, number
    return float(levels[best])


def event_figures(ranked: Sequence[Event], labels: np.ndarray, begins: Sequence[int] = ()) -> dict[str, Any]:
    """How ranked events agree with labelled steps (1 anomaly, 0 normal, -1 unlabelled).

    A labelled range is found if an event overlaps it; the delay is the number of steps from its start to that event.
    Events without such an overlap are false if they contain a step labelled normal.
    """
    starts, stops = _spans((labels == 1).astype(float), 0.5, begins, 1, 1)
    spans = np.array([(event.start, event.stop) for event in ranked], np.int64).reshape(-1, 2)
    hits = (starts[:, None] < spans[:, 1]) & (stops[:, None] > spans[:, 0])  # (ranges, events)
    true = np.asarray(hits.any(axis=0))
    delays = [max(0, spans[hit, 0].min() - start) for start, hit in zip(starts, hits, strict=True) if hit.any()]
    return {
        "labelled": len(starts),
        "found": len(delays),
        "false": sum(bool((labels[start:stop] == 0).any()) for start, stop in spans[~true]),
        "delay": float(np.median(delays)) if delays else None,
        "true_of_first": int(true[: len(starts)].sum()),
    }
