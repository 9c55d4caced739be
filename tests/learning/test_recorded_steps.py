"""Recorded steps against steps made one by one, where there is a CUDA device."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from addml.encoders import AutoencoderNetwork, MLPNetwork  # noqa: E402
from addml.inputs import MemoryRows  # noqa: E402
from addml.learning import training  # noqa: E402
from addml.learning.learner import MetricLearner, ReconstructionLearner  # noqa: E402
from addml.learning.losses import CLOSENESS  # noqa: E402
from addml.learning.state import Member, TrainingState  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
WIDE = ((5, 8, 6), ("tanh", "tanh"))
MIRRORED = ((5, 8, 3, 8, 5), ("tanh", "tanh", "tanh", "linear"))


@pytest.fixture(autouse=True)
def replayed(monkeypatch):
    """The number of members of every recorded step."""
    call, made = training._RecordedStep.__call__, []

    def counted(self, part, *rest):
        made.append(len(part.weights))
        return call(self, part, *rest)

    monkeypatch.setattr(training._RecordedStep, "__call__", counted)
    return made


def fit(recordable=True, epochs=4, patience=50, rate=1e-3, loss="instance", learner=MetricLearner, **settings):
    """Five members with unequal rows and ratios in float64: those of half the rows end their epochs early."""
    random = np.random.default_rng(7)
    X = random.standard_normal((400, 5)) @ random.standard_normal((5, 5))
    randoms = [np.random.default_rng(e) for e in range(5)]
    network, layout = (MLPNetwork, WIDE) if learner is MetricLearner else (AutoencoderNetwork, MIRRORED)
    encoder = network.initial(*layout, randoms)
    members = []
    for e, rng in enumerate(randoms):
        order = rng.permutation(400)[: 400 - 40 * (e % 2)]
        members.append(Member(np.sort(order[20:]), np.sort(order[:20]), rng, [2 / 3, 1.0, 0.3][e % 3]))
    state = TrainingState.begin(torch.as_tensor(encoder.weights, device="cuda"), patience)
    schedule = training.Schedule(epochs=epochs, batch_size=32, patience=patience, learning_rate=rate)
    kind = type("Learner", (learner,), {} if recordable else {"recordable": False})
    made = kind(encoder.with_weights(state.weights), CLOSENESS[loss](**settings))
    return training.train(made, MemoryRows(torch.as_tensor(X, device="cuda")), members, schedule, state)


OBJECTIVES = [
    {},
    {"loss": "center"},
    {"distance": "euclidean"},
    {"distance": "cosine"},
    {"learner": ReconstructionLearner},
]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_recorded_steps_end_in_the_same_weights(replayed, objective):
    expected = fit(recordable=False, **objective)
    assert not replayed
    ours = fit(**objective)
    assert len(replayed) > 20
    assert len(set(replayed)) > 1  # members whose rows end early leave the step
    np.testing.assert_allclose(ours.weights.cpu(), expected.weights.cpu(), rtol=0, atol=1e-9)
    assert ours.steps.tolist() == expected.steps.tolist()
    for entry, other in zip(ours.history, expected.history, strict=True):
        for one, two in zip(entry["members"], other["members"], strict=True):
            assert one == pytest.approx(two, rel=1e-9)


def test_recorded_steps_continue_with_fewer_members():
    settings = {"epochs": 30, "patience": 1, "rate": 0.02}  # too fast: validation soon grows
    expected, ours = fit(recordable=False, **settings), fit(**settings)
    assert len(set(expected.best_epoch.tolist())) > 2
    assert ours.best_epoch.tolist() == expected.best_epoch.tolist()
    np.testing.assert_allclose(ours.best.cpu(), expected.best.cpu(), rtol=0, atol=1e-6)


def all_pairs(embeddings, labels):
    row, column = torch.tril_indices(len(labels), len(labels), -1, device=embeddings.device)
    return row, column, row[:0], column[:0]


def test_a_miner_of_the_user_s_is_never_recorded(replayed):
    fit(epochs=1, miner=all_pairs)
    assert not replayed


def test_a_step_that_cannot_be_recorded_is_made_as_it_is(replayed, monkeypatch):
    loss_and_grad = MetricLearner.loss_and_grad

    def synchronous(self, x, center, batch):
        float(x.sum())  # waits for the device, which a record cannot
        return loss_and_grad(self, x, center, batch)

    expected = fit(recordable=False)
    monkeypatch.setattr(MetricLearner, "loss_and_grad", synchronous)
    ours = fit()
    assert not replayed
    np.testing.assert_array_equal(ours.weights.cpu(), expected.weights.cpu())
