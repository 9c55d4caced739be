"""The multilayer perceptron against torch's own layers and autograd."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis

from addml.arrays import to_numpy
from addml.encoders import ACTIVATIONS, MLPNetwork
from tests.grids import pairwise

TORCH = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "linear": lambda x: x,
}


def network(widths, activations, members=2, seed=0):
    encoder = MLPNetwork.initial(widths, activations, [np.random.default_rng([seed, e]) for e in range(members)])
    encoder.weights += np.random.default_rng(9).standard_normal(encoder.weights.shape) * 0.1  # biases too
    return encoder


def by_torch(encoder, weights, x):
    """The same layers, one member at a time, straight from the flat weights."""
    outputs = []
    for e in range(len(weights)):
        h, flat = x[e], weights[e]
        for a, b, name in zip(encoder.widths, encoder.widths[1:], encoder.activations, strict=False):
            h = TORCH[name](h @ flat[: a * b].reshape(a, b) + flat[a * b : a * b + b])
            flat = flat[a * b + b :]
        assert len(flat) == 0
        outputs.append(h)
    return torch.stack(outputs)


def test_every_activation_is_tested():
    assert set(ACTIVATIONS) == set(TORCH)


@pytest.mark.parametrize(
    ("kind", "activation", "hidden"), pairwise([np.asarray, torch.as_tensor], TORCH, [(), (7,), (7, 3, 9)])
)
def test_forward_and_gradient_are_autograd_s(kind, activation, hidden):
    widths = (5, *hidden, 4)
    encoder = network(widths, [activation] * len(hidden) + ["tanh"])
    x, grad = np.random.default_rng(1).standard_normal((2, 6, 5)), np.random.default_rng(2).standard_normal((2, 6, 4))
    weights = torch.tensor(encoder.weights, requires_grad=True)
    expected = by_torch(encoder, weights, torch.tensor(x))
    (expected * torch.tensor(grad)).sum().backward()
    ours = encoder.with_weights(kind(encoder.weights))
    z, back = ours.forward(kind(x))
    np.testing.assert_allclose(to_numpy(z), expected.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(to_numpy(ours.embed(kind(x))), to_numpy(z), atol=0)
    np.testing.assert_allclose(to_numpy(back(kind(grad))), weights.grad.numpy(), atol=1e-12)


def test_initial_weights_are_uniform_glorot_with_zero_biases():
    encoder = MLPNetwork.initial((300, 200, 64), ("tanh", "tanh"), [np.random.default_rng(0)])
    flat = encoder.weights[0]
    assert len(flat) == 300 * 200 + 200 + 200 * 64 + 64
    first, bias = flat[: 300 * 200], flat[300 * 200 : 300 * 200 + 200]
    bound = np.sqrt(6 / 500)
    assert np.abs(first).max() < bound
    assert np.abs(first).max() > 0.999 * bound
    assert first.std() == pytest.approx(bound / np.sqrt(3), rel=0.01)  # a uniform distribution's deviation
    assert not bias.any()


def test_only_matrices_decay():
    encoder = network((3, 2, 2), ("tanh", "tanh"))
    assert encoder.is_matrix().tolist() == [1] * 6 + [0] * 2 + [1] * 4 + [0] * 2


def test_one_linear_layer_is_mahalanobis_metric_learning():
    encoder = network((5, 3), ("linear",), members=1)
    L = encoder.weights[0, :15].reshape(5, 3).T  # rows of x become L x + b
    M = L.T @ L
    a, b = np.random.default_rng(4).standard_normal((2, 5))
    z = encoder.embed(np.stack([a, b])[None])[0]
    difference = a - b
    assert ((z[0] - z[1]) ** 2).sum() == pytest.approx(difference @ M @ difference)
    assert np.linalg.norm(z[0] - z[1]) == pytest.approx(mahalanobis(a, b, M))


def test_layers_are_views_of_the_weights():
    encoder = network((3, 2), ("tanh",))
    before = encoder.embed(np.ones((2, 1, 3)))
    encoder.weights[:] = 0
    assert np.abs(before).min() > 0
    assert not encoder.embed(np.ones((2, 1, 3))).any()
