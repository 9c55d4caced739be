"""Timing of alternatives in turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

QUICK = 0.3  # seconds: shorter calls need more rounds on a machine with other work


def seconds(calls: dict[str, Callable[[], Any]], rounds: int = 3, slow: float = 5.0) -> dict[str, float]:
    """The shortest time of each call over a few rounds, with five times as many rounds for quick calls."""
    best: dict[str, float] = {}
    for index in range(5 * rounds):
        for name, call in calls.items():
            if best.get(name, 0.0) > (slow if index < rounds else QUICK):
                continue
            start = time.perf_counter()
            call()
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    return best


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with numbers aligned to the right."""
    line = "| " + " | ".join(header) + " |\n|" + "|".join(["---"] + ["--:"] * (len(header) - 1)) + "|\n"
    return line + "".join("| " + " | ".join(row) + " |\n" for row in rows)
