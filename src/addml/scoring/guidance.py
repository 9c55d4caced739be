"""Learning from labels: rows like labelled anomalies score higher, rows like labelled normal rows lower."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, evenly_spaced, evenly_spaced_by, namespace, to_numpy
from addml.distances import Distance
from addml.scoring.references import ColumnReferences, SelfMatches, reference_keys, self_matches
from addml.scoring.scorer import EnsembleScale, MetricSpace, Scorer, ViewScale, mean_of_nearest

ANOMALIES, NORMALS = 256, 512  # labelled anomalies and normal rows kept to compare with, at most
NEIGHBOURS = 5  # nearest normal rows to average
LABELS_PER_NEIGHBOUR = (1, 8, 20)  # labels needed to average one, two, three anomalies, as a single label may be wrong
LEAST = 0.01  # of the median distance to normal rows: nearer rows count as copies
CLEAR = 1.0  # deviations of similarity that count even with few labels
TRUSTED = 4  # labels beyond the first, with which half of any similarity counts
FARTHEST = 10.0  # deviations of similarity, at most
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # candidates for the weight of similarity, both it and the score in deviations
FEW = 3  # fewer labels cannot tell which weight is best
RELUCTANCE = 0.02  # AUC that doubling or halving the weight has to gain, divided by the root of the number of labels
DOUBTABLE = 8  # labels needed before doubtful ones are dropped; of fewer, each is worth keeping
DOUBTING_ROWS = 2048  # training rows that doubtful labels are compared with
ROWS_AT_ONCE = 1024

logger = logging.getLogger("addml")


class LabelDistances(NamedTuple):
    """How far rows lie from labelled anomalies and normal rows along the columns, and what the inner scorer located."""

    inner: Any
    self_matches: SelfMatches
    distances: Array  # (b, R)
    beyond: Array  # (b,)


class Near(NamedTuple):
    """Distances (b,) to the nearest rows of three kinds; infinite if there are none."""

    normal: Array  # other normal rows, labelled or not
    anomalous: Array  # labelled anomalies
    known: Array  # rows labelled normal


class SimilarityScale(NamedTuple):
    """The units of distance and similarity, learned from the training rows."""

    least: Array  # distance at which a row counts as a copy
    median: Array  # of similarity
    deviation: Array  # of similarity
    trust: Array  # in similarity below CLEAR, from 0 to 1
    usual: Array  # median log distance to normal rows
    spread: Array  # of that log distance, equivalent to one deviation of similarity


@dataclass(frozen=True)
class Guided(Scorer):
    """Another scorer, corrected by whether a row lies nearer to labelled anomalies or to normal rows."""

    inner: Scorer
    name: ClassVar[str] = "guided"
    on_columns: ClassVar[bool] = True

    scale = property(lambda self: self.inner.scale)
    at_once = property(lambda self: min(256, self.inner.at_once))
    max_threads = property(lambda self: self.inner.max_threads)
    tile = property(lambda self: self.inner.tile)
    smoothing = property(lambda self: self.inner.smoothing)
    embedded = property(lambda self: self.inner.embedded)
    count = property(lambda self: self.inner.count)
    fit_scale = property(lambda self: self.inner.fit_scale)

    def settings(self) -> dict[str, Any]:
        return {"inner": {"name": self.inner.name, **self.inner.settings()}}

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep labelled anomalies, rows labelled normal, and other rows at every distance from the middle."""
        known = evenly_spaced(space.normals, NORMALS // 2)
        others = space.not_anomalous[evenly_spaced_by(space.norms, NORMALS - len(known))]
        more = max(0, len(space.anomalies) - 1)
        return self.inner.fit(space) | {
            "counter_anomalies": space.prepared(evenly_spaced(space.anomalies, ANOMALIES)),
            "counter_normals": space.prepared(np.unique(np.concatenate([known, others]))),
            "counter_known": space.prepared(known),
            "counter_column_weight": space.column_weight,
            "counter_similarity": np.array(SimilarityScale(0, 0, 1, more / (more + TRUSTED), 0, 1), np.float32),
            "counter_label_weight": np.zeros(1, np.float32),
            "counter_scale": np.ones((len(fields(self.scale)), self.count(len(space.center))), np.float32),
        }

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        concatenate = namespace(arrays["counter_normals"]).concatenate
        rows = concatenate([arrays["counter_normals"], arrays["counter_anomalies"]], 0)
        columns = concatenate([rows, arrays["counter_known"]], 0)
        return self.inner.ready(arrays, distance) | {
            "counter_columns": ColumnReferences.of(columns, arrays["counter_column_weight"]),
            "counter_keys": reference_keys(rows),
            "counter_similarity": SimilarityScale(*arrays["counter_similarity"]),
            "counter_scale": self.scale(*to_numpy(arrays["counter_scale"])[..., None]),
        }

    def locate(self, x: Array, ready: dict[str, Any], matches: SelfMatches | None = None) -> LabelDistances:
        inner = self.inner.locate(x, ready, matches)
        return LabelDistances(inner, self_matches(x, ready["counter_keys"]), *ready["counter_columns"].distances(x))

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        """The inner scorer's scores, raised for rows like labelled anomalies and lowered for rows like normal labels.

        A copy of a row labelled normal scores at most as high as the median training row, in every view.
        """
        xp, weight, scale = namespace(z), ready["counter_label_weight"], ready["counter_scale"]
        near, own = self.nearest(located, ready), ready["counter_similarity"]
        by = trusted(similarity(near, own), own) - forgiven(near, own)
        scores = self.inner.score(z, ready, distance, located.inner)[:, : len(by)]
        scores = scale.raised(scores, weight * by)
        same = (near.known <= own.least) & (weight > 0)
        return xp.where(same, xp.minimum(scores, as_like(scale.neutral, scores)), scores)

    def nearest(self, located: LabelDistances, ready: dict[str, Any]) -> Near:
        """The distances to the nearest rows; a row is its own neighbour only among those labelled normal."""
        distances = located.distances + located.beyond[:, None]
        if len(located.self_matches[0]):
            distances[located.self_matches] = np.inf
        normals, anomalies = len(ready["counter_normals"]), len(ready["counter_anomalies"])
        normal = mean_of_nearest(distances[:, :normals], min(NEIGHBOURS, max(1, normals - 1)))
        normal[namespace(normal).isinf(normal)] = 0.0  # the only normal row is the row itself
        count, both = sum(anomalies >= labels for labels in LABELS_PER_NEIGHBOUR), normals + anomalies
        anomalous = mean_of_nearest(distances[:, normals:both], count)
        return Near(normal, anomalous, mean_of_nearest(distances[:, both:], 1))


def similarity(near: Near, scale: SimilarityScale) -> Array:
    """How much nearer (b,) rows lie to labelled anomalies than to normal rows, in deviations of the training rows."""
    xp = namespace(near.normal)
    ratio = xp.log(near.normal + scale.least) - xp.log(near.anomalous + scale.least)
    lone = xp.isinf(near.anomalous)  # there is no labelled anomaly besides the row itself
    return xp.where(lone, 0 * near.normal, ((ratio - scale.median) / scale.deviation).clip(-FARTHEST, FARTHEST))


def trusted(similarities: Array, scale: SimilarityScale) -> Array:
    """The share `trust` of similarity counts in full, the rest only above CLEAR."""
    return scale.trust * similarities + (1 - scale.trust) * (similarities - CLEAR).clip(0)


def forgiven(near: Near, scale: SimilarityScale) -> Array:
    """How much farther (b,) from normal rows than is usual, and than from rows labelled normal; in deviations."""
    xp = namespace(near.normal)
    allowed = xp.maximum(xp.log(near.known + scale.least), scale.usual)
    return ((xp.log(near.normal + scale.least) - allowed) / scale.spread).clip(0)


Arrays = dict[str, np.ndarray]


def calibrated(scorer: Guided, arrays: Arrays, rows: np.ndarray, distance: Distance) -> Arrays:
    """Set the scale of similarity."""
    ready = scorer.ready(arrays, distance)
    near, trust = _nearest(scorer, rows, ready), ready["counter_similarity"].trust
    least = max(LEAST * float(np.median(near.normal)), float(np.finfo(np.float32).tiny))
    far = np.log(near.normal + least)
    ratio = (far - np.log(near.anomalous + least))[np.isfinite(near.anomalous)]
    scale = SimilarityScale(least, *_median_and_deviation(ratio), trust, *_median_and_deviation(far))
    return arrays | {"counter_similarity": np.array(scale, np.float32)}


def drop_doubtful_labels(scorer: Guided, arrays: Arrays, rows: np.ndarray, distance: Distance) -> Arrays:
    """Drop labelled anomalies that look like normal rows.

    If most of them do, all are kept: the columns then say too little about the labels.
    """
    labelled = arrays["counter_anomalies"]
    if len(labelled) < DOUBTABLE:
        return arrays
    rows = rows[evenly_spaced(np.arange(len(rows)), DOUBTING_ROWS)]
    ready = scorer.ready(calibrated(scorer, arrays, rows, distance), distance)
    kept = plausible(_evidence(scorer, labelled, ready), _evidence(scorer, rows, ready))
    if 2 * kept.sum() < len(kept) or kept.all():
        return arrays
    logger.info("%d of %d labelled anomalies look like normal rows and are ignored", (~kept).sum(), len(kept))
    return arrays | {"counter_anomalies": labelled[kept]}


def plausible(labelled: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which labelled rows (2, m) are in the upper half of the rows (2, n) by either kind of evidence."""
    return np.asarray((labelled >= np.median(rows, axis=1)[:, None]).any(axis=0))


def _evidence(scorer: Guided, rows: np.ndarray, ready: dict[str, Any]) -> np.ndarray:
    """The log distance to normal rows, and the similarity to labelled anomalies, (2, b)."""
    near, scale = _nearest(scorer, rows, ready), ready["counter_similarity"]
    return np.stack([np.log(near.normal + scale.least), similarity(near, scale)])


def with_label_weight(
    scorer: Guided,
    arrays: Arrays,
    rows: np.ndarray,
    base: np.ndarray,
    anomalous: np.ndarray,
    scale: EnsembleScale | ViewScale,
    distance: Distance,
) -> Arrays:
    """Set the weight of similarity that ranks labelled anomalies highest, each compared without itself.

    `base` are the training scores without similarity; `anomalous` marks labelled anomalies.
    """
    ready = scorer.ready(arrays, distance)
    own = ready["counter_similarity"]
    similarities = np.asarray(trusted(similarity(_nearest(scorer, rows, ready), own), own))
    if isinstance(scale, EnsembleScale) and len(scale.floor) == 1:  # a single member's score is not a logarithm yet
        base = np.log(np.maximum(base, scale.floor[0, 0]))
    spread = float(base.std()) or 1.0
    weight = best_weight((base - np.median(base)) / spread, similarities, anomalous)
    own = own._replace(spread=own.spread * weight)  # cancels the weight in `forgiven`
    return arrays | {
        "counter_label_weight": np.array([weight * spread], np.float32),
        "counter_scale": np.stack([getattr(scale, field.name)[:, 0] for field in fields(scale)]).astype(np.float32),
        "counter_similarity": np.array(own, np.float32),
    }


def best_weight(base: np.ndarray, similarities: np.ndarray, anomalous: np.ndarray) -> float:
    """The weight of similarity with which labelled anomalies rank highest, or 1 if there are too few to tell."""
    labels = int(anomalous.sum())
    if labels < FEW or labels == len(base):
        return 1.0
    from scipy.stats import rankdata

    ranks = np.array([rankdata(base + weight * similarities)[anomalous].sum() for weight in WEIGHTS])
    auc = (ranks - labels * (labels + 1) / 2) / (labels * (len(base) - labels))
    return WEIGHTS[int(np.argmax(auc - RELUCTANCE / np.sqrt(labels) * abs(np.log2(WEIGHTS))))]


def _nearest(scorer: Guided, rows: np.ndarray, ready: dict[str, Any]) -> Near:
    """The distances to the nearest rows, in float64."""
    parts = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
    near = [scorer.nearest(scorer.locate(part, ready), ready) for part in parts]
    return Near(*(np.concatenate(distances).astype(np.float64) for distances in zip(*near, strict=True)))


def _median_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """The median and the deviation, which is 1 for equal values; (0, 1) without values."""
    if not len(values):
        return 0.0, 1.0
    deviation = float(values.std())
    return float(np.median(values)), deviation if deviation > 1e-6 else 1.0
