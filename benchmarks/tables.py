"""The tables that are timed: the real ones under ADDML_DATA, else random numbers of the same shape."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

SHAPES = {"letter": (1600, 32), "mnist": (7603, 100), "shuttle": (49097, 9)}


def table(name: str) -> tuple[np.ndarray, str]:
    """The rows of a table and where they come from."""
    file = Path(os.environ.get("ADDML_DATA", "")) / "odds" / f"{name}.mat"
    if file.is_file():
        from scipy.io import loadmat

        return loadmat(file)["X"].astype(np.float64), "real"
    return np.random.default_rng(0).standard_normal(SHAPES[name]), "generated"
