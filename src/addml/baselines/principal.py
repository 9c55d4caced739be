"""Rivals by principal components: the classifier of Shyu et al. (2003), and plain reconstruction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from addml import parameters
from addml.baselines.rival import Rival
from addml.distances import count_of

ZERO = 1e-10  # of the largest eigenvalue: below it a component holds rounding, not data


class Components(NamedTuple):
    """Principal components of standardised rows, the largest first, without those of no variance."""

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

    def major(self, share: float) -> int:
        """How many components, the largest first, explain at least this share of the variance."""
        explained = np.cumsum(self.values) / max(self.values.sum(), ZERO)
        return min(int(np.searchsorted(explained, share - 1e-12)) + 1, len(self.values))


class PCC(Rival):
    """The robust principal component classifier: standardised squares summed over major and minor components.

    The components come from the rows without the `trimmed` share of largest Mahalanobis distance. Major ones explain
    `major_share` of the variance, minor ones have eigenvalues under `minor_below`; directions of no variance are left
    out, so that repeated and constant columns do no harm.
    """

    def __init__(
        self,
        *,
        trimmed: float = 0.005,
        major_share: float = 0.5,
        minor_below: float = 0.2,
        contamination: float = 0.1,
    ) -> None:
        self.trimmed = trimmed
        self.major_share = major_share
        self.minor_below = minor_below
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.number("trimmed", self.trimmed, 0, 1, with_low=True, with_high=False)
        parameters.number("major_share", self.major_share, 0, 1, with_low=False)
        parameters.number("minor_below", self.minor_below, 0, with_low=True)

    def _fit(self, Z: np.ndarray) -> None:
        every = Components.of(Z)
        far = _squares(every, Z).sum(axis=1)  # Mahalanobis, squared
        keep = max(2, len(Z) - count_of(self.trimmed, len(Z), least=0))
        self.components_ = Components.of(Z[far <= np.partition(far, keep - 1)[keep - 1]])
        values = self.components_.values
        major = np.arange(len(values)) < self.components_.major(self.major_share)
        self.used_ = major | (values < self.minor_below)

    def _score(self, Z: np.ndarray) -> np.ndarray:
        return np.asarray(_squares(self.components_, Z)[:, self.used_].sum(axis=1))


class EigenvectorPCC(Rival):
    """What the paper's PCC column agrees with: PyOD's PCA with the components that explain half the variance.

    It sums a row's distances to the tips of the unit eigenvectors, each divided by its share of the variance, which
    is nearly the norm of the row; an eigenvector points to where the row farthest out along it lies.
    """

    def __init__(self, *, major_share: float = 0.5, contamination: float = 0.1) -> None:
        self.major_share = major_share
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.number("major_share", self.major_share, 0, 1, with_low=False)

    def _fit(self, Z: np.ndarray) -> None:
        found = Components.of(Z)
        count = found.major(self.major_share)
        along = found.along(Z)[:, :count]
        signs = np.sign(along[np.abs(along).argmax(axis=0), np.arange(count)])  # scikit-learn's before 1.5
        self.tips_ = (found.axes[:, :count] * signs).T
        self.weights_ = found.values.sum() / found.values[:count]

    def _score(self, Z: np.ndarray) -> np.ndarray:
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(Z, self.tips_) @ self.weights_)


class PCA(Rival):
    """The squared error of reconstructing a row from the components that explain most of the variance."""

    def __init__(self, *, explained: float = 0.9, contamination: float = 0.1) -> None:
        self.explained = explained
        self.contamination = contamination

    def _check_parameters(self) -> None:
        parameters.number("explained", self.explained, 0, 1, with_low=False, with_high=False)

    def _fit(self, Z: np.ndarray) -> None:
        found = Components.of(Z)
        self.axes_ = found.axes[:, : found.major(self.explained)]

    def _score(self, Z: np.ndarray) -> np.ndarray:
        error = Z - Z @ self.axes_ @ self.axes_.T
        return np.asarray((error**2).sum(axis=1))


def _squares(components: Components, Z: np.ndarray) -> np.ndarray:
    """Squared coordinates of rows, each divided by its eigenvalue: (n, c)."""
    squares: np.ndarray = components.along(Z) ** 2 / components.values
    return squares
