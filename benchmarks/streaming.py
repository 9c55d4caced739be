"""`python -m benchmarks.streaming`: how long a series takes to learn, and a step to score as it arrives."""

from __future__ import annotations

import time

import numpy as np

from addml import ADDML, Window
from benchmarks.timing import markdown

STEPS, CHANNELS, WINDOW = 24_000, 38, 10


def waves() -> np.ndarray:
    """A series like those of a machine: slow waves, daily ones, noise."""
    random, time_ = np.random.default_rng(0), np.arange(STEPS)[:, None]
    slow = np.cumsum(random.standard_normal((STEPS, CHANNELS)), axis=0) * 0.02
    return (slow + np.sin(time_ / random.uniform(5, 300, CHANNELS)) + 0.1 * random.standard_normal(slow.shape)).astype(
        np.float32
    )


def learning(X: np.ndarray, **settings: object) -> tuple[float, ADDML]:
    """CPU seconds to fit, of all cores together, and the detector."""
    began = time.process_time()
    detector = ADDML(window=Window(WINDOW, causal=True), random_state=0, device="cpu").set_params(**settings).fit(X)
    return time.process_time() - began, detector


def step_time(detector: ADDML, X: np.ndarray, steps: int = 20, tries: int = 200) -> float:
    """Microseconds of one core a step, the best of several runs."""
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


def table() -> str:
    """The table of docs/series.md."""
    head = f"{STEPS:,} x {CHANNELS}, causal, window {WINDOW}"
    return markdown([head, "CPU seconds to fit", "epochs", "microseconds a step of a stream"], rows())


if __name__ == "__main__":
    print(table())
