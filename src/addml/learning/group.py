"""The processes that train one model together; a single process is a group of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.arrays import Array, as_like, index_like, to_numpy
from addml.learning.state import TrainingState, adam

if TYPE_CHECKING:
    from addml.learning.learner import TakesRows
    from addml.learning.losses import Batch

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


# Steps that the processes make together: with the mean of their gradients, or of their weights.


def rounds(batches: Iterator[Batch], group: Group) -> Iterator[Iterator[Batch]]:
    """All batches, or in a group so many at a time until no process has any left."""
    if group.size == 1:
        yield batches
        return
    while True:
        part = list(islice(batches, group.every))
        if group.counts([len(part)]) == [0]:
            return
        yield iter(part)


def average(state: TrainingState, made: np.ndarray, group: Group) -> None:
    """Go on with the mean of the processes' weights and moments, each by the steps (A,) it made since the last one."""
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


def steps_together(
    learner: Any,
    rows: TakesRows,
    batches: Iterator[Batch],
    center: Array,
    learning_rate: float,
    least_batch: int,
    decay: Array,
    state: TrainingState,
    group: Group,
) -> np.ndarray:
    """Steps with the mean gradient of the processes that have rows left, each of its own part of the batch."""
    members, shape = len(state.active), state.weights.shape
    sums, made = np.zeros((2, members)), np.zeros(members)
    while True:
        batch = next(batches, None)
        own = np.zeros((3 + shape[1], members))  # loss, cut-off and gradient of members that make a step, and 1
        if batch is not None:
            loss, gradient = learner.loss_and_grad(rows.take(batch.ids), center, batch)
            moving = np.asarray(batch.normal_counts) >= least_batch
            own[:3] = to_numpy(loss.value), to_numpy(loss.cutoff), np.ones(members)
            own[3:] = to_numpy(gradient).T
            own[:, ~moving] = 0
        flat = group.sum(np.append(own, batch is not None))
        if not flat[-1]:
            return np.asarray(sums / np.maximum(made, 1))
        total = flat[:-1].reshape(own.shape)
        moving = total[2] > 0
        total /= np.maximum(total[2], 1)
        sums, made = sums + total[:2], made + moving
        gradient = as_like(np.ascontiguousarray(total[3:].T), state.weights) + state.weights * decay
        adam(state, gradient, learning_rate, None if moving.all() else moving)
