"""The state of training between two epochs, as plain arrays, and Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, copy, index_like, namespace

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Member:
    """One network to train, with its own rows and random numbers."""

    train: np.ndarray  # ids of M
    validation: np.ndarray  # ids of V
    random: np.random.Generator  # shuffles the rows
    normal_ratio: float = 2 / 3
    anomalies: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # labelled rows, in neither M nor V
    labelled_normal: np.ndarray | None = (
        None  # which of `train` are labelled normal, so that distillation never drops them
    )
    tolerance: float = 0.0  # distillation keeps rows up to this many median scores, whatever `normal_ratio`


@dataclass
class TrainingState:
    """Weights and Adam moments of the A active members, best copies of all E members, and the history so far."""

    weights: Array  # (A, P), the encoder's own buffer
    first: Array  # (A, P), Adam's first moments divided by 1 - beta, which saves a pass
    second: Array  # (A, P), its second moments, likewise
    steps: np.ndarray  # (A,), Adam's step counts
    active: np.ndarray  # (A,), the members that have not stopped, in the order of the buffers
    healthy: Array  # (A, P), the last network that had not collapsed
    best: Array  # (E, P)
    best_loss: np.ndarray  # (E,)
    best_epoch: np.ndarray  # (E,)
    patience_left: np.ndarray  # (E,)
    collapsed: np.ndarray  # (E,), the epoch of a member's collapse, or 0
    untrained_spread: np.ndarray | None = None  # (E,), mean distance to the centre before the first step
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)  # rows kept in each epoch, as packed bits (E, ceil(n / 8))

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

    def select(self, indices: np.ndarray) -> None:
        """Keep these rows of the working buffers, in this order."""
        rows = index_like(indices, self.weights)
        self.weights, self.healthy = self.weights[rows], self.healthy[rows]
        self.first, self.second = self.first[rows], self.second[rows]
        self.steps, self.active = self.steps[indices], self.active[indices]

    def leading(self, count: int) -> TrainingState:
        """The first `count` active members, as views of the same buffers."""
        names = ("weights", "first", "second", "steps", "active")
        return replace(self, **{name: getattr(self, name)[:count] for name in names})


def adam(state: TrainingState, gradient: Array, learning_rate: float, mask: np.ndarray | None = None) -> None:
    """Make one step of Adam with all members, or with those of the mask (A,); overwrites the gradient."""
    buffers = (state.weights, state.first, state.second)
    if mask is None and (len(state.steps) == 1 or state.steps.min() == state.steps.max()):
        state.steps += 1
        update(*buffers, gradient, *bias_corrected(learning_rate, int(state.steps[0])))
        return
    indices = np.arange(len(state.steps)) if mask is None else np.flatnonzero(mask)
    state.steps[indices] += 1
    rate, epsilon = (as_like(part, gradient)[:, None] for part in bias_corrected(learning_rate, state.steps[indices]))
    rows = index_like(indices, gradient)
    weights, first, second = (buffer[rows] for buffer in buffers)
    update(weights, first, second, gradient[rows], rate, epsilon)
    for buffer, part in zip(buffers, (weights, first, second), strict=True):
        buffer[rows] = part


def bias_corrected(learning_rate: float, step: Any) -> tuple[Any, Any]:
    """The rate and the epsilon of a step, with the bias corrections of both moments, which saves a pass."""
    first = (1 - BETAS[0] ** step) / (1 - BETAS[0])
    second = ((1 - BETAS[1] ** step) / (1 - BETAS[1])) ** 0.5
    return learning_rate * second / first, EPSILON * second


def update(weights: Array, first: Array, second: Array, grad: Array, rate: Any, epsilon: Any) -> None:
    """Adam's update of weights and moments in place; overwrites the gradient."""
    xp = namespace(grad)
    first *= BETAS[0]
    first += grad
    second *= BETAS[1]
    grad *= grad
    second += grad
    root = xp.sqrt(second, out=grad)
    root += epsilon
    step = xp.divide(first, root, out=root)
    step *= rate
    weights -= step


def held_out(members: Sequence[Member], rows: int) -> np.ndarray:
    """Which rows each member validates on and does not train on, (members, rows)."""
    flags = np.zeros((len(members), rows), bool)
    for row, member in zip(flags, members, strict=True):
        row[member.validation] = True
        row[member.train] = False
    return flags
