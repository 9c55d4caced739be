"""The autoencoder's embeddings, and what it reconstructs from them."""

import numpy as np
import pytest

from addml.encoders import Autoencoder, AutoencoderNetwork


@pytest.fixture
def network():
    return Autoencoder((6,), 3).build((5, 2), [np.random.default_rng(e) for e in range(2)])


def test_an_embedding_is_the_middle_and_the_residual(network):
    x = np.random.default_rng(1).standard_normal((2, 7, 10))
    z, whole = network.embed(x), network.forward(x)[0]
    assert z.shape == (2, 7, network.outputs) == (2, 7, 4)
    np.testing.assert_allclose(network.reconstructed(z[..., :-1]), whole)
    np.testing.assert_allclose(z[..., -1], np.sqrt(((whole - x) ** 2).mean(axis=2)))
    matrices = [part[0] for part in network.parts]
    by_hand = np.tanh(np.tanh(x[0] @ matrices[0] + matrices[1]) @ matrices[2] + matrices[3])
    np.testing.assert_allclose(z[0, :, :-1], by_hand)


def test_the_gradient_by_the_window_is_that_of_the_middle(network):
    x, grad = np.random.default_rng(1).standard_normal((4, 10)), np.random.default_rng(2).standard_normal((2, 4, 3))
    found = network.input_gradient(x, grad)
    for index in np.ndindex(2, 10):
        moved = [x.copy(), x.copy()]
        moved[0][index], moved[1][index] = x[index] + 1e-6, x[index] - 1e-6
        values = [(network.embed(one[None])[..., :-1] * grad).sum() for one in moved]
        assert found[index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)


def test_plain_values_and_back(network):
    network = network.with_weights(network.weights.astype(np.float32))
    again = AutoencoderNetwork.from_plain(network.to_plain(), network.weights)
    x = np.random.default_rng(1).standard_normal((1, 4, 10)).astype(np.float32)
    np.testing.assert_array_equal(again.embed(x), network.embed(x))
    with pytest.raises(ValueError, match=r"encoder\.weights has the shape"):
        AutoencoderNetwork.from_plain({**network.to_plain(), "widths": [10, 6, 3, 6, 9]}, network.weights)
