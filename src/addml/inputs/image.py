"""Images as an array, checked once: (n, channels, height, width), bytes or finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml.inputs.vectorizer import Form
from addml.text import counted

COLOURS = (1, 3, 4)  # channels that images have: grey, colour, colour with a mask
LOOKED_AT = 256  # images, of many
FACTOR = 10.0  # by which sizes of pixels differ that are not of one scale


def as_images(X: Any, *, least: int = 1) -> np.ndarray:
    """The array of images; grey ones may come without channels, (n, height, width)."""
    if np.ma.is_masked(X):
        raise ValueError("X is masked in some places, and images have no gaps; give a number for every pixel")
    try:
        images = np.asarray(X)
    except ValueError:
        raise ValueError("X holds images of different sizes; resize them to one, or give a folder of files") from None
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise ValueError(
            f"X has shape {images.shape}; images are (n, channels, height, width), or (n, height, width) for grey ones"
        )
    if images.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {images.dtype}; images hold numbers: convert them to uint8 or float32")
    if len(images) < least:
        raise ValueError(
            f"X holds {counted(len(images), 'image')}, of which nothing can be learned: give at least {least}"
        )
    images = images.view(np.uint8) if images.dtype.kind == "b" else images
    if images.dtype.kind == "f":
        strange = ~np.isfinite(images.sum(axis=(1, 2, 3), dtype=np.float64))
        if strange.any():
            raise ValueError(f"image {int(strange.argmax())} of X holds NaN or infinity; give finite numbers")
    return images


def channels_last(images: np.ndarray) -> str | None:
    """That images seem to have their colours last; None if they do not."""
    channels, height, width = images.shape[1:]
    if width not in COLOURS or min(channels, height) <= max(COLOURS):
        return None
    return (
        f"X has shape {images.shape}, which is {channels} channels of {height} x {width} pixels; "
        "if its colours stand last, give X.transpose(0, 3, 1, 2)"
    )


def other_scale(images: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> str | None:
    """That images seem to have another scale than those of training, as 0 to 1 beside 0 to 255; None if they do not.

    Some of them tell by the mean size of their pixels; `mean` and `spread` are those of the pixels in training. Dark
    images of bytes are dark, and no fractions.
    """
    some = images[:: -(-len(images) // LOOKED_AT)].astype(np.float64)
    size, usual = float(abs(some).mean()), float((abs(mean) + spread).max())
    is_small = images.dtype.kind == "f" and size * FACTOR < usual and abs(some).max() <= 1 and (some % 1).any()
    if not is_small and size < FACTOR * usual:
        return None
    return (
        f"pixels of {size:.3g} in the mean, where {usual:.3g} was usual in training, seem to be of another scale; "
        "convert them to the one of training, such as 0 to 255 or 0 to 1"
    )


def varied(images: np.ndarray) -> None:
    """Images to learn from must differ in something."""
    if (images == images[:1]).all():
        value = images[0].flat[0]
        what = f"every pixel is {value}" if (images[0] == value).all() else "they are copies of one"
        raise ValueError(f"all {len(images)} images of X are the same, {what}: there is nothing to learn from")


# Where in an image its score comes from: patches walk as columns do, and their contributions lie on the picture.


ACROSS = 8  # patches along a side, at most


def patch_of(form: Form) -> list[int]:
    """The patch that each number of a flat image belongs to: the channels of a place go together."""
    return np.broadcast_to(_patches(form), form.shape).ravel().tolist()


def heat_map(contributions: np.ndarray, form: Form) -> np.ndarray:
    """Contributions of patches (n, patches) as maps (n, height, width): a patch's is shared by its pixels."""
    grid = _patches(form)
    return np.asarray((contributions / np.bincount(grid.ravel()))[:, grid])


def _patches(form: Form) -> np.ndarray:
    """The patch of each pixel, (height, width), numbered row by row."""
    _, height, width = form.shape
    rows, columns = (np.arange(side) // -(-side // ACROSS) for side in (height, width))
    return np.asarray(rows[:, None] * (columns[-1] + 1) + columns)
