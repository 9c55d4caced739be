"""Rows through a network, so that a row's result never depends on the rows beside it.

A matrix product may round a row differently in another place of the batch's tail, or in a batch of another size.
Every product is therefore given blocks of one fixed shape, padded with zeros, on one thread; more threads take
different blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from addml.arrays import to_numpy
from addml.compute import in_threads, on_device

BLOCK = {"cpu": 256, "accelerator": 16384}  # rows of one product
CHUNK = 4096  # rows prepared together on the CPU: what fits its cache


def in_blocks(
    X: Any,
    prepare: Callable[[Any], np.ndarray],
    compute: Callable[[Any], Any],
    write: Callable[[slice, np.ndarray], None],
    device: str,
    threads: int,
) -> None:
    """Prepare the rows of X, an array or a table, compute (E, b, ...) from (1, b, d) of them, and write each result."""
    block = BLOCK["cpu" if device == "cpu" else "accelerator"]
    size = max(block, CHUNK)

    def work(chunk: int) -> None:
        begin = chunk * size
        rows = prepare(X[begin : begin + size] if isinstance(X, np.ndarray) else X.slice(begin, size))
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            result = to_numpy(compute(on_device(_padded(part, block)[None], device)))
            write(slice(begin + start, begin + start + len(part)), result[:, : len(part)])

    chunks = -(-X.shape[0] // size)
    in_threads(work, chunks, min(threads, chunks) if device == "cpu" else 1)


def _padded(part: np.ndarray, rows: int) -> np.ndarray:
    if len(part) == rows:
        return part
    whole = np.zeros((rows, part.shape[1]), part.dtype)
    whole[: len(part)] = part
    return whole
