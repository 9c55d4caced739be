"""The processes that train one model together; a process on its own is a group of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np

from addml.arrays import Array, as_like, index_like, to_numpy
from addml.learning.state import TrainingState

T = TypeVar("T")

LOWEST_BITS = (21, 10, 0)  # of the 11, 11 and 10 bits of a float32 that are counted in each round: 16 kB of counts
NUMBERS_AT_ONCE = 2**20


class Group:
    """A group of one process, whose sums are its own values."""

    rank, size = 0, 1
    every = 0  # steps between two averages of the weights; 0 averages the gradients of every step

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum over all processes, the same bits in each."""
        return values

    def gather(self, content: bytes) -> list[bytes]:
        """The contents of all processes, in order of rank."""
        return [content]

    def settings(self) -> dict[str, Any]:
        """What training depends on besides the detector's settings."""
        return {} if self.size == 1 else {"workers": self.size, "every": self.every}

    def total(self, values: Array) -> Array:
        """The sum of float32 arrays, rounded once."""
        if self.size == 1:
            return values
        return as_like(self.sum(to_numpy(values).astype(np.float64)), values)

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """The sums of whole numbers."""
        return list(map(int, self.sum(np.array(sizes, np.int64))))

    def mean(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted mean over all processes."""
        if self.size == 1:
            return values
        weighted = np.where(weights > 0, values, 0) * weights
        total, weight = self.sum(np.stack([weighted, weights]).astype(np.float64))
        return np.asarray(total / np.maximum(weight, 1))

    def first(self, document: Any) -> Any:
        """The JSON value of the first process."""
        return document if self.size == 1 else json.loads(self.gather(json.dumps(document).encode())[0])

    def smallest(self, values: np.ndarray, ks: Sequence[int]) -> np.ndarray:
        """The ks[e]-th smallest of the rows e of values (E, n) of all processes; NaN sorts last.

        A radix selection: counts of the leading bits narrow down the value, then counts of the bits that follow.
        """
        ranks = np.array(ks, np.int64)  # among the values that begin with these bits
        keys = np.zeros(len(ks), np.uint32)
        high = 32
        for low in LOWEST_BITS:
            counts = self.sum(np.stack([_bit_counts(*row, high, low) for row in zip(values, keys, strict=True)]))
            is_below = np.cumsum(counts, axis=1) < ranks[:, None]
            ranks -= (counts * is_below).sum(axis=1)
            keys |= is_below.sum(axis=1).astype(np.uint32) << np.uint32(low)
            high = low
        bits = np.where(keys >> 31, keys & 0x7FFFFFFF, ~keys)
        return bits.astype(np.uint32).view(np.float32)


ALONE = Group()


def _bit_counts(values: np.ndarray, key: np.uint32, high: int, low: int) -> np.ndarray:
    """How often each value of the bits from `low` to `high` occurs, among the numbers with the higher bits of `key`."""
    counts = np.zeros(1 << (high - low), np.int64)
    for start in range(0, len(values), NUMBERS_AT_ONCE):
        bits = np.ascontiguousarray(values[start : start + NUMBERS_AT_ONCE], np.float32).view(np.uint32)
        keys = np.where(bits >> 31, ~bits, bits | 0x80000000)  # sort like the numbers
        if high < 32:
            keys = keys[keys >> high == key >> high]
        counts += np.bincount((keys >> low) & (len(counts) - 1), minlength=len(counts))
    return counts


class TorchGroup(Group):
    """The processes of torch.distributed (gloo on CPUs), which the caller has initialised."""

    def __init__(self, every: int = 0) -> None:
        import torch.distributed as dist

        self.rank, self.size, self.every = dist.get_rank(), dist.get_world_size(), every

    def sum(self, values: np.ndarray) -> np.ndarray:
        import torch
        import torch.distributed as dist

        tensor = torch.from_numpy(np.array(values))
        dist.all_reduce(tensor)
        return tensor.numpy()

    def gather(self, content: bytes) -> list[bytes]:
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = len(content)
        ends = np.cumsum([0, *self.sum(sizes)])
        buffer = np.zeros(ends[-1], np.uint8)
        buffer[ends[self.rank] : ends[self.rank + 1]] = np.frombuffer(content, np.uint8)
        buffer = self.sum(buffer)
        return [buffer[start:stop].tobytes() for start, stop in pairwise(ends)]


def rounds(batches: Iterator[T], group: Group) -> Iterator[Iterator[T]]:
    """The batches of each round between two averages, until no process has any left; a single process has one round."""
    if group.size == 1:
        yield batches
        return
    while True:
        batches_of_round = list(islice(batches, group.every))
        if group.counts([len(batches_of_round)]) == [0]:
            return
        yield iter(batches_of_round)


def average(state: TrainingState, steps: np.ndarray, group: Group) -> None:
    """Average weights and moments over the processes, weighted by the `steps` (A,) each made since the last average."""
    if group.size == 1:
        return
    parts = (state.weights, state.first, state.second)
    steps_by_rank = np.zeros((group.size, len(steps)))
    steps_by_rank[group.rank] = steps
    weighted = np.stack([to_numpy(part) * steps[:, None].astype(np.float64) for part in parts])
    flat = group.sum(np.concatenate([steps_by_rank.ravel(), weighted.ravel()]))
    steps_by_rank = flat[: steps_by_rank.size].reshape(steps_by_rank.shape)
    sums = flat[steps_by_rank.size :].reshape(weighted.shape)
    moved = index_like(np.flatnonzero(steps_by_rank.any(axis=0)), state.weights)
    means = sums / np.maximum(steps_by_rank.sum(axis=0), 1)[:, None]
    for part, mean in zip(parts, means, strict=True):
        part[moved] = as_like(mean, part)[moved]
    state.steps += steps_by_rank.max(axis=0).astype(np.int64) - steps
