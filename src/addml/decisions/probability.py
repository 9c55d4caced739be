"""From a score to the probability of an anomaly.

Without labels. Let S be the share of training rows above a score, and S0 that of the ordinary ones. Anomalies are
taken to pass a score more often, by S0 to the power of one half: as if they had two chances to be that high where an
ordinary row has one. With a share pi of them S = (1 - pi) S0 + pi sqrt(S0), which gives S0, and the probability is
their part of the density at the score, pi / (pi + 2 (1 - pi) sqrt(S0)): it rises with the score, and to 1 where
hardly an ordinary row would come. Beyond the training scores S follows the law of their tail. Scores that lie in
two heaps need no such guess: there the probability is the upper law's part of a mixture of two.

With labels an isotonic regression bends that curve to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from addml.arrays import evenly_spaced_with_ends
from addml.decisions.mixture import TwoNormals
from addml.decisions.thresholds import TAIL, pareto_tail, two_heaps

SHARE = 0.15  # of anomalies, where the scores do not tell
HEAVIEST = 0.5  # shape of a tail; a heavier one would have no variance, and call nothing strange
KNOTS = 1024  # points of the curve within the training scores
BEYOND = np.geomspace(1, 1e-12, 64)[1:]  # of the share above the highest training score: points beyond it


@dataclass(frozen=True)
class Probability:
    """A curve that never falls: probabilities at ascending scores, straight between them."""

    scores: np.ndarray  # (k,)
    values: np.ndarray  # (k,)

    @classmethod
    def fit(cls, scores: np.ndarray, labels: np.ndarray | None = None) -> Probability:
        """The curve of some training scores, and of labels (0, 1, -1 unknown) where there are any."""
        heaps = two_heaps(scores)
        curve = _of_ranks(scores) if heaps is None else _of_heaps(scores, heaps)
        known = None if labels is None else labels >= 0
        if known is None or not known.any():
            return curve
        return curve._bent(scores, labels, known)  # type: ignore[arg-type]

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """The probability of each score, in O(log k)."""
        return np.asarray(np.interp(scores, self.scores, self.values))

    def checked(self) -> Probability:
        """The curve itself, if it is one: ascending scores, probabilities that never fall."""
        fits = self.scores.dtype == self.values.dtype == np.float64 and self.scores.shape == self.values.shape
        rises = fits and len(self.scores) > 0 and (np.diff(self.scores) > 0).all() and (np.diff(self.values) >= 0).all()
        if not rises or not 0 <= self.values[0] <= self.values[-1] <= 1:
            raise ValueError("the curve of probabilities is none")
        return self

    def _bent(self, scores: np.ndarray, labels: np.ndarray, known: np.ndarray) -> Probability:
        """Through an isotonic regression of labels, in which rows without one count by what the curve says of them.

        Where both kinds are labelled, all other rows together weigh as much as the labelled ones. Labels of one kind
        say nothing of its share: then every row weighs the same.
        """
        from scipy.optimize import isotonic_regression

        both = len(np.unique(labels[known])) == 2
        weight = np.where(known, 1.0, known.sum() / max(1, (~known).sum()) if both else 1.0)
        target = np.where(known, labels, self(scores))
        at, group = np.unique(scores, return_inverse=True)
        total = np.bincount(group, weight)
        values = isotonic_regression(np.bincount(group, weight * target) / total, weights=total).x
        steps = np.flatnonzero(np.diff(values, prepend=-1.0, append=2.0)[:-1] > 0)
        middles = [float(np.average(at[part], weights=total[part])) for part in _parts(steps, len(at))]
        ends = [self.scores[-1]] if self.scores[-1] > at[-1] else []
        return Probability(
            np.array([*middles, *ends]),
            np.clip(np.array([*values[steps], *[max(values[-1], self.values[-1])] * len(ends)]), 0.0, 1.0),
        )


def _parts(starts: np.ndarray, length: int) -> list[slice]:
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], length], strict=True)]


def of_share(above: np.ndarray, share: float = SHARE) -> np.ndarray:
    """The probability where this share of all rows scores higher."""
    root = (-share + np.sqrt(share**2 + 4 * (1 - share) * above)) / (2 * (1 - share))  # of S0
    return np.asarray(share / (share + 2 * (1 - share) * root))


def _of_ranks(scores: np.ndarray) -> Probability:
    """By the share of training rows above a score, and by the law of their tail beyond them."""
    ordered, n = np.sort(scores), len(scores)
    at, first, count = np.unique(ordered, return_index=True, return_counts=True)
    above = 1 - (first + count / 2) / n  # ties share their middle place
    chosen = evenly_spaced_with_ends(np.arange(len(at)), KNOTS)
    far, beyond = tail_beyond(ordered, float(above[-1]))
    return Probability(np.concatenate([at[chosen], far]), of_share(np.concatenate([above[chosen], beyond])))


def tail_beyond(ordered: np.ndarray, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores above the highest one, `last` of the rows being above that, and the shares above them."""
    peaks = _peaks(ordered, float(np.quantile(ordered, 1 - TAIL)))
    if not len(peaks):  # many rows share the highest score: of scores that are distinct
        at = np.unique(ordered)
        peaks = _peaks(at, at[int((1 - TAIL) * (len(at) - 1))])
    if not len(peaks):  # all rows do: a tail of no length, and whatever scores higher is beyond it
        return np.nextafter(ordered[-1:], np.inf), last * BEYOND[-1:]
    shape, scale = pareto_tail(peaks)
    shape = min(max(shape, 0.0), HEAVIEST)  # a law that ends would call what lies behind its end impossible
    reached = float(peaks[-1])
    scale = scale + shape * reached  # of the law of what lies beyond the highest peak
    steps = -np.log(BEYOND) if shape < 1e-9 else np.expm1(-shape * np.log(BEYOND)) / shape
    far = ordered[-1] + scale * steps
    kept = np.diff(far, prepend=ordered[-1]) > 0
    return far[kept], last * BEYOND[kept]


def _peaks(ordered: np.ndarray, start: float) -> np.ndarray:
    """By how much scores lie above a start, those that do."""
    return np.asarray(ordered[ordered > start] - start)


def _of_heaps(scores: np.ndarray, heaps: TwoNormals) -> Probability:
    """By the upper law's part of the mixture, from the lower mean on, under which it stays as it is there."""
    low, high = heaps.mean[0], max(heaps.crossing, float(scores.max()), float(heaps.mean[1]))
    at = np.linspace(low, high, KNOTS)
    lower, upper = heaps.log_joint(at)
    values = 1 / (1 + np.exp(np.clip(lower - upper, -500, 500)))
    least = int(values.argmin())  # a wide upper law is the likelier one far below too
    values[:least] = values[least]
    return Probability(at, np.maximum.accumulate(values))
