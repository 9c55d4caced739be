"""`python -m benchmarks.channels`: do the first channels that an event names include the broken ones?

Plants faults in one to three channels of the training parts of SMD and ASD, behind the steps that the detector is
fitted to. Prints the share of faults whose first channel is broken and the share of broken channels among the first
three, for several rankings of the channels. Needs `ADDML_DATA`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from addml import ADDML, Window
from addml.decisions.events import Event
from addml.explain import contributions_of
from addml.explain.attribution import channel_distances
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from benchmarks.timing import markdown

STEPS, SHARE, WINDOW = 5000, 0.6, 16  # of a training part, of these to fit, of a window
FAULTS, LENGTHS, AWAY = 16, (8, 60), (2.0, 6.0)  # of a series; steps; deviations
SEEDS = (0, 1, 2)
KINDS = ("shift", "noise", "frozen", "trend")


def parts() -> Iterator[tuple[str, np.ndarray]]:
    """The last steps of the training parts."""
    folder = Path(os.environ["ADDML_DATA"]) / "series"
    for file in sorted([*folder.glob("smd/*.npz"), *folder.glob("more/asd*.npz")]):
        yield file.stem, np.load(file, allow_pickle=False)["train"][-STEPS:].astype(np.float64)


def planted(
    X: np.ndarray, spread: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, list[tuple[Event, set[int]]]]:
    """Steps with faults, and the place and channels of each."""
    X, found = X.copy(), []
    usable = np.flatnonzero(spread > 0)
    room = len(X) // FAULTS
    for index in range(FAULTS):
        length = int(random.integers(*LENGTHS))
        start = index * room + int(random.integers(WINDOW, room - length - WINDOW))
        own = random.choice(usable, int(random.integers(1, 4)), replace=False)
        for channel in own:
            size = spread[channel] * random.uniform(*AWAY) * random.choice([-1, 1])
            part, kind = X[start : start + length, channel], random.choice(KINDS)
            if kind == "frozen":
                part[:] = part[0] + size / 2
            else:
                along = {"shift": 1.0, "noise": random.standard_normal(length), "trend": np.linspace(0, 1, length)}
                part += size * along[kind]
        found.append((Event(start, start + length, start), set(own.tolist())))
    return X, found


def rankings(model: Model, rows: WindowRows, scores: np.ndarray, event: Event) -> dict[str, np.ndarray]:
    """Several rankings of the channels: the blame of each, (channels,)."""
    own = slice(event.start, event.stop)
    highest = event.start + np.argsort(-scores[own])[:5]
    telling = np.unique([*highest, *np.minimum(highest + WINDOW // 2, len(scores) - 1)])
    given = contributions_of(model, rows, telling, "cpu", 1).clip(0).sum(axis=0)
    steps = abs(rows.windows.steps[own])
    away = channel_distances(model, rows, np.arange(event.start, event.stop))
    assert away is not None
    return {
        "contributions to the score": given,
        "plain deviations": steps.mean(axis=0),
        "distance from the expected": away[0].mean(axis=0),
    }


def main() -> None:
    """Print the table."""
    hits: dict[str, list[tuple[bool, float]]] = {}
    for _, X in parts():
        train, rest = np.split(X, [int(SHARE * len(X))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detector = ADDML(window=Window(WINDOW, causal=False), members=2, epochs=4, random_state=0, n_jobs=1).fit(
                train
            )
        for seed in SEEDS:
            X, faults = planted(rest, train.std(axis=0), np.random.default_rng(seed))
            rows, scores = detector._read(X), detector.anomaly_score(X)
            assert isinstance(rows, WindowRows)
            for event, broken in faults:
                for name, blame in rankings(detector.model_, rows, scores, event).items():
                    first = np.argsort(-blame, kind="stable")[:3].tolist()
                    hits.setdefault(name, []).append((first[0] in broken, len(broken & set(first)) / len(broken)))
    lines = [[name, *(f"{share:.2f}" for share in np.mean(found, axis=0))] for name, found in hits.items()]
    count = len(next(iter(hits.values())))
    print(markdown([f"{count} planted faults", "first channel right", "broken channels among the first three"], lines))


if __name__ == "__main__":
    main()
