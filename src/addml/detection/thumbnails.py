"""The strangest and the most typical images as small pictures, with what makes them strange laid over them."""

from __future__ import annotations

import io

import numpy as np

from addml.data.images import Pictures
from addml.findings import Picture

STRANGEST, TYPICAL = 24, 12  # at the most: a report stays small
SIDE = 96  # pixels, at the most
GLOW = np.array([222.0, 45.0, 38.0])  # the colour of what is strange
STRONGEST = 0.85  # of that colour over the picture


def thumbnails(
    pictures: Pictures, scores: np.ndarray, strangest: np.ndarray, typical: np.ndarray, heat: np.ndarray | None
) -> tuple[Picture, ...]:
    """Pictures of the strangest images with their maps (k, height, width), then of the most typical ones."""
    low, gain = _exposure(pictures.images)

    def picture(place: int, own: np.ndarray | None, kind: str) -> Picture:
        seen = _rgb((pictures.images[place].astype(np.float64) - low) * gain)
        glowing = None if own is None else _png(_glowing(seen, own))
        return Picture(pictures.names[place], place + 1, float(scores[place]), kind, _png(seen), glowing)

    first = [
        picture(int(place), None if heat is None else heat[at], "strange")
        for at, place in enumerate(strangest[:STRANGEST])
    ]
    shown = {int(place) for place in strangest[:STRANGEST]}
    rest = [picture(int(place), None, "typical") for place in typical[:TYPICAL] if int(place) not in shown]
    return (*first, *rest)


def _exposure(images: np.ndarray) -> tuple[float, float]:
    """What is black, and how far a step goes towards white at 255: bytes are as they are.

    Deeper images seldom use all of their range (a camera's 12 bits of 16, numbers from 0 to 1): they go from the
    darkest pixel of all of them to the brightest.
    """
    if images.dtype == np.uint8:
        return 0.0, 1.0
    low = float(images.min())
    return low, 255 / (float(images.max()) - low or 1.0)


def _rgb(image: np.ndarray) -> np.ndarray:
    """An image (channels, height, width) as (height, width, 3) from 0 to 255; of other channels the first counts."""
    layers = image if len(image) == 3 else np.repeat(image[:1], 3, axis=0)
    return np.moveaxis(layers, 0, -1)


def _glowing(seen: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """The picture in grey, the places that make it strange in red."""
    strength = heat.clip(0)[..., None] / max(float(heat.max()), np.finfo(float).tiny) * STRONGEST
    grey = np.repeat(seen.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray((1 - strength) * grey + strength * GLOW)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
