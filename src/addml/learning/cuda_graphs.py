"""Training steps recorded once and replayed by the device: one launch a step, no word from the host between them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, namespace
from addml.learning.losses import Batch
from addml.learning.state import TrainingState, corrected, move

logger = logging.getLogger("addml")

RECORDING_DEVICES = ("cuda",)
LEAST_STEPS = 4  # a shape of batch is worth recording when it is seen so often
MOST_STEPS = 1024  # in one table


class Recorder:
    """Replays full batches on CUDA for learners that say they are `capturable`; does nothing for others.

    A recording belongs to a number of members and a width of batch. Fewer members, down to half, use it too: those
    that have stopped are carried along unseen, which costs nothing where launches do.
    """

    def __init__(self, learner: Any, rows: Any, learning_rate: float, weight_decay: float) -> None:
        self.learner, self.rows = learner, rows
        self.learning_rate, self.decay = learning_rate, learner.decays() * weight_decay
        self._possible = bool(getattr(learner, "capturable", False) and getattr(rows, "resident", True))
        self._recordings: dict[tuple[int, int], _Recording] = {}
        self._seen: dict[int, int] = {}

    def replay(self, part: TrainingState, center: Array, batches: Sequence[Batch], sums: Array) -> bool:
        """Do the steps of these full batches and add up losses and cut-offs (2, A); False where it cannot."""
        if not self._possible or isinstance(center, np.ndarray) or center.device.type not in RECORDING_DEVICES:
            return False
        recording = self._recording(part, center, batches)
        if recording is None:
            return False
        for start in range(0, len(batches), MOST_STEPS):
            recording.run(part, center, batches[start : start + MOST_STEPS], sums, self.learning_rate)
        return True

    def _recording(self, part: TrainingState, center: Array, batches: Sequence[Batch]) -> _Recording | None:
        members, width = len(part.weights), batches[0].normal
        fitting = [size for size, wide in self._recordings if wide == width and members <= size <= 2 * members]
        if fitting:
            return self._recordings[min(fitting), width]
        self._seen[width] = self._seen.get(width, 0) + len(batches)
        if self._seen[width] < LEAST_STEPS:
            return None
        try:
            self._recordings[members, width] = _Recording(self, part, center, width)
        except RuntimeError as error:  # an operation that cannot be recorded
            logger.info("training steps are not recorded: %s", error)
            self._possible = False
        return self._recordings.get((members, width))


class _Recording:
    """One step on buffers that stay where they are; everything that differs between steps lies in tables."""

    def __init__(self, recorder: Recorder, part: TrainingState, center: Array, width: int) -> None:
        import torch

        weights, members = part.weights, len(part.weights)
        self.learner, self.rows, self.width = copy.copy(recorder.learner), recorder.rows, width
        self.weights, self.first, self.second = (torch.zeros_like(weights) for _ in range(3))
        self.center, self.decay = torch.zeros_like(center), recorder.decay
        most = min(-(-len(recorder.rows) // width), MOST_STEPS)
        self.ids = torch.zeros(most, members, width, dtype=torch.int64, device=weights.device)
        self.rates = torch.ones(most, members, 2, dtype=weights.dtype, device=weights.device)
        self.place = torch.zeros(1, dtype=torch.int64, device=weights.device)
        self.sums = torch.zeros(2, members, dtype=weights.dtype, device=weights.device)
        self.learner.set_weights(self.weights)
        self._graph = self._captured()

    def _captured(self) -> Any:
        import torch

        beside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            self._step()  # what is made once, on first use, is made outside of the graph
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step()
        return graph

    def _step(self) -> None:
        ids, rates = self.ids.index_select(0, self.place)[0], self.rates.index_select(0, self.place)[0]
        members = len(ids)
        batch = Batch(ids, self.width, [self.width] * members, [0] * members)
        loss, gradient = self.learner.loss_and_grad(self.rows.take(ids), self.center, batch)
        gradient.addcmul_(self.weights, self.decay)
        move(self.weights, self.first, self.second, gradient, rates[:, :1], rates[:, 1:])
        self.sums[0] += loss.value
        self.sums[1] += loss.cutoff
        self.place += 1

    def run(
        self, part: TrainingState, center: Array, batches: Sequence[Batch], sums: Array, learning_rate: float
    ) -> None:
        """Do these steps for the members of part, which come first."""
        members, steps = len(part.weights), len(batches)
        counts = part.steps + 1 + np.arange(steps)[:, None]  # (steps, A)
        own = (self.weights[:members], self.first[:members], self.second[:members])
        for mine, theirs in zip(own, (part.weights, part.first, part.second), strict=True):
            mine.copy_(theirs)
        self.center[:members] = center
        self.ids[:steps, :members] = namespace(center).stack([batch.ids[:members] for batch in batches])
        self.rates[:steps, :members] = as_like(np.stack(corrected(learning_rate, counts), axis=-1), self.weights)
        self.place.zero_()
        self.sums.zero_()
        for _ in range(steps):
            self._graph.replay()
        for mine, theirs in zip(own, (part.weights, part.first, part.second), strict=True):
            theirs.copy_(mine)
        sums += self.sums[:, :members]
        part.steps += steps
