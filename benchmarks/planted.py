"""Planted anomalies, of which the columns to blame are known: a value shifted, or two correlated values torn apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHIFT = 4.0  # deviations
CORRELATED = 0.6
ORDINARY = (0.05, 0.25, 0.75, 0.95)  # a torn value is at the first or last of these shares of its column


class Planted(NamedTuple):
    """Rows, and for each of them the columns that were changed."""

    rows: np.ndarray
    columns: np.ndarray  # (n, 1) or (n, 2)


def shifted(X: np.ndarray, hosts: np.ndarray, count: int, random: np.random.Generator) -> Planted:
    """Ordinary rows with one value moved by four deviations, up or down."""
    deviation = X.std(axis=0)
    columns = random.choice(np.flatnonzero(deviation > 0), count)
    rows = X[random.choice(hosts, count)].copy()
    rows[np.arange(count), columns] += SHIFT * deviation[columns] * random.choice([-1, 1], count)
    return Planted(rows, columns[:, None])


def torn(X: np.ndarray, hosts: np.ndarray, count: int, random: np.random.Generator) -> Planted:
    """Ordinary rows in which two correlated columns, both near their middle, went to opposite ends of what is ordinary.

    Each value alone is one that a twentieth of the rows exceed. Columns without such ends, nearly constant ones, are
    left out.
    """
    low, first, third, high = np.quantile(X, ORDINARY, axis=0)
    wide = np.flatnonzero((low < first) & (third < high))
    together = np.nan_to_num(np.corrcoef(X[:, wide].T)) if len(wide) > 1 else np.zeros((1, 1))
    pairs = [(a, b) for a, b in np.argwhere(np.triu(abs(together), 1) >= CORRELATED)]
    found: list[np.ndarray] = []
    blamed: list[tuple[int, int]] = []
    for _ in range(20 * count if pairs else 0):
        i, j = pairs[random.integers(len(pairs))]
        both = wide[[i, j]]
        near = hosts[((X[hosts][:, both] >= first[both]) & (X[hosts][:, both] <= third[both])).all(axis=1)]
        if len(near) and len(found) < count:
            row, down = X[random.choice(near)].copy(), random.random() < 0.5
            row[both[0]] = (low if down else high)[both[0]]
            row[both[1]] = (high if down == (together[i, j] > 0) else low)[both[1]]
            found.append(row)
            blamed.append((int(both[0]), int(both[1])))
    return Planted(np.array(found).reshape(-1, X.shape[1]), np.array(blamed, np.int64).reshape(-1, 2))


def blamed_first(contributions: np.ndarray, planted: np.ndarray) -> float:
    """The share of rows whose largest contribution is that of the changed column."""
    return float((contributions.argmax(axis=1) == planted[:, 0]).mean())


def both_in_three(contributions: np.ndarray, planted: np.ndarray) -> float:
    """The share of rows with both changed columns among the three largest contributions."""
    leading = np.argsort(-contributions, axis=1, kind="stable")[:, :3]
    return float(
        np.mean([set(two) <= set(three) for two, three in zip(planted.tolist(), leading.tolist(), strict=True)])
    )
