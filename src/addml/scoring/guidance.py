"""What labels are worth, learned from the training rows: which are believed, and how much they count."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, evenly, namespace, spread_out, to_numpy
from addml.distances import Distance
from addml.scoring.column_distances import ColumnDistances
from addml.scoring.scale import MemberScale, ViewScale
from addml.scoring.scorers import SCORERS, MetricSpace, Piece, Scorer, Shapes
from addml.scoring.self_matches import Own, changed_rows, own_of, own_references, reference_keys

LEAST = 0.01  # of the middle distance to normal rows: nearer is as near as can be
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of likeness against the score, both in deviations
FEW = 3  # labels; fewer cannot tell which weight is best
DOUBTABLE = 8  # labels from which on one may be doubted: of fewer, each is worth more than the doubt
DOUBTING_ROWS = 2048  # training rows, at even steps, that a doubted label is compared with
RELUCTANCE = 0.02  # of AUC, for a weight that is twice or half of 1, over the root of the number of labels
logger = logging.getLogger("addml")


def believed(guided: Guided, arrays: dict[str, np.ndarray], rows: np.ndarray, distance: Distance) -> dict[str, Any]:
    """The arrays without the labelled anomalies that are doubted, compared with prepared training rows (n, d).

    Where that were most of them none is: labels and columns then have too little to do with each other.
    """
    labelled = arrays["counter_anomalies"]
    if len(labelled) < DOUBTABLE:
        return arrays
    rows = rows[evenly(np.arange(len(rows)), DOUBTING_ROWS)]
    ready = guided.ready(calibrated(guided, arrays, rows, distance), distance)
    kept = plausible(_evidence(guided, labelled, ready), _evidence(guided, rows, ready))
    if 2 * kept.sum() < len(kept) or kept.all():
        return arrays
    logger.info(
        "%d of %d labelled anomalies lie as normal rows do: not taken as counter-references", (~kept).sum(), len(kept)
    )
    return arrays | {"counter_anomalies": labelled[kept]}


def plausible(labelled: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which labelled rows (2, m) are in the upper half of rows (2, n) by one evidence or the other."""
    return np.asarray((labelled >= np.median(rows, axis=1)[:, None]).any(axis=0))


def _evidence(guided: Guided, rows: np.ndarray, ready: dict[str, Any]) -> np.ndarray:
    """How far rows lie from normal ones, as a logarithm, and their likeness (2, b); no row vouches for itself."""
    near, learned = _nearest(guided, rows, ready), ready["counter"]["learned"]
    return np.stack([np.log(near.normal + learned.least), likeness(near, learned)])


def calibrated(guided: Guided, arrays: dict[str, np.ndarray], rows: np.ndarray, distance: Distance) -> dict[str, Any]:
    """The arrays with the middle and the deviation of the likeness of prepared training rows (n, d)."""
    ready = guided.ready(arrays, distance)
    near, trust = _nearest(guided, rows, ready), ready["counter"]["learned"].trust
    least = max(LEAST * float(np.median(near.normal)), float(np.finfo(np.float32).tiny))
    far = np.log(near.normal + least)
    ratio = (far - np.log(near.anomalous + least))[np.isfinite(near.anomalous)]
    learned = Learned(least, *_middle_and_deviation(ratio), trust, *_middle_and_deviation(far))
    return arrays | {"counter_likeness": np.array(learned, np.float32)}


def _middle_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Their median and their deviation, 0 and 1 where they tell none."""
    deviation = float(values.std()) if len(values) else 0.0
    return float(np.median(values)) if len(values) else 0.0, deviation if deviation > 1e-6 else 1.0


def pushed(
    guided: Guided,
    arrays: dict[str, np.ndarray],
    rows: np.ndarray,
    base: np.ndarray,
    anomalous: np.ndarray,
    scale: MemberScale | ViewScale,
    distance: Distance,
) -> dict[str, Any]:
    """The arrays with the weight of likeness: the one that ranks labelled anomalies highest, each without itself.

    `base` are the scores of prepared training rows (n, d) without it, `anomalous` says which are labelled so.
    """
    ready = guided.ready(arrays, distance)
    learned = ready["counter"]["learned"]
    like = np.asarray(blended(likeness(_nearest(guided, rows, ready), learned), learned))
    if isinstance(scale, MemberScale) and len(scale.floor) == 1:  # a single member's score is taken as it is
        base = np.log(np.maximum(base, scale.floor[0, 0]))
    spread = float(base.std()) or 1.0
    weight = best_weight((base - np.median(base)) / spread, like, anomalous)
    learned = learned._replace(spread=learned.spread * weight)  # what is forgiven is so whatever likeness weighs
    return arrays | {
        "counter_push": np.array([weight * spread], np.float32),
        "counter_scale": np.stack([getattr(scale, field.name)[:, 0] for field in fields(scale)]).astype(np.float32),
        "counter_likeness": np.array(learned, np.float32),
    }


def best_weight(base: np.ndarray, like: np.ndarray, anomalous: np.ndarray) -> float:
    """The weight of likeness in WEIGHTS with which labelled anomalies rank highest, if they are enough to tell."""
    labels = int(anomalous.sum())
    if labels < FEW or labels == len(base):
        return 1.0
    reluctance = RELUCTANCE / np.sqrt(labels)
    gains = [_auc(base + weight * like, anomalous) - reluctance * abs(np.log2(weight)) for weight in WEIGHTS]
    return WEIGHTS[int(np.argmax(gains))]


def _auc(scores: np.ndarray, anomalous: np.ndarray) -> float:
    from scipy.stats import rankdata

    count = int(anomalous.sum())
    return float((rankdata(scores)[anomalous].sum() - count * (count + 1) / 2) / (count * (len(scores) - count)))


def _nearest(guided: Guided, rows: np.ndarray, ready: dict[str, Any], size: int = 1024) -> Near:
    """How near prepared rows (n, d) lie to others, in float64."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    near = [guided.nearest(guided.place(part, ready), ready) for part in parts]
    return Near(*(np.concatenate(distances).astype(np.float64) for distances in zip(*near, strict=True)))


# Labels as references: rows like labelled anomalies score higher, rows like those known to be normal lower.


ANOMALIES, NORMALS = 256, 512  # counter-references and references, at the most
NEIGHBOURS = 5  # normal rows whose mean distance counts
WITNESSES = (1, 8, 20)  # labels from which one, two, three anomalies near a row count: one alone may be a mistake
ALIKE = 1.0  # deviations from which a row is clearly alike
TRUSTED = 4  # labels beyond the first at which half of the likeness counts as it is
FARTHEST = 10.0  # deviations of likeness, at the most
PARTS = ("anomalies", "normals", "known", "column_weight", "likeness", "push", "scale")


class GuidedPlace(NamedTuple):
    """Where rows lie for the guided scorer, and among counter-references and references: (b, R), own ones, beyond."""

    inner: Any
    own: Own
    distances: Array
    beyond: Array


class Near(NamedTuple):
    """Distances (b,) to normal rows, to labelled anomalies and to rows known to be normal; infinite where none is."""

    normal: Array
    anomalous: Array
    known: Array


class Learned(NamedTuple):
    """What distances and likeness are measured by, learned from the training rows."""

    least: Array  # distance: nearer is as near as can be
    middle: Array  # likeness
    deviation: Array  # of likeness
    trust: Array  # in likeness that is not clear
    usual: Array  # logarithm of the distance to normal rows
    spread: Array  # of that logarithm: so much is worth one deviation of likeness


@dataclass(frozen=True)
class Guided:
    """Another scorer, and how much nearer a row lies to labelled anomalies than to normal rows."""

    inner: Scorer
    name: ClassVar[str] = "guided"

    @property
    def scale(self) -> type[MemberScale] | type[ViewScale]:
        """That of the scorer which is guided."""
        return self.inner.scale

    @property
    def at_once(self) -> int:
        """Rows that are scored together."""
        return min(256, self.inner.at_once)

    @property
    def most_threads(self) -> int:
        """Those of the scorer which is guided."""
        return self.inner.most_threads

    @property
    def tile(self) -> int:
        """Rows of one product."""
        return self.inner.tile

    def embedded(self, members: int) -> np.ndarray:
        """Those of the scorer which is guided."""
        return self.inner.embedded(members)

    def settings(self) -> dict[str, Any]:
        """The scorer that is guided."""
        return {"inner": {"name": self.inner.name, **self.inner.settings()}}

    def count(self, members: int) -> int:
        """Those of the scorer which is guided."""
        return self.inner.count(members)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep labelled anomalies, and normal rows: labelled ones, and others at all distances from the middle."""
        own = self.inner.fit(space)
        anomalies = evenly(space.anomalies, ANOMALIES)
        sure = evenly(space.normals, NORMALS // 2)
        others = space.usual[spread_out(space.norms, NORMALS - len(sure))]
        more = max(0, len(space.anomalies) - 1)
        trust = more / (more + TRUSTED)
        counter = {
            "anomalies": space.prepared(anomalies),
            "normals": space.prepared(np.unique(np.concatenate([sure, others]))),
            "known": space.prepared(sure),
            "column_weight": space.column_weight,
            "likeness": np.array(Learned(0.0, 0.0, 1.0, trust, 0.0, 1.0), np.float32),
            "push": np.zeros(1, np.float32),
            "scale": np.ones((len(fields(self.scale)), self.count(len(space.center))), np.float32),
        }
        return own | {f"counter_{name}": array for name, array in counter.items()}

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """What scoring works out once."""
        counter = {name: arrays[f"counter_{name}"] for name in PARTS}
        inner = {name: array for name, array in arrays.items() if not name.startswith("counter_")}
        xp = namespace(counter["normals"])
        rows = xp.concatenate([counter["normals"], counter["anomalies"]], 0)
        everything = xp.concatenate([rows, counter["known"]], 0)
        counter |= {"axes": ColumnDistances.of(everything, counter["column_weight"]), "keys": reference_keys(rows)}
        counter["learned"] = Learned(*counter["likeness"])
        counter["scale"] = self.scale(*to_numpy(counter["scale"])[..., None])
        return {**self.inner.ready(inner, distance), "counter": counter}

    def place(self, x: Array, ready: dict[str, Any], own: Own | None = None) -> GuidedPlace:
        """Where prepared rows (b, d) lie; `own` is known to the scorer which is guided."""
        counter = ready["counter"]
        return GuidedPlace(
            self.inner.place(x, ready, own), own_references(x, counter["keys"]), *counter["axes"].distances(x)
        )

    def moved(self, placed: GuidedPlace, x: Array, parts: list[Piece], ready: dict[str, Any], size: int) -> GuidedPlace:
        """Where rows of x lie after some of their features changed, as a block of `size` rows."""
        ids, after = changed_rows(to_numpy(x), parts, size)
        own = own_of(ids, placed.own, x)
        inner = self.inner.moved(placed.inner, x, parts, ready, size)
        return GuidedPlace(inner, own, *ready["counter"]["axes"].distances(as_like(after, x)))

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, placed: Any = None) -> Array:
        """Scores (views of all members, b) of embeddings (E, b, w) and of where their rows lie."""
        near, learned = self.nearest(placed, ready), ready["counter"]["learned"]
        like = blended(likeness(near, learned), learned) - forgiven(near, learned)
        scores = self.inner.score(z, ready, distance, placed.inner)[:, : len(like)]
        return ready["counter"]["scale"].raised(scores, ready["counter"]["push"] * like)

    def nearest(self, placed: GuidedPlace, ready: dict[str, Any]) -> Near:
        """How near rows lie to others; only that it is known to be normal is told by a row itself."""
        distances = placed.distances + placed.beyond[:, None]
        if len(placed.own[0]):
            distances[placed.own] = np.inf
        normals, anomalies = len(ready["counter"]["normals"]), len(ready["counter"]["anomalies"])
        normal = _mean_of_nearest(distances[:, :normals], min(NEIGHBOURS, max(1, normals - 1)))
        normal[namespace(normal).isinf(normal)] = 0.0  # hardly any but copies of it
        witnesses, both = sum(anomalies >= labels for labels in WITNESSES), normals + anomalies
        anomalous = _mean_of_nearest(distances[:, normals:both], witnesses)
        return Near(normal, anomalous, _mean_of_nearest(distances[:, both:], 1))

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """Those of the scorer which is guided, and what guides it."""
        views = self.count(members)
        counter: Shapes = {
            "anomalies": (..., "inputs"),
            "normals": (None, "inputs"),
            "known": (..., "inputs"),
            "column_weight": ("inputs",),
            "likeness": (6,),
            "push": (1,),
            "scale": (len(fields(self.scale)), views),
        }
        inner = self.inner.shapes(distance, members, w)
        return inner | {f"counter_{name}": shape for name, shape in counter.items()}


def scorer_from_plain(document: dict[str, Any]) -> Scorer:
    """The scorer of a saved model."""
    settings = dict(document)
    name = settings.pop("name")
    return Guided(scorer_from_plain(settings["inner"])) if name == Guided.name else SCORERS[name](**settings)


def likeness(near: Near, learned: Learned) -> Array:
    """How much nearer (b,) rows lie to labelled anomalies than to normal rows, in deviations of training rows."""
    xp = namespace(near.normal)
    ratio = xp.log(near.normal + learned.least) - xp.log(near.anomalous + learned.least)
    lone = xp.isinf(near.anomalous)  # the only labelled anomaly itself, or none
    return xp.where(lone, 0 * near.normal, ((ratio - learned.middle) / learned.deviation).clip(-FARTHEST, FARTHEST))


def forgiven(near: Near, learned: Learned) -> Array:
    """How much farther (b,) from normal rows than usual, in deviations, as far as one known to be normal is nearer."""
    xp = namespace(near.normal)
    allowed = xp.maximum(xp.log(near.known + learned.least), learned.usual)
    return ((xp.log(near.normal + learned.least) - allowed) / learned.spread).clip(0)


def _mean_of_nearest(distances: Array, k: int) -> Array:
    """The mean (b,) of the k least of distances (b, R); where there are none, infinity."""
    if not distances.shape[1]:
        return namespace(distances).full_like(distances.sum(1), np.inf)
    if isinstance(distances, np.ndarray):
        return np.asarray(np.sort(np.partition(distances, k - 1, axis=1)[:, :k], axis=1).mean(axis=1))
    return namespace(distances).topk(distances, k, largest=False).values.mean(1)


def blended(like: Array, learned: Learned) -> Array:
    """Likeness as it is, as far as labels are trusted, and else only what is clearly alike."""
    return learned.trust * like + (1 - learned.trust) * (like - ALIKE).clip(0)
