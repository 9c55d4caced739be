"""The decision of a fitted detector: its threshold, how that was chosen, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from addml.decisions.probability import Probability, tail_beyond
from addml.decisions.thresholds import METHODS, foreign_threshold, quantile_threshold

BY_HAND = "tau"
MOST_REMEMBERED = 2**20  # training rows: more would take memory that they do not take themselves
WORDS = {
    "mad": "the median absolute deviation of the scores",
    "iqr": "the quartiles of the scores",
    "tail": "the tail of the scores",
    "mixture": "a mixture of two laws of the scores",
    "auto": "what the scores themselves tell (auto)",
}
OWN_ARRAYS = (  # of a saved detector, beside those of its model
    "center",
    "anomaly_scores",
    "kept",
    "held_out",
    "baseline",
    "examples.rows",
    "examples.features",
    "probability.scores",
    "probability.values",
)


@dataclass(frozen=True)
class Decision:
    """An anomaly is a row that scores above tau."""

    tau: float
    method: str  # a name of METHODS, "tau" where it was given, or the class of a thresholder
    share: float | None = None  # of anomalies or of false alarms, where one was given

    @property
    def words(self) -> str:
        """How it was chosen: "by the share 0.1 of the training rows"."""
        if self.method == BY_HAND:
            return "as given"
        if self.method == "quantile":
            return f"by the share {self.share:g} of the training rows"
        alarms = "" if self.share is None else f" for {self.share:g} false alarms"
        return f"by {WORDS.get(self.method, self.method)}{alarms}"

    @classmethod
    def from_plain(cls, document: dict[str, Any]) -> Decision:
        """The decision of a saved detector."""
        tau, method, share = document["threshold"], document["decision"]["method"], document["decision"]["share"]
        if not isinstance(method, str) or type(tau) not in (int, float):
            raise ValueError(f"tau={tau!r} by the method {method!r}")
        return cls(float(tau), method, None if share is None else float(share))


@dataclass(frozen=True)
class TrainingScores:
    """The scores of the training rows, and what decisions take from them, worked out when it is asked for."""

    values: np.ndarray  # (n,)
    labels: np.ndarray | None = None  # (n,): 0 normal, 1 anomaly, -1 unknown
    curve: Probability | None = None  # of a saved detector
    labelled: bool = False  # whether labels of both kinds bent the curve

    def __post_init__(self) -> None:
        if self.labels is not None:
            object.__setattr__(self, "labelled", {0, 1} <= set(np.unique(self.labels).tolist()))

    @classmethod
    def from_plain(cls, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> TrainingScores:
        """Those of a saved detector."""
        curve = Probability(arrays["probability.scores"], arrays["probability.values"])
        return cls(arrays["anomaly_scores"], None, curve.checked(), bool(document["labelled"]))

    @cached_property
    def probability(self) -> Probability:
        """The curve from scores to probabilities."""
        return Probability.fit(self.values, self.labels) if self.curve is None else self.curve

    @cached_property
    def ordered(self) -> np.ndarray:
        """The scores, ascending."""
        return np.sort(self.values)

    @cached_property
    def _tail(self) -> tuple[np.ndarray, np.ndarray]:
        """How far above the highest score, and what share of the rows that pass that one pass this too."""
        far, shares = tail_beyond(self.ordered, 1.0)
        return np.concatenate([[0.0], far - self.ordered[-1]]), np.concatenate([[1.0], shares])

    def stability(self, scores: np.ndarray, tau: float) -> np.ndarray:
        """How often each decision stays the same when as many training rows are drawn again, with replacement.

        As many of the rows drawn as now lie above the threshold then lie above the new one. So a row is an anomaly
        where fewer than that score higher than it: a binomial law of the share of training rows that do (compare
        ExCeeD, Perini et al. 2020), O(log n) a row. Above the threshold and all training rows, where their number tells
        nothing any more, the law of their tail does.
        """
        n, end = len(self.ordered), max(tau, float(self.ordered[-1]))
        flagged = n - int(np.searchsorted(self.ordered, tau, side="right"))
        higher = n - np.searchsorted(self.ordered, scores, side="right")
        anomalous = _remembered(higher, n, flagged) if n <= MOST_REMEMBERED else _anomalous(higher, n, flagged)
        far = scores > end
        if far.any():
            anomalous[far] = _anomalous(higher[far], n, flagged, np.interp(scores[far] - end, *self._tail))
        return np.asarray(np.where(scores > tau, anomalous, 1 - anomalous))

    def decide(self, method: Any, share: float | None = None) -> Decision:
        """The decision of a method of METHODS, or of a thresholder of PyThresh.

        With labels of both kinds `auto` takes the threshold of the highest F1 to be expected.
        """
        if not isinstance(method, str):
            return Decision(foreign_threshold(self.values, method), type(method).__name__)
        if method == "auto" and self.labelled:
            return Decision(best_expected(self.values, self.probability(self.values)), method)
        return Decision(METHODS[method](self.values, share), method, share)


def best_expected(scores: np.ndarray, probability: np.ndarray) -> float:
    """tau with the highest F1 that is to be expected where every row is an anomaly with its own probability."""
    order = np.argsort(-scores, kind="stable")
    hits, flagged = np.cumsum(probability[order]), np.arange(1, len(scores) + 1)
    expected = np.where(np.diff(scores[order], append=-np.inf) < 0, 2 * hits / (flagged + hits[-1]), -1.0)
    best = int(expected.argmax())
    return float(scores[order[best + 1]]) if best + 1 < len(scores) else quantile_threshold(scores, 0.5)


def _anomalous(higher: np.ndarray, n: int, flagged: int, rest: np.ndarray | float = 1.0) -> np.ndarray:
    """How often a row is an anomaly that so many of n training rows score higher than, of which some are flagged.

    One row more is taken to do so, or the `rest` of one that would still come as far. A draw with as many above the
    row as are flagged is a draw between both, until the row lies far above all.
    """
    from scipy.special import bdtr

    share = (higher + rest) / (n + 2)
    fewer = bdtr(flagged - 1, n, share) if flagged else np.zeros(len(share))
    return np.asarray((rest * fewer + (2 - rest) * bdtr(flagged, n, share)) / 2)


def _remembered(higher: np.ndarray, n: int, flagged: int) -> np.ndarray:
    """The same, each worked out once: of many rows most have as many above them as another had before."""
    known = _known(n, flagged)
    new = np.unique(higher[np.isnan(known[higher])])
    if len(new):
        known[new] = _anomalous(new, n, flagged)
    return np.asarray(known[higher])


@lru_cache(maxsize=4)
def _known(n: int, flagged: int) -> np.ndarray:
    return np.full(n + 1, np.nan)
