"""`python -m benchmarks.robustness [--jobs N]`: AUC on generated tables as they get harder, against rivals.

Normal rows come from three correlated clouds; anomalies are scattered around them or lie in a fourth cloud farther out.
Every curve changes one property. Results are stored in docs/results/robustness.csv and not measured again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from addml.pipeline.batches import one_thread
from addml.pipeline.rivals import Machine, new_detector

RESULTS = Path(__file__).parent.parent / "docs" / "results"
STORE, PICTURE = RESULTS / "robustness.csv", RESULTS / "robustness.svg"
METHODS = ("ADDML", "IsolationForest", "KNN", "ECOD", "MCD", "DeepSVDD")
FIELDS = ("curve", "value", "method", "seed", "auc", "seconds")
COLUMNS, TESTED = 10, (1000, 100)  # test rows: normal and anomalous


@dataclass(frozen=True)
class Draw:
    """The properties of a generated table."""

    rows: int = 1000
    share: float = 0.05  # of anomalies in training
    clustered: bool = False
    irrelevant: int = 0  # columns of noise
    duplicated: float = 0.0  # share of training rows that are copies of others
    freedom: float = np.inf  # of Student's law: 1 is Cauchy's
    categorical: float = 0.0  # share of columns that are cut into five levels
    columns: int = COLUMNS


CURVES: dict[str, tuple[str, str, list[Any], Draw]] = {
    "share of anomalies, scattered": ("share", "share of anomalies", [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4], Draw()),
    "share of anomalies, clustered": (
        "share",
        "share of anomalies",
        [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4],
        Draw(clustered=True),
    ),
    "training rows": ("rows", "rows", [50, 100, 300, 1000, 3000, 10_000, 100_000], Draw()),
    "irrelevant columns": ("irrelevant", "columns of noise", [0, 5, 20, 100, 500], Draw()),
    "duplicated rows": ("duplicated", "share of copies", [0, 0.25, 0.5, 0.75, 0.95], Draw()),
    "heavy tails": ("freedom", "degrees of freedom", [30, 5, 3, 2, 1], Draw()),
    "categories": ("categorical", "share of columns", [0, 0.25, 0.5, 0.75, 1], Draw()),
    "nothing but categories": ("columns", "columns", [2, 3, 4, 6, 8], Draw(categorical=1)),
}


def tables(draw: Draw, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, test rows, and which test rows are anomalies."""
    random = np.random.default_rng(seed)
    clouds = [(4 * random.normal(size=COLUMNS), random.normal(size=(COLUMNS, COLUMNS)) / 2) for _ in range(3)]
    alone = 7 * random.normal(size=COLUMNS), random.normal(size=(COLUMNS, COLUMNS)) / 2

    def normal(n: int) -> np.ndarray:
        which = random.integers(0, 3, n)
        tails = np.sqrt(draw.freedom / random.chisquare(draw.freedom, (n, 1))) if np.isfinite(draw.freedom) else 1.0
        noise = random.normal(size=(n, COLUMNS)) * tails
        return np.stack([clouds[c][0] + noise[i] @ clouds[c][1] for i, c in enumerate(which)])

    def strange(n: int) -> np.ndarray:
        if draw.clustered:
            return alone[0] + random.normal(size=(n, COLUMNS)) @ alone[1]
        return random.uniform(-9, 9, (n, COLUMNS))

    bad = round(draw.share * draw.rows)
    train = np.concatenate([normal(draw.rows - bad), strange(bad)])
    copies = random.random(len(train)) < draw.duplicated
    train[copies] = train[random.integers(0, max(1, len(train) // 20), copies.sum())]
    test, y = np.concatenate([normal(TESTED[0]), strange(TESTED[1])]), np.repeat([0, 1], TESTED)
    extra = random.normal(size=(len(train) + len(test), draw.irrelevant))
    both = np.hstack([np.concatenate([train, test])[:, : draw.columns], extra])
    both = _with_levels(both, round(draw.categorical * draw.columns), len(train))
    return both[: len(train)], both[len(train) :], y


def _with_levels(X: np.ndarray, columns: int, train: int) -> np.ndarray:
    """The first columns as categories: five levels at the training quintiles, one 0/1 column per level."""
    cut = [np.searchsorted(np.quantile(X[:train, c], [0.2, 0.4, 0.6, 0.8]), X[:, c]) for c in range(columns)]
    return np.hstack([*(np.eye(5)[levels] for levels in cut), X[:, columns:]])


def measured(curve: str, value: Any, method: str, seed: int) -> dict[str, Any]:
    """One fit and its AUC on unseen rows; NaN if a rival fails."""
    name, _, _, draw = CURVES[curve]
    train, test, y = tables(replace(draw, **{name: value}), seed)
    started = time.perf_counter()
    detector = new_detector(method, Machine("cpu", 1), one_class=False, seed=seed)
    try:
        auc = roc_auc_score(y, detector.fit(train).anomaly_score(test))
    except ValueError:
        if method == "ADDML":
            raise
        auc = np.nan
    seconds = round(time.perf_counter() - started, 3)
    return {"curve": curve, "value": value, "method": method, "seed": seed, "auc": round(auc, 5), "seconds": seconds}


def waiting(done: set[tuple[str, ...]]) -> Iterator[tuple[str, Any, str, int]]:
    """The tasks that are not measured yet."""
    for curve, (_, _, values, _) in CURVES.items():
        for value in values:
            for method in METHODS:
                for seed in range(1 if curve == "training rows" and value > 10_000 else 3):
                    if (curve, str(value), method, str(seed)) not in done:
                        yield curve, value, method, seed


def stored() -> list[dict[str, str]]:
    """The stored results."""
    return list(csv.DictReader(STORE.open(newline=""))) if STORE.exists() else []


def picture(rows: list[dict[str, str]]) -> None:
    """Draw all curves, one panel each."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "addml"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 4, figsize=(14, 6.4), layout="constrained")
    for panel, (curve, (_, label, values, _)) in zip(panels.flat, CURVES.items(), strict=True):
        for method in METHODS:
            means = [mean_of(rows, curve, value, method) for value in values]
            style = {"linewidth": 2.6, "color": "black"} if method == "ADDML" else {"linewidth": 1.2}
            panel.plot(range(len(values)), means, marker="o", markersize=3, label=method, **style)
        panel.set_xticks(range(len(values)), [f"{value:g}" for value in values], rotation=30)
        panel.set(title=curve, xlabel=label, ylim=(0, 1.04))
    panels.flat[0].set_ylabel("ROC-AUC")
    lines = panels.flat[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=len(METHODS), frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


def mean_of(rows: list[dict[str, str]], curve: str, value: Any, method: str) -> float:
    """The mean AUC over the seeds of one point, NaN without any."""
    found = [
        float(row["auc"]) for row in rows if (row["curve"], row["value"], row["method"]) == (curve, str(value), method)
    ]
    return float(np.mean(found)) if found else float("nan")


def results(tasks: list[tuple[str, Any, str, int]], jobs: int) -> Iterator[dict[str, Any]]:
    """The result of each task as it ends, computed by single-threaded processes."""
    with one_thread(), ProcessPoolExecutor(jobs, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        yield from (future.result() for future in as_completed([pool.submit(measured, *task) for task in tasks]))


def main() -> None:
    """Measure what is missing, store it, and draw the curves."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robustness", description=main.__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel processes")
    jobs = parser.parse_args().jobs
    done = {tuple(row[name] for name in FIELDS[:4]) for row in stored()}
    RESULTS.mkdir(parents=True, exist_ok=True)
    new = not STORE.exists()
    with STORE.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        for row in results(list(waiting(done)), jobs):
            writer.writerow(row)
            file.flush()
            print(*row.values(), file=sys.stderr)
    picture(stored())
    print(f"written to {STORE.name} and {PICTURE.name}")


if __name__ == "__main__":
    main()
