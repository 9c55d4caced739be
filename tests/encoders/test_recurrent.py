"""Recurrent layers against torch's own layers and autograd."""

import numpy as np
import pytest
import torch

from addml.arrays import to_numpy
from addml.encoders.recurrent import Recurrent, RecurrentNetwork
from tests.grids import pairwise

WINDOW, METRIC = 9, 4


def network(hidden=(6,), pooling="last", channels=3, members=2, window=WINDOW):
    spec = Recurrent(hidden, METRIC, pooling=pooling)
    encoder = spec.build((window, channels), [np.random.default_rng([3, e]) for e in range(members)])
    encoder.weights += np.random.default_rng(9).standard_normal(encoder.weights.shape) * 0.1  # biases too
    return encoder


def pieces(encoder, flat):
    """The matrices of one member, cut from its flat weights in the order in which they are documented."""
    below, layers, start = encoder.layout.channels, [], 0

    def cut(rows, columns):
        nonlocal start
        start += rows * columns
        return flat[start - rows * columns : start].reshape(rows, columns)

    for width in encoder.layout.layers:
        layers.append([cut(below, width), cut(width, width), cut(1, width)])
        below = width
    dense = [cut(below, encoder.outputs), cut(1, encoder.outputs)] if encoder.layout.hidden else None
    assert start == len(flat)
    return layers, dense


def states_by_torch(layers, x):
    """The top layer's outputs (b, steps, w) by torch.nn.RNN, for one member."""
    for parts in layers:
        layer = torch.nn.RNN(x.shape[-1], parts[0].shape[1], batch_first=True).double()
        zero = torch.zeros_like(parts[2][0])
        values = {"weight_ih_l0": parts[0].T, "weight_hh_l0": parts[1].T, "bias_ih_l0": parts[2][0], "bias_hh_l0": zero}
        x = torch.func.functional_call(layer, values, (x,))[0]
    return x


def by_torch(encoder, weights, x):
    layout, outputs = encoder.layout, []
    for flat, block in zip(weights, x.expand(len(weights), *x.shape[1:]), strict=True):
        layers, dense = pieces(encoder, flat)
        states = states_by_torch(layers, block.reshape(len(block), layout.window, layout.channels))
        pooled = states.mean(1) if layout.pooling == "mean" else states[:, -1]
        outputs.append(pooled if dense is None else torch.tanh(pooled @ dense[0] + dense[1]))
    return torch.stack(outputs)


@pytest.mark.parametrize(
    ("hidden", "pooling", "rows", "kind"),
    pairwise([(), (6,), (6, 5)], ["last", "mean"], [5, 16], [np.asarray, torch.as_tensor]),  # 16 rows tile, 5 do not
)
def test_forward_and_gradient_are_torch_s(hidden, pooling, rows, kind):
    encoder = network(hidden, pooling)
    x = np.random.default_rng(1).standard_normal((2, rows, WINDOW * 3))
    grad = np.random.default_rng(2).standard_normal((2, rows, METRIC))
    weights = torch.tensor(encoder.weights, requires_grad=True)
    expected = by_torch(encoder, weights, torch.tensor(x))
    (expected * torch.tensor(grad)).sum().backward()
    ours = encoder.with_weights(kind(encoder.weights))
    z, back = ours.forward(kind(x))
    np.testing.assert_allclose(to_numpy(z), expected.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(to_numpy(ours.embed(kind(x))), to_numpy(z), atol=1e-14)
    np.testing.assert_allclose(to_numpy(back(kind(grad))), weights.grad.numpy(), atol=1e-11)


def test_one_channel_and_rows_shared_by_all_members():
    encoder = network(channels=1)
    x = np.random.default_rng(1).standard_normal((1, 7, WINDOW))
    expected = by_torch(encoder, torch.tensor(encoder.weights), torch.tensor(x))
    np.testing.assert_allclose(encoder.embed(x), expected, atol=1e-12)
    z, back = encoder.forward(x)
    np.testing.assert_allclose(
        back(np.ones_like(z)), encoder.forward(np.repeat(x, 2, axis=0))[1](np.ones_like(z)), atol=1e-12
    )


def test_the_paper_s_recurrence_by_hand():
    """H_t = tanh(U x_t + V h_{t-1}), and the last state is the embedding."""
    encoder = network(hidden=(), members=1)
    U, V, b = (part.numpy() for part in pieces(encoder, torch.tensor(encoder.weights[0]))[0][0])
    x, h = np.random.default_rng(4).standard_normal((WINDOW, 3)), np.zeros(METRIC)
    for step in x:
        h = np.tanh(step @ U + h @ V + b[0])
    np.testing.assert_allclose(encoder.embed(x.reshape(1, 1, -1))[0, 0], h, atol=1e-14)


def test_biases_do_not_decay():
    encoder = network(members=1)
    layers, dense = pieces(encoder, torch.tensor(encoder.is_matrix()))
    flags = [[int(part.min()), int(part.max())] for parts in [*layers, dense] for part in parts]
    assert flags == [[1, 1], [1, 1], [0, 0], [1, 1], [0, 0]]
    one_channel = network(channels=1, members=1)
    assert one_channel.is_matrix()[:6].tolist() == [1.0] * 6  # U is one row, and no bias


def test_blocks_change_no_bit():
    encoder = network(channels=5, members=3)
    encoder = encoder.with_weights(encoder.weights.astype(np.float32))
    x = np.random.default_rng(1).standard_normal((2, 1, 64, WINDOW * 5)).astype(np.float32)
    z = encoder.embed(x)
    assert z.shape == (2, 3, 64, METRIC)
    np.testing.assert_array_equal(z[1], encoder.embed(x[1]))
    shuffled = np.random.default_rng(2).permutation(64)
    np.testing.assert_array_equal(encoder.embed(x[0][:, shuffled]), z[0][:, shuffled])


def test_plain_values_and_back():
    encoder = network()
    encoder = encoder.with_weights(encoder.weights.astype(np.float32))
    again = RecurrentNetwork.from_plain(encoder.to_plain(), encoder.weights)
    x = np.random.default_rng(1).standard_normal((1, 4, encoder.inputs)).astype(np.float32)
    np.testing.assert_array_equal(again.embed(x), encoder.embed(x))
    assert (encoder.outputs, again.to_plain()) == (METRIC, encoder.to_plain())


@pytest.mark.parametrize(
    "changes",
    [
        {"window": 0},
        {"window": 10**12},
        {"hidden": [6.5]},
        {"output_activation": "swish"},
        {"metric_dim": 5},
    ],
)
def test_a_document_that_is_no_network_is_refused(changes):
    encoder = network()
    x = np.zeros((1, 4, encoder.inputs), np.float32)
    with pytest.raises((KeyError, ValueError)):
        RecurrentNetwork.from_plain({**encoder.to_plain(), **changes}, encoder.weights.astype(np.float32)).embed(x)


def test_an_unknown_pooling_is_harmless():
    encoder = network()
    x = np.zeros((1, 4, encoder.inputs), np.float32)
    documents = [{**encoder.to_plain(), "pooling": pooling} for pooling in ("max", "last")]
    other, last = (RecurrentNetwork.from_plain(document, encoder.weights) for document in documents)
    np.testing.assert_array_equal(other.embed(x), last.embed(x))


def test_operations_are_those_of_the_products():
    assert network((6,)).operations == 2 * 2 * (WINDOW * (3 * 6 + 6 * 6) + 6 * METRIC)
