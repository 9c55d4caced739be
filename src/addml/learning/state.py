"""What training remembers between two epochs, as plain arrays, and steps of Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, copy, index_like, namespace

BETAS, EPSILON = (0.9, 0.999), 1e-8
NUMBERS_AT_ONCE = 16384  # which a core's cache holds through all passes of a step


@dataclass(frozen=True)
class Member:
    """One network to train: its rows, and what is its own."""

    train: np.ndarray  # ids of M
    validation: np.ndarray  # ids of V
    random: np.random.Generator  # its shuffles
    normal_ratio: float = 2 / 3
    anomalies: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # labelled so, in neither M nor V
    sure: np.ndarray | None = None  # which of `train` are labelled normal, never dropped
    tolerance: float = 0.0  # times the median score: rows up to that are kept whatever `normal_ratio`


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
