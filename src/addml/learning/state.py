"""What training remembers between two epochs, as plain arrays, and steps of Adam, which CUDA devices record."""

from __future__ import annotations

import copy as copying
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, copy, index_like, namespace
from addml.learning.losses import Batch

BETAS, EPSILON = (0.9, 0.999), 1e-8
NUMBERS_AT_ONCE = 16384  # which a core's cache holds through all passes of a step
WORTH_RECORDING = 4  # batches of one shape in a row

logger = logging.getLogger("addml")


@dataclass(frozen=True)
class Member:
    """One network to train: its rows, and what is its own."""

    train: np.ndarray  # ids of M
    validation: np.ndarray  # ids of V
    random: np.random.Generator  # its shuffles
    normal_ratio: float = 2 / 3
    anomalies: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # labelled so, in neither M nor V
    sure: np.ndarray | None = None  # which of `train` are labelled normal, never dropped


@dataclass
class TrainingState:
    """The active members' weights and Adam moments, everybody's best copy, and what has been seen so far.

    `active` maps the rows of weights, moments and healthy copies to members; a member that stops leaves them.
    """

    weights: Array  # (A, P), the encoder's own buffer
    first: Array  # Adam's moments, (A, P), over 1 - beta: sums that need one pass less
    second: Array
    steps: np.ndarray  # Adam's count, (A,)
    active: np.ndarray  # (A,)
    healthy: Array  # (A, P), the last network known not to have collapsed
    best: Array  # (E, P)
    best_loss: np.ndarray  # (E,)
    best_epoch: np.ndarray  # (E,)
    patience_left: np.ndarray  # (E,)
    collapsed: np.ndarray  # (E,), the epoch in which a member collapsed, or 0
    untrained_spread: np.ndarray | None = None  # (E,), mean distance to the centre before any step
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)  # one (E, ceil(n / 8)) array of packed bits an epoch

    @classmethod
    def begin(cls, weights: Array, patience: int) -> TrainingState:
        """The state before the first epoch; weights (E, P) become the working buffer."""
        members = weights.shape[0]
        return cls(
            weights=weights,
            first=namespace(weights).zeros_like(weights),
            second=namespace(weights).zeros_like(weights),
            steps=np.zeros(members, np.int64),
            active=np.arange(members),
            healthy=copy(weights),
            best=copy(weights),
            best_loss=np.full(members, np.inf),
            best_epoch=np.zeros(members, np.int64),
            patience_left=np.full(members, patience),
            collapsed=np.zeros(members, np.int64),
        )

    def choose(self, staying: np.ndarray) -> None:
        """Go on with these rows of the working buffers, in this order."""
        rows = index_like(staying, self.weights)
        self.weights, self.healthy = self.weights[rows], self.healthy[rows]
        self.first, self.second = self.first[rows], self.second[rows]
        self.steps, self.active = self.steps[staying], self.active[staying]

    def leading(self, count: int) -> TrainingState:
        """The first of the active members by themselves: views of the same buffers."""
        names = ("weights", "first", "second", "steps", "active")
        return replace(self, **{name: getattr(self, name)[:count] for name in names})


def adam(state: TrainingState, gradient: Array, learning_rate: float, moving: np.ndarray | None = None) -> None:
    """One step of Adam for all members, or for those marked in moving (A,); the gradient is used up."""
    parts = (state.weights, state.first, state.second)
    if moving is None and (len(state.steps) == 1 or state.steps.min() == state.steps.max()):
        state.steps += 1
        rate, epsilon = corrected(learning_rate, int(state.steps[0]))
        if not isinstance(gradient, np.ndarray):
            return move(*parts, gradient, rate, epsilon)
        weights, first, second, flat = (whole.reshape(-1) for whole in (*parts, gradient))
        for start in range(0, gradient.size, NUMBERS_AT_ONCE):
            at = slice(start, start + NUMBERS_AT_ONCE)
            move(weights[at], first[at], second[at], flat[at], rate, epsilon)
        return None
    chosen = np.arange(len(state.steps)) if moving is None else np.flatnonzero(moving)
    state.steps[chosen] += 1
    rows = index_like(chosen, gradient)
    weights, first, second = (whole[rows] for whole in parts)
    rate, epsilon = (as_like(part, gradient)[:, None] for part in corrected(learning_rate, state.steps[chosen]))
    move(weights, first, second, gradient[rows], rate, epsilon)
    for whole, part in zip(parts, (weights, first, second), strict=True):
        whole[rows] = part


def corrected(learning_rate: float, step: Any) -> tuple[Any, Any]:
    """The rate and the epsilon of a step, with the corrections of both moments in them: one pass less."""
    first = (1 - BETAS[0] ** step) / (1 - BETAS[0])
    second = ((1 - BETAS[1] ** step) / (1 - BETAS[1])) ** 0.5
    return learning_rate * second / first, EPSILON * second


def move(weights: Array, first: Array, second: Array, grad: Array, rate: Any, epsilon: Any) -> None:
    """Adam in place; the gradient is used up."""
    xp = namespace(grad)
    first *= BETAS[0]
    first += grad
    second *= BETAS[1]
    grad *= grad
    second += grad
    size = xp.sqrt(second, out=grad)
    size += epsilon
    step = xp.divide(first, size, out=size)
    step *= rate
    weights -= step


def held_out(members: Sequence[Member], rows: int) -> np.ndarray:
    """Which rows each member only validated with, (members, rows)."""
    marks = np.zeros((len(members), rows), bool)
    for mark, member in zip(marks, members, strict=True):
        mark[member.validation], mark[member.train] = True, False
    return marks


class Recorder:
    """Runs of full batches on CUDA: a step is recorded once for its shape and replayed, one launch in place of dozens.

    It does nothing for learners that are not `capturable`.
    """

    def __init__(self, learner: Any, rows: Any, learning_rate: float, decay: Array) -> None:
        self.learner, self.rows, self.learning_rate, self.decay = learner, rows, learning_rate, decay
        self._possible = learner.capturable and getattr(rows, "resident", True)
        self._recordings: dict[tuple[int, int], _Recording] = {}  # by members and rows of a batch

    def replay(self, part: TrainingState, center: Array, batches: Sequence[Batch], sums: Array) -> bool:
        """Make the steps of these full batches and add up losses and cut-offs (2, A); False if it cannot."""
        shape = len(part.weights), batches[0].normal
        if not self._possible or isinstance(center, np.ndarray) or center.device.type != "cuda":
            return False
        if shape not in self._recordings:
            if len(batches) < WORTH_RECORDING:
                return False
            try:
                self._recordings[shape] = _Recording(self, part, center, shape[1])
            except RuntimeError as error:  # an operation that cannot be recorded
                logger.info("training steps are not recorded: %s", error)
                self._possible = False
                return False
        self._recordings[shape].run(part, center, batches, sums, self.learning_rate)
        return True


class _Recording:
    """One step on buffers that stay where they are."""

    def __init__(self, recorder: Recorder, part: TrainingState, center: Array, width: int) -> None:
        import torch

        weights, members = part.weights, len(part.weights)
        self.learner, self.rows, self.decay = copying.copy(recorder.learner), recorder.rows, recorder.decay
        self.buffers = [torch.zeros_like(one) for one in (weights, part.first, part.second, center)]
        self.ids = torch.zeros(members, width, dtype=torch.int64, device=weights.device)
        self.rates = torch.ones(members, 2, dtype=weights.dtype, device=weights.device)
        self.sums = torch.zeros(2, members, dtype=weights.dtype, device=weights.device)
        self.learner.set_weights(self.buffers[0])
        beside, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            self._step()  # what is made once, on first use, is made outside of the graph
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self._step()

    def _step(self) -> None:
        weights, first, second, center = self.buffers
        members, width = self.ids.shape
        batch = Batch(self.ids, width, [width] * members, [0] * members)
        loss, gradient = self.learner.loss_and_grad(self.rows.take(self.ids), center, batch)
        gradient.addcmul_(weights, self.decay)
        move(weights, first, second, gradient, self.rates[:, :1], self.rates[:, 1:])
        self.sums[0] += loss.value
        self.sums[1] += loss.cutoff

    def run(
        self, part: TrainingState, center: Array, batches: Sequence[Batch], sums: Array, learning_rate: float
    ) -> None:
        """Make these steps."""
        own = (part.weights, part.first, part.second, center)
        for mine, theirs in zip(self.buffers, own, strict=True):
            mine.copy_(theirs)
        counts = part.steps + 1 + np.arange(len(batches))[:, None]  # (steps, A)
        rates = as_like(np.stack(corrected(learning_rate, counts), axis=-1), part.weights)
        self.sums.zero_()
        for batch, rate in zip(batches, rates, strict=True):
            self.ids.copy_(batch.ids)
            self.rates.copy_(rate)
            self.graph.replay()
        for mine, theirs in zip(self.buffers[:3], own[:3], strict=True):
            theirs.copy_(mine)
        sums += self.sums
        part.steps += len(batches)
