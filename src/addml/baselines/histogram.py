"""Histogram-based outlier score (Goldstein and Dengel 2012): columns taken as independent."""

from __future__ import annotations

import numpy as np

from addml import parameters
from addml.baselines.rival import Rival

EDGE = 1e-9  # of a bin: a value so near to an edge is at it, and belongs to the bin on its right


class HBOS(Rival):
    """The sum over columns of -log2(density + smoothing), from histograms of equally wide bins.

    A value up to half a bin outside the training range belongs to the outermost bin; one farther out has the
    density of the column's emptiest bin. Both, and the smoothing, are PyOD's, with which the paper's figures agree.
    """

    def __init__(self, *, bins: int = 5, smoothing: float = 0.1, contamination: float = 0.1) -> None:
        self.bins = bins
        self.smoothing = smoothing
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.whole("bins", self.bins)
        parameters.number("smoothing", self.smoothing, 0, with_low=False)

    def _fit(self, Z: np.ndarray) -> None:
        low, high = Z.min(axis=0), Z.max(axis=0)
        self.low_, self.width_ = low, np.where(high > low, (high - low) / self.bins, 1.0)
        bins = self._bins(self._places(Z))
        counts = np.stack([np.bincount(column, minlength=self.bins) for column in bins.T])
        density = counts / (len(Z) * self.width_[:, None])  # (d, bins)
        self.surprise_ = -np.log2(density + self.smoothing)

    def _score(self, Z: np.ndarray) -> np.ndarray:
        places = self._places(Z)
        inside = np.take_along_axis(self.surprise_.T, self._bins(places), axis=0)
        far = (places < -0.5) | (places > self.bins + 0.5)
        return np.asarray(np.where(far, self.surprise_.max(axis=1), inside).sum(axis=1))

    def _places(self, Z: np.ndarray) -> np.ndarray:
        """Where values lie, in bins from the left end."""
        return np.asarray((Z - self.low_) / self.width_)

    def _bins(self, places: np.ndarray) -> np.ndarray:
        return (places + EDGE).clip(0, self.bins - 1).astype(np.int64)
