"""The method written as plainly as torch allows: autograd, pdist, sort, unfused Adam, one member.

The correctness tests and the benchmark compare with it; it shares no code with the package.
"""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import torch
from torch import nn


def plain_encoder(widths: list[int], flat: np.ndarray) -> nn.Sequential:
    """Linear layers, each followed by tanh, filled from [matrix (in, out), bias] of every layer in turn."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        linear = nn.Linear(a, b, dtype=torch.from_numpy(flat).dtype)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(flat[: a * b]).reshape(a, b).T)
            linear.bias.copy_(torch.from_numpy(flat[a * b : a * b + b]))
        flat = flat[a * b + b :]
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers)


def flat_weights(encoder: nn.Sequential) -> np.ndarray:
    """The weights of a plain encoder in the order in which `plain_encoder` takes them."""
    parts = []
    for layer in encoder:
        if isinstance(layer, nn.Linear):
            parts += [layer.weight.detach().numpy().T.ravel(), layer.bias.detach().numpy()]
    return np.concatenate(parts)


def smallest_k(values: torch.Tensor, ratio: float) -> torch.Tensor:
    """tau^n: the K-th smallest value, K at least 2."""
    k = min(len(values), max(2, math.ceil(ratio * len(values) - 1e-9)))
    return torch.sort(values).values[k - 1]


def largest_k(values: torch.Tensor, ratio: float) -> torch.Tensor:
    """tau^h: the K-th largest value, K at least 1."""
    k = min(len(values), max(1, math.ceil(ratio * len(values) - 1e-9)))
    return torch.sort(values, descending=True).values[k - 1]


def fit_reference(
    encoder: nn.Sequential,
    train: torch.Tensor,
    validation: torch.Tensor,
    random: np.random.Generator,
    *,
    loss: str = "instance",
    normal_ratio: float = 2 / 3,
    hard_ratio: float = 1 / 3,
    epochs: int = 50,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    weight_decay: float = 1e-5,
    patience: int = 5,
) -> tuple[nn.Sequential, nn.Sequential, list[float]]:
    """Train by the paper's algorithm; return the last network, the best network and the validation losses."""
    optimizer = torch.optim.Adam(encoder.parameters(), lr=learning_rate, foreach=False, fused=False)
    best, best_loss, left, losses = copy.deepcopy(encoder), math.inf, patience, []
    for _ in range(epochs):
        if left == 0:
            break
        with torch.no_grad():
            embeddings = encoder(train)
            center = embeddings.mean(0)
            distances = ((embeddings - center) ** 2).sum(1)
            normal = torch.nonzero(distances <= smallest_k(distances, normal_ratio))[:, 0]
        order = torch.from_numpy(random.permutation(normal.numpy()))
        for batch in torch.split(order, batch_size):
            if len(batch) < 2 and loss == "instance":
                continue
            z = encoder(train[batch])
            d = torch.pdist(z) ** 2 if loss == "instance" else ((z - center) ** 2).sum(1)
            value = d[d >= largest_k(d.detach(), hard_ratio)].mean()
            for layer in encoder:
                if isinstance(layer, nn.Linear):
                    value = value + weight_decay / 2 * (layer.weight**2).sum()
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        with torch.no_grad():
            z = encoder(validation)
            d = torch.pdist(z) ** 2 if loss == "instance" else ((z - center) ** 2).sum(1)
            losses.append(float(d.mean()))
        if losses[-1] < best_loss:
            best, best_loss, left = copy.deepcopy(encoder), losses[-1], patience
        else:
            left -= 1
    return encoder, best, losses
