"""`python -m benchmarks.events`: true and false events of several threshold rules on the dev series.

Series with a training part are fitted to its first 60 %, and again to its last 60 %: the rest of it is clean, and the
test part is labelled. Other series are fitted to themselves. At most 12,000 steps each. The table goes into
docs/series.md. Needs `ADDML_DATA`.
"""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from addml import ADDML
from addml.decisions.decision import alarm_threshold
from addml.decisions.events import FALSE_RATE, event_budget_threshold, event_figures, events, peaks, tail_threshold
from addml.inputs.series import Series, choose_window
from benchmarks.documents import DOCS, write_part
from benchmarks.timing import markdown

MOST, SHARE, PARETO_FROM = 12_000, 0.6, 0.8
Part = tuple[np.ndarray | None, np.ndarray, np.ndarray]  # training part, test part, labels


def dev_series() -> Iterator[Part]:
    """All dev series."""
    folder = Path(os.environ["ADDML_DATA"]) / "series"
    for file in sorted([*folder.glob("more/*.npz"), *folder.glob("smd/*.npz")]):
        with np.load(file, allow_pickle=False) as found:
            train = _steps(found["train"])[-MOST:] if "train" in found and len(found["train"]) else None
            label = found["label"]
            first = max(0, min(int(label.argmax()) - MOST // 2, len(label) - MOST))
            yield train, _steps(found["test"])[first : first + MOST], label[first : first + MOST]
    known = json.loads((folder / "nab/labels/combined_windows.json").read_text())
    for file in sorted(folder.glob("nab/real*/*.csv")):
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        when = np.array([row["timestamp"] for row in rows], "datetime64[us]")
        label = np.zeros(len(rows), np.int64)
        for start, stop in known[f"{file.parent.name}/{file.name}"]:
            label[(when >= np.datetime64(start)) & (when <= np.datetime64(stop))] = 1
        yield None, np.array([[float(row["value"])] for row in rows])[-MOST:], label[-MOST:]


def _steps(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(len(values), -1)


def conformal(ordered: np.ndarray) -> float:
    """The conformal threshold of the training peaks, or their highest if there are too few."""
    return min(alarm_threshold(ordered, FALSE_RATE), float(ordered[-1]))


def pareto(ordered: np.ndarray) -> float:
    """A generalised Pareto tail by probability-weighted moments."""
    start = float(np.quantile(ordered, PARETO_FROM))
    excess = ordered[ordered > start] - start
    if len(excess) < 5:
        return float(ordered[-1])
    count = len(excess)
    mean, weighed = excess.mean(), np.mean(excess * (count - np.arange(1, count + 1)) / (count - 1))
    shape = float(np.clip(mean / (mean - 2 * weighed) - 2, -0.5, 0.5)) or 1e-9
    unit = 2 * mean * weighed / (mean - 2 * weighed)
    return start + float(unit / shape * (1 - (FALSE_RATE * len(ordered) / count) ** shape))


def by_the_mean(ordered: np.ndarray) -> float:
    """The default, with the mean of the excesses in place of their median."""
    with patch("addml.decisions.events.np.median", lambda excess: np.mean(excess) * np.log(2)):
        return tail_threshold(ordered)


METHODS: dict[str, tuple[Callable[[np.ndarray], float], int]] = {
    "exponential tail (the default)": (tail_threshold, 1),
    "the same, events of 2 steps at least": (tail_threshold, 2),
    "by the mean of the excesses": (by_the_mean, 1),
    "generalised Pareto tail": (pareto, 1),
    "conformal ranks": (conformal, 1),
}


def fits(train: np.ndarray | None, test: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """The steps to fit, and the clean steps held out."""
    if train is None:
        yield test, None
        return
    count = int(SHARE * len(train))
    yield train[:count], train[count:]
    yield train[-count:], train[:-count]


def main() -> None:
    """Measure, and write the table."""
    counts, windows = {name: np.zeros(7, np.int64) for name in METHODS}, 0.0
    first: dict[bool, list[float]] = {True: [], False: []}  # by whether there is a training part
    for train, test, label in dev_series():
        window, _ = choose_window(Series(test if train is None else train))
        for fitted, apart in fits(train, test):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                detector = ADDML(window=window, random_state=0).fit(fitted)
            own = detector.anomaly_scores_
            clean = None if apart is None else detector.anomaly_score(apart)
            scores = own if apart is None else detector.anomaly_score(test)
            windows += 0 if clean is None else len(clean) / window
            if label.any():
                first[train is not None].append(_true_of_first(scores, label, window))
            for name, (method, shortest) in METHODS.items():
                tau = method(peaks(own, window))
                counts[name] += _figures(tau, clean, scores, label, window, shortest)
    lines = [
        [name, f"{one[0]} ({one[0] / windows * 1000:.1f})", *_found(one[1:4]), *_found(one[4:])]
        for name, one in counts.items()
    ]
    events_in = f"events in {windows:,.0f} clean windows (per 1,000)"
    head = ["", events_in, "fit on train: found", "false", "fit and score: found", "false"]
    write_part(DOCS / "series.md", "events", markdown(head, lines))
    shares = [f"{np.mean(first[kind]):.2f}" for kind in (True, False)]
    head = ["`--events k` for k labelled ranges", "fit on train", "fit and score"]
    write_part(DOCS / "series.md", "first", markdown(head, [["mean share of true events", *shares]]))


def _figures(
    tau: float, clean: np.ndarray | None, scores: np.ndarray, label: np.ndarray, window: int, shortest: int
) -> list[int]:
    """Events in clean steps; labelled ranges found, labelled ranges, and false events."""
    figures = event_figures(events(scores, tau, (), window, shortest), label)
    found = [figures["found"], figures["labelled"], figures["false"]]
    if clean is None:
        return [0, 0, 0, 0, *found]
    return [len(events(clean, tau, (), window, shortest)), *found, 0, 0, 0]


def _true_of_first(scores: np.ndarray, label: np.ndarray, window: int) -> float:
    """The share of true events among as many as are labelled."""
    labelled = int(event_figures([], label)["labelled"])
    found = events(scores, event_budget_threshold(scores, labelled, (), window), (), window)
    return float(event_figures(found, label)["true_of_first"] / labelled)


def _found(figures: np.ndarray) -> list[str]:
    found, labelled, false = figures.tolist()
    return [f"{found} of {labelled}", str(false)]


if __name__ == "__main__":
    main()
