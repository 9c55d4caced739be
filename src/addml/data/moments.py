"""Means, deviations and gaps of all rows of a table, in one pass, where its features were fitted to a sample."""

from __future__ import annotations

import numpy as np

from addml.data.features import Features


class Moments:
    """Adds up features; those of a sample are nearly standardised already, so that the sums round little."""

    def __init__(self, features: Features) -> None:
        self.features, self.rows = features, 0
        self._total, self._squares = np.zeros(features.width), np.zeros(features.width)
        self._flagged = np.zeros(len(features.gaps))

    def add(self, values: np.ndarray) -> None:
        """Take in the features (n, width) of the next rows."""
        exact = values.astype(np.float64)
        self.rows += len(values)
        self._total += exact.sum(axis=0)
        self._squares += np.einsum("ij,ij->j", exact, exact)
        self._flagged += (values[:, len(self.features.median) :] > 0).sum(axis=0)  # a gap's flag is above its mean

    def refined(self) -> Features:
        """The features fitted to all rows but for medians and quartiles."""
        mean = self._total / self.rows
        deviation = np.sqrt(np.maximum(self._squares / self.rows - mean**2, 0))
        return self.features.refined(mean, deviation, self._flagged / self.rows)
