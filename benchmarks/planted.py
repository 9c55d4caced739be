"""Photographs with planted defects for choosing settings: textures, screws at any angle, crops of photographs.

Each generator makes one random normal image (size, size, 3) and a mask of where defects may lie. `planted_set` makes
training images, and test images of which half have one of five kinds of defect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.ndimage import gaussian_filter

SIZE = 200  # pixels
Made = tuple[np.ndarray, np.ndarray]  # an image, and the places that may be defective
Y, X = np.mgrid[:SIZE, :SIZE]
ANYWHERE = np.ones((SIZE, SIZE), bool)


def noise(random: np.random.Generator, width: float) -> np.ndarray:
    """Smooth noise with standard deviation 1."""
    found = gaussian_filter(random.normal(size=(SIZE, SIZE)), width, mode="wrap")
    return np.asarray(found / found.std())


def coloured(grey: np.ndarray, red: float = 0, blue: float = 0) -> np.ndarray:
    return np.stack([grey + red, grey, grey + blue], axis=-1)


def bricks(random: np.random.Generator) -> Made:
    """A wall at any offset, each brick of its own shade."""
    down, right = random.integers(0, 60, 2)
    row = (Y + down) // 28
    along = X + right + row % 2 * 26
    shade = random.normal(0, 14, (16, 16))[row % 16, along // 52 % 16]
    grey = 120 + shade + 10 * noise(random, 1.2) + 8 * noise(random, 6)
    mortar = ((Y + down) % 28 < 4) | (along % 52 < 4)
    return coloured(np.where(mortar, 175 + 6 * noise(random, 1), grey), 25, -20), ANYWHERE


def cell(random: np.random.Generator) -> Made:
    """A solar cell: grains, fingers and two bus bars."""
    grains = noise(random, 9)
    grey = 90 + 10 * np.sign(grains) * abs(grains) ** 0.5 + 4 * noise(random, 1)
    for bar in (50, 150):
        grey = np.where(abs(Y - bar - random.integers(-2, 3)) < 3, 190, grey)
    return coloured(np.where((X + random.integers(0, 9)) % 9 == 0, grey + 14, grey)), ANYWHERE


def screw(random: np.random.Generator) -> Made:
    """A screw at any angle on a light ground; defects lie on it."""
    angle, (down, right) = random.uniform(0, 2 * np.pi), random.uniform(-8, 8, 2)
    y, x = Y - SIZE / 2 - down, X - SIZE / 2 - right
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    shaft, head = (abs(v) < 9) & (u > -50) & (u < 60), (abs(v) < 20) & (u <= -50) & (u > -66)
    body = shaft | head | ((abs(v) < 9 * (75 - u) / 15) & (u >= 60) & (u < 75))
    metal = 100 + 45 * np.cos(v / 9 * 1.3) + 3 * noise(random, 1)
    metal += np.where(shaft & (u > -10), 35 * np.sin((u + 0.3 * v) * 2 * np.pi / 7), 0)
    return coloured(np.where(body, metal, 205 + 3 * noise(random, 1))), body


def tile(random: np.random.Generator) -> Made:
    """A smooth surface in uneven light."""
    light = random.uniform(-25, 25) * X / SIZE + random.uniform(-25, 25) * Y / SIZE
    return coloured(110 + light + 7 * noise(random, 1.5) + random.uniform(2, 8) * noise(random, 20)), ANYWHERE


def crop(name: str, top: int, left: int) -> Callable[[np.random.Generator], Made]:
    """A crop of one of scikit-learn's photographs at nearly the same place, in slightly different light."""
    from sklearn.datasets import load_sample_image

    whole = load_sample_image(name).astype(np.float64)

    def made(random: np.random.Generator) -> Made:
        y, x = np.array([top, left]) + random.integers(-6, 7, 2)
        own = whole[y : y + SIZE, x : x + SIZE] * random.uniform(0.94, 1.06)
        return own + random.normal(0, 3, own.shape), ANYWHERE

    return made


SETS: dict[str, Callable[[np.random.Generator], Made]] = {
    "bricks": bricks,
    "cells": cell,
    "screws": screw,
    "tiles": tile,
    "palace": crop("china.jpg", 60, 200),
    "flower": crop("flower.jpg", 120, 220),
}


def defective(random: np.random.Generator, image: np.ndarray, allowed: np.ndarray) -> Made:
    """The image with a scratch, a crack, a spot, a smudge or a misplaced piece, and the mask of the defect."""
    kind, places = random.integers(5), np.argwhere(allowed & (abs(X - SIZE / 2) < 70) & (abs(Y - SIZE / 2) < 70))
    y, x = places[random.integers(len(places))]
    if kind < 2:
        shape = _line(random, y, x, wobble=(0.05, 0.5)[kind])
        sign = random.choice([-1, 1]) if kind == 0 else -1
        return image + shape[..., None] * sign * random.uniform(25, 60), shape > 0.3
    if kind == 2:
        shape = np.exp(-((Y - y) ** 2 + (X - x) ** 2) / (2 * random.uniform(2.5, 6) ** 2))
        return image + shape[..., None] * random.choice([-1, 1]) * random.uniform(20, 55), shape > 0.3
    if kind == 3:
        mask = (Y - y) ** 2 + (X - x) ** 2 < random.uniform(8, 14) ** 2
        return np.where(mask[..., None], gaussian_filter(image, (3, 3, 0)), image), mask
    side = int(random.uniform(10, 22))
    top, left = random.integers(0, SIZE - side, 2)
    result, mask, place = image.copy(), np.zeros((SIZE, SIZE), bool), np.s_[y : y + side, x : x + side]
    result[place] = np.rot90(image[top : top + side, left : left + side], random.integers(1, 4))
    mask[place] = True
    return result, mask


def _line(random: np.random.Generator, y: float, x: float, wobble: float) -> np.ndarray:
    """A thin random line from a starting point, 1 in its middle."""
    shape, angle, width = np.zeros((SIZE, SIZE)), random.uniform(0, 2 * np.pi), random.uniform(0.8, 1.6)
    for _ in range(int(random.uniform(20, 60))):
        angle += random.normal() * wobble
        y, x = y + np.sin(angle), x + np.cos(angle)
        shape = np.maximum(shape, np.exp(-((Y - y) ** 2 + (X - x) ** 2) / width**2))
    return shape


def planted_set(name: str, train: int, test: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training images, test images (the second half defective) and their masks; uint8, channels first."""
    random = np.random.default_rng([seed, sorted(SETS).index(name)])
    make = SETS[name]
    normal = [make(random)[0] for _ in range(train + test // 2)]
    bad = [defective(random, *make(random)) for _ in range(test - test // 2)]
    images = np.stack([*normal, *(image for image, _ in bad)]).round().clip(0, 255).astype(np.uint8)
    masks = np.zeros((test, SIZE, SIZE), bool)
    masks[test // 2 :] = [mask for _, mask in bad]
    return images[:train].transpose(0, 3, 1, 2), images[train:].transpose(0, 3, 1, 2), masks
