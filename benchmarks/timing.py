"""Timing of alternatives in turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

QUICK = 0.3  # seconds, of which a few rounds tell little on a machine with other work


def seconds(ways: dict[str, Callable[[], Any]], rounds: int = 3, slow: float = 5.0) -> dict[str, float]:
    """The least time of each over a few rounds, with five times as many rounds for quick ones."""
    best: dict[str, float] = {}
    for turn in range(5 * rounds):
        for name, way in ways.items():
            if best.get(name, 0.0) > (slow if turn < rounds else QUICK):
                continue
            began = time.perf_counter()
            way()
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - began)
    return best


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with numbers aligned to the right."""
    line = "| " + " | ".join(header) + " |\n|" + "|".join(["---"] + ["--:"] * (len(header) - 1)) + "|\n"
    return line + "".join("| " + " | ".join(row) + " |\n" for row in rows)
