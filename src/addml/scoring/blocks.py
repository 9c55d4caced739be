"""Rows through a network, so that a row's result never depends on the rows beside it.

A matrix product may round a row differently in another place of the batch's tail, or in a batch of another size.
Every product is therefore given blocks of one fixed shape, padded with zeros, on one thread; a stack of blocks goes
through one call, which takes the products one by one, and more threads take different stacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from addml.arrays import Array, namespace, to_numpy
from addml.compute import in_threads, on_device

BLOCK = {"cpu": 256, "accelerator": 16384}  # rows of one product
PIXELS = {"cpu": 2**18, "accelerator": 2**28}  # of a block of images, about: one image takes as long as a whole block
LEAST_IMAGES = 8
STACK = {"cpu": 32, "accelerator": 1}  # blocks of one call: few calls, so that threads seldom wait for each other


def block_of_images(size: int, device: str) -> int:
    """How many images of so many numbers make a block."""
    kind = "cpu" if device == "cpu" else "accelerator"
    return int(min(BLOCK[kind], max(LEAST_IMAGES, 2 ** int(np.log2(PIXELS[kind] / size)))))


def in_blocks(
    X: Any,
    prepare: Callable[[Any], np.ndarray],
    compute: Callable[[Any, slice], Any],
    write: Callable[[slice, np.ndarray], None],
    device: str,
    threads: int,
    block: int | None = None,
) -> None:
    """Prepare the rows of X, an array or a table, and compute their results stack by stack, in blocks of one size.

    `compute` makes (s, E, b, ...) of s blocks (s, 1, b, d) that hold certain rows, and filling behind them; `write`
    gets these rows and their results (E, rows, ...).
    """
    kind = "cpu" if device == "cpu" else "accelerator"
    block = block or BLOCK[kind]
    size = block * _blocks_of_a_call(block * math.prod(X.shape[1:]), kind)

    def work(stack: int) -> None:
        begin = stack * size
        part = X[begin : begin + size] if isinstance(X, np.ndarray) else X.slice(begin, size)
        try:
            rows = prepare(part)
        except ValueError as error:
            if hasattr(error, "row"):  # of a table's cell, counted in this part
                error.row += begin
            raise
        own = slice(begin, begin + len(rows))
        result = to_numpy(compute(on_device(_stacked(rows, block), device), own))
        result = np.moveaxis(result, 1, 0).reshape(result.shape[1], -1, *result.shape[3:])
        write(own, result[:, : len(rows)])

    stacks = -(-X.shape[0] // size)
    in_threads(work, stacks, min(threads, stacks) if device == "cpu" else 1)


def _blocks_of_a_call(size: int, kind: str) -> int:
    """How many blocks of so many numbers go through one call: fewer than usual where it would hold too much."""
    return min(STACK[kind], max(1, STACK[kind] * PIXELS[kind] // max(size, 1)))


def in_resident_blocks(
    X: Array, prepare: Callable[[Array], Array], compute: Callable[[Array, slice], Array], block: int
) -> Array:
    """The results (E, n, ...) of rows X, a tensor on a device, where they stay; one block after another."""
    parts = []
    for begin in range(0, len(X), block):
        rows = prepare(X[begin : begin + block])
        filled = rows
        if len(rows) < block:
            filled = rows.new_zeros(block, rows.shape[1])
            filled[: len(rows)] = rows
        parts.append(compute(filled[None, None], slice(begin, begin + len(rows)))[0][:, : len(rows)])
    return namespace(X).cat(parts, 1)


def _stacked(rows: np.ndarray, block: int) -> np.ndarray:
    """Rows (n, d) as blocks (s, 1, block, d), the last one filled up with zeros."""
    blocks = -(-len(rows) // block)
    if len(rows) < blocks * block:
        whole = np.zeros((blocks * block, rows.shape[1]), rows.dtype)
        whole[: len(rows)] = rows
        rows = whole
    return rows.reshape(blocks, 1, block, rows.shape[1])
