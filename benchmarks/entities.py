"""`python -m benchmarks.entities`: microseconds per step on one core, with 1,000 entities scored as a batch."""

from __future__ import annotations

import time
import warnings

import numpy as np

from addml import ADDML, Window
from benchmarks.timing import markdown

ENTITIES, STEPS, CHANNELS, ROUNDS = 1000, 60, 4, 10


def main() -> None:
    """Print the table."""
    random = np.random.default_rng(0)
    wave = np.sin(np.arange(STEPS)[:, None] / 5 + np.arange(CHANNELS))
    series = {
        f"host {k}": (k % 7 + 1) * wave + 0.1 * random.standard_normal((STEPS, CHANNELS)) for k in range(ENTITIES)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        window = Window(16, causal=True, stride=STEPS)
        detector = ADDML(by="host", window=window, epochs=2, random_state=0, n_jobs=1).fit(series)
    streams, steps = detector.streams(list(series)), np.stack(list(series.values()), axis=1)
    streams.score(steps[0])
    start = time.process_time()
    for index in range(1, ROUNDS + 1):
        streams.score(steps[index])
    each = (time.process_time() - start) / (ROUNDS * ENTITIES)
    head = [f"{ENTITIES:,} entities x {CHANNELS} channels, window 16", "microseconds a step", "steps a second"]
    print(markdown(head, [["one batch a step", f"{each * 1e6:.0f}", f"{1 / each:,.0f}"]]))


if __name__ == "__main__":
    main()
