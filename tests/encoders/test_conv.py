"""The convolutional encoder against torch's own layers and autograd, member by member."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from addml.arrays import to_numpy
from addml.encoders import conv
from addml.encoders.conv import Conv, ConvNetwork

TORCH = {"tanh": nn.Tanh, "relu": nn.ReLU, "linear": nn.Identity, "sigmoid": nn.Sigmoid}


def network(shape, channels, activations, members=2, outputs=4):
    randoms = [np.random.default_rng([0, e]) for e in range(members)]
    encoder = ConvNetwork.initial(shape, channels, outputs, activations, randoms)
    encoder.weights += np.random.default_rng(9).standard_normal(encoder.weights.shape) * 0.1  # biases too
    return encoder


class Picture(nn.Module):
    """The same layers of torch, with one member's weights cut from the flat buffer."""

    def __init__(self, encoder, flat):
        super().__init__()
        layers, flat = [], torch.tensor(flat)
        for name, before, after in zip(encoder.activations, encoder.sizes, encoder.sizes[1:], strict=False):
            layer = nn.Conv2d(before.channels, after.channels, 3, stride=2, padding=1, dtype=torch.float64)
            count = layer.weight.numel()
            kernel = flat[:count].reshape(3, 3, before.channels, after.channels)
            layer.weight.data, layer.bias.data = kernel.permute(3, 2, 0, 1), flat[count : count + after.channels]
            flat, layers = flat[count + after.channels :], [*layers, layer, TORCH[name]()]
        last = encoder.sizes[-1]
        linear = nn.Linear(math.prod(last), encoder.outputs, dtype=torch.float64)
        count = linear.weight.numel()
        matrix = flat[:count].reshape(last.height, last.width, last.channels, encoder.outputs)
        linear.weight.data = matrix.permute(3, 2, 0, 1).reshape(encoder.outputs, -1)
        linear.bias.data = flat[count:].clone()
        assert len(linear.bias) == encoder.outputs
        self.layers = nn.Sequential(*layers, nn.Flatten(), linear, TORCH[encoder.activations[-1]]())

    def gradient(self):
        """What autograd left in the weights, in the order of the flat buffer."""
        convs = [layer for layer in self.layers if isinstance(layer, nn.Conv2d)]
        parts = [part for conv in convs for part in (conv.weight.grad.permute(2, 3, 1, 0), conv.bias.grad)]
        linear = self.layers[-2]
        after = convs[-1].out_channels if convs else None
        matrix = linear.weight.grad
        if convs:
            pixels = matrix.shape[1] // after
            matrix = matrix.reshape(len(matrix), after, pixels).permute(2, 1, 0)
        else:
            matrix = matrix.reshape(len(matrix), self.channels, -1).permute(2, 1, 0)
        return torch.cat([part.reshape(-1) for part in (*parts, matrix, linear.bias.grad)])


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize(
    ("shape", "channels", "activations"),
    [
        ((1, 5, 7), (3,), ["tanh", "tanh"]),
        ((3, 6, 5), (4, 2), ["relu", "tanh", "linear"]),
        ((2, 1, 1), (3, 2), ["linear", "sigmoid", "tanh"]),
        ((3, 9, 4), (2, 3, 4), ["tanh", "tanh", "tanh", "tanh"]),
        ((3, 4, 3), (), ["tanh"]),
    ],
)
def test_forward_and_gradient_are_autograd_s(kind, shape, channels, activations):
    encoder, random = network(shape, channels, activations), np.random.default_rng(1)
    x, grad = random.standard_normal((2, 6, int(np.prod(shape)))), random.standard_normal((2, 6, 4))
    ours = encoder.with_weights(kind(encoder.weights))
    z, back = ours.forward(kind(x))
    gradient = to_numpy(back(kind(grad)))
    for e in range(2):
        picture = Picture(encoder, encoder.weights[e])
        picture.channels = shape[0]
        expected = picture.layers(torch.tensor(x[e]).reshape(6, *shape))
        (expected * torch.tensor(grad[e])).sum().backward()
        np.testing.assert_allclose(to_numpy(z[e]), expected.detach().numpy(), atol=1e-12)
        np.testing.assert_allclose(gradient[e], picture.gradient().numpy(), atol=1e-12)
    np.testing.assert_array_equal(to_numpy(ours.embed(kind(x))), to_numpy(z))


def test_members_that_share_their_rows_and_stacks_of_blocks():
    encoder = network((3, 5, 4), (4, 5), ["tanh"] * 3, members=3)
    x = np.random.default_rng(1).standard_normal((2, 1, 6, 60))
    z = encoder.embed(x)
    assert z.shape == (2, 3, 6, 4)
    for block in range(2):
        alone = encoder.embed(np.repeat(x[block], 3, axis=0))
        np.testing.assert_allclose(z[block], alone, atol=1e-12)
    grad = np.ones((3, 6, 4))
    broadcast, repeated = encoder.forward(x[0])[1](grad), encoder.forward(np.repeat(x[0], 3, axis=0))[1](grad)
    np.testing.assert_allclose(broadcast, repeated, atol=1e-12)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    random = np.random.default_rng(0)
    encoder = network((1, 28, 28), (16, 32), ["tanh"] * 3)
    encoder = encoder.with_weights(encoder.weights.astype(np.float32))
    x = random.standard_normal((1, 256, 784)).astype(np.float32)
    shuffle = random.permutation(256)
    np.testing.assert_array_equal(encoder.embed(x)[:, shuffle], encoder.embed(x[:, shuffle]))


def test_many_rows_on_a_device_go_some_at_a_time(monkeypatch):
    encoder = network((2, 7, 6), (4, 5), ["tanh"] * 3)
    encoder = encoder.with_weights(torch.as_tensor(encoder.weights))
    x = torch.as_tensor(np.random.default_rng(0).standard_normal((2, 50, 84)))
    whole = encoder.embed(x)
    monkeypatch.setattr(conv, "NUMBERS_ON_A_DEVICE", 2 * (9 * 2 * 4 * 3) * 16)  # so that 16 rows are embedded at once
    parts, forward = [], ConvNetwork._forward
    monkeypatch.setattr(ConvNetwork, "_forward", lambda self, x: (parts.append(x.shape[1]), forward(self, x))[1])
    np.testing.assert_allclose(encoder.embed(x), whole, atol=1e-12)
    assert parts == [16, 16, 16, 2]


def test_weights_are_glorot_s_and_biases_zero():
    encoder = Conv(hidden=(4, 6), metric_dim=5).build((3, 8, 8), [np.random.default_rng(0)])
    first, second, last = np.split(encoder.weights[0], [4 * 27 + 4, 4 * 27 + 4 + 6 * 36 + 6])
    for part, biases, fans in ((first, 4, 27 + 36), (second, 6, 36 + 54), (last, 5, 24 + 5)):
        matrix, bound = part[:-biases], np.sqrt(6 / fans)
        assert (part[-biases:] == 0).all()
        assert 0.9 * bound < abs(matrix).max() <= bound
    assert encoder.is_matrix().sum() == len(encoder.weights[0]) - 15
    assert encoder.operations == 2 * (27 * 4 * 16 + 36 * 6 * 4 + 24 * 5)


def test_plain_values_come_back_and_others_are_refused():
    encoder = network((1, 5, 7), (3, 2), ["tanh", "tanh", "linear"])
    weights = encoder.weights.astype(np.float32)
    document = encoder.to_plain()
    back = ConvNetwork.from_plain(document, weights)
    assert back.to_plain() == document == encoder.with_weights(weights).to_plain()
    x = np.random.default_rng(0).standard_normal((1, 4, 35)).astype(np.float32)
    np.testing.assert_array_equal(back.embed(x), encoder.with_weights(weights).embed(x))
    wrong = ({"shape": [5, 7]}, {"channels": [3]}, {"outputs": 0}, {"activations": ["tanh", "no", "tanh"]})
    for change in (*wrong, {"shape": [1, 6, 9]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            ConvNetwork.from_plain(document | change, weights)
