"""The 216 fits of the paper's results table: 3 folds by 3 seeds of 12 sets, polluted and one-class."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from addml.compute import in_threads, max_threads, on_device
from addml.distances import count_of
from addml.encoders import MLPNetwork
from addml.inputs import MemoryRows
from addml.learning.learner import MetricLearner
from addml.learning.losses import InstanceCloseness
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train
from addml.preprocessing.scaling import Features
from benchmarks.tables import SHAPES, labelled
from benchmarks.timing import markdown


class Part(NamedTuple):
    """The standardised rows of one fit, and its normal_ratio."""

    rows: np.ndarray
    normal_ratio: float


def eighteen(name: str) -> tuple[list[Part], list[Part]]:
    """The nine polluted and the nine one-class fits of a set."""
    X, y, _ = labelled(name)
    polluted, one_class = [], []
    for seed in range(3):
        for learn, _ in StratifiedKFold(3, shuffle=True, random_state=seed).split(X, y):
            polluted.append(Part(_standardised(X[learn]), 2 / 3))
            one_class.append(Part(_standardised(X[learn[~y[learn]]]), 1.0))
    return polluted, one_class


def _standardised(X: np.ndarray) -> np.ndarray:
    return Features.fit(X, [""] * X.shape[1]).transform(X)


def fit_together(parts: Sequence[Part], device: str, patience: int = 5) -> TrainingState:
    """Train a network for each part in one call of `train`, as in the paper, in batches of 128."""
    width = max(part.rows.shape[1] for part in parts)  # a column of a fold without gaps may have none
    rows = MemoryRows(on_device(np.concatenate([_widened(part.rows, width) for part in parts]), device))
    randoms, members, start = [np.random.default_rng(e) for e in range(len(parts))], [], 0
    encoder = MLPNetwork.initial((width, 64, 64), ("tanh", "tanh"), randoms)
    for part, random in zip(parts, randoms, strict=True):
        order, held_out = start + random.permutation(len(part.rows)), count_of(0.1, len(part.rows), least=2)
        members.append(Member(np.sort(order[held_out:]), np.sort(order[:held_out]), random, part.normal_ratio))
        start += len(part.rows)
    encoder = encoder.with_weights(on_device(encoder.weights.astype(np.float32), device))
    state = TrainingState.begin(encoder.weights, patience)
    return train(MetricLearner(encoder, InstanceCloseness()), rows, members, Schedule(patience=patience), state)


def _widened(rows: np.ndarray, width: int) -> np.ndarray:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def seconds_of(name: str, device: str) -> float:
    """Seconds of the eighteen fits of a set: all together on a device, half on each of two threads on the CPU."""
    groups = eighteen(name)
    began = time.perf_counter()
    if device == "cpu":
        in_threads(lambda half: fit_together(groups[half], device) and None, 2, min(2, max_threads(None)))
    else:
        fit_together([*groups[0], *groups[1]], device)
    return time.perf_counter() - began


def many(device: str = "cpu") -> str:
    """The table of seconds for each set and for all of them."""
    took = {name: seconds_of(name, device) for name in SHAPES}
    took["all 216 fits"] = sum(took.values())
    return markdown(["18 fits of a set, stopping early", "s"], [[name, f"{s:.2f}"] for name, s in took.items()])
