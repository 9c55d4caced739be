"""Labelled anomalies as counter-references: a row nearer to one of them than to normal rows scores higher.

Any scorer can be guided. Along the plain columns a row has a distance to its nearest labelled anomaly and one to its
nearest normal rows; the logarithm of their ratio, in deviations of the training rows, is its likeness to the
anomalies. The scores of the guided scorer are multiplied by a power of it, which adds it to the logarithms that the
members' scores are averaged in. While labels are few only what is clearly alike counts: one label must not order
all rows by their distance to it. When they are more, a label that nothing else speaks for is doubted: a labelled row
that is in the lower half of all rows both by its distance to normal rows and by its likeness to the other labelled ones
is no counter-reference.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, namespace, to_numpy
from addml.geometry import Distance
from addml.scoring.axes import Axes
from addml.scoring.even import evenly
from addml.scoring.local import Piece, changed_rows, spread_out
from addml.scoring.members import MemberScale
from addml.scoring.scorers import SCORERS, MetricSpace, Scorer, Shapes
from addml.scoring.themselves import Own, own_of, own_references, reference_keys

ANOMALIES, NORMALS = 256, 512  # counter-references and references, at the most
NEIGHBOURS = 5  # normal rows whose mean distance counts
WITNESSES = (1, 8, 20)  # labels from which one, two, three anomalies near a row count: one alone may be a mistake
LEAST = 0.01  # of the middle distance to normal rows: nearer is as near as can be
ALIKE = 1.0  # deviations from which a row is clearly alike
TRUSTED = 4  # labels beyond the first at which half of the likeness counts as it is
FARTHEST = 10.0  # deviations of likeness, at the most
STRONGEST = 88.0  # push: e to the power of more is beyond float32, and of no use to a distance of 0
LARGEST = float(np.finfo(np.float32).max)
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of likeness against the score, both in deviations
FEW = 3  # labels; fewer cannot tell which weight is best
DOUBTABLE = 8  # labels from which on one may be doubted: of fewer, each is worth more than the doubt
DOUBTING_ROWS = 2048  # training rows, at even steps, that a doubted label is compared with
RELUCTANCE = 0.02  # of AUC, for a weight that is twice or half of 1, over the root of the number of labels
logger = logging.getLogger("addml")
PARTS = ("anomalies", "normals", "reach", "likeness", "push")


class GuidedPlace(NamedTuple):
    """Where rows lie for the guided scorer, and among counter-references and references: (b, R), own ones, beyond."""

    inner: Any
    own: Own
    distances: Array
    beyond: Array


@dataclass(frozen=True)
class Guided:
    """Another scorer, and how much nearer a row lies to labelled anomalies than to normal rows."""

    inner: Scorer
    name: ClassVar[str] = "guided"

    @property
    def floor(self) -> float:
        """That of the scorer which is guided."""
        return self.inner.floor

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

    def views(self, members: int) -> np.ndarray:
        """Those of the scorer which is guided."""
        return self.inner.views(members)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Keep labelled anomalies, and normal rows: labelled ones, and others at all distances from the middle."""
        own = self.inner.fit(space)
        anomalies = evenly(space.anomalies, ANOMALIES)
        sure = evenly(space.normals, NORMALS // 2)
        others = space.usual[spread_out(space.norms, NORMALS - len(sure))]
        trust = (len(space.anomalies) - 1) / (len(space.anomalies) - 1 + TRUSTED)
        counter = {
            "anomalies": space.prepared(anomalies),
            "normals": space.prepared(np.unique(np.concatenate([sure, others]))),
            "reach": space.reach,
            "likeness": np.array([0.0, 0.0, 1.0, trust], np.float32),  # least distance, middle, deviation, trust
            "push": np.zeros(len(self.views(len(space.center))), np.float32),
        }
        return own | {f"counter_{name}": array for name, array in counter.items()}

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """What scoring works out once."""
        counter = {name: arrays[f"counter_{name}"] for name in PARTS}
        inner = {name: array for name, array in arrays.items() if not name.startswith("counter_")}
        rows = namespace(counter["normals"]).concatenate([counter["normals"], counter["anomalies"]], 0)
        counter |= {"axes": Axes.of(rows, counter["reach"]), "keys": reference_keys(rows)}
        return {**self.inner.ready(inner, distance), "counter": counter}

    def place(self, x: Array, ready: dict[str, Any]) -> GuidedPlace:
        """Where prepared rows (b, d) lie."""
        counter = ready["counter"]
        return GuidedPlace(
            self.inner.place(x, ready), own_references(x, counter["keys"]), *counter["axes"].distances(x)
        )

    def moved(self, placed: GuidedPlace, x: Array, parts: list[Piece], ready: dict[str, Any], size: int) -> GuidedPlace:
        """Where rows of x lie after some of their features changed, as a block of `size` rows."""
        ids, after = changed_rows(to_numpy(x), parts, size)
        own = own_of(ids, placed.own, x)
        inner = self.inner.moved(placed.inner, x, parts, ready, size)
        return GuidedPlace(inner, own, *ready["counter"]["axes"].distances(as_like(after, x)))

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, placed: Any = None) -> Array:
        """Scores (views of all members, b) of embeddings (E, b, w) and of where their rows lie."""
        like = _blended(self.likeness(placed, ready), ready["counter"]["likeness"])
        scores = self.inner.score(z, ready, distance, placed.inner)[:, : len(like)]
        push = (ready["counter"]["push"][:, None] * like).clip(-STRONGEST, STRONGEST)
        with np.errstate(over="ignore"):
            return (scores.clip(0) * namespace(scores).exp(push)).clip(0, LARGEST)

    def likeness(self, placed: GuidedPlace, ready: dict[str, Any]) -> Array:
        """How much nearer (b,) rows lie to labelled anomalies than to normal rows, in deviations of training rows."""
        counter = ready["counter"]
        least, middle, deviation = (counter["likeness"][place] for place in range(3))
        normal, anomalous = self.nearest(placed, ready)
        xp = namespace(normal)
        ratio = xp.log(normal + least) - xp.log(anomalous + least)
        lone = xp.isinf(anomalous)  # the only labelled anomaly itself
        return xp.where(lone, 0 * normal, ((ratio - middle) / deviation).clip(-FARTHEST, FARTHEST))

    def nearest(self, placed: GuidedPlace, ready: dict[str, Any]) -> tuple[Array, Array]:
        """The distances (b,) to normal rows and to labelled anomalies; a row is not its own neighbour."""
        distances = placed.distances + placed.beyond[:, None]
        if len(placed.own[0]):
            distances[placed.own] = np.inf
        normals, anomalies = len(ready["counter"]["normals"]), len(ready["counter"]["anomalies"])
        near = _mean_of_nearest(distances[:, :normals], min(NEIGHBOURS, max(1, normals - 1)))
        near[namespace(near).isinf(near)] = 0.0  # hardly any but copies of it
        witnesses = sum(anomalies >= labels for labels in WITNESSES)
        return near, _mean_of_nearest(distances[:, normals:], witnesses)

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """Those of the scorer which is guided, and what guides it."""
        views = len(self.views(members))
        counter: Shapes = {
            "anomalies": (None, "inputs"),
            "normals": (None, "inputs"),
            "reach": ("inputs",),
            "likeness": (4,),
            "push": (views,),
        }
        inner = self.inner.shapes(distance, members, w)
        return inner | {f"counter_{name}": shape for name, shape in counter.items()}


def scorer_from_plain(document: dict[str, Any]) -> Scorer:
    """The scorer of a saved model."""
    settings = dict(document)
    name = settings.pop("name")
    return Guided(scorer_from_plain(settings["inner"])) if name == Guided.name else SCORERS[name](**settings)


# What is learned from the training rows ---------------------------------------------------------------------


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
    least, placed = ready["counter"]["likeness"][0], [guided.place(part, ready) for part in _in_parts(rows)]
    far = [np.log(guided.nearest(one, ready)[0] + least) for one in placed]
    like = [guided.likeness(one, ready) for one in placed]
    return np.stack([np.concatenate(far), np.concatenate(like)]).astype(np.float64)


def calibrated(guided: Guided, arrays: dict[str, np.ndarray], rows: np.ndarray, distance: Distance) -> dict[str, Any]:
    """The arrays with the middle and the deviation of the likeness of prepared training rows (n, d)."""
    ready = guided.ready(arrays, distance)
    near = [guided.nearest(guided.place(part, ready), ready) for part in _in_parts(rows)]
    normal, anomalous = (np.concatenate(parts).astype(np.float64) for parts in zip(*near, strict=True))
    least = max(LEAST * float(np.median(normal)), float(np.finfo(np.float32).tiny))
    ratio = (np.log(normal + least) - np.log(anomalous + least))[np.isfinite(anomalous)]
    deviation = float(ratio.std()) if len(ratio) else 0.0
    likeness = [least, float(np.median(ratio)) if len(ratio) else 0.0, deviation if deviation > 1e-6 else 1.0]
    return arrays | {"counter_likeness": np.array([*likeness, arrays["counter_likeness"][3]], np.float32)}


def pushed(
    guided: Guided,
    arrays: dict[str, np.ndarray],
    rows: np.ndarray,
    base: np.ndarray,
    anomalous: np.ndarray,
    scale: MemberScale,
    distance: Distance,
) -> dict[str, Any]:
    """The arrays with the weight of likeness: the one that ranks labelled anomalies highest, each without itself.

    `base` are the scores of prepared training rows (n, d) without it, `anomalous` says which are labelled so.
    """
    ready = guided.ready(arrays, distance)
    like = np.concatenate([guided.likeness(guided.place(part, ready), ready) for part in _in_parts(rows)])
    like = np.asarray(_blended(like.astype(np.float64), arrays["counter_likeness"]))
    alone = len(scale.floor) == 1  # a single member's score is taken as it is, so that its logarithm is looked at
    base = np.log(np.maximum(base, scale.floor[0, 0])) if alone else base
    spread = float(base.std()) or 1.0
    weight = best_weight((base - np.median(base)) / spread, like, anomalous)
    unit = np.ones(1) if alone else (scale.deviation[:, 0] * _reach(scale))
    return arrays | {"counter_push": (weight * spread * unit).astype(np.float32)}


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


def _mean_of_nearest(distances: Array, k: int) -> Array:
    """The mean (b,) of the k least of distances (b, R)."""
    if isinstance(distances, np.ndarray):
        return np.asarray(np.sort(np.partition(distances, k - 1, axis=1)[:, :k], axis=1).mean(axis=1))
    return namespace(distances).topk(distances, k, largest=False).values.mean(1)


def _blended(like: Array, learned: Array) -> Array:
    """Likeness as it is, as far as labels are trusted, and else only what is clearly alike."""
    trust = learned[3]
    return trust * like + (1 - trust) * (like - ALIKE).clip(0)


def _reach(scale: MemberScale) -> np.ndarray:
    """How far the view of each row of scores reaches; views are measured by it only where there are several."""
    return np.asarray(scale.reach[scale.view, 0] if len(scale.reach) > 1 else np.ones(len(scale.view)))


def _in_parts(rows: np.ndarray, size: int = 1024) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
