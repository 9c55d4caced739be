"""The decisions of a fitted detector: how rare a score is, and thresholds.

New rows are compared with calibration rows. A new row of the same kind is equally likely to take any rank among them,
so at most a share p of such rows has a conformal p-value of p or less. That does not hold for training rows: their tail
is extrapolated from the bulk of the scores, which lies between the median and the 0.9 quantile.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from addml.arrays import evenly_spaced_with_ends
from addml.text import counted, one_in, percent

logger = logging.getLogger("addml")

QUANTILE, AUTO, GIVEN = "quantile", "auto", "tau"
ALARM_RATE, MAX_FALSE_ALARMS, FLAG, PER_DAY = "alarm_rate", "max_false_alarms", "flag", "per_day"
EVENT_RATE, EVENTS = "event_rate", "events"
SHARE = 0.1  # of training rows that are flagged by default
CLEAR_Q = 0.1  # the largest q of rows that stand clear of the rest
BULK = (0.5, 0.9)  # quantiles of the scores between which all rows count as ordinary
POWER = 0.75  # of uncompressed scores: 1 flagged up to a tenth of simulated ordinary rows, 0.5 missed gross errors
KNOTS = 1024  # points of the probability curve within the training scores
LARGEST = 900.0  # compressed scores up to this have finite exponentials
MIN_Q = 1e-6  # where the probability curve ends
EXACT = 4096  # highest calibration scores that a table of p-values lists one by one


@dataclass(frozen=True)
class Decision:
    """Rows that score above tau are flagged."""

    tau: float
    method: str  # one of the names above, or the class name of a PyThresh object
    share: float | None = None  # the requested share, rate or count

    @property
    def words(self) -> str:
        """The choice in words, such as "the 10% highest-scoring training rows"."""
        return self.words_for("row")

    def words_for(self, noun: str) -> str:
        """The same for "image" or "step": "the 10% highest-scoring training images"."""
        share = self.share or 1.0
        windows = f"{1 / share:,.0f} windows of clean steps"
        texts = {
            GIVEN: "as given",
            AUTO: f"{noun}s that stand clear of the rest, by an estimate from the bulk of the scores",
            QUANTILE: f"the {percent(share)} highest-scoring training {noun}s",
            ALARM_RATE: f"at most {one_in(share)} {noun}s like the training {noun}s",
            MAX_FALSE_ALARMS: f"at most {percent(share)} of the flagged {noun}s are like the training {noun}s",
            FLAG: f"the {counted(int(share), f'highest-scoring {noun}')}",
            PER_DAY: f"{int(share):,} a day on average, the highest-scoring ones",
            EVENT_RATE: f"at most one event in {windows}, by the tail of the training peaks",
            EVENTS: f"the strongest events, at most {int(share):,}",
        }
        return texts.get(self.method, f"by {self.method}")

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Decision:
        tau, share = document["tau"], document["share"]
        if type(tau) not in (int, float):
            raise ValueError(f"tau={tau!r} is not a number")
        return cls(float(tau), str(document["method"]), None if share is None else float(share))


@dataclass(frozen=True)
class TrainingScores:
    """The scores of the training rows, from which decisions are made."""

    values: np.ndarray  # (n,)
    calibrating: np.ndarray  # (n,) marks the calibration rows
    compressed: bool = True  # whether scores come from views, as sign(z) log(1 + |z|)
    separation: float | None = None  # the threshold that separates labelled rows best; None without both labels

    @classmethod
    def of(
        cls, values: np.ndarray, held_out: np.ndarray, labels: np.ndarray | None = None, *, by_views: bool
    ) -> TrainingScores:
        """Choose the calibration rows.

        Views leave a training row out of its own score, so all unlabelled rows are calibration rows. With other scorers
        only rows that some member held out from training are; `held_out` is (members, n).
        """
        calibrating = np.ones(len(values), bool) if labels is None else labels < 0
        if not by_views and (calibrating & held_out.any(axis=0)).any():
            calibrating &= held_out.any(axis=0)
        calibrating = calibrating if calibrating.any() else np.ones(len(values), bool)
        has_both = labels is not None and (labels == 0).any() and (labels == 1).any()
        return cls(values, calibrating, by_views, best_separation(values, labels) if has_both else None)

    @classmethod
    def from_json(cls, document: dict[str, Any], values: np.ndarray, calibrating: np.ndarray) -> TrainingScores:
        """The training scores of a saved model, which has `calibrating` as packed bits."""
        mask = np.unpackbits(calibrating, count=len(values)).astype(bool)
        if not mask.any():
            raise ValueError("no calibration rows")
        separation = document["separation"]
        return cls(values, mask, bool(document["compressed"]), None if separation is None else float(separation))

    @cached_property
    def ordered(self) -> np.ndarray:
        return np.sort(self.values)

    @cached_property
    def calibration(self) -> np.ndarray:
        """The scores of the calibration rows, ascending."""
        return self.ordered if self.calibrating.all() else np.sort(self.values[self.calibrating])

    @cached_property
    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Ascending scores and their probabilities, to interpolate between."""
        return probability_curve(self.ordered, self.compressed)

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        return p_values(scores, self.calibration)

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """1 - q of each score, by the tail estimate of the training scores."""
        return np.asarray(np.interp(scores, *self.curve))

    def rarity(self, scores: np.ndarray, batch: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """p-values and probabilities 1 - q of new rows, given all scores of their `batch`; else of training rows."""
        if batch is None:
            return at_least(scores, self.ordered).clip(1) / len(self.ordered), self.probability(scores)
        levels = adjusted_levels(batch, self.calibration)
        return self.p_values(scores), 1 - levels[at_least(scores, self.calibration)]

    @cached_property
    def clear(self) -> float:
        """The score above which rows stand clear of the rest."""
        return clear_threshold(self.ordered, self.compressed)

    def decide(self, method: Any, share: float | None = None) -> Decision:
        """The decision by a method or a PyThresh object; `auto` uses the best separation of labels if there is one."""
        if not isinstance(method, str):
            return Decision(foreign_threshold(self.values, method), type(method).__name__)
        if method == AUTO:
            return Decision(self.clear if self.separation is None else self.separation, AUTO)
        assert share is not None
        if method == QUANTILE:
            return Decision(quantile_threshold(self.values, share), QUANTILE, share)
        tau = alarm_threshold(self.calibration, share)
        if not np.isfinite(tau):
            n_rows = len(self.calibration)
            raise ValueError(
                f"alarm_rate={share:g} flags nothing with {counted(n_rows, 'calibration row')}: the lowest p-value is "
                f"1 in {n_rows + 1:,}; use a rate of at least {1 / (n_rows + 1):.2g}, "
                f"or train on {int(np.ceil(1 / share)):,} rows"
            )
        return Decision(tau, ALARM_RATE, share)


def p_values(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Conformal p-values: the share of the ascending calibration scores and the row's own that are at least as high."""
    return (1 + at_least(scores, calibration)) / (1 + len(calibration))


def at_least(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """The number of ascending calibration scores that are at least as high as each score."""
    return np.asarray(len(calibration) - np.searchsorted(calibration, scores, side="left"))


def adjusted_levels(batch: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Benjamini and Hochberg's q for a batch, (n + 1,), by the number of calibration scores at least as high.

    On average at most a share a of the rows with q <= a is like the calibration rows.
    """
    n = len(calibration)
    as_rare = np.cumsum(np.bincount(at_least(batch, calibration), minlength=n + 1))  # rows of the batch
    p = (1 + np.arange(n + 1)) / (1 + n)
    q = np.where(as_rare > 0, p * len(batch) / np.maximum(as_rare, 1), 1.0)
    return np.minimum.accumulate(np.minimum(q, 1.0)[::-1])[::-1]


def adjusted(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Benjamini and Hochberg's q of every row of a batch."""
    return np.asarray(adjusted_levels(scores, calibration)[at_least(scores, calibration)])


def alarm_threshold(calibration: np.ndarray, rate: float) -> float:
    """The score above which p-values are at most `rate`; infinity if even the smallest p-value is larger."""
    allowed = int(np.floor(rate * (len(calibration) + 1) + 1e-9)) - 1  # calibration rows that may score as high
    return float(calibration[-1 - allowed]) if 0 <= allowed < len(calibration) else np.inf


def discovery_threshold(scores: np.ndarray, calibration: np.ndarray, rate: float) -> float:
    """The score above which the rows of a batch have q <= `rate`; at least the highest score if none has."""
    flagged = adjusted(scores, calibration) <= rate
    ordinary = scores[~flagged]
    if not flagged.any():
        return float(max(scores.max(initial=-np.inf), alarm_threshold(calibration, rate / max(1, len(scores)))))
    return float(ordinary.max()) if len(ordinary) else float(np.nextafter(scores.min(), -np.inf))


def p_value_table(calibration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending scores (k,) and p-values (k + 1,); the number of these scores below a score is its p-value's index.

    Of many calibration scores the table lists a sample, between which p-values are rounded up.
    """
    n = len(calibration)
    sample = evenly_spaced_with_ends(calibration[: max(0, n - EXACT)], EXACT)
    knots = np.unique(np.concatenate([sample, calibration[-EXACT:]]))
    n_higher = n - np.searchsorted(calibration, knots, side="right")
    return knots, np.concatenate([[1.0], (1 + n_higher) / (1 + n)])


@dataclass(frozen=True)
class Tail:
    """The tail of ordinary scores: exponential in a power of the scores, fitted to their bulk."""

    median: float  # of the transformed scores
    unit: float  # the distance over which the tail falls to 1/e
    compressed: bool  # whether scores are sign(z) log(1 + |z|)

    @classmethod
    def fit(cls, ordered: np.ndarray, compressed: bool) -> Tail:
        median, high = _power(np.quantile(ordered, BULK), compressed)
        unit = (high - median) / np.log((1 - BULK[0]) / (1 - BULK[1]))
        if unit <= 0:  # four in ten rows share a score: fit the distinct scores above it
            above = _power(np.unique(ordered[ordered > ordered[len(ordered) // 2]]), compressed)
            unit = float(np.median(above) - median) / np.log(2) if len(above) else 1.0
        return cls(float(median), float(unit), compressed)

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """The share of ordinary rows expected at or above these scores; 1 for the lower half."""
        excess = (_power(scores, self.compressed) - self.median) / self.unit
        return np.where(excess > 0, (1 - BULK[0]) * np.exp(-excess.clip(0)), 1.0)

    def q_values(self, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The distinct scores, ascending, and q at each: its p-value adjusted for all rows."""
        distinct, first = np.unique(ordered, return_index=True)
        n = len(ordered)
        return distinct, np.minimum.accumulate(np.minimum(self.p_values(distinct) * n / (n - first), 1.0))

    def score(self, p: float) -> float:
        """The score above the median at or above which a share p of ordinary rows is expected."""
        y = self.median + self.unit * np.log((1 - BULK[0]) / p)
        return float(np.copysign(np.log1p(POWER * abs(y)) / POWER, y) if self.compressed else y)


def _power(scores: np.ndarray, compressed: bool) -> np.ndarray:
    """The power of the uncompressed scores z, ((1 + |z|)^0.75 - 1) / 0.75 with their sign; other scores as they are."""
    if not compressed:
        return scores
    return np.asarray(np.copysign(np.expm1(POWER * abs(scores).clip(0, LARGEST)) / POWER, scores))


def probability_curve(ordered: np.ndarray, compressed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Ascending scores (k,) and 1 - q at each, where q is the tail's p-value adjusted for all rows."""
    tail, n = Tail.fit(ordered, compressed), len(ordered)
    distinct, q = tail.q_values(ordered)
    highest = distinct[-1]
    end = max(tail.score(MIN_Q / n), np.nextafter(highest, np.inf))
    beyond = np.linspace(highest, end, 65)[1:]
    beyond = beyond[np.diff(beyond, prepend=highest) > 0]
    knots = evenly_spaced_with_ends(np.arange(len(distinct)), KNOTS)
    q_beyond = np.minimum(q[-1], tail.p_values(beyond) * n)
    return np.concatenate([distinct[knots], beyond]), 1 - np.concatenate([q[knots], q_beyond])


def quantile_threshold(scores: np.ndarray, contamination: float) -> float:
    """tau, above which the given share of the scores lies, or fewer if scores tie at tau."""
    return float(np.quantile(scores, 1 - contamination))


def clear_threshold(ordered: np.ndarray, compressed: bool) -> float:
    """tau, above which at most a tenth of the rows are expected to be ordinary; at most half of the rows lie above."""
    tail = Tail.fit(ordered, compressed)
    distinct, q = tail.q_values(ordered)
    is_clear = q <= CLEAR_Q
    if not is_clear.any():
        return max(float(distinct[-1]), tail.score(CLEAR_Q / len(ordered)))
    return float(distinct[max(int(is_clear.argmax()) - 1, 0)])


def best_separation(scores: np.ndarray, labels: Any) -> float:
    """tau with the highest F1 on labelled rows (0 normal, 1 anomaly, -1 none), halfway to the next lower score."""
    labelled = labels >= 0
    order = np.argsort(-scores[labelled], kind="stable")
    ordered, hits = scores[labelled][order], np.cumsum(labels[labelled][order])
    f1 = 2 * hits / (np.arange(1, len(ordered) + 1) + hits[-1])
    f1[:-1][ordered[:-1] == ordered[1:]] = -1.0  # never splits equal scores
    best = int(f1.argmax())
    below = ordered[best + 1] if best + 1 < len(ordered) else np.quantile(scores, 0.5)
    return float(min(below + (ordered[best] - below) / 2, np.nextafter(ordered[best], -np.inf)))


def budget_threshold(scores: np.ndarray, count: int) -> float:
    """tau, above which at most `count` of the scores lie."""
    if count >= len(scores):
        return float(np.nextafter(scores.min(), -np.inf))
    return float(np.partition(scores, len(scores) - 1 - count)[len(scores) - 1 - count])


def foreign_threshold(scores: np.ndarray, thresholder: Any) -> float:
    """tau of a PyThresh object, halfway between the highest row that it does not flag and the lowest row that it flags.

    If the flags do not follow the scores, as many rows lie above tau as it flagged. If it fails, as some objects do on
    equal scores, no row lies above tau and a warning is logged.
    """
    try:
        flagged = np.asarray(thresholder.eval(scores.copy())).ravel() == 1
        if len(flagged) != len(scores):
            raise ValueError(f"{len(flagged)} labels for {len(scores)} scores")
    except Exception as error:  # a foreign object may raise anything; fitting must not fail on it
        logger.warning("%s failed (%r); no training row is flagged", type(thresholder).__name__, error)
        flagged = np.zeros(len(scores), bool)
    if not flagged.any():
        return float(scores.max())
    if flagged.all():
        return float(np.nextafter(scores.min(), -np.inf))
    ordinary, anomalous = scores[~flagged].max(), scores[flagged].min()
    if anomalous > ordinary:
        return float(ordinary + (anomalous - ordinary) / 2)
    return quantile_threshold(scores, flagged.mean())
