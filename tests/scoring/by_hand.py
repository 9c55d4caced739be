"""The local score written out in loops over rows and references, in double precision."""

import numpy as np

from addml.scoring.local import ALONG, EMBEDDED


def reference_places(norms, count):
    """Places of rows at even steps through the rows from the middle outwards, in that order."""
    order = sorted(range(len(norms)), key=lambda row: (norms[row], row))
    count = min(count, len(order))
    return [order[(2 * step + 1) * len(order) // (2 * count)] for step in range(count)]


def groups(references, sizes):
    """For each scale the groups, each a list of references: dealt like cards, as many groups as a power of two."""
    most = 1
    while 2 * most * sizes[0] <= references:
        most *= 2
    counts = [max(1, most * sizes[0] // size) for size in sizes]
    return [[list(range(first, references, count)) for first in range(count)] for count in counts]


def same_row(x, rows):
    """The rows that have the values of x."""
    return [place for place, row in enumerate(rows) if all(a == b for a, b in zip(x, row, strict=True))]


def no_neighbours(x, rows):
    """The rows that have the values of x; the first of far more than rows have on average, or where chance copies."""
    same, distinct = same_row(x, rows), list({tuple(row.tolist()) for row in np.asarray(rows) + 0.0})
    if len(same) < 2:
        return same
    return same[:1] if len(same) * len(distinct) >= 8 * len(rows) or pairs_by_chance(distinct, len(rows)) >= 1 else same


def pairs_by_chance(distinct, count):
    """Pairs of equal rows among so many, if each column took its values from two of these rows, whichever."""
    pairs, k = count * (count - 1) / 2, len(distinct)
    for column in zip(*distinct, strict=True):
        alike = sum(column[a] == column[b] for a in range(k) for b in range(k) if a != b)
        pairs *= alike / max(1, k * (k - 1))
    return pairs


def embedded(a, b, distance):
    if distance == "cosine":
        a, b = a / np.sqrt(a @ a), b / np.sqrt(b @ b)
    return float(np.sqrt(((a - b) ** 2).sum()))


def along_columns(a, b, reach):
    return sum(abs(float(a[column]) - float(b[column])) * float(reach[column]) for column in range(len(reach)))


def mean_of_nearest(distances, own, sizes):
    """The score on every scale of a row at these distances of the references, some of which may be the row itself."""
    others = [[[one for one in group if one not in own] for group in scale] for scale in groups(len(distances), sizes)]
    return [
        float(np.mean([min((distances[one] for one in group), default=0.0) for group in scale])) for scale in others
    ]


def local_scores(z, x, arrays, distance="sqeuclidean", axes=True, own=None):
    """Scores (views, b) of rows x (b, d) with embeddings z (E, b, w); `own` says which references they are."""
    references, shares, reach = (arrays[name].astype(np.float64) for name in ("references", "rows", "reach"))
    z, x = z.astype(np.float64), x.astype(np.float64)
    parts, rows = len(shares), [row for several in zip(*shares, strict=True) for row in several]
    own = [no_neighbours(row, rows) for row in x] if own is None else own
    columns = []
    for row in range(len(x)):
        views = []
        for member in range(len(z)):
            distances = [embedded(z[member, row], reference, distance) for reference in references[member]]
            mine = [place // parts for place in own[row] if place % parts == member % parts]
            views += mean_of_nearest(distances, mine, EMBEDDED)
        if axes:
            views += mean_of_nearest([along_columns(x[row], one, reach) for one in rows], own[row], ALONG)
        columns.append(views)
    return np.array(columns).T
