"""What training remembers between two epochs, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from addml.arrays import Array, as_like, copy, index_like, namespace

BETAS, EPSILON = (0.9, 0.999), 1e-8
NUMBERS_AT_ONCE = 16384


@dataclass(frozen=True)
class Member:
    """One network to train: its rows, and what is its own."""

    train: np.ndarray  # ids of M
    validation: np.ndarray  # ids of V
    random: np.random.Generator  # its shuffles
    normal_ratio: float = 2 / 3
    anomalies: np.ndarray = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # ids labelled anomalous, in neither M nor V
    sure: np.ndarray | None = None  # which of `train` are labelled normal, never dropped


@dataclass
class TrainingState:
    """The active members' weights and Adam moments, everybody's best copy, and what has been seen so far.

    `active` maps the rows of weights, moments and healthy copies to members; a member that stops leaves them.
    """

    weights: Array  # (A, P), the encoder's own buffer
    first: Array  # Adam's moments, (A, P)
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

    def stop(self, stopping: np.ndarray) -> None:
        """Let the active members marked in stopping (A,) leave the working buffers."""
        staying = index_like(~stopping, self.weights)
        self.weights, self.healthy = self.weights[staying], self.healthy[staying]
        self.first, self.second = self.first[staying], self.second[staying]
        self.steps, self.active = self.steps[~stopping], self.active[~stopping]


def adam(state: TrainingState, gradient: Array, learning_rate: float, moving: np.ndarray | None = None) -> None:
    """One step of Adam for all members, or for those marked in moving (A,); the gradient is used up."""
    parts = (state.weights, state.first, state.second)
    if moving is None and (len(state.steps) == 1 or state.steps.min() == state.steps.max()):
        state.steps += 1
        bias_1, bias_2 = _corrections(int(state.steps[0]))
        for weights, first, second, grad in zip(*(_pieces(whole) for whole in (*parts, gradient)), strict=True):
            _adam(weights, first, second, grad, learning_rate, bias_1, bias_2)
        return
    chosen = np.arange(len(state.steps)) if moving is None else np.flatnonzero(moving)
    state.steps[chosen] += 1
    rows = index_like(chosen, gradient)
    weights, first, second = (whole[rows] for whole in parts)
    bias_1, bias_2 = (as_like(bias, gradient)[:, None] for bias in _corrections(state.steps[chosen]))
    _adam(weights, first, second, gradient[rows], learning_rate, bias_1, bias_2)
    for whole, part in zip(parts, (weights, first, second), strict=True):
        whole[rows] = part


def _pieces(whole: Array) -> list[Array]:
    """Views of the flat buffer that a core's cache holds through all passes; one view elsewhere than on the CPU."""
    flat = whole.reshape(-1)
    if not isinstance(flat, np.ndarray):
        return [flat]
    return [flat[start : start + NUMBERS_AT_ONCE] for start in range(0, len(flat), NUMBERS_AT_ONCE)]


def _corrections(step: Any) -> tuple[Any, Any]:
    return 1 - BETAS[0] ** step, (1 - BETAS[1] ** step) ** 0.5


def _adam(weights: Array, first: Array, second: Array, grad: Array, rate: float, bias_1: Any, bias_2: Any) -> None:
    first *= BETAS[0]
    first += (1 - BETAS[0]) * grad
    second *= BETAS[1]
    grad *= grad
    grad *= 1 - BETAS[1]
    second += grad
    size = namespace(second).sqrt(second)
    size += EPSILON * bias_2  # both corrections go into the rate: one pass less
    step = first / size
    step *= rate * bias_2 / bias_1
    weights -= step
