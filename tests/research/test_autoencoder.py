"""The deep autoencoder: its gradient, and its training by the package's own loop."""

import numpy as np
import pytest
import torch

from addml.encoders.mlp import AutoencoderNetwork
from addml.inputs import MemoryRows
from addml.learning.losses import Batch, CenterCloseness
from addml.pipeline import rivals
from research import autoencoder
from research.autoencoder import AUTOENCODERS, ReconstructionLearner
from research.experiment import Case
from research.plans import effective_settings

MEMBERS, ROWS, WIDTH = 2, 6, 4


@pytest.fixture
def learner():
    randoms = [np.random.default_rng(e) for e in range(MEMBERS)]
    network = AutoencoderNetwork.initial((WIDTH, 5, 3, 5, WIDTH), ("tanh", "tanh", "tanh", "linear"), randoms)
    network.weights += 0.1 * np.random.default_rng(9).standard_normal(network.weights.shape)  # biases too
    return ReconstructionLearner(network, CenterCloseness())


@pytest.fixture
def x():
    return np.random.default_rng(3).standard_normal((MEMBERS, ROWS, WIDTH))


def batch(counts):
    return Batch(np.zeros((MEMBERS, ROWS), int), ROWS, counts, [0] * MEMBERS)


def by_torch(weights, x):
    h, flat = torch.as_tensor(x), weights
    layers = [(WIDTH, 5), (5, 3), (3, 5), (5, WIDTH)]
    for place, (a, b) in enumerate(layers):
        h = h @ flat[: a * b].reshape(a, b) + flat[a * b : a * b + b]
        h, flat = (torch.tanh(h) if place < len(layers) - 1 else h), flat[a * b + b :]
    return ((h - torch.as_tensor(x)) ** 2).mean()


@pytest.mark.parametrize("counts", [[6, 6], [6, 2]])
def test_the_gradient_is_autograd_s(learner, x, counts):
    loss, gradient = learner.loss_and_grad(x, None, batch(counts))
    for e, count in enumerate(counts):
        weights = torch.tensor(learner.encoder.weights[e], requires_grad=True)
        value = by_torch(weights, x[e, :count])
        value.backward()
        assert loss.value[e] == pytest.approx(value.item(), rel=1e-12)
        np.testing.assert_allclose(gradient[e], weights.grad.numpy(), atol=1e-13)


def test_the_gradient_is_that_of_finite_differences(learner, x):
    gradient, start, step = learner.loss_and_grad(x, None, batch([6, 6]))[1], learner.encoder.weights.copy(), 1e-6
    for place in range(0, start.shape[1], 7):
        values = []
        for sign in (1, -1):
            moved = start.copy()
            moved[:, place] += sign * step
            learner.set_weights(moved)
            values.append(learner.loss_and_grad(x, None, batch([6, 6]))[0].value)
        np.testing.assert_allclose(gradient[:, place], (values[0] - values[1]) / (2 * step), atol=1e-8)


def test_a_member_without_rows_has_a_zero_gradient(learner, x):
    loss, gradient = learner.loss_and_grad(x, None, batch([6, 0]))
    assert loss.value[1] == 0
    assert not gradient[1].any()
    assert gradient[0].any()


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_row_scores_are_residuals(learner, kind):
    values = np.random.default_rng(5).standard_normal((5000, WIDTH))
    rows, ids = MemoryRows(kind(values)), np.stack([np.arange(5000), np.arange(5000)[::-1]])
    expected = ((learner.encoder.forward(values[ids])[0] - values[ids]) ** 2).mean(axis=2)
    learner.set_weights(kind(learner.encoder.weights))
    scores = np.asarray(learner.row_scores(rows, kind(ids.copy()), [5000, 3000])[1])
    np.testing.assert_allclose(scores[0] ** 2, expected[0])
    np.testing.assert_allclose(scores[1, :3000] ** 2, expected[1, :3000])
    assert np.isinf(scores[1, 3000:]).all()
    validation = learner.validation_loss(rows, kind(ids.copy()), [5000, 3000], None)
    np.testing.assert_allclose(validation, [expected[0].mean(), expected[1, :3000].mean()])


# Training ---------------------------------------------------------------------------------------------------


def on_a_curve(rows, random):
    t = random.uniform(-2, 2, rows)
    return np.column_stack([t, t**2, np.sin(t), -t]) + 0.02 * random.standard_normal((rows, 4))


def planted():
    """400 rows along a curve and 60 rows of noise."""
    random = np.random.default_rng(0)
    return np.concatenate([on_a_curve(400, random), 2 * random.standard_normal((60, 4))])


def make(name, **settings):
    return rivals.make(name, random_state=0, rivals=AUTOENCODERS, **settings)


@pytest.fixture
def states(monkeypatch):
    """The networks and the states that trainings end with."""
    found, trained = [], autoencoder.trained

    def remembered(network, *given):
        found.append((network, trained(network, *given)))
        return found[-1][1]

    monkeypatch.setattr(autoencoder, "trained", remembered)
    return found


def test_training_reconstructs(capsys, states):
    rival = make("DeepAutoencoder", batch_size=32).fit(planted())
    ((_, state),) = states
    losses = [epoch["validation_loss"] for epoch in state.history]
    assert min(losses) < 0.2 * losses[0]
    assert np.median(rival.anomaly_scores_[:400]) < 0.1 * np.median(rival.anomaly_scores_[400:])
    assert capsys.readouterr() == ("", "")


def test_scores_are_squared_errors_of_the_best_network(states):
    X = planted()
    rival = make("DeepAutoencoder", epochs=3).fit(X)
    ((network, state),) = states
    assert network.widths == (4, 64, 64, 64, 4)
    assert tuple(network.activations) == ("tanh", "tanh", "tanh", "linear")
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    best = network.with_weights(state.best.astype(float))
    np.testing.assert_allclose(rival.anomaly_scores_, ((best.forward(Z[None])[0][0] - Z) ** 2).sum(axis=1))


def kept_rows(state):
    """Which of the 460 rows distillation kept, (epochs, n)."""
    bits = np.array(state.kept, np.uint8).reshape(len(state.kept), -1)
    return np.unpackbits(bits, axis=-1, count=460).astype(bool)


def test_distillation_drops_the_planted_outliers(states):
    distilled, plain = (
        make(name, batch_size=32).fit(planted()) for name in ("DistilledAutoencoder", "DeepAutoencoder")
    )
    some, every = (kept_rows(state) for _, state in states)
    assert some[-1].sum() == int(np.ceil(2 / 3 * 414))  # of M, nine tenths of the rows
    assert some[-1, 400:].mean() < 0.1
    assert set(every.sum(axis=1)) == {414}

    def contrast(rival):
        return np.median(rival.anomaly_scores_[400:]) / np.median(rival.anomaly_scores_[:400])

    assert contrast(distilled) > contrast(plain)


def test_the_smallest_tables_can_be_fitted():
    for rows in (2, 3, 5):
        X = np.random.default_rng(0).standard_normal((rows, 2))
        assert np.isfinite(make("DeepAutoencoder", epochs=2).fit(X).anomaly_scores_).all()


def test_a_seed_fixes_the_scores():
    fits = [
        rivals.make("DeepAutoencoder", random_state=seed, rivals=AUTOENCODERS, epochs=2).fit(planted())
        for seed in (0, 0, 1)
    ]
    new = on_a_curve(20, np.random.default_rng(1))
    first, again, other = (fit.anomaly_score(new) for fit in fits)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_settings_are_the_papers():
    settings = effective_settings(Case("DeepAutoencoder"))
    assert (settings["latent_dim"], settings["learning_rate"], settings["weight_decay"]) == (64, 1e-3, 1e-5)
    assert (settings["epochs"], settings["validation_ratio"], settings["patience"]) == (50, 0.1, 5)
    assert settings["normal_ratio"] == 1
    assert effective_settings(Case("DistilledAutoencoder"))["normal_ratio"] == 2 / 3


@pytest.mark.parametrize(
    "change",
    [
        {"latent_dim": 0},
        {"hidden": 64},
        {"activation": "step"},
        {"normal_ratio": 0},
        {"validation_ratio": 1},
    ],
)
def test_a_wrong_setting_is_named(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        make("DeepAutoencoder", **change).fit(planted())
