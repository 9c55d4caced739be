"""The processes that train one model together; a single process is a group of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, to_numpy

DIGITS = (21, 10, 0)  # where the digits of a float32 begin, of 11, 11 and 10 bits: counts of 16 kB a round


class Group:
    """One process by itself: what is added up over the group is its own."""

    rank, size = 0, 1
    every = 0  # steps between two averages of the weights; 0 averages the gradients of every step

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum over all processes, the same bits in each."""
        return values

    def gather(self, content: bytes) -> list[bytes]:
        """What every process gave, in their order."""
        return [content]

    def settings(self) -> dict[str, Any]:
        """What a training depends on besides the settings of a detector."""
        return {} if self.size == 1 else {"workers": self.size, "every": self.every}

    # Made of these two ------------------------------------------------------------------------------------------

    def total(self, values: Array) -> Array:
        """The sum of float32 arrays, rounded once."""
        if self.size == 1:
            return values
        return as_like(self.sum(to_numpy(values).astype(np.float64)), values)

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """The sums of whole numbers."""
        return [int(one) for one in self.sum(np.array(sizes, np.int64))]

    def mean(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The mean of values over all processes, by weights of each."""
        if self.size == 1:
            return values
        both = self.sum(np.stack([np.where(weights > 0, values, 0) * weights, weights]).astype(np.float64))
        return np.asarray(both[0] / np.maximum(both[1], 1))

    def first(self, document: Any) -> Any:
        """What the first process has, a JSON value."""
        return document if self.size == 1 else json.loads(self.gather(json.dumps(document).encode())[0])

    def smallest(self, values: np.ndarray, ks: Sequence[int]) -> np.ndarray:
        """The ks[e]-th smallest of the rows e of values (E, n) of all processes, NaN behind all numbers.

        Counts of the leading bits say between which numbers it lies, those of the next bits where there, and so on.
        """
        left, known = np.array(ks, np.int64), np.zeros(len(ks), np.uint32)
        shift = 32
        for digit in DIGITS:
            counts = np.stack([_digits(*one, shift, digit) for one in zip(values, known, strict=True)])
            ends = np.cumsum(self.sum(counts), axis=1)
            found = (ends < left[:, None]).sum(axis=1)
            before = np.take_along_axis(ends, (found - 1).clip(0)[:, None], axis=1)[:, 0]
            left, shift = left - np.where(found > 0, before, 0), digit
            known |= found.astype(np.uint32) << np.uint32(digit)
        back = np.where(known >> 31, known & 0x7FFFFFFF, ~known)
        return back.astype(np.uint32).view(np.float32)


ALONE = Group()
AT_ONCE = 2**20  # numbers


def _digits(values: np.ndarray, known: np.uint32, shift: int, digit: int) -> np.ndarray:
    """How many numbers have each value of the digit at some bit, of those that begin as `known` does."""
    counts = np.zeros(1 << (11 if digit else 10), np.int64)
    for start in range(0, len(values), AT_ONCE):
        bits = np.ascontiguousarray(values[start : start + AT_ONCE], np.float32).view(np.uint32)
        keys = np.where(bits >> 31, ~bits, bits | 0x80000000)  # whose order is that of the numbers
        if shift < 32:
            keys = keys[keys >> shift == known >> shift]
        counts += np.bincount((keys >> digit) & (len(counts) - 1), minlength=len(counts))
    return counts


class TorchGroup(Group):
    """The processes of torch.distributed, which whoever began them has joined (gloo on CPUs)."""

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
