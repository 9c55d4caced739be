"""Tables for timing: real ones under ADDML_DATA, otherwise random numbers of the same shape."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

SHAPES = {  # rows, columns, anomalies of the paper's sets
    "glass": (214, 9, 9),
    "ionosphere": (351, 33, 126),
    "vowels": (1456, 12, 50),
    "madelon": (1430, 500, 130),
    "letter": (1600, 32, 100),
    "musk": (3062, 166, 97),
    "satimage-2": (5803, 36, 71),
    "satellite": (6435, 36, 2036),
    "pendigits": (6870, 16, 156),
    "mnist": (7603, 100, 700),
    "magic-telescope": (13283, 10, 951),
    "shuttle": (49097, 9, 3511),
}


def table(name: str) -> tuple[np.ndarray, str]:
    """The rows of a table and where they come from."""
    X, _, kind = labelled(name)
    return X, kind


def labelled(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """The rows of a table, which of them are anomalies, and where they come from."""
    file = Path(os.environ.get("ADDML_DATA", "")) / "odds" / f"{name}.mat"
    if file.is_file():
        from scipy.io import loadmat

        whole = loadmat(file)
        return whole["X"].astype(np.float64), whole["y"].ravel() > 0, "real"
    rows, columns, anomalies = SHAPES[name]
    return np.random.default_rng(0).standard_normal((rows, columns)), np.arange(rows) < anomalies, "generated"
