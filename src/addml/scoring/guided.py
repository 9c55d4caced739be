"""Labels as references: rows like labelled anomalies score higher, rows like those known to be normal lower.

Any scorer can be guided. Along the plain columns a row has a distance to its nearest labelled anomaly and one to its
nearest normal rows; the logarithm of their ratio, in deviations of the training rows, is its likeness to the
anomalies. The scores of the guided scorer are changed so that a multiple of it adds to what they are combined to. While
labels are few only what is clearly alike counts: one label must not order
all rows by their distance to it. When they are more, a label that nothing else speaks for is doubted: a labelled row
that is in the lower half of all rows both by its distance to normal rows and by its likeness to the other labelled ones
is no counter-reference.

A row that somebody called normal, and what is like it, should not stand out again: a row counts as no farther from
normal rows than it is from one that is known to be normal.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, namespace, to_numpy
from addml.geometry import Distance
from addml.scoring.column_distances import ColumnDistances
from addml.scoring.even import evenly, spread_out
from addml.scoring.scale import MemberScale, ViewScale
from addml.scoring.scorers import SCORERS, MetricSpace, Piece, Scorer, Shapes
from addml.scoring.self_matches import Own, changed_rows, own_of, own_references, reference_keys

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
