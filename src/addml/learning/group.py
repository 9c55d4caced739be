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

DIGITS = (21, 10, 0)  # lowest bits of a float32's digits of 11, 11 and 10 bits: 16 kB of counts a round
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
        return [int(one) for one in self.sum(np.array(sizes, np.int64))]

    def mean(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted mean over all processes."""
        if self.size == 1:
            return values
        both = self.sum(np.stack([np.where(weights > 0, values, 0) * weights, weights]).astype(np.float64))
        return np.asarray(both[0] / np.maximum(both[1], 1))

    def first(self, document: Any) -> Any:
        """The JSON value of the first process."""
        return document if self.size == 1 else json.loads(self.gather(json.dumps(document).encode())[0])

    def smallest(self, values: np.ndarray, ks: Sequence[int]) -> np.ndarray:
        """The ks[e]-th smallest of the rows e of values (E, n) of all processes; NaN sorts last.

        A radix selection: counts of the leading bits narrow down the value, then counts of the bits that follow.
        """
        left, known = np.array(ks, np.int64), np.zeros(len(ks), np.uint32)
        shift = 32
        for digit in DIGITS:
            counts = np.stack([_digit_counts(*one, shift, digit) for one in zip(values, known, strict=True)])
            ends = np.cumsum(self.sum(counts), axis=1)
            found = (ends < left[:, None]).sum(axis=1)
            before = np.take_along_axis(ends, (found - 1).clip(0)[:, None], axis=1)[:, 0]
            left, shift = left - np.where(found > 0, before, 0), digit
            known |= found.astype(np.uint32) << np.uint32(digit)
        back = np.where(known >> 31, known & 0x7FFFFFFF, ~known)
        return back.astype(np.uint32).view(np.float32)


ALONE = Group()


def _digit_counts(values: np.ndarray, known: np.uint32, shift: int, digit: int) -> np.ndarray:
    """How often each value of a digit occurs among the numbers whose bits from `shift` on are those of `known`."""
    counts = np.zeros(1 << (11 if digit else 10), np.int64)
    for start in range(0, len(values), NUMBERS_AT_ONCE):
        bits = np.ascontiguousarray(values[start : start + NUMBERS_AT_ONCE], np.float32).view(np.uint32)
        keys = np.where(bits >> 31, ~bits, bits | 0x80000000)  # sort like the numbers
        if shift < 32:
            keys = keys[keys >> shift == known >> shift]
        counts += np.bincount((keys >> digit) & (len(counts) - 1), minlength=len(counts))
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
        whole = np.zeros(ends[-1], np.uint8)
        whole[ends[self.rank] : ends[self.rank + 1]] = np.frombuffer(content, np.uint8)
        whole = self.sum(whole)
        return [whole[start:stop].tobytes() for start, stop in pairwise(ends)]


def rounds(batches: Iterator[T], group: Group) -> Iterator[Iterator[T]]:
    """The batches of each round between two averages, until no process has any left; one round outside a group."""
    if group.size == 1:
        yield batches
        return
    while True:
        part = list(islice(batches, group.every))
        if group.counts([len(part)]) == [0]:
            return
        yield iter(part)


def average(state: TrainingState, made: np.ndarray, group: Group) -> None:
    """Average weights and moments over the processes, weighted by the steps (A,) each made since the last average."""
    if group.size == 1:
        return
    parts = (state.weights, state.first, state.second)
    steps = np.zeros((group.size, len(made)))
    steps[group.rank] = made
    own = [to_numpy(part) * made[:, None].astype(np.float64) for part in parts]
    total = group.sum(np.concatenate([steps.ravel(), *(part.ravel() for part in own)]))
    steps, sums = total[: steps.size].reshape(steps.shape), total[steps.size :].reshape(3, *state.weights.shape)
    moved = index_like(np.flatnonzero(steps.any(axis=0)), state.weights)
    mean = sums / np.maximum(steps.sum(axis=0), 1)[:, None]
    for part, new in zip(parts, mean, strict=True):
        part[moved] = as_like(new, part)[moved]
    state.steps += steps.max(axis=0).astype(np.int64) - made
