"""Learning from labels: rows like labelled anomalies score higher, rows like labelled normal rows lower."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, evenly_spaced, evenly_spaced_by, namespace, to_numpy
from addml.distances import Distance
from addml.scoring.references import ColumnReferences, SelfMatches, reference_keys, self_matches
from addml.scoring.scorer import EnsembleScale, MetricSpace, Ready, Scorer, ViewScale, mean_of_nearest

MAX_ANOMALIES, MAX_NORMALS = 256, 512  # labelled anomalies and normal rows that the model stores
NEIGHBOURS = 5  # nearest normal rows to average
LABELS_PER_NEIGHBOUR = (1, 8, 20)  # labels needed to average one, two, three anomalies, as a single label may be wrong
COPY_DISTANCE = 0.01  # of the median distance to normal rows: nearer rows count as copies
CLEAR_SIMILARITY = 1.0  # deviations of similarity beyond which it counts even with few labels
HALF_TRUST_LABELS = 4  # labels beyond the first at which half of any similarity counts
MAX_SIMILARITY = 10.0  # deviations
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # candidates for the weight of similarity, with it and the score in deviations
MIN_LABELS = 3  # fewer labels cannot tell which weight is best
WEIGHT_PENALTY = 0.02  # AUC that doubling or halving the weight must gain, divided by the root of the number of labels
MIN_LABELS_TO_DROP = 8  # labels needed before doubtful ones are dropped; with fewer, each is worth keeping
COMPARED_ROWS = 2048  # training rows that labelled anomalies are compared with to find doubtful ones
ROWS_AT_ONCE = 1024

logger = logging.getLogger("addml")


class LabelDistances(NamedTuple):
    """Distances of rows to labelled anomalies and normal rows along the columns, and what the inner scorer located."""

    inner: Any
    self_matches: SelfMatches
    distances: Array  # (b, R)
    beyond: Array  # (b,)


class NearestDistances(NamedTuple):
    """Distances (b,) to the nearest rows of three kinds; infinite if there are none."""

    normal: Array  # other normal rows, labelled or not
    anomaly: Array  # labelled anomalies
    labelled_normal: Array


class SimilarityScale(NamedTuple):
    """The units of distance and similarity, learned from the training rows."""

    copy_distance: Array  # up to which a row counts as a copy
    median: Array  # of similarity
    deviation: Array  # of similarity
    trust: Array  # in similarity below CLEAR_SIMILARITY, from 0 to 1
    log_distance: Array  # median of the log distance to normal rows
    log_spread: Array  # the change of that log distance that counts like one deviation of similarity


@dataclass(frozen=True)
class Guided(Scorer):
    """Another scorer whose scores are corrected by the distances to labelled anomalies and to normal rows."""

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
        """Store labelled anomalies, rows labelled normal, and other rows at all distances from the middle."""
        labelled = evenly_spaced(space.normals, MAX_NORMALS // 2)
        others = space.not_anomalous[evenly_spaced_by(space.norms, MAX_NORMALS - len(labelled))]
        more = max(0, len(space.anomalies) - 1)
        trust = more / (more + HALF_TRUST_LABELS)
        return self.inner.fit(space) | {
            "counter_anomalies": space.prepared(evenly_spaced(space.anomalies, MAX_ANOMALIES)),
            "counter_normals": space.prepared(np.unique(np.concatenate([labelled, others]))),
            "counter_known": space.prepared(labelled),
            "counter_column_weight": space.column_weight,
            "counter_similarity": np.array(SimilarityScale(0, 0, 1, trust, 0, 1), np.float32),
            "counter_label_weight": np.zeros(1, np.float32),
            "counter_scale": np.ones((len(fields(self.scale)), self.count(len(space.center))), np.float32),
        }

    def ready(self, arrays: dict[str, Array], distance: Distance) -> Ready:
        concatenate = namespace(arrays["counter_normals"]).concatenate
        references = concatenate([arrays["counter_normals"], arrays["counter_anomalies"]], 0)
        columns = concatenate([references, arrays["counter_known"]], 0)
        return self.inner.ready(arrays, distance) | {
            "counter_columns": ColumnReferences.of(columns, arrays["counter_column_weight"]),
            "counter_keys": reference_keys(references),
            "counter_similarity": SimilarityScale(*arrays["counter_similarity"]),
            "counter_scale": self.scale(*to_numpy(arrays["counter_scale"])[..., None]),
        }

    def locate(self, x: Array, ready: Ready, matches: SelfMatches | None = None) -> LabelDistances:
        inner = self.inner.locate(x, ready, matches)
        return LabelDistances(inner, self_matches(x, ready["counter_keys"]), *ready["counter_columns"].distances(x))

    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        """The inner scorer's scores, raised for rows like labelled anomalies and lowered for rows like normal labels.

        A copy of a row labelled normal scores at most as high as the median training row, in every view.
        """
        xp, weight, scale = namespace(z), ready["counter_label_weight"], ready["counter_scale"]
        nearest, units = self.nearest(located, ready), ready["counter_similarity"]
        correction = trusted(similarity(nearest, units), units) - normal_discount(nearest, units)
        scores = self.inner.score(z, ready, distance, located.inner)[:, : len(correction)]
        scores = scale.raised(scores, weight * correction)
        is_copy = (nearest.labelled_normal <= units.copy_distance) & (weight > 0)
        return xp.where(is_copy, xp.minimum(scores, as_like(scale.neutral, scores)), scores)

    def nearest(self, located: LabelDistances, ready: Ready) -> NearestDistances:
        """The distances to the nearest rows; a row is its own neighbour only among those labelled normal."""
        distances = located.distances + located.beyond[:, None]
        if len(located.self_matches[0]):
            distances[located.self_matches] = np.inf
        n_normal, n_anomalies = len(ready["counter_normals"]), len(ready["counter_anomalies"])
        normal = mean_of_nearest(distances[:, :n_normal], min(NEIGHBOURS, max(1, n_normal - 1)))
        normal[namespace(normal).isinf(normal)] = 0.0  # the only normal row is the row itself
        neighbours = sum(n_anomalies >= labels for labels in LABELS_PER_NEIGHBOUR)
        anomaly = mean_of_nearest(distances[:, n_normal : n_normal + n_anomalies], neighbours)
        return NearestDistances(normal, anomaly, mean_of_nearest(distances[:, n_normal + n_anomalies :], 1))


def similarity(nearest: NearestDistances, units: SimilarityScale) -> Array:
    """How much nearer (b,) rows lie to labelled anomalies than to normal rows, in deviations of the training rows."""
    xp = namespace(nearest.normal)
    ratio = xp.log(nearest.normal + units.copy_distance) - xp.log(nearest.anomaly + units.copy_distance)
    result = ((ratio - units.median) / units.deviation).clip(-MAX_SIMILARITY, MAX_SIMILARITY)
    no_anomaly = xp.isinf(nearest.anomaly)  # besides the row itself
    return xp.where(no_anomaly, 0 * nearest.normal, result)


def trusted(similarities: Array, units: SimilarityScale) -> Array:
    """The similarity that counts: a share `trust` of it in full, the rest only above CLEAR_SIMILARITY."""
    return units.trust * similarities + (1 - units.trust) * (similarities - CLEAR_SIMILARITY).clip(0)


def normal_discount(nearest: NearestDistances, units: SimilarityScale) -> Array:
    """The distance (b,) to normal rows beyond its median and beyond that to rows labelled normal, in deviations."""
    xp = namespace(nearest.normal)
    allowed = xp.maximum(xp.log(nearest.labelled_normal + units.copy_distance), units.log_distance)
    return ((xp.log(nearest.normal + units.copy_distance) - allowed) / units.log_spread).clip(0)


Arrays = dict[str, np.ndarray]


def calibrated(scorer: Guided, arrays: Arrays, rows: np.ndarray, distance: Distance) -> Arrays:
    """Set the scale of similarity."""
    ready = scorer.ready(arrays, distance)
    nearest, trust = _nearest(scorer, rows, ready), ready["counter_similarity"].trust
    copy_distance = max(COPY_DISTANCE * float(np.median(nearest.normal)), float(np.finfo(np.float32).tiny))
    log_distances = np.log(nearest.normal + copy_distance)
    ratios = (log_distances - np.log(nearest.anomaly + copy_distance))[np.isfinite(nearest.anomaly)]
    units = SimilarityScale(copy_distance, *_median_and_deviation(ratios), trust, *_median_and_deviation(log_distances))
    return arrays | {"counter_similarity": np.array(units, np.float32)}


def drop_doubtful_labels(scorer: Guided, arrays: Arrays, rows: np.ndarray, distance: Distance) -> Arrays:
    """Drop labelled anomalies that look like normal rows.

    If most of them do, none is dropped: the columns then say too little about the labels.
    """
    labelled = arrays["counter_anomalies"]
    if len(labelled) < MIN_LABELS_TO_DROP:
        return arrays
    rows = rows[evenly_spaced(np.arange(len(rows)), COMPARED_ROWS)]
    ready = scorer.ready(calibrated(scorer, arrays, rows, distance), distance)
    mask = plausible(_evidence(scorer, labelled, ready), _evidence(scorer, rows, ready))
    if 2 * mask.sum() < len(mask) or mask.all():
        return arrays
    logger.info("%d of %d labelled anomalies look like normal rows and are ignored", (~mask).sum(), len(mask))
    return arrays | {"counter_anomalies": labelled[mask]}


def plausible(labelled: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which labelled rows (2, m) are in the upper half of rows (2, n) by at least one kind of evidence."""
    return np.asarray((labelled >= np.median(rows, axis=1)[:, None]).any(axis=0))


def _evidence(scorer: Guided, rows: np.ndarray, ready: Ready) -> np.ndarray:
    """The log distance to normal rows, and the similarity to labelled anomalies, (2, b)."""
    nearest, units = _nearest(scorer, rows, ready), ready["counter_similarity"]
    return np.stack([np.log(nearest.normal + units.copy_distance), similarity(nearest, units)])


def with_label_weight(
    scorer: Guided,
    arrays: Arrays,
    rows: np.ndarray,
    base: np.ndarray,
    anomalous: np.ndarray,
    scale: EnsembleScale | ViewScale,
    distance: Distance,
) -> Arrays:
    """Set the weight of similarity that ranks labelled anomalies highest; none is compared with itself.

    `base` are the training scores without similarity; `anomalous` marks labelled anomalies.
    """
    ready = scorer.ready(arrays, distance)
    units = ready["counter_similarity"]
    similarities = np.asarray(trusted(similarity(_nearest(scorer, rows, ready), units), units))
    if isinstance(scale, EnsembleScale) and len(scale.floor) == 1:  # a single member's score is not a logarithm yet
        base = np.log(np.maximum(base, scale.floor[0, 0]))
    spread = float(base.std()) or 1.0
    weight = best_weight((base - np.median(base)) / spread, similarities, anomalous)
    units = units._replace(log_spread=units.log_spread * weight)  # cancels the weight in `normal_discount`
    return arrays | {
        "counter_label_weight": np.array([weight * spread], np.float32),
        "counter_scale": np.stack([getattr(scale, field.name)[:, 0] for field in fields(scale)]).astype(np.float32),
        "counter_similarity": np.array(units, np.float32),
    }


def best_weight(base: np.ndarray, similarities: np.ndarray, anomalous: np.ndarray) -> float:
    """The weight of similarity with which labelled anomalies rank highest, or 1 if there are too few to tell."""
    n_labels = int(anomalous.sum())
    if n_labels < MIN_LABELS or n_labels == len(base):
        return 1.0
    from scipy.stats import rankdata

    ranks = np.array([rankdata(base + weight * similarities)[anomalous].sum() for weight in WEIGHTS])
    auc = (ranks - n_labels * (n_labels + 1) / 2) / (n_labels * (len(base) - n_labels))
    return WEIGHTS[int(np.argmax(auc - WEIGHT_PENALTY / np.sqrt(n_labels) * abs(np.log2(WEIGHTS))))]


def _nearest(scorer: Guided, rows: np.ndarray, ready: Ready) -> NearestDistances:
    batches = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
    nearest = [scorer.nearest(scorer.locate(batch, ready), ready) for batch in batches]
    return NearestDistances(*(np.concatenate(column).astype(np.float64) for column in zip(*nearest, strict=True)))


def _median_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """The median and the deviation, which is 1 for equal values; (0, 1) without values."""
    if not len(values):
        return 0.0, 1.0
    deviation = float(values.std())
    return float(np.median(values)), deviation if deviation > 1e-6 else 1.0
