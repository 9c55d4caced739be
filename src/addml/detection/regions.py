"""Where in an image its score comes from, in words."""

from __future__ import annotations

import numpy as np

from addml.explain import Reason

NAMES = ("upper left", "top", "upper right", "left", "middle", "right", "lower left", "bottom", "lower right")
LEAST = 0.05  # of what makes an image strange; less is not worth a word


def reasons_of(heat: np.ndarray, most: int) -> list[tuple[Reason, ...]]:
    """The thirds of each image that make it strange, the strangest first, from maps (n, height, width)."""
    _, height, width = heat.shape
    third = 3 * (3 * np.arange(height) // height)[:, None] + 3 * np.arange(width) // width
    regions = np.stack([heat[:, third == place].sum(axis=1) for place in range(len(NAMES))], axis=1).clip(0)
    shares = regions / np.maximum(regions.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :most]
    return [
        tuple(_reason(int(place), share[place]) for place in places if share[place] >= LEAST)
        for share, places in zip(shares, order, strict=True)
    ]


def _reason(place: int, share: float) -> Reason:
    name = NAMES[place]
    return Reason((name,), float(share), name, name)
