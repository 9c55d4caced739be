"""A rival of the paper's table that is not what the paper says it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml import parameters
from addml.pipeline.rivals import Components, Learned, Method, scored


def eigenvector_classifier(Z: np.ndarray, seed: Any, *, major_share: float = 0.5) -> Learned:
    """What the paper's PCC column agrees with: PyOD's PCA with the components that explain half the variance.

    It sums a row's distances to the tips of the unit eigenvectors, each divided by its share of the variance, which
    is nearly the norm of the row; an eigenvector points to the side of the row farthest out along it.
    """
    from scipy.spatial.distance import cdist

    parameters.check_number("major_share", major_share, 0, 1, with_low=False)
    found = Components.of(Z)
    count = found.major(major_share)
    along = found.along(Z)[:, :count]
    signs = np.sign(along[np.abs(along).argmax(axis=0), np.arange(count)])  # as in scikit-learn before 1.5
    tips, weights = (found.axes[:, :count] * signs).T, found.values.sum() / found.values[:count]
    return scored(lambda rows: cdist(rows, tips) @ weights, Z)


EIGENVECTORS = {"EigenvectorPCC": Method(eigenvector_classifier)}
