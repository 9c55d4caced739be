"""`python -m benchmarks.default`: how the default was chosen, on 346 tables, for docs/default.md.

Needs `ADDML_DATA` with `many`, `adbench-dev` and `tables`. Every table is fitted on two thirds of its rows (polluted)
or on the normal ones among them (clean), and the other third is scored. Results are stored in docs/results/default.csv
and not measured again; `--page` only writes the page from them.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.documents import DOCS, write_part
from benchmarks.timing import markdown

RESULTS, DOCUMENT = DOCS / "results" / "default.csv", DOCS / "default.md"
DETAILS = RESULTS.with_suffix(".md")
FOLDERS = ("many", "adbench-dev", "tables")
BEFORE = "ADDML 0.1"  # the default of version 0.1, measured in the same way before it was replaced
OURS = "ADDML()"
RIVALS = ("IsolationForest", "KNN", "LOF", "OCSVM", "PCA", "HBOS", "ECOD", "COPOD", "MCD")
CUTS = (0, 250, 100)  # maximum number of rows to fit on; 0 for all
MOST_SCORED = 4000  # rows of a large table
MOST_FITTED = {"OCSVM": 4000, "MCD": 4000}  # rows that slow rivals are fitted on, drawn at random
GROUPS = 5
VIEWS = ("columns", "space", "distilled", "tails")
SUBSETS = [names for size in range(1, 5) for names in combinations(VIEWS, size)]
FIELDS = ("table", "setting", "cut", "method", "auc", "precision")
Scored = dict[str, np.ndarray]


def paths(root: Path) -> list[Path]:
    """The files of all tables."""
    return sorted(path for folder in FOLDERS for path in (root / folder).glob("*.npz"))


def split(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels, and the indices of the rows to fit on and to score."""
    table = np.load(path)
    X, y = table["X"].astype(float), table["y"].astype(int)
    if "fit" in table.files:
        return X, y, table["fit"], table["test"]
    random, fit = np.random.default_rng(0), []
    for label in (0, 1):
        ids = random.permutation(np.flatnonzero(y == label))
        fit.append(ids[: round(len(ids) * 2 / 3)])
    chosen = np.sort(np.concatenate(fit))
    test = np.setdiff1d(np.arange(len(y)), chosen)
    if len(test) > MOST_SCORED:
        test = np.sort(np.random.default_rng(2).choice(test, MOST_SCORED, replace=False))
    return X, y, chosen, test


def prepared(path: Path, setting: str, cut: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to fit on and to score, standardised by the former, and the labels of the latter."""
    X, y, fit, test = split(path)
    fit = fit[y[fit] == 0] if setting == "clean" else fit
    if cut and len(fit) > cut:
        random = np.random.default_rng(zlib.crc32(path.name.encode()))
        fit = np.sort(random.choice(fit, cut, replace=False))
    deviation = X[fit].std(0)
    X = (X - X[fit].mean(0)) / np.where(deviation == 0, 1, deviation)
    return X[fit], X[test], y[test]


def ours(train: np.ndarray, rows: np.ndarray) -> Scored:
    """Scores of the default and of every combination of views."""
    from addml import ADDML

    detector = ADDML(random_state=0, device="cpu", n_jobs=1).fit(train)
    model = detector.model_
    views = model.scale.measured(model.member_scores(model.vectorizer.read(rows), "cpu", 1))
    by_subset = {"+".join(names): views[[VIEWS.index(name) for name in names]].max(axis=0) for names in SUBSETS}
    return {OURS: detector.anomaly_score(rows)} | by_subset


def rival(name: str, train: np.ndarray, rows: np.ndarray) -> Scored:
    """The scores of a rival."""
    from addml.pipeline.rivals import make
    from research.experiment import METHODS as KNOWN

    most = MOST_FITTED.get(name, len(train))
    if len(train) > most:
        train = train[np.sort(np.random.default_rng(3).choice(len(train), most, replace=False))]
    changes = {"n_neighbors": min(5, len(train) - 1), "method": "mean"} if name == "KNN" else {}
    return {name: make(name, random_state=0, rivals=KNOWN, **changes).fit(train).anomaly_score(rows)}


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Scored]] = {OURS: ours} | {
    name: (lambda train, rows, name=name: rival(name, train, rows)) for name in RIVALS
}


def measured(path: Path, setting: str, cut: int, methods: Sequence[str]) -> list[dict[str, Any]]:
    """AUC and average precision of these methods on one table in one setting, in percent."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    warnings.filterwarnings("ignore")
    train, rows, labels = prepared(path, setting, cut)
    found: list[dict[str, Any]] = []
    for method in methods:
        try:
            scored = METHODS[method](train, rows)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):  # a rival that fails has ranked nothing
            scored = {method: np.zeros(len(rows))}
        for name, scores in scored.items() if not cut else [(method, scored[method])]:  # views are chosen on all rows
            quality = roc_auc_score(labels, scores), average_precision_score(labels, scores)
            values = (path.stem, setting, cut, name, *(f"{100 * value:.2f}" for value in quality))
            found.append(dict(zip(FIELDS, values, strict=True)))
    return found


def measure(root: Path, methods: Sequence[str], cuts: Sequence[int], workers: int) -> None:
    """Measure what is missing, and store each result at once."""
    done = {(row["table"], row["setting"], int(row["cut"]), row["method"]) for row in read()}
    jobs = []
    for path in sorted(paths(root), key=lambda path: -path.stat().st_size):
        for setting in ("polluted", "clean"):
            for cut in cuts:
                missing = [name for name in methods if (path.stem, setting, cut, name) not in done]
                jobs += [(path, setting, cut, missing)] if missing else []
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file, ProcessPoolExecutor(workers) as pool:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for number, job in enumerate(as_completed([pool.submit(measured, *job) for job in jobs]), start=1):
            writer.writerows(job.result())
            file.flush()
            if number % 100 == 0:
                print(f"{number} of {len(jobs)}", flush=True)


def read() -> list[dict[str, str]]:
    """The stored results."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


# The page -----------------------------------------------------------------------------------------------------

Cells = dict[tuple[str, int], dict[str, dict[str, np.ndarray]]]  # (setting, cut) -> method -> table -> (AUC, precision)


def cells() -> Cells:
    """All results by setting, method and table."""
    found: Cells = {}
    for row in read():
        own = found.setdefault((row["setting"], int(row["cut"])), {}).setdefault(row["method"], {})
        own[row["table"]] = np.array([float(row["auc"]), float(row["precision"])])
    return found


def group_of(table: str) -> int:
    """One of five groups, by a hash of the name."""
    return zlib.crc32(table.encode()) % GROUPS


def left_out(
    by_method: dict[str, dict[str, np.ndarray]], tables: Iterable[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Each table's result with the views that are best on the other groups, and these views."""
    tables, names = list(tables), ["+".join(subset) for subset in SUBSETS]
    chosen = []
    for group in range(GROUPS):
        others = [table for table in tables if group_of(table) != group]
        chosen.append(max(names, key=lambda name: float(np.mean([by_method[name][table][0] for table in others]))))
    return {table: by_method[chosen[group_of(table)]][table] for table in tables}, chosen


def interval(differences: np.ndarray) -> str:
    """The mean difference with its 95 % interval, by bootstrap over tables."""
    random = np.random.default_rng(0)
    means = random.choice(differences, (2000, len(differences))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{differences.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def mean_ranks(
    by_method: dict[str, dict[str, np.ndarray]], methods: Sequence[str], tables: Sequence[str]
) -> np.ndarray:
    """The mean rank of each method by AUC, 1 for the best."""
    from scipy.stats import rankdata

    aucs = np.array([[by_method[method][table][0] for method in methods] for table in tables])
    return np.asarray(rankdata(-aucs, axis=1).mean(axis=0))


def overall(found: Cells) -> str:
    """Means, intervals against the default, and mean ranks."""
    rows = []
    for setting in ("polluted", "clean"):
        own = found[setting, 0]
        methods = [name for name in (OURS, BEFORE, *RIVALS) if name in own]
        tables = sorted(own[OURS])
        ranked = [name for name in methods if name != BEFORE]
        ranks = dict(zip(ranked, mean_ranks(own, ranked, tables), strict=True))
        for name in methods:
            values = np.array([own[name][table] for table in tables])
            differences = np.array([own[OURS][table][0] - own[name][table][0] for table in tables])
            rank = f"{ranks[name]:.2f}" if name in ranks else ""
            ahead = "" if name == OURS else interval(differences)
            rows.append([setting, name, *(f"{value:.2f}" for value in values.mean(axis=0)), rank, ahead])
    return markdown(
        ["setting", "method", "AUC", "average precision", "mean rank", "the default is ahead by (AUC)"], rows
    )


def chosen_views(found: Cells) -> str:
    """Every combination of views, and the result on one group of choosing on the other four."""
    tables = sorted(found["polluted", 0][OURS])
    both = {
        name: {table: sum(found[setting, 0][name][table] for setting in ("polluted", "clean")) / 2 for table in tables}
        for name in ("+".join(subset) for subset in SUBSETS)
    }
    _, names = left_out(both, tables)
    rows = []
    for subset in SUBSETS:
        name = "+".join(subset)
        cells = []
        for setting in ("polluted", "clean"):
            auc, precision = np.mean([found[setting, 0][name][table] for table in tables], axis=0)
            cells += [f"{auc:.2f}", f"{precision:.2f}"]
        rows.append([name, *cells, str(names.count(name))])
    head = [
        "views",
        "polluted AUC",
        "precision",
        "clean AUC",
        "precision",
        "groups for which it is chosen on the others",
    ]
    judged = [
        f"{np.mean([found[setting, 0][names[group_of(table)]][table] for table in tables], axis=0)[0]:.2f}"
        for setting in ("polluted", "clean")
    ]
    return (
        markdown(head, rows)
        + f"\n\nChosen on four groups and judged on the fifth: {judged[0]} polluted, {judged[1]} clean."
    )


def facts(root: Path) -> dict[str, dict[str, Any]]:
    """For the breakdowns: columns, share of anomalies, and whether an anomaly's nearest row is usually another."""
    from sklearn.neighbors import NearestNeighbors

    found = {}
    for path in paths(root):
        X, y, _, _ = split(path)
        deviation = X.std(0)
        X = (X - X.mean(0)) / np.where(deviation == 0, 1, deviation)
        nearest = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X[y == 1])[1][:, 1]
        found[path.stem] = {
            "columns": X.shape[1],
            "share": float(y.mean()),
            "clustered": float(y[nearest].mean()) > 0.5,
        }
    return found


def breakdowns(found: Cells, root: Path) -> str:
    """The default, Isolation Forest and kNN on groups of tables that were defined before measuring."""
    tables_facts = facts(root)
    parts: dict[str, Callable[[dict[str, Any]], bool]] = {
        "36 tables of adbench-dev and tables": lambda one: one["name"],
        "over 50 columns": lambda one: one["columns"] > 50,
        "clustered anomalies": lambda one: one["clustered"],
        "scattered anomalies": lambda one: not one["clustered"],
        "under 3 % anomalies": lambda one: one["share"] < 0.03,
        "3 to 8 % anomalies": lambda one: 0.03 <= one["share"] < 0.08,
        "8 % anomalies and more": lambda one: one["share"] >= 0.08,
    }
    for name, table_facts in tables_facts.items():
        table_facts["name"] = not name.startswith(("odd_", "ovr_"))
    rows = []
    for setting in ("polluted", "clean"):
        for cut, label in ((250, "all, fitted on 250 rows"), (100, "all, fitted on 100 rows")):
            if (setting, cut) in found:
                rows.append([setting, label, *_means(found[setting, cut], sorted(found[setting, cut][OURS]))])
        for label, belongs in parts.items():
            tables = [table for table in sorted(found[setting, 0][OURS]) if belongs(tables_facts[table])]
            rows.append([setting, f"{label} ({len(tables)})", *_means(found[setting, 0], tables)])
    return markdown(["setting", "tables", OURS, BEFORE, "IsolationForest", "KNN"], rows)


def _means(by_method: dict[str, dict[str, np.ndarray]], tables: Sequence[str]) -> list[str]:
    """Mean AUC and average precision of the four methods on these tables."""
    columns = []
    for name in (OURS, BEFORE, "IsolationForest", "KNN"):
        values = np.mean([by_method[name][table] for table in tables], axis=0) if name in by_method else None
        columns.append("" if values is None else f"{values[0]:.2f} / {values[1]:.2f}")
    return columns


def page(root: Path) -> None:
    """Write the tables of the page."""
    found = cells()
    write_part(DOCUMENT, "overall", overall(found))
    write_part(DETAILS, "breakdowns", breakdowns(found, root))
    write_part(DETAILS, "views", chosen_views(found))
    print(f"written to {DOCUMENT.name} and {DETAILS.parent.name}/{DETAILS.name}")


def main() -> None:
    """Measure, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--cuts", nargs="+", type=int, default=list(CUTS))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--page", action="store_true", help="only write the page from the stored results")
    arguments = parser.parse_args()
    if not os.environ.get("ADDML_DATA"):
        parser.error("set ADDML_DATA to the folder that holds many, adbench-dev and tables")
    root = Path(os.environ["ADDML_DATA"])
    if not arguments.page:
        measure(root, arguments.methods, arguments.cuts, arguments.workers)
    page(root)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
