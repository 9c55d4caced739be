"""Steps replayed from tables against steps made one by one: on the CPU, where replaying means doing them again."""

import numpy as np
import pytest
import torch

from addml.data.rows import MemoryRows
from addml.encoders import MLP
from addml.learning import capture
from addml.learning.losses import Objective
from addml.learning.metric import MetricLearner
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train


class Again:
    """A recording that does its step anew; `replayed` counts how often."""

    replayed = 0

    def __init__(self, step):
        self._step = step
        step()  # what is made once, on first use

    def replay(self):
        Again.replayed += 1
        with pytest.MonkeyPatch.context() as patch:  # a device cannot record what comes from the host
            for name in ("as_tensor", "from_numpy", "tensor"):
                patch.setattr(torch, name, None)
            self._step()


@pytest.fixture
def recorded(monkeypatch):
    """Let tensors on the CPU count as a device that records, without CUDA."""
    monkeypatch.setattr(capture, "RECORDING_DEVICES", ("cpu",))
    monkeypatch.setattr(capture._Recording, "_captured", lambda self: Again(self._step))
    Again.replayed = 0


class Silent(MetricLearner):
    """The same learner, which does not say that it may be recorded."""

    capturable = None


def fit(learner=MetricLearner, epochs=4, patience=50, rate=1e-3, **objective):
    """Five members with unequal rows and ratios in float64: those of half the rows end their epochs early."""
    random = np.random.default_rng(7)
    X = random.standard_normal((400, 5)) @ random.standard_normal((5, 5))
    randoms = [np.random.default_rng(e) for e in range(5)]
    encoder = MLP.initial((5, 8, 6), ("tanh", "tanh"), randoms)
    members = []
    for e, own in enumerate(randoms):
        order = own.permutation(400)[: 400 - 40 * (e % 2)]
        members.append(Member(np.sort(order[20:]), np.sort(order[:20]), own, [2 / 3, 1.0, 0.3][e % 3]))
    state = TrainingState.begin(torch.as_tensor(encoder.weights), patience)
    schedule = Schedule(epochs=epochs, batch_size=32, patience=patience, learning_rate=rate)
    learner = learner(encoder.with_weights(state.weights), Objective(**objective))
    return train(learner, MemoryRows(torch.as_tensor(X)), members, schedule, state)


@pytest.mark.parametrize("objective", [{}, {"loss": "center"}, {"distance": "euclidean"}, {"distance": "cosine"}])
def test_replayed_steps_end_in_the_same_weights(recorded, objective):
    expected = fit(Silent, **objective)
    assert Again.replayed == 0
    replayed = fit(**objective)
    assert Again.replayed > 20
    np.testing.assert_allclose(replayed.weights.numpy(), expected.weights.numpy(), rtol=0, atol=1e-9)
    assert replayed.steps.tolist() == expected.steps.tolist()
    for ours, theirs in zip(replayed.history, expected.history, strict=True):
        for one, other in zip(ours["members"], theirs["members"], strict=True):
            assert one == pytest.approx(other, rel=1e-9)


def test_long_epochs_take_several_tables(recorded, monkeypatch):
    monkeypatch.setattr(capture, "MOST_STEPS", 3)
    np.testing.assert_allclose(fit().weights.numpy(), fit(Silent).weights.numpy(), rtol=0, atol=1e-9)


def test_members_that_stop_are_carried_along_unseen(recorded):
    settings = {"epochs": 30, "patience": 1, "rate": 0.02}  # too fast: validation soon grows
    expected, replayed = fit(Silent, **settings), fit(**settings)
    assert len(set(expected.best_epoch.tolist())) > 2
    assert replayed.best_epoch.tolist() == expected.best_epoch.tolist()
    np.testing.assert_allclose(replayed.best.numpy(), expected.best.numpy(), rtol=0, atol=1e-6)


def test_what_cannot_be_recorded_is_done_step_by_step(recorded, monkeypatch):
    def refuses(self):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(capture._Recording, "_captured", refuses)
    expected, eager = fit(Silent), fit()
    np.testing.assert_allclose(eager.weights.numpy(), expected.weights.numpy(), rtol=0, atol=1e-9)


def all_pairs(embeddings, labels):
    row, column = torch.tril_indices(len(labels), len(labels), -1)
    return row, column, row[:0], column[:0]


def test_a_miner_of_the_user_s_is_never_recorded(recorded):
    fit(epochs=1, miner=all_pairs)
    assert Again.replayed == 0


def test_a_learner_that_says_nothing_is_never_recorded(recorded):
    fit(Silent, epochs=1)
    assert Again.replayed == 0
