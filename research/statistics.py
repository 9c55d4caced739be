"""Are the differences between methods more than chance? Ranks, Friedman, Nemenyi and Wilcoxon, over sets.

Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7 (2006). Scores are (sets, methods),
higher being better; rank 1 is the best, equal scores share the mean of their ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

ALPHA = 0.05


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of the methods, Friedman's test that all are equal, and the critical difference of ranks."""

    methods: tuple[str, ...]
    sets: int
    mean_ranks: tuple[float, ...]
    chi2: float
    p: float
    critical_difference: float

    def groups(self) -> list[tuple[str, ...]]:
        """The largest groups of methods that differ by less than the critical difference, best first."""
        order = np.argsort(self.mean_ranks, kind="stable")
        ranks, names = np.array(self.mean_ranks)[order], [self.methods[index] for index in order]
        ends = [int(np.searchsorted(ranks, rank + self.critical_difference, "right")) for rank in ranks]
        spans = [(start, end) for start, end in enumerate(ends) if end - start > 1]
        largest = [(start, end) for start, end in spans if not any(s < start and end <= e for s, e in spans)]
        return [tuple(names[start:end]) for start, end in largest]


def rank(methods: Sequence[str], scores: np.ndarray) -> Ranking | None:
    """The ranking of methods by scores (sets, methods); None with too few of either."""
    from scipy.stats import friedmanchisquare

    count, k = scores.shape
    if count < 2 or k < 3:
        return None
    chi2, p = friedmanchisquare(*scores.T) if np.ptp(scores, axis=1).any() else (0.0, 1.0)
    means = tuple(float(mean) for mean in ranks(scores).mean(axis=0))
    return Ranking(tuple(methods), count, means, float(chi2), float(p), critical_difference(k, count))


def ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of each method on each set, of the same shape as scores."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-scores, axis=1))


def critical_difference(methods: int, sets: int, alpha: float = ALPHA) -> float:
    """Nemenyi's critical difference: smaller differences of mean ranks are not significant."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * sets))


@dataclass(frozen=True)
class Duel:
    """One method against another over sets by Wilcoxon's signed ranks, with p corrected by Holm."""

    method: str
    against: str
    wins: int  # sets on which `against` is better
    losses: int
    difference: float  # mean of `against` less mean of `method`
    p: float


def duels(methods: Sequence[str], scores: np.ndarray, against: str) -> list[Duel]:
    """Every other method against one, by Wilcoxon's test."""
    if against not in methods or len(scores) < 2:
        return []
    reference = scores[:, list(methods).index(against)]
    uncorrected = []
    for method, others in zip(methods, scores.T, strict=True):
        if method != against:
            gap = reference - others
            wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
            uncorrected.append(Duel(method, against, wins, losses, float(gap.mean()), _wilcoxon(tuple(gap))))
    corrected = holm([duel.p for duel in uncorrected])
    return [replace(duel, p=p) for duel, p in zip(uncorrected, corrected, strict=True)]


@lru_cache(maxsize=4096)  # ties among few sets take half a second each, and a table is made for several files
def _wilcoxon(gap: tuple[float, ...]) -> float:
    from scipy.stats import wilcoxon

    return float(wilcoxon(gap).pvalue) if any(gap) else 1.0


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's correction: the smallest p times their number, the next times one less, never falling."""
    order = np.argsort(ps, kind="stable")
    factors = len(ps) - np.arange(len(ps))
    stepped = np.minimum(np.maximum.accumulate(np.asarray(ps)[order] * factors), 1.0)
    corrected = np.empty(len(ps))
    corrected[order] = stepped
    return [float(p) for p in corrected]
