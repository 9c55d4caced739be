"""`python -m benchmarks.streaming`: time to fit a series and to score a step; how streams adapt.

The tables go into docs/series.md. Name `speed` or `adapt` to run only this part. `adapt` plants faults in the SMD and
ASD training parts under `ADDML_DATA`, and shifts a third of their channels.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

from addml import ADDML, Window
from benchmarks.channels import SHARE, parts, planted
from benchmarks.documents import DOCS, parse_parts, write_part
from benchmarks.timing import markdown

STEPS, CHANNELS, WINDOW = 24_000, 38, 10
ADAPT = (None, 400, 1000)  # recent steps
FLAGGED, SHIFTED, LEVEL, PART = 0.01, 3, 4.0, 500  # share of training; one channel in so many; deviations; steps


def waves() -> np.ndarray:
    """A machine-like series: slow waves, daily waves, noise."""
    random, time_ = np.random.default_rng(0), np.arange(STEPS)[:, None]
    slow = np.cumsum(random.standard_normal((STEPS, CHANNELS)), axis=0) * 0.02
    return (slow + np.sin(time_ / random.uniform(5, 300, CHANNELS)) + 0.1 * random.standard_normal(slow.shape)).astype(
        np.float32
    )


def learning(X: np.ndarray, **settings: object) -> tuple[float, ADDML]:
    """CPU seconds of a fit over all cores, and the detector."""
    began = time.process_time()
    detector = ADDML(window=Window(WINDOW, causal=True), random_state=0, device="cpu").set_params(**settings).fit(X)
    return time.process_time() - began, detector


def step_time(detector: ADDML, X: np.ndarray, steps: int = 20, tries: int = 200) -> float:
    """Microseconds per step on one core, the best of several runs."""
    stream, best = detector.stream(), np.inf
    stream.score(X[0])
    for one in range(tries):
        part = X[one * steps : (one + 1) * steps]
        began = time.thread_time()
        for step in part:
            stream.score(step)
        best = min(best, (time.thread_time() - began) / len(part))
    return float(best * 1e6)


def rows() -> list[list[str]]:
    """The default, and the paper's recurrence."""
    X, found = waves(), []
    for name, settings in {
        "the default": {},
        "recurrent, window=50": {"encoder": "recurrent", "window__length": 50},
    }.items():
        seconds, detector = learning(X, **settings)
        found.append([name, f"{seconds:.0f}", str(len(detector.history_)), f"{step_time(detector, X):.0f}"])
        print(*found[-1], flush=True)
    return found


def speed() -> str:
    """The table of times."""
    head = f"{STEPS:,} x {CHANNELS}, causal, window {WINDOW}"
    return markdown([head, "CPU seconds to fit", "epochs", "microseconds a step of a stream"], rows())


def adapting() -> str:
    """The table of streams that adapt."""
    found: dict[int | None, list[list[np.ndarray]]] = {adapt: [] for adapt in ADAPT}
    for _, X in parts():
        train, rest = np.split(X, [int(SHARE * len(X))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            window = Window(WINDOW, causal=True)
            detector = ADDML(window=window, contamination=FLAGGED, members=3, random_state=0, n_jobs=1).fit(train)
        for adapt in ADAPT:
            found[adapt].append(_shares(detector, rest, train.std(axis=0), adapt))
    lines = []
    for adapt, shares in found.items():
        cells = [f"{np.concatenate(column).mean():.0%}" for column in zip(*shares, strict=True)]
        lines.append(["no" if adapt is None else f"`adapt={adapt}`", *cells])
    count = sum(len(one[0]) for one in found[None])
    head = [f"{count} faults", "found", "clean steps flagged", f"first {PART} steps of a new level", f"last {PART}"]
    return markdown([*head, "faults found there", "faults found at the old level"], lines)


def _shares(detector: ADDML, rest: np.ndarray, spread: np.ndarray, adapt: int | None) -> list[np.ndarray]:
    """Shares of faults found and clean steps flagged, before and after a change of level."""
    X, faults = planted(rest, spread, np.random.default_rng(0))
    clean = np.ones(len(X), bool)
    for event, _ in faults:
        clean[event.start : event.stop + WINDOW] = False
    shifted, last = X.copy(), len(X) - PART
    shifted[PART:] += LEVEL * spread * (np.arange(len(spread)) % SHIFTED == 0)
    flags = []
    for steps in (X, shifted):
        stream = detector.stream(adapt=adapt)
        flags.append(np.array([stream.is_anomaly(step) for step in steps]))
    hits = [np.array([own[one.start : one.stop].any() for one, _ in faults]) for own in flags]
    late = np.array([one.start >= last for one, _ in faults])
    new = slice(PART, 2 * PART)
    return [
        hits[0],
        flags[0][clean],
        flags[1][new][clean[new]],
        flags[1][last:][clean[last:]],
        hits[1][late],
        hits[0][late],
    ]


PARTS = {"speed": speed, "adapt": adapting}


def main() -> None:
    """Measure the named parts and write them."""
    for name in parse_parts("benchmarks.streaming", __doc__, PARTS, sys.argv[1:]) or PARTS:
        write_part(DOCS / "series.md", name, PARTS[name]())


if __name__ == "__main__":
    main()
