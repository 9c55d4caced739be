"""Labels as references: rows like labelled anomalies score higher, rows like those known to be normal lower."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, evenly_spaced, evenly_spaced_by, namespace, to_numpy
from addml.distances import Distance
from addml.scoring.base import EnsembleScale, MetricSpace, Scorer, Shapes, ViewScale, mean_of_nearest
from addml.scoring.references import ColumnReferences, SelfMatches, reference_keys, self_matches

ANOMALIES, NORMALS = 256, 512  # labelled anomalies and normal rows to compare with, at most
NEIGHBOURS = 5  # normal rows whose mean distance counts
LABELS_PER_NEIGHBOUR = (1, 8, 20)  # labels from which one, two, three anomalies near a row count: one may be a mistake
LEAST = 0.01  # of the median distance to normal rows: nearer is as near as can be
CLEAR = 1.0  # deviations from which a row is clearly similar
TRUSTED = 4  # labels beyond the first at which half of the similarity counts as it is
FARTHEST = 10.0  # deviations of similarity, at most
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of similarity against the score, both in deviations
FEW = 3  # labels; fewer cannot tell which weight is best
RELUCTANCE = 0.02  # of AUC, for a weight that is twice or half of 1, over the root of the number of labels
DOUBTABLE = 8  # labels from which on one may be dropped: of fewer, each is worth more than the doubt
DOUBTING_ROWS = 2048  # training rows that a doubtful label is compared with
ROWS_AT_ONCE = 1024

logger = logging.getLogger("addml")


class LabelDistances(NamedTuple):
    """Where rows lie for the inner scorer, and along the columns among labelled anomalies and normal rows."""

    inner: Any
    self_matches: SelfMatches
    distances: Array  # (b, R)
    beyond: Array  # (b,)


class Near(NamedTuple):
    """Distances (b,) to normal rows, to labelled anomalies and to rows known to be normal; infinite where none is."""

    normal: Array
    anomalous: Array
    known: Array


class SimilarityScale(NamedTuple):
    """What distances and similarities are measured by, learned from the training rows."""

    least: Array  # distance: nearer is as near as can be
    median: Array  # of similarity
    deviation: Array  # of similarity
    trust: Array  # in similarity that is not clear
    usual: Array  # median logarithm of the distance to normal rows
    spread: Array  # of that logarithm: so much is worth one deviation of similarity


@dataclass(frozen=True)
class Guided(Scorer):
    """Another scorer, and how much nearer a row lies to labelled anomalies than to normal rows."""

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
        """Keep labelled anomalies, and normal rows: labelled ones, and others at all distances from the middle."""
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
        """The inner scorer's scores, raised by similarity and lowered by what is forgiven.

        A row that was labelled normal itself is at most as strange as the median training row, whatever the view.
        """
        xp, weight, scale = namespace(z), ready["counter_label_weight"], ready["counter_scale"]
        near, own = self.nearest(located, ready), ready["counter_similarity"]
        by = trusted(similarity(near, own), own) - forgiven(near, own)
        scores = self.inner.score(z, ready, distance, located.inner)[:, : len(by)]
        scores = scale.raised(scores, weight * by)
        same = (near.known <= own.least) & (weight > 0)
        return xp.where(same, xp.minimum(scores, as_like(scale.neutral, scores)), scores)

    def nearest(self, located: LabelDistances, ready: dict[str, Any]) -> Near:
        """How near rows lie to others; a row is its own neighbour only where it is known to be normal."""
        distances = located.distances + located.beyond[:, None]
        if len(located.self_matches[0]):
            distances[located.self_matches] = np.inf
        normals, anomalies = len(ready["counter_normals"]), len(ready["counter_anomalies"])
        normal = mean_of_nearest(distances[:, :normals], min(NEIGHBOURS, max(1, normals - 1)))
        normal[namespace(normal).isinf(normal)] = 0.0  # all but copies of it
        count, both = sum(anomalies >= labels for labels in LABELS_PER_NEIGHBOUR), normals + anomalies
        anomalous = mean_of_nearest(distances[:, normals:both], count)
        return Near(normal, anomalous, mean_of_nearest(distances[:, both:], 1))

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        return self.inner.shapes(distance, members, w) | {
            "counter_anomalies": (..., "inputs"),
            "counter_normals": (None, "inputs"),
            "counter_known": (..., "inputs"),
            "counter_column_weight": ("inputs",),
            "counter_similarity": (len(SimilarityScale._fields),),
            "counter_label_weight": (1,),
            "counter_scale": (len(fields(self.scale)), self.count(members)),
        }


def similarity(near: Near, scale: SimilarityScale) -> Array:
    """How much nearer (b,) rows lie to labelled anomalies than to normal rows, in deviations of training rows."""
    xp = namespace(near.normal)
    ratio = xp.log(near.normal + scale.least) - xp.log(near.anomalous + scale.least)
    lone = xp.isinf(near.anomalous)  # the only labelled anomaly itself, or none
    return xp.where(lone, 0 * near.normal, ((ratio - scale.median) / scale.deviation).clip(-FARTHEST, FARTHEST))


def trusted(similarities: Array, scale: SimilarityScale) -> Array:
    """Similarity as it is, as far as labels are trusted, and else only what is clear."""
    return scale.trust * similarities + (1 - scale.trust) * (similarities - CLEAR).clip(0)


def forgiven(near: Near, scale: SimilarityScale) -> Array:
    """How much farther (b,) than usual from normal rows, in deviations, as far as one known to be normal is nearer."""
    xp = namespace(near.normal)
    allowed = xp.maximum(xp.log(near.known + scale.least), scale.usual)
    return ((xp.log(near.normal + scale.least) - allowed) / scale.spread).clip(0)


# What labels are worth, learned from features of training rows (n, d): arrays in, arrays out.

Arrays = dict[str, np.ndarray]


def calibrated(scorer: Guided, arrays: Arrays, rows: np.ndarray, distance: Distance) -> Arrays:
    """The arrays with the scale of the training rows' similarity."""
    ready = scorer.ready(arrays, distance)
    near, trust = _nearest(scorer, rows, ready), ready["counter_similarity"].trust
    least = max(LEAST * float(np.median(near.normal)), float(np.finfo(np.float32).tiny))
    far = np.log(near.normal + least)
    ratio = (far - np.log(near.anomalous + least))[np.isfinite(near.anomalous)]
    scale = SimilarityScale(least, *_median_and_deviation(ratio), trust, *_median_and_deviation(far))
    return arrays | {"counter_similarity": np.array(scale, np.float32)}


def drop_doubtful_labels(scorer: Guided, arrays: Arrays, rows: np.ndarray, distance: Distance) -> Arrays:
    """The arrays without the labelled anomalies that lie as normal rows do.

    Where most of them do none is dropped: labels and columns then have too little to do with each other.
    """
    labelled = arrays["counter_anomalies"]
    if len(labelled) < DOUBTABLE:
        return arrays
    rows = rows[evenly_spaced(np.arange(len(rows)), DOUBTING_ROWS)]
    ready = scorer.ready(calibrated(scorer, arrays, rows, distance), distance)
    kept = plausible(_evidence(scorer, labelled, ready), _evidence(scorer, rows, ready))
    if 2 * kept.sum() < len(kept) or kept.all():
        return arrays
    logger.info("%d of %d labelled anomalies lie as normal rows do: they are not used", (~kept).sum(), len(kept))
    return arrays | {"counter_anomalies": labelled[kept]}


def plausible(labelled: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which labelled rows (2, m) are in the upper half of rows (2, n) by one evidence or the other."""
    return np.asarray((labelled >= np.median(rows, axis=1)[:, None]).any(axis=0))


def _evidence(scorer: Guided, rows: np.ndarray, ready: dict[str, Any]) -> np.ndarray:
    """How far rows lie from normal ones, as a logarithm, and their similarity (2, b)."""
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
    """The arrays with the weight of similarity that ranks labelled anomalies highest, each without itself.

    `base` are the scores of the training rows without similarity, `anomalous` says which are labelled so.
    """
    ready = scorer.ready(arrays, distance)
    own = ready["counter_similarity"]
    similarities = np.asarray(trusted(similarity(_nearest(scorer, rows, ready), own), own))
    if isinstance(scale, EnsembleScale) and len(scale.floor) == 1:  # a single member's score is taken as it is
        base = np.log(np.maximum(base, scale.floor[0, 0]))
    spread = float(base.std()) or 1.0
    weight = best_weight((base - np.median(base)) / spread, similarities, anomalous)
    own = own._replace(spread=own.spread * weight)  # the weight does not change what is forgiven
    return arrays | {
        "counter_label_weight": np.array([weight * spread], np.float32),
        "counter_scale": np.stack([getattr(scale, field.name)[:, 0] for field in fields(scale)]).astype(np.float32),
        "counter_similarity": np.array(own, np.float32),
    }


def best_weight(base: np.ndarray, similarities: np.ndarray, anomalous: np.ndarray) -> float:
    """The weight of similarity with which labelled anomalies rank highest, or 1 where there are too few to tell."""
    labels = int(anomalous.sum())
    if labels < FEW or labels == len(base):
        return 1.0
    from scipy.stats import rankdata

    ranks = np.array([rankdata(base + weight * similarities)[anomalous].sum() for weight in WEIGHTS])
    auc = (ranks - labels * (labels + 1) / 2) / (labels * (len(base) - labels))
    return WEIGHTS[int(np.argmax(auc - RELUCTANCE / np.sqrt(labels) * abs(np.log2(WEIGHTS))))]


def _nearest(scorer: Guided, rows: np.ndarray, ready: dict[str, Any]) -> Near:
    """How near rows lie to others, in float64."""
    parts = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
    near = [scorer.nearest(scorer.locate(part, ready), ready) for part in parts]
    return Near(*(np.concatenate(distances).astype(np.float64) for distances in zip(*near, strict=True)))


def _median_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Their median and deviation; 0 and 1 where there is none."""
    deviation = float(values.std()) if len(values) else 0.0
    return float(np.median(values)) if len(values) else 0.0, deviation if deviation > 1e-6 else 1.0
