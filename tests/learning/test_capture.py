"""Recorded steps against steps made one by one, where there is a CUDA device."""

import numpy as np
import pytest
import torch

from addml.encoders import MLPNetwork
from addml.inputs import MemoryRows
from addml.learning import state as steps
from addml.learning.learner import MetricLearner
from addml.learning.losses import CLOSENESS
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


class StepByStep(MetricLearner):
    """The same learner, which does not say that it may be recorded."""

    capturable = False


@pytest.fixture(autouse=True)
def replayed(monkeypatch):
    """How many steps each run of a recording made."""
    run, made = steps._Recording.run, []

    def counted(self, part, center, batches, *rest):
        made.append(len(batches))
        return run(self, part, center, batches, *rest)

    monkeypatch.setattr(steps._Recording, "run", counted)
    return made


def fit(learner=MetricLearner, epochs=4, patience=50, rate=1e-3, loss="instance", **settings):
    """Five members with unequal rows and ratios in float64: those of half the rows end their epochs early."""
    random = np.random.default_rng(7)
    X = random.standard_normal((400, 5)) @ random.standard_normal((5, 5))
    randoms = [np.random.default_rng(e) for e in range(5)]
    encoder = MLPNetwork.initial((5, 8, 6), ("tanh", "tanh"), randoms)
    members = []
    for e, own in enumerate(randoms):
        order = own.permutation(400)[: 400 - 40 * (e % 2)]
        members.append(Member(np.sort(order[20:]), np.sort(order[:20]), own, [2 / 3, 1.0, 0.3][e % 3]))
    state = TrainingState.begin(torch.as_tensor(encoder.weights, device="cuda"), patience)
    schedule = Schedule(epochs=epochs, batch_size=32, patience=patience, learning_rate=rate)
    learner = learner(encoder.with_weights(state.weights), CLOSENESS[loss](**settings))
    return train(learner, MemoryRows(torch.as_tensor(X, device="cuda")), members, schedule, state)


@pytest.mark.parametrize("objective", [{}, {"loss": "center"}, {"distance": "euclidean"}, {"distance": "cosine"}])
def test_recorded_steps_end_in_the_same_weights(replayed, objective):
    expected = fit(StepByStep, **objective)
    assert not replayed
    ours = fit(**objective)
    assert sum(replayed) > 20
    np.testing.assert_allclose(ours.weights.cpu(), expected.weights.cpu(), rtol=0, atol=1e-9)
    assert ours.steps.tolist() == expected.steps.tolist()
    for entry, other in zip(ours.history, expected.history, strict=True):
        for one, two in zip(entry["members"], other["members"], strict=True):
            assert one == pytest.approx(two, rel=1e-9)


def test_recordings_go_on_with_fewer_members():
    settings = {"epochs": 30, "patience": 1, "rate": 0.02}  # too fast: validation soon grows
    expected, ours = fit(StepByStep, **settings), fit(**settings)
    assert len(set(expected.best_epoch.tolist())) > 2
    assert ours.best_epoch.tolist() == expected.best_epoch.tolist()
    np.testing.assert_allclose(ours.best.cpu(), expected.best.cpu(), rtol=0, atol=1e-6)


def all_pairs(embeddings, labels):
    row, column = torch.tril_indices(len(labels), len(labels), -1, device=embeddings.device)
    return row, column, row[:0], column[:0]


def test_a_miner_of_the_user_s_is_never_recorded(replayed):
    fit(epochs=1, miner=all_pairs)
    assert not replayed
