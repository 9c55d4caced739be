"""Scores in two groups: a mixture of two normal laws, fitted by expectation and maximisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from addml.arrays import evenly_spaced

ROUNDS = 200
MOST_ROWS = 4096  # of more, so many at even steps through all in order stand for them
LEAST_ROWS = 10  # fewer tell no two laws apart
NARROWEST = 0.05  # deviation of a law, at the least, in deviations of all scores: no law may sit on tied scores
SEPARATE = 2.0  # deviations between the means from which the density of two equal laws has two tops
BETTER = 10.0  # how much the Bayesian information criterion must fall for two laws to be accepted
CLOSE = 1e-8


@dataclass(frozen=True)
class TwoNormals:
    """The lower and the upper law: their weights, means and deviations, (2,) each."""

    weight: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, most: float = 1.0) -> TwoNormals | None:
        """The two laws of some scores, or None where one normal law describes them as well.

        The upper law has a share `most` of them at most: the likeliest pair may be a heap of copies and all the rest.
        """
        if len(scores) > MOST_ROWS:
            scores = evenly_spaced(np.sort(scores), MOST_ROWS)
        middle, spread = float(scores.mean()), float(scores.std())
        if len(scores) < LEAST_ROWS or not spread > 0 or not np.isfinite(spread):
            return None
        z = (scores - middle) / spread
        starts = [cls._start(z, share) for share in (0.5, 0.2, 0.05)]
        found = [pair for pair in (one._improved(z) for one in starts) if pair[1].weight[1] <= most]
        likelihood, best = max(found, key=lambda pair: pair[0], default=(-np.inf, starts[0]))
        alone = -0.5 * len(z) * (1 + np.log(2 * np.pi))
        if 2 * (likelihood - alone) < 3 * np.log(len(z)) + BETTER:
            return None
        return cls(best.weight, middle + spread * best.mean, spread * best.deviation)

    @classmethod
    def _start(cls, z: np.ndarray, share: float) -> TwoNormals:
        upper = z > np.quantile(z, 1 - share)
        parts = (z[~upper], z[upper] if upper.any() else z)
        mean, deviation = (np.array([getattr(part, name)() for part in parts]) for name in ("mean", "std"))
        return cls(np.array([1 - share, share]), mean, np.maximum(deviation, NARROWEST))

    def _improved(self, z: np.ndarray) -> tuple[float, TwoNormals]:
        """The log likelihood and the laws after expectation and maximisation."""
        before, laws = -np.inf, self
        for _ in range(ROUNDS):
            joint = laws.log_joint(z)
            total = np.logaddexp(*joint)
            if total.sum() - before < CLOSE * len(z):
                break
            before = float(total.sum())
            laws = _maximised(z, np.exp(joint - total))
        if laws.mean[0] > laws.mean[1]:
            laws = TwoNormals(*(part[::-1] for part in (laws.weight, laws.mean, laws.deviation)))
        return before, laws

    def log_joint(self, scores: np.ndarray) -> np.ndarray:
        """The logarithm of weight times density of both laws, (2, n)."""
        z = (scores - self.mean[:, None]) / self.deviation[:, None]
        return np.asarray(np.log(self.weight / self.deviation)[:, None] - 0.5 * (z * z + np.log(2 * np.pi)))

    @property
    def apart(self) -> bool:
        """Whether the scores lie in two heaps, not in one with a long tail (Ashman's criterion)."""
        distance = float(self.mean[1] - self.mean[0])
        return distance > SEPARATE * float(np.sqrt((self.deviation**2).mean()))

    @property
    def crossing(self) -> float:
        """The score, at or above the lower mean, from which the upper law is the likelier one."""
        (w0, w1), (m0, m1), (s0, s1) = self.weight, self.mean, self.deviation
        a = 1 / s0**2 - 1 / s1**2
        b = -2 * (m0 / s0**2 - m1 / s1**2)
        c = m0**2 / s0**2 - m1**2 / s1**2 + 2 * np.log(s0 / w0) - 2 * np.log(s1 / w1)
        roots = [-c / b] if abs(a) < 1e-12 / s0**2 and b else _real_roots(a, b, c)
        above = [root for root in roots if root > m0 and _upper_is_likelier(self, root)]
        return float(min(above)) if above else float(m1)


def _maximised(z: np.ndarray, shares: np.ndarray) -> TwoNormals:
    """The laws of rows that belong to them by these shares (2, n)."""
    total = np.maximum(shares.sum(axis=1), 1e-300)
    mean = shares @ z / total
    variance = (shares * (z - mean[:, None]) ** 2).sum(axis=1) / total
    weight = np.clip(total / len(z), 1e-12, 1)
    return TwoNormals(weight / weight.sum(), mean, np.maximum(np.sqrt(variance), NARROWEST))


def _real_roots(a: float, b: float, c: float) -> list[float]:
    inside = b * b - 4 * a * c
    if inside < 0 or a == 0:
        return []
    return [(-b - np.sqrt(inside)) / (2 * a), (-b + np.sqrt(inside)) / (2 * a)]


def _upper_is_likelier(laws: TwoNormals, score: float) -> bool:
    """Just above this score."""
    lower, upper = laws.log_joint(np.array([score + 1e-6 * float(laws.deviation.min())]))
    return bool(upper[0] >= lower[0])
