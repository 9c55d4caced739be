"""The local scorer: how far a row lies from the nearest of a few training rows, on two scales, in two kinds of space.

The references are a bounded set of training rows, dealt into small groups and into large ones. On one scale a row's
score is its distance to the nearest row of each group, averaged over the groups. Small groups seldom hold two anomalies
of a kind, so that anomalies which lie in clusters stay far from most groups; large groups see the fine structure of
clean data. The distances are taken in the metric space of every member, and along the plain columns (the sum of
the differences in each), where one strange value among many ordinary ones is not lost. Networks draw normal rows
together, so that few of them tell in a metric space what is far; along the columns it takes more. Where references are
many, they are dealt to the members in turn, in shares that still make a large group: what few groups leave to chance is
evened out between members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from addml.arrays import Array, as_like, dots, index_like, lowest, namespace, take, to_numpy
from addml.geometry import Distance, normalised
from addml.scoring.axes import Axes
from addml.scoring.even import even_steps
from addml.scoring.themselves import Own, own_of, own_references, reference_keys

if TYPE_CHECKING:
    from addml.scoring.scorers import MetricSpace, Shapes

EMBEDDED = (4, 512)  # rows of a group of references, about, in a metric space
ALONG = (16, 512)  # and along the columns
SCALES = len(EMBEDDED)
FEW = 64  # rows of all members, up to which calls cost more than their work
ROUNDING = 2e-6  # of a squared length, which a squared distance that is 0 may be off by

Piece = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows (k,), by how much some features change (k, f), those (f,)


class Placed(NamedTuple):
    """Where rows lie before any encoding, and which of the references they are.

    Along the columns that is their distances (b, R) to the references within the range of these, and what all of
    these distances grow by beyond it, (b,).
    """

    rows: int
    own: Own
    distances: Array | None = None
    beyond: Array | None = None


@dataclass(frozen=True)
class Local:
    """The distance to the nearest row of small groups of training rows, on two scales, along columns and embedded."""

    references: int = 1024
    axes: bool = True
    at_once: int = 256  # rows of a block scored together: more leave the interpreter's lock to others for longer
    name: ClassVar[str] = "local"
    floor: ClassVar[float] = 1e-3
    most_threads: ClassVar[int] = 4  # many short calls ask for one interpreter's lock: sixteen were slower than two

    def __post_init__(self) -> None:
        if not isinstance(self.references, Integral) or isinstance(self.references, bool) or self.references < 8:
            raise ValueError(f"Local(references={self.references!r}): give a whole number of at least 8")
        if not isinstance(self.at_once, Integral) or isinstance(self.at_once, bool) or not 1 <= self.at_once <= 256:
            raise ValueError(f"Local(at_once={self.at_once!r}): give a whole number of 1 to 256")
        if not isinstance(self.axes, (bool, np.bool_)):
            raise ValueError(f"Local(axes={self.axes!r}): give True or False")

    def settings(self) -> dict[str, Any]:
        """The number of references, whether the plain columns count, and rows at once."""
        return {"references": int(self.references), "axes": bool(self.axes), "at_once": int(self.at_once)}

    @property
    def tile(self) -> int:
        """Rows of one product: a row alone in one gets the bits it gets among others."""
        return self.at_once

    def views(self, members: int) -> np.ndarray:
        """Which view each row of scores belongs to: members see one scale alike, the columns are views of their own."""
        embedded = np.tile(np.arange(SCALES), members)
        return np.concatenate([embedded, SCALES + np.arange(SCALES)]) if self.axes else embedded

    def embedded(self, members: int) -> np.ndarray:
        """Which rows of scores are distances of embeddings."""
        return self.views(members) < SCALES

    def fit(self, space: MetricSpace) -> dict[str, np.ndarray]:
        """Take references at every distance from the middle of the rows, and embed those that each member sees."""
        chosen = space.usual[spread_out(space.norms, self.references)]
        shares = in_shares(chosen, len(space.center))
        embedded = space.embed([shares[member % len(shares)] for member in range(len(space.center))])
        rows = space.prepared(shares.reshape(-1)).reshape(*shares.shape, -1)
        return {"rows": rows, "reach": space.reach, "references": embedded}

    def ready(self, arrays: dict[str, Array], distance: Distance) -> dict[str, Any]:
        """What scoring works out of the arrays once: keys of the references, their columns, and one product each."""
        shares, references = arrays["rows"], arrays["references"]
        rows = shares.swapaxes(0, 1).reshape(-1, shares.shape[-1])  # the first of each share, the second of each
        if distance == "cosine":
            references = normalised(references)
        origin = references.mean(1)[:, None]
        references = references - origin
        squares = dots(references, references)[..., None]
        products = namespace(rows).concatenate([-2 * references, squares], -1)
        axes = Axes.of(rows, arrays["reach"]) if self.axes else None
        counts = [group_counts(references.shape[1], EMBEDDED), group_counts(len(rows), ALONG)]
        keys = reference_keys(rows)
        whole = {"all_rows": rows, "axes": axes, "keys": keys}
        return {**arrays, **whole, "origin": origin, "products": products, "counts": counts, "shares": len(shares)}

    def place(self, x: Array, ready: dict[str, Any], own: Own | None = None) -> Placed:
        """Where prepared rows (b, d) lie among the references; `own` where it is known which of them they are."""
        own, axes = own_references(x, ready["keys"]) if own is None else own, ready["axes"]
        return Placed(len(x), own) if axes is None else Placed(len(x), own, *axes.distances(x))

    def moved(self, placed: Placed, x: Array, parts: list[Piece], ready: dict[str, Any], size: int) -> Placed:
        """Where rows of x lie after some of their features changed, as a block of `size` rows."""
        ids, after = changed_rows(to_numpy(x), parts, size)
        own = own_of(ids, placed.own, x)
        if placed.distances is None:
            return Placed(size, own)
        ids, after, axes, done = index_like(ids, x), as_like(after, x), ready["axes"], 0
        distances = take(placed.distances, ids)
        for some, _, features in parts:
            block, places = slice(done, done + len(some)), index_like(features, x)
            if len(features):
                axes.move(distances[block], take(x, ids[block])[:, places], after[block][:, places], places)
            done = block.stop
        return Placed(size, own, distances, axes.beyond(after))

    def score(self, z: Array, ready: dict[str, Any], distance: Distance, placed: Any = None) -> Array:
        """Scores (views of all members, rows) of embeddings (E, b, w), of which the first rows are placed."""
        if distance == "cosine":
            z = normalised(z)
        z, squares = _centred(z, ready["origin"])
        xp, members, rows, (counts, of_all) = namespace(z), len(z), placed.rows, ready["counts"]
        shares = _shares(placed.own, ready["shares"])
        nearest = _nearest_embedded(z, ready["products"], counts[0], shares, rows)
        nearest = xp.sqrt(_squared(nearest, squares[:, :rows].reshape(-1)))
        means = xp.stack(list(_means(nearest, counts, _side_by_side(shares, members, rows))))
        embedded = means.reshape(len(counts), members, rows).swapaxes(0, 1).reshape(-1, rows)
        return xp.concatenate([embedded, *(mean[None] for mean in _along(placed, of_all))])

    def shapes(self, distance: Distance, members: int, w: int) -> Shapes:
        """Any number of shares of references, prepared and embedded, one a member, and the reach of every column."""
        return {"rows": (None, "share", "inputs"), "reach": ("inputs",), "references": (members, "share", w)}


def changed_rows(x: np.ndarray, parts: list[Piece], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of x those of the parts are, (size,), and their features after the changes, (size, d).

    Rows that are missing are filled up by the first of x.
    """
    ids = np.concatenate([some for some, _, _ in parts])
    ids = np.concatenate([ids, np.zeros(size - len(ids), np.int64)])
    after, done = x[ids], 0
    for some, change, features in parts:
        block = slice(done, done + len(some))
        after[block, features] = x[some[:, None], features] + change  # in float64, as the change is
        done = block.stop
    return ids, after


def _centred(z: Array, origin: Array) -> tuple[Array, Array]:
    """Embeddings (E, b, w) less an origin, with ones behind them (E, b, w + 1), and their squared lengths (E, b)."""
    if not isinstance(z, np.ndarray):  # whose gradients may be asked for
        apart = z - origin
        return namespace(z).concatenate([apart, namespace(z).ones_like(apart[..., :1])], -1), dots(apart, apart)
    room = np.empty((*z.shape[:-1], z.shape[-1] + 1), z.dtype)
    apart = np.subtract(z, origin, out=room[..., :-1])
    room[..., -1] = 1
    return room, dots(apart, apart)


def _nearest_embedded(z: Array, products: Array, count: int, shares: list[Own], rows: int) -> Array:
    """Squared distances less squared lengths, (count, E rows), to the nearest of each group; z has ones behind it."""
    members = len(z)
    if isinstance(z, np.ndarray) and rows * members <= FEW:  # the bits of one member after another
        apart = (products @ z.mT)[:, :, :rows].transpose(1, 0, 2).reshape(products.shape[1], members * rows)
        return _nearest(apart, count, _side_by_side(shares, members, rows))
    each = (  # by a product of one shape, whatever the rows
        _nearest((own @ one.mT)[:, :rows], count, shares[member % len(shares)])
        for member, (own, one) in enumerate(zip(products, z, strict=True))
    )
    return namespace(z).concatenate(list(each), 1)


def _along(placed: Placed, counts: list[int]) -> Iterator[Array]:
    """The scores (b,) along the columns, one a scale; none where these do not count."""
    if placed.distances is not None:
        nearest = _nearest(placed.distances.mT, counts[0], placed.own)
        for mean in _means(nearest, counts, placed.own):
            yield mean + placed.beyond


def in_shares(references: np.ndarray, members: int) -> np.ndarray:
    """References (R,) dealt into shares (s, R / s): as many as still make large groups, and no more than members."""
    shares = max(1, min(members, len(references) // EMBEDDED[-1]))
    return references[: len(references) // shares * shares].reshape(-1, shares).T


def _shares(own: Own, count: int) -> list[Own]:
    """Rows that are references, and the places of these in the share of the references that holds them."""
    rows, references = own
    if count == 1 or not len(rows):
        return [own] * count
    share = references % count
    return [(rows[share == part], references[share == part] // count) for part in range(count)]


def _side_by_side(own: list[Own], blocks: int, rows: int) -> Own:
    """The same for blocks of so many rows, one behind the other, that take turns at what is given."""
    if not any(len(found) for found, _ in own):
        return own[0]
    parts = [own[block % len(own)] for block in range(blocks)]
    shifted = [found + place * rows for place, (found, _) in enumerate(parts)]
    xp = namespace(shifted[0])
    return xp.concatenate(shifted), xp.concatenate([references for _, references in parts])


def spread_out(norms: np.ndarray, count: int) -> np.ndarray:
    """Places of `count` rows at even steps through all rows in the order of their norms, shuffled, always alike."""
    n, count = len(norms), min(count, len(norms))
    steps = np.random.default_rng(0).permutation(even_steps(n, count))
    return np.asarray(np.argsort(norms, kind="stable")[steps])


def group_counts(references: int, sizes: tuple[int, ...]) -> list[int]:
    """How many groups there are on each scale: powers of two, so that those of one scale make up those of the next."""
    most = 2 ** int(np.log2(max(1, references // sizes[0])))
    return [max(1, most * sizes[0] // size) for size in sizes]


def _nearest(distances: Array, count: int, own: Own) -> Array:
    """The least of the distances (R, b), which are used up, in each of `count` groups, (count, b).

    References that the row equals are no neighbours of it (`reference_keys` says which). The i-th reference is in
    group i modulo the number of groups.
    """
    rows, references = own
    if len(rows):
        distances[references, rows] = np.inf
    least = lowest(_filled_up(distances, count).reshape(-1, count, distances.shape[1]))
    return np.ascontiguousarray(least) if isinstance(least, np.ndarray) else least  # sums of rows want them so


def _filled_up(distances: Array, count: int) -> Array:
    """Distances (R, b) to a multiple of `count` references, by some that are nowhere near."""
    xp, missing = namespace(distances), -len(distances) % count
    return xp.concatenate([distances, xp.full_like(distances[:missing], np.inf)], 0) if missing else distances


def _means(nearest: Array, counts: list[int], own: Own) -> Iterator[Array]:
    """The mean (b,) of the distances (groups, b) on every scale; the groups of one make up those of the next.

    A group of nothing but the row itself and copies that do not count is where the row is.
    """
    xp = namespace(nearest)
    alone = len(own[0]) > 0 and bool(xp.isinf(nearest[:, own[0]]).any())
    for count in counts:
        if count < len(nearest):
            nearest = lowest(nearest.reshape(-1, count, nearest.shape[1]))
        known = xp.where(xp.isinf(nearest), as_like(0.0, nearest), nearest) if alone else nearest
        yield _sum(known) / count


def _sum(x: Array) -> Array:
    """The sums (b,) of x (n, b), n a power of two: exact to few bits, in the same order for any number of columns."""
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


def _squared(nearest: Array, square: Array) -> Array:
    """Squared distances (groups, b) of rows with squared lengths (b,); equal rows are 0 apart, not their rounding."""
    squared = nearest + square
    squared *= squared > ROUNDING * square
    return squared
