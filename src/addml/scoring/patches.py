"""The patch memory: the distance of each patch of an image to the nearest patch of the training images.

Each of two blocks of a pretrained network has its own references, a greedy coreset; their distances are averaged.
A training image's own patches do not count as neighbours, so an anomaly among the training images stays anomalous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, as_like, to_numpy
from addml.distances import Distance
from addml.scoring.references import row_keys
from addml.scoring.scorer import MetricSpace, Ready, Scorer

CANDIDATES, REFERENCES = 100_000, 10_000  # patches to sample and references to choose from them, per block
TOP = 0.01  # share of the patches whose mean distance is the score
IMAGES_AT_ONCE, REFERENCES_AT_ONCE, POINTS_AT_ONCE = 16, 512, 16_384
UNIT_IMAGES = 32  # images from which the median distance of a patch is estimated
FARTHEST = 512  # candidates for the next references between two updates of all distances
EXACT = 2**24  # whole numbers below this are exact in float32


@dataclass(frozen=True)
class PatchMemory(Scorer):
    """The mean distance of an image's most anomalous 1% of patches to references; needs encoder="pretrained"."""

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
        ids, levels, random = space.kept[0], space.levels, space.random
        counts = [min(h * w, -(-CANDIDATES // len(ids))) for _, h, w in levels]
        samples: list[list[np.ndarray]] = [[] for _ in levels]
        keys = []
        for start in range(0, len(ids), IMAGES_AT_ONCE):
            batch = ids[start : start + IMAGES_AT_ONCE]
            keys.append(_float_keys(space.prepared(batch)))
            for level, patches in enumerate(split_levels(space.patches(batch), levels)):
                chosen = [random.choice(patches.shape[1], counts[level], replace=False) for _ in batch]
                samples[level] += [image[np.sort(index)] for image, index in zip(patches, chosen, strict=True)]
        arrays = {"levels": np.array(levels, np.float32), "keys": np.concatenate(keys)}
        for level, count in enumerate(counts):
            candidates, samples[level] = np.concatenate(samples[level]), []  # frees the copies
            standard = _standardise(candidates)
            index = coreset(candidates, REFERENCES)
            owners = np.repeat(np.arange(len(ids)), count)[index].astype(np.float32)
            arrays |= {f"references{level}": candidates[index], f"owners{level}": owners, f"standard{level}": standard}
        return arrays | {"units": self._units(space, arrays)}

    def _units(self, space: MetricSpace, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Each block's median distance of patches to the references of other images."""
        assert space.patches is not None
        ids = space.kept[0][:: -(-len(space.kept[0]) // UNIT_IMAGES)]
        ready, owners = self.ready(arrays, space.distance), self.locate(space.prepared(ids), arrays)
        medians = [
            np.median([_nearest(image, ready, level, owner) for image, owner in zip(images, owners, strict=True)])
            for level, images in enumerate(split_levels(space.patches(ids), space.levels))
        ]
        return np.array([median if median > 0 else 1.0 for median in medians], np.float32)

    def ready(self, arrays: dict[str, Array], distance: Distance) -> Ready:
        """The arrays in main memory, and references r as (-2 r, r r), whose products with patches are distances."""
        result = {name: to_numpy(array) for name, array in arrays.items()}
        for level in range(len(result["levels"])):
            references = result[f"references{level}"]
            squares = (references * references).sum(axis=1, keepdims=True)
            result[f"products{level}"] = np.hstack([-2 * references, squares])
        return result

    def locate(self, x: Array, ready: Ready, matches: Any = None) -> np.ndarray:
        """The training image that each image x (b, d) equals; -1 for none."""
        is_equal = (_float_keys(to_numpy(x))[:, None] == ready["keys"]).all(axis=2)
        return np.where(is_equal.any(axis=1), is_equal.argmax(axis=1), -1)

    def score(self, z: Array, ready: Ready, distance: Distance, located: Any = None) -> Array:
        maps = self.maps(to_numpy(z)[0, : len(located)], ready, located).reshape(len(located), -1)
        count = top_count(ready["levels"][0])
        return as_like(np.sort(maps, axis=1)[None, :, -count:].mean(axis=2), z)

    def maps(self, z: np.ndarray, ready: Ready, owners: np.ndarray) -> np.ndarray:
        """The distance (b, height, width) of each patch of images with features z (b, ...); the median is 1."""
        levels = [tuple(map(int, level)) for level in ready["levels"]]
        size = levels[0][1:]
        total = np.zeros((len(z), *size))
        for level, images in enumerate(split_levels(z, levels)):
            for index, (image, owner) in enumerate(zip(images, owners, strict=True)):
                distances = _nearest(image, ready, level, owner).reshape(levels[level][1:])
                total[index] += resized(distances / ready["units"][level], size) / len(levels)
        return total


def top_count(level: Sequence[float]) -> int:
    """How many patches of a level (channels, height, width) the score averages."""
    return max(1, round(TOP * level[1] * level[2]))


def resized(values: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """A map (h, w) resized by linear interpolation."""
    for axis in (0, 1):
        old, new = values.shape[axis], size[axis]
        position = ((np.arange(new) + 0.5) * old / new - 0.5).clip(0, old - 1)
        low = np.minimum(position.astype(int), max(old - 2, 0))
        share = np.expand_dims(position - low, 1 - axis)
        upper = np.take(values, np.minimum(low + 1, old - 1), axis)
        values = np.take(values, low, axis) * (1 - share) + upper * share
    return values


def _float_keys(x: np.ndarray) -> np.ndarray:
    """48 bits of the hashes of images (n, d) as two whole numbers (n, 2), which float32 holds exactly."""
    keys = row_keys(x)
    return np.stack([keys % EXACT, keys // EXACT % EXACT], axis=1).astype(np.float32)


def split_levels(z: np.ndarray, levels: Any) -> list[np.ndarray]:
    """The features (b, patches, channels) of each block, from the flat features (b, ...) of all blocks."""
    parts, start = [], 0
    for channels, height, width in levels:
        stop = start + channels * height * width
        parts.append(z[:, start:stop].reshape(len(z), channels, height * width).swapaxes(1, 2))
        start = stop
    return parts


def _standardise(candidates: np.ndarray) -> np.ndarray:
    """Standardise candidates (n, c) in place and return their means and deviations (2, c)."""
    mean = candidates.mean(axis=0, dtype=np.float64)
    candidates -= mean.astype(np.float32)
    deviation = np.sqrt(np.einsum("ij,ij->j", candidates, candidates, dtype=np.float64) / len(candidates))
    standard = np.stack([mean, np.where(deviation > 0, deviation, 1.0)]).astype(np.float32)
    candidates /= standard[1]
    return standard


def coreset(points: np.ndarray, count: int) -> np.ndarray:
    """The indices of `count` points (n, d), each the farthest from those chosen before it.

    Only the farthest few are searched, until a point outside may be farther; then one matrix product updates the
    distances of all points.
    """
    count, squares = min(count, len(points)), (points * points).sum(axis=1)
    nearest = np.full(len(points), np.inf, np.float32)
    new = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    chosen = list(new)
    while len(chosen) < count:
        factors = -2 * points[new].T
        for start in range(0, len(points), POINTS_AT_ONCE):
            batch = slice(start, start + POINTS_AT_ONCE)
            distances = points[batch] @ factors
            distances += squares[new]
            np.minimum(nearest[batch], distances.min(axis=1) + squares[batch], out=nearest[batch])
        nearest[chosen] = 0
        order = np.argsort(-nearest, kind="stable")[: FARTHEST + 1]
        candidates, outside = order[:FARTHEST], nearest[order[-1]] if len(order) > FARTHEST else 0.0
        farthest = _farthest(points[candidates], nearest[candidates], outside, count - len(chosen))
        if not farthest:
            break  # the other points are copies of chosen ones
        new = candidates[farthest].tolist()
        chosen += new
    return np.array(chosen)


def _farthest(points: np.ndarray, nearest: np.ndarray, outside: float, most: int) -> list[int]:
    """Up to `most` points, each the farthest left, until one `outside` may be farther; changes `nearest`."""
    chosen: list[int] = []
    while len(chosen) < most:
        index = int(nearest.argmax())
        if nearest[index] <= 0 or (chosen and nearest[index] < outside):
            break
        chosen.append(index)
        np.minimum(nearest, ((points - points[index]) ** 2).sum(axis=1), out=nearest)
        nearest[index] = 0
    return chosen


def _nearest(image: np.ndarray, ready: Ready, level: int, owner: int) -> np.ndarray:
    """The distance of each patch (p, c) of an image to the nearest reference of another image."""
    references, owners = ready[f"products{level}"], ready[f"owners{level}"]
    mean, deviation = ready[f"standard{level}"]
    patches = np.ones((image.shape[1] + 1, len(image)), np.float32)  # the last row multiplies the references' squares
    patches[:-1] = ((image - mean) / deviation).T
    nearest = np.full(len(image), np.inf, np.float32)
    for start in range(0, len(references), REFERENCES_AT_ONCE):
        batch = slice(start, start + REFERENCES_AT_ONCE)
        distances = references[batch] @ patches
        distances[owners[batch] == owner] = np.inf
        np.minimum(nearest, distances.min(axis=0), out=nearest)
    nearest += (patches[:-1] * patches[:-1]).sum(axis=0)
    return np.asarray(np.sqrt(np.where(np.isfinite(nearest), nearest, 0).clip(0)))
