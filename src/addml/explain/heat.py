"""Where in an image its score comes from: patches walk as columns do, and their contributions lie on the picture."""

from __future__ import annotations

import numpy as np

from addml.data.forms import Form

ACROSS = 8  # patches along a side, at the most


def patch_of(form: Form) -> list[int]:
    """The patch that each number of a flat image belongs to: the channels of a place go together."""
    grid = _patches(form)
    return [int(patch) for patch in np.broadcast_to(grid, form.shape).ravel()]


def heat_map(contributions: np.ndarray, form: Form) -> np.ndarray:
    """Contributions of patches (n, patches) as maps (n, height, width): a patch's is shared by its pixels."""
    grid = _patches(form)
    pixels = np.bincount(grid.ravel())
    return np.asarray((contributions / pixels)[:, grid])


def _patches(form: Form) -> np.ndarray:
    """The patch of each pixel, (height, width), numbered row by row."""
    _, height, width = form.shape
    rows, columns = (np.arange(side) // -(-side // ACROSS) for side in (height, width))
    return np.asarray(rows[:, None] * (columns[-1] + 1) + columns)
