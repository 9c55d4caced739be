"""Many fits of ADDML in one training call, along the member axis.

The eighteen fits of a set are eighteen groups of members of one stack of networks: each has its own rows, scaled by
its own training part, its own share of normal rows and its own generator. What comes out is what each detector
fitted alone gives, up to the rounding of products of another shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from addml import parameters
from addml.arrays import Array, to_numpy
from addml.compute import blas_threads, most_threads, on_device, resolve_device
from addml.detector import ADDML
from addml.fitting import metric_space, warn_of_collapse
from addml.inputs.rows import MemoryRows
from addml.learning.learner import MetricLearner
from addml.learning.state import Member, TrainingState
from addml.learning.training import train
from addml.model import MetricModel
from addml.preprocessing.scaling import Features

OWN = ("normal_ratio", "random_state", "contamination")  # settings in which the detectors may differ


@dataclass(frozen=True)
class Fitted:
    """One of the fits: it scores as the detector fitted alone would."""

    model: MetricModel
    anomaly_scores_: np.ndarray
    device: str
    threads: int

    def anomaly_score(self, X: np.ndarray) -> np.ndarray:
        """How anomalous each row of X is."""
        return self.model.scores(X, self.device, self.threads)


def fit_together(detectors: Sequence[ADDML], tables: Sequence[np.ndarray]) -> list[Fitted]:
    """Fit detectors that differ in nothing but OWN, each to its own table of numbers, all in one call of `train`."""
    lead, device = _checked(detectors), resolve_device(detectors[0].device)
    features = [_features(lead, X) for X in tables]
    rows = MemoryRows(on_device(_stacked(features, tables), device))
    randoms = [detector._randoms() for detector in detectors]
    encoder = lead._new_encoder((features[0].width,), [random for own in randoms for random in own], device)
    groups = [
        [detector._member(np.arange(len(X)), None, random) for random in own]
        for detector, X, own in zip(detectors, tables, randoms, strict=True)
    ]
    learner = MetricLearner(encoder, lead._objective())
    state = TrainingState.begin(encoder.weights, lead.patience)
    train(learner, rows, _among_all(groups, tables), lead._schedule(encoder), state)
    warn_of_collapse(state)

    fitted, start = [], 0
    for place, (detector, X, own, group) in enumerate(zip(detectors, tables, features, groups, strict=True)):
        best = state.best[place * len(group) : (place + 1) * len(group)]
        model = _model(detector, own, learner, MemoryRows(rows.values[start : start + len(X)]), group, best)
        fitted.append(_fitted(model, X, device, lead.n_jobs))
        start += len(X)
    return fitted


def _checked(detectors: Sequence[ADDML]) -> ADDML:
    """The first of the detectors, whose settings the others share."""
    lead = detectors[0]
    for detector in detectors:
        detector._check_parameters()
        for name, value in detector.get_params(deep=False).items():
            if name not in OWN and value != getattr(lead, name):
                other = getattr(lead, name)
                raise ValueError(f"{name}={value!r} and {name}={other!r} cannot train together; only {OWN} may differ")
    return lead


def _features(detector: ADDML, X: np.ndarray) -> Features:
    sides = parameters.sides(detector.one_sided, list(map(str, range(X.shape[1]))))
    return Features.fit(X, sides, robust=detector._robust)


def _stacked(features: Sequence[Features], tables: Sequence[np.ndarray]) -> np.ndarray:
    """The prepared rows of all tables, one table after another."""
    if len({own.width for own in features}) > 1:
        raise ValueError("tables with gaps in different columns cannot train together; fit them one by one")
    return np.concatenate([own.transform(X) for own, X in zip(features, tables, strict=True)])


def _among_all(groups: Sequence[Sequence[Member]], tables: Sequence[np.ndarray]) -> list[Member]:
    """The members of all detectors, their rows counted among those of all tables."""
    starts = np.cumsum([0, *map(len, tables)])
    return [
        replace(member, train=member.train + start, validation=member.validation + start)
        for group, start in zip(groups, starts, strict=False)
        for member in group
    ]


def _model(
    detector: ADDML, features: Features, learner: MetricLearner, rows: MemoryRows, members: list[Member], best: Array
) -> MetricModel:
    """The fitted model of one detector from its members' best networks."""
    with blas_threads(1):
        space = metric_space(learner, rows, members, best, None, features, None, members[0].random)
    scorer, encoder = detector._scorer(), learner.encoder.with_weights(to_numpy(best))
    return MetricModel(features, encoder, detector.distance, scorer, scorer.fit(space))  # type: ignore[arg-type]


def _fitted(model: MetricModel, X: np.ndarray, device: str, n_jobs: int | None) -> Fitted:
    threads = most_threads(n_jobs)
    scores = model.member_scores(X, device, threads)
    model = model.with_scale(scores)
    return Fitted(model, model.combine(scores), device, threads)
