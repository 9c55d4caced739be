"""What references per group are worth, on planted rows that combine values of other rows of their group.

    ADDML_DATA=... python -m benchmarks.groups

Prints the ROC-AUC on held-out rows of one detector for all, of `by=` with common references, and of `by=`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from addml import ADDML

SEEDS = range(3)
SHARE = 0.05  # of the rows are planted


def drawn(alike: bool, seed: int, groups: int = 8, rows: int = 300, columns: int = 5) -> pd.DataFrame:
    """Groups at different levels, whose columns relate alike or differently in each."""
    random, parts = np.random.default_rng(seed), []
    shared = random.normal(size=(columns, 2))
    for group in range(groups):
        loads = shared if alike else random.normal(size=(columns, 2))
        x = random.normal(size=(rows, 2)) @ loads.T + 0.4 * random.normal(size=(rows, columns))
        own = np.exp(1.5 * random.normal()) * (10 + x)
        parts.append(pd.DataFrame(own, columns=[f"c{n}" for n in range(columns)]).assign(group=f"g{group}"))
    return pd.concat(parts, ignore_index=True)


def taxis(by: str) -> pd.DataFrame:
    """Taxi rides grouped by a column, without groups under 50 rows."""
    table = pd.read_csv(Path(os.environ["ADDML_DATA"]) / "real" / "taxis.csv").dropna()
    table = table.assign(group=table[by])[["fare", "distance", "tip", "passengers", "tolls", "total", "group"]]
    return table.groupby("group").filter(lambda own: len(own) >= 50).reset_index(drop=True)


def planted(table: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """The table, with values of other rows of their group in the first two columns of some rows."""
    random, table, marks = np.random.default_rng(seed), table.copy(), np.zeros(len(table), int)
    for places in table.groupby("group").indices.values():
        chosen = random.choice(places, max(1, round(SHARE * len(places))), replace=False)
        marks[chosen] = 1
        for column in table.columns[:2]:
            table.loc[chosen, column] = table[column].to_numpy()[random.choice(places, len(chosen))]
    return table, marks


def measured(table: pd.DataFrame, seed: int) -> list[float]:
    """ROC-AUC of the three ways."""
    test, marks = planted(table, seed)
    training = np.random.default_rng(seed + 9).random(len(table)) < 0.6
    train, new, marks = table[training].reset_index(drop=True), test[~training], marks[~training]
    pooled = ADDML(random_state=seed).fit(train).anomaly_score(new)
    detector = ADDML(random_state=seed, by="group").fit(train)
    own, groups = detector.anomaly_score(new), detector.model_.vectorizer.groups
    shared = replace(groups, own=np.zeros_like(groups.own))
    detector.model_ = replace(detector.model_, vectorizer=detector.model_.vectorizer.with_groups(shared))
    return [roc_auc_score(marks, scores) for scores in (pooled, detector.anomaly_score(new), own)]


if __name__ == "__main__":
    tables = {"drawn, alike": lambda seed: drawn(True, seed), "drawn, each its own": lambda seed: drawn(False, seed)}
    tables |= {
        "taxis by borough": lambda seed: taxis("pickup_borough"),
        "taxis by payment": lambda seed: taxis("payment"),
    }
    print(f"{'table':24}{'no groups':>12}{'shared references':>20}{'own references':>16}")
    for name, table in tables.items():
        pooled, shared, own = np.mean([measured(table(seed), seed) for seed in SEEDS], axis=0)
        print(f"{name:24}{pooled:12.3f}{shared:20.3f}{own:16.3f}", flush=True)
