"""The patch memory: how far each place of an image lies from the nearest place of the training images.

Each of two blocks of a pretrained network has its own references, a greedy coreset; their distances are averaged.
A training image's own places do not count as neighbours, so that an anomaly among the training images stays strange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, as_like, to_numpy
from addml.distances import Distance
from addml.scoring.references import row_keys
from addml.scoring.scorer import MetricSpace, Scorer

CANDIDATES, REFERENCES = 100_000, 10_000  # places sampled and places kept, per block
TOP = 0.01  # share of the places whose mean distance is the score
IMAGES_AT_ONCE, REFERENCES_AT_ONCE, POINTS_AT_ONCE = 16, 512, 16_384
CALIBRATING = 32  # images from which the usual distance of a place is estimated
FARTHEST = 512  # candidates for the next references between two updates of all distances
HALF = 2**24  # whole numbers below this are exact in float32


@dataclass(frozen=True)
class PatchMemory(Scorer):
    """The mean distance of an image's strangest 1% of places to the nearest reference; needs encoder="pretrained"."""

    name: ClassVar[str] = "patches"
    on_columns: ClassVar[bool] = True
    on_patches: ClassVar[bool] = True

    def count(self, members: int) -> int:
        return 1

    def embedded(self, members: int) -> np.ndarray:
        return np.ones(1, bool)

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        if space.patches is None:
            raise ValueError("scorer='patches' needs encoder='pretrained'")
        kept, levels, random = space.kept[0], space.levels, space.random
        counts = [min(h * w, -(-CANDIDATES // len(kept))) for _, h, w in levels]
        sampled: list[list[np.ndarray]] = [[] for _ in levels]
        keys = []
        for start in range(0, len(kept), IMAGES_AT_ONCE):
            ids = kept[start : start + IMAGES_AT_ONCE]
            keys.append(_halves(row_keys(space.prepared(ids))))
            for own, part, count in zip(sampled, split_levels(space.patches(ids), levels), counts, strict=True):
                places = [np.sort(random.choice(part.shape[1], count, replace=False)) for _ in ids]
                own += [image[chosen] for image, chosen in zip(part, places, strict=True)]
        arrays = {"levels": np.array(levels, np.float32), "keys": np.concatenate(keys)}
        for level, count in enumerate(counts):
            candidates, sampled[level] = np.concatenate(sampled[level]), []  # frees the copies
            standard = _standardise(candidates)
            chosen = coreset(candidates, REFERENCES)
            owners = np.repeat(np.arange(len(kept)), count)[chosen].astype(np.float32)
            arrays |= {f"references{level}": candidates[chosen], f"owners{level}": owners, f"standard{level}": standard}
        return arrays | {"units": self._units(space, arrays)}

    def _units(self, space: MetricSpace, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Each block's median distance of places to the references of other images."""
        assert space.patches is not None
        ids = space.kept[0][:: -(-len(space.kept[0]) // CALIBRATING)]
        ready, owners = self.ready(arrays, space.distance), self.locate(space.prepared(ids), arrays)
        parts = split_levels(space.patches(ids), space.levels)
        medians = [
            np.median([_nearest(own, ready, level, owner) for own, owner in zip(part, owners, strict=True)])
            for level, part in enumerate(parts)
        ]
        return np.array([median if median > 0 else 1.0 for median in medians], np.float32)

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """The arrays in main memory, and references r as (-2 r, r r), whose products with places are distances."""
        held = {name: to_numpy(array) for name, array in arrays.items()}
        for k in range(len(held["levels"])):
            own = held[f"references{k}"]
            held[f"products{k}"] = np.hstack([-2 * own, (own * own).sum(axis=1, keepdims=True)])
        return held

    def locate(self, x: Array, ready: dict[str, Any], matches: Any = None) -> np.ndarray:
        """The training image that each image x (b, d) equals; -1 for none."""
        halves = _halves(row_keys(to_numpy(x)))
        same = (halves[:, None] == ready["keys"]).all(axis=2)
        return np.where(same.any(axis=1), same.argmax(axis=1), -1)

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, located: Any = None) -> Array:
        maps = self.maps(to_numpy(z)[0, : len(located)], ready, located).reshape(len(located), -1)
        count = top_count(ready["levels"][0])
        return as_like(np.sort(maps, axis=1)[None, :, -count:].mean(axis=2), z)

    def maps(self, z: np.ndarray, ready: dict[str, Any], owners: np.ndarray) -> np.ndarray:
        """The distance (b, height, width) of every place of images with features z (b, ...); 1 is usual."""
        levels = [tuple(map(int, level)) for level in ready["levels"]]
        size = levels[0][1:]
        total = np.zeros((len(z), *size))
        for level, part in enumerate(split_levels(z, levels)):
            for one, (own, owner) in enumerate(zip(part, owners, strict=True)):
                distances = _nearest(own, ready, level, owner).reshape(levels[level][1:])
                total[one] += resized(distances / ready["units"][level], size) / len(levels)
        return total


def top_count(level: Sequence[float]) -> int:
    """How many places of a level (channels, height, width) the score averages."""
    return max(1, round(TOP * level[1] * level[2]))


def resized(values: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """A map (h, w) resized by linear interpolation."""
    for axis in (0, 1):
        have, want = values.shape[axis], size[axis]
        places = ((np.arange(want) + 0.5) * have / want - 0.5).clip(0, have - 1)
        low = np.minimum(places.astype(int), max(have - 2, 0))
        share = np.expand_dims(places - low, 1 - axis)
        upper = np.take(values, np.minimum(low + 1, have - 1), axis)
        values = np.take(values, low, axis) * (1 - share) + upper * share
    return values


def _halves(keys: np.ndarray) -> np.ndarray:
    """48 bits of hashes (n,) as two whole numbers (n, 2), which float32 holds exactly."""
    return np.stack([keys % HALF, keys // HALF % HALF], axis=1).astype(np.float32)


def split_levels(z: np.ndarray, levels: Any) -> list[np.ndarray]:
    """The features (b, places, channels) of each block, from the flat features (b, ...) of all."""
    parts, start = [], 0
    for channels, height, width in levels:
        stop = start + channels * height * width
        parts.append(z[:, start:stop].reshape(len(z), channels, height * width).swapaxes(1, 2))
        start = stop
    return parts


def _standardise(candidates: np.ndarray) -> np.ndarray:
    """Standardise candidates (n, c) in place; returns their means and deviations (2, c)."""
    mean = candidates.mean(axis=0, dtype=np.float64)
    candidates -= mean.astype(np.float32)
    deviation = np.sqrt(np.einsum("ij,ij->j", candidates, candidates, dtype=np.float64) / len(candidates))
    standard = np.stack([mean, np.where(deviation > 0, deviation, 1.0)]).astype(np.float32)
    candidates /= standard[1]
    return standard


def coreset(points: np.ndarray, count: int) -> np.ndarray:
    """The places of `count` points (n, d), each the farthest from those chosen before it.

    Only the farthest few are searched, until a point outside may be farther; then one matrix product updates the
    distances of all.
    """
    count, squares = min(count, len(points)), (points * points).sum(axis=1)
    nearest = np.full(len(points), np.inf, np.float32)
    new = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    chosen = list(new)
    while len(chosen) < count:
        some = points[new]
        for start in range(0, len(points), POINTS_AT_ONCE):
            part = slice(start, start + POINTS_AT_ONCE)
            distances = points[part] @ (-2 * some.T)
            distances += squares[new]
            np.minimum(nearest[part], distances.min(axis=1) + squares[part], out=nearest[part])
        nearest[chosen] = 0
        order = np.argsort(-nearest, kind="stable")[: FARTHEST + 1]
        outside = nearest[order[-1]] if len(order) > FARTHEST else 0.0
        new = _farthest(points[order[:FARTHEST]], nearest[order[:FARTHEST]].copy(), outside, count - len(chosen))
        new = [int(order[place]) for place in new]
        if not new:
            break  # the rest are copies of chosen points
        chosen += new
    return np.array(chosen)


def _farthest(points: np.ndarray, nearest: np.ndarray, outside: float, most: int) -> list[int]:
    """Up to `most` of the points, each the farthest left, until one `outside` may be farther; changes `nearest`."""
    chosen: list[int] = []
    while len(chosen) < most:
        place = int(nearest.argmax())
        if nearest[place] <= 0 or (chosen and nearest[place] < outside):
            break
        chosen.append(place)
        np.minimum(nearest, ((points - points[place]) ** 2).sum(axis=1), out=nearest)
        nearest[place] = 0
    return chosen


def _nearest(own: np.ndarray, ready: dict[str, Any], level: int, owner: int) -> np.ndarray:
    """The distance of each place (p, c) of an image to the nearest reference of another image."""
    references, owners = ready[f"products{level}"], ready[f"owners{level}"]
    mean, deviation = ready[f"standard{level}"]
    places = np.ones((own.shape[1] + 1, len(own)), np.float32)  # the last row multiplies the references' square lengths
    places[:-1] = ((own - mean) / deviation).T
    nearest = np.full(len(own), np.inf, np.float32)
    for start in range(0, len(references), REFERENCES_AT_ONCE):
        part = slice(start, start + REFERENCES_AT_ONCE)
        distances = references[part] @ places
        distances[owners[part] == owner] = np.inf
        np.minimum(nearest, distances.min(axis=0), out=nearest)
    nearest += (places[:-1] * places[:-1]).sum(axis=0)
    return np.asarray(np.sqrt(np.where(np.isfinite(nearest), nearest, 0).clip(0)))
