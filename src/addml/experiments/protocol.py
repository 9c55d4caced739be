"""The paper's evaluation: which rows each fit learns from, which it is tested on, and how that is measured.

Three folds with equal shares of anomalies, three seeds: nine polluted fits and nine one-class fits of every method.
A polluted fit learns from the training part as it is and serves two settings: `seen` tests the rows learned from,
`unseen` the held-out fold. A one-class fit learns from the normal rows of the training part and is tested on the fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from addml.errors import UserError
from addml.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

FOLDS = 3
SEEDS = (0, 1, 2)
SEEN, UNSEEN, ONE_CLASS = SETTINGS = ("seen", "unseen", "one-class")


@dataclass(frozen=True)
class Fit:
    """One fit: the rows that it learns from and the fold that was held out."""

    seed: int
    fold: int
    one_class: bool
    train: np.ndarray
    test: np.ndarray

    @property
    def random_state(self) -> int:
        """The detector's own seed, another for each of the nine runs."""
        return FOLDS * self.seed + self.fold

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that this fit serves."""
        return (ONE_CLASS,) if self.one_class else (SEEN, UNSEEN)


def fits(y: np.ndarray) -> list[Fit]:
    """The eighteen fits of a set with labels y (1 anomaly, 0 normal)."""
    from sklearn.model_selection import StratifiedKFold

    found = []
    for seed in SEEDS:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(np.zeros((len(y), 1)), y)
        for fold, (train, test) in enumerate(folds):
            found += [Fit(seed, fold, False, train, test), Fit(seed, fold, True, train[y[train] == 0], test)]
    return found


def check(y: np.ndarray, name: str) -> None:
    """Say what is wrong where labels cannot be divided into folds with both kinds of rows."""
    anomalies, normal = int((y == 1).sum()), int((y == 0).sum())
    for what, count in (("anomaly", anomalies), ("normal row", normal)):
        if count == 0:
            raise UserError(f"{name}: has no {what} among {counted(len(y), 'row')}; a comparison needs both kinds.")
    if min(anomalies, normal) < FOLDS:
        kinds = ("anomaly", "anomalies") if anomalies < FOLDS else ("normal row", "normal rows")
        what = counted(min(anomalies, normal), *kinds)
        raise UserError(f"{name}: has {what}, fewer than the {FOLDS} folds; label at least {FOLDS} of each kind.")


def measure(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """ROC-AUC and average precision of scores, higher being more anomalous."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {"auc": float(roc_auc_score(y, scores)), "ap": float(average_precision_score(y, scores))}


class Data(Protocol):
    """A labelled table: its rows as they are, and as numbers standardised by the rows learned from."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def y(self) -> np.ndarray:
        """1 for anomalies, 0 for normal rows."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    def rows(self, ids: np.ndarray) -> Any:
        """These rows, for a detector that prepares them by itself."""
        ...

    def prepared(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """The rows of each part, standardised by those of `train`."""
        ...


@dataclass(frozen=True)
class Numbers:
    """A labelled array (n, d)."""

    name: str
    X: np.ndarray
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape[0], self.X.shape[1]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """These rows."""
        return np.asarray(self.X[ids])

    def prepared(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """Less the mean and over the deviation of the training rows; a constant column is left at its difference."""
        mean, deviation = self.X[train].mean(axis=0), self.X[train].std(axis=0)
        constant = self.X[train].min(axis=0) == self.X[train].max(axis=0)
        scale = np.where(constant | (deviation == 0), 1.0, deviation)
        return [(self.X[part] - mean) / scale for part in parts]


@dataclass(frozen=True)
class Table:
    """A labelled table of any columns, which the package's own preparation turns into numbers."""

    name: str
    table: pa.Table
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.table.num_rows, self.table.num_columns

    def rows(self, ids: np.ndarray) -> pa.Table:
        """These rows."""
        return self.table.take(ids)

    def prepared(self, train: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
        """Columns to features as the training rows say; gaps, categories and dates as in `ADDML`."""
        from addml.inputs.table import Columns
        from addml.preprocessing.scaling import Features

        own = self.table.take(train)
        columns = Columns.fit(own)
        features = columns.rescaled(Features.fit(columns.transform(own)))
        return [features.transform(columns.transform(self.table.take(part))).astype(float) for part in parts]
