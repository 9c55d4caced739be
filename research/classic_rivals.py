"""Rivals in the paper's tables that scikit-learn lacks: histograms and principal components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from addml import parameters
from addml.distances import count_of
from addml.pipeline.rivals import Learned, Method

EDGE = 1e-9  # of a histogram's bin: a value this close to an edge is on it, and belongs to the bin on its right
ZERO = 1e-10  # of the largest eigenvalue: a component below it is rounding error


def histograms(Z: np.ndarray, seed: Any, *, bins: int = 5, smoothing: float = 0.1) -> Learned:
    """HBOS (Goldstein and Dengel 2012): the sum over columns of -log2(density + smoothing), in bins of equal width.

    A value up to half a bin outside the training range belongs to the outermost bin; one farther out has the density of
    the column's emptiest bin. This and the smoothing follow PyOD and agree with the paper's figures.
    """
    parameters.check_whole("bins", bins)
    parameters.check_number("smoothing", smoothing, 0, with_low=False)
    low, high = Z.min(axis=0), Z.max(axis=0)
    width = np.where(high > low, (high - low) / bins, 1.0)

    def bin_of(positions: np.ndarray) -> np.ndarray:
        return (positions + EDGE).clip(0, bins - 1).astype(np.int64)

    counts = np.stack([np.bincount(column, minlength=bins) for column in bin_of((Z - low) / width).T])
    surprise = -np.log2(counts / (len(Z) * width[:, None]) + smoothing)  # (d, bins)

    def score(rows: np.ndarray) -> np.ndarray:
        positions = (rows - low) / width  # in bins, from the left end
        inside = np.take_along_axis(surprise.T, bin_of(positions), axis=0)
        far = (positions < -0.5) | (positions > bins + 0.5)
        return np.asarray(np.where(far, surprise.max(axis=1), inside).sum(axis=1))

    return scored(score, Z)


class Components(NamedTuple):
    """Principal components of standardised rows, the largest first, without those of zero variance."""

    mean: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    values: np.ndarray  # (c,), eigenvalues of the correlation matrix
    axes: np.ndarray  # (d, c)

    @classmethod
    def of(cls, Z: np.ndarray) -> Components:
        """The components of the correlation matrix of Z (n, d)."""
        mean, scale = Z.mean(axis=0), Z.std(axis=0)
        scale = np.where(scale > ZERO, scale, 1.0)
        W = (Z - mean) / scale
        values, axes = np.linalg.eigh(W.T @ W / len(W))
        real = np.flatnonzero(values > ZERO * max(values[-1], ZERO))[::-1]
        return cls(mean, scale, values[real], axes[:, real])

    def along(self, Z: np.ndarray) -> np.ndarray:
        """The coordinates (n, c) of rows along the components."""
        return np.asarray((Z - self.mean) / self.scale @ self.axes)

    def squares(self, Z: np.ndarray) -> np.ndarray:
        """Squared coordinates (n, c), each divided by its eigenvalue."""
        return np.asarray(self.along(Z) ** 2 / self.values)

    def major(self, share: float) -> int:
        """The number of components, the largest first, that explain at least this share of the variance."""
        explained = np.cumsum(self.values) / max(self.values.sum(), ZERO)
        return min(int(np.searchsorted(explained, share - 1e-12)) + 1, len(self.values))


def principal_classifier(
    Z: np.ndarray, seed: Any, *, trimmed: float = 0.005, major_share: float = 0.5, minor_below: float = 0.2
) -> Learned:
    """The classifier of Shyu et al. (2003): standardised squares summed over major and minor components.

    The components come from the rows without the `trimmed` share of largest Mahalanobis distance. Major ones explain
    `major_share` of the variance, minor ones have eigenvalues under `minor_below`; directions without variance do
    not count, so that repeated and constant columns do no harm.
    """
    parameters.check_number("trimmed", trimmed, 0, 1, with_low=True, with_high=False)
    parameters.check_number("major_share", major_share, 0, 1, with_low=False)
    parameters.check_number("minor_below", minor_below, 0, with_low=True)
    mahalanobis = Components.of(Z).squares(Z).sum(axis=1)
    keep = max(2, len(Z) - count_of(trimmed, len(Z), least=0))
    found = Components.of(Z[mahalanobis <= np.partition(mahalanobis, keep - 1)[keep - 1]])
    used = (np.arange(len(found.values)) < found.major(major_share)) | (found.values < minor_below)
    return scored(lambda rows: found.squares(rows)[:, used].sum(axis=1), Z)


def reconstruction(Z: np.ndarray, seed: Any, *, explained: float = 0.9) -> Learned:
    """PCA: the squared error of a row reconstructed from the components that explain most of the variance."""
    parameters.check_number("explained", explained, 0, 1, with_low=False, with_high=False)
    found = Components.of(Z)
    axes = found.axes[:, : found.major(explained)]
    return scored(lambda rows: ((rows - rows @ axes @ axes.T) ** 2).sum(axis=1), Z)


def eigenvector_classifier(Z: np.ndarray, seed: Any, *, major_share: float = 0.5) -> Learned:
    """PyOD's PCA with the components that explain half the variance, which agrees with the paper's PCC column.

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


def scored(score: Callable[[np.ndarray], np.ndarray], Z: np.ndarray) -> Learned:
    """Training rows score as new ones do."""
    return Learned(score, score(Z))


CLASSIC_RIVALS = {
    "PCC": Method(principal_classifier),
    "HBOS": Method(histograms),
    "PCA": Method(reconstruction),
    "EigenvectorPCC": Method(eigenvector_classifier),
}
