"""`python -m benchmarks.series`: VUS-PR of several detectors on labelled real series.

Three columns: series of many channels with a training part (SMD, ASD, MSL, SMAP), single channels with one (UCR), and
single channels that are fitted and scored as a whole (NAB, ECG, UCR). All methods get the same standardised channels,
the other detectors windows by TSB-AD's rule: the period of a single channel, else 10. Results are stored in
docs/results/series.csv and not measured again; the table goes to docs/results/series.md. Name methods and columns
(many, trained, whole) to run only these.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from addml import ADDML, Recurrent
from addml.inputs.series import Series, Windows, choose_window, over_windows, smoothed
from addml.inputs.series_vectorizer import WindowRows
from addml.pipeline.evaluation import volumes
from addml.scoring.scorer import ViewScale
from addml.scoring.windows import WindowViews
from benchmarks.documents import DOCS, parse_parts
from research.autoencoder import deep_autoencoder

RESULTS = DOCS / "results"
STORE, TABLE = RESULTS / "series.csv", RESULTS / "series.md"
FIELDS = ("group", "collection", "series", "method", "vus_pr", "vus_roc", "seconds")
GROUPS = {
    "many": "many channels, fit on train",
    "trained": "one channel, fit on train",
    "whole": "one channel, fit and score",
}
MOST_WINDOWS = 6000  # that a rival learns from, at even steps
DRAWS = 10_000  # of the bootstrap


class Case(NamedTuple):
    """A series to train on and one to score, with its labels."""

    group: str
    collection: str
    name: str
    train: np.ndarray
    test: np.ndarray
    labels: np.ndarray


def cases(root: Path) -> Iterator[Case]:
    """All series with an anomaly, short ones first."""
    found = [case for file in [*root.glob("smd/*.npz"), *root.glob("more/*.npz")] for case in _archived(file)]
    known = json.loads((root / "nab" / "labels" / "combined_windows.json").read_text())
    for file in sorted((root / "nab").glob("real*/*.csv")):
        rows = list(csv.reader(file.open()))[1:]
        times = np.array([row[0] for row in rows], "datetime64[s]")
        labels = np.zeros(len(rows), np.uint8)
        for start, end in known[f"{file.parent.name}/{file.name}"]:
            first, last = (np.datetime64(one.partition(".")[0]) for one in (start, end))
            labels[(times >= first) & (times <= last)] = 1
        values = np.array([[float(row[1])] for row in rows])
        found.append(Case("whole", "nab", file.stem, values, values, labels))
    for case in sorted(found, key=lambda case: (case.train.size, case.name)):
        if case.labels.any():
            yield case._replace(**dict(zip(("train", "test"), _standardised(case.train, case.test), strict=True)))


def _archived(file: Path) -> Iterator[Case]:
    """The cases of one archive: a single channel with a training part is also scored as a whole."""
    collection, _, name = file.stem.rpartition("__")
    with np.load(file) as data:
        test, labels = data["test"].astype(float), data["label"].astype(np.uint8)
        train = data["train"].astype(float) if "train" in data else test[:0]
    test = test.reshape(len(test), -1)
    train = train.reshape(-1, test.shape[1])
    if test.shape[1] > 1:
        yield Case("many", collection or "smd", name, train, test, labels)
        return
    whole = np.concatenate([train, test])
    yield Case("whole", collection, name, whole, whole, np.concatenate([np.zeros(len(train), np.uint8), labels]))
    if len(train):
        yield Case("trained", collection, name, train, test, labels)


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 1e-12, deviation, 1)
    return ((train - mean) / deviation).astype(np.float32), ((test - mean) / deviation).astype(np.float32)


# Detectors: a case -> the scores of the test part's steps, of one method or of several -------------------------


def _ours(case: Case) -> dict[str, np.ndarray]:
    """The default, and the default without each of its views."""
    model = ADDML(window="auto", random_state=0).fit(case.train).model_
    rows, scale = model.vectorizer.read(case.test), model.scale
    views = model.member_scores(rows, "cpu", 2)
    assert isinstance(scale, ViewScale)
    assert isinstance(model.scorer, WindowViews)
    assert isinstance(rows, WindowRows)
    result = {"ADDML": model.combined(views, rows)}
    names = model.scorer.views
    for place, view in enumerate(names):
        others = [other for other in range(len(names)) if other != place]
        left = ViewScale(scale.median[others], scale.unit[others])
        rough = np.asarray(left.combine(views[others]))
        result[f"ADDML without {view}"] = smoothed(rough, rows.windows, model.smoothing)
    return result


def _with(**changes: Any) -> Callable[[Case], dict[str, np.ndarray]]:
    def scores(case: Case) -> dict[str, np.ndarray]:
        detector = ADDML(window="auto", random_state=0).set_params(**changes).fit(case.train)
        own = case.group == "whole" and not changes.get("window__causal")
        return {"": detector.anomaly_scores_ if own else detector.anomaly_score(case.test)}

    return scores


def _on_windows(fit: Callable[..., Callable[..., np.ndarray]]) -> Callable[[Case], dict[str, np.ndarray]]:
    """A detector of rows, applied to flat windows; a step takes the mean of the complete windows over it."""

    def scores(case: Case) -> dict[str, np.ndarray]:
        length = choose_window(Series(case.train.astype(float)))[0]
        train, test = (Windows.of([part], length) for part in (case.train, case.test))
        whole = train.whole(1)
        whole = whole[:: -(-len(whole) // MOST_WINDOWS)]
        score = fit(train[whole].reshape(len(whole), -1), whole, length)
        ends, found = test.whole(1), np.zeros(len(test))
        for part in np.array_split(ends, -(-len(ends) // 2048)):
            found[part] = score(test[part].reshape(len(part), -1), part if case.group == "whole" else None)
        return {"": over_windows(found[None], test)[0]}

    return scores


def _pca(train: np.ndarray, ends: np.ndarray, length: int) -> Callable[..., np.ndarray]:
    """The norm of the residual of the principal components with nine tenths of the variance."""
    from sklearn.decomposition import PCA

    pca = PCA(0.9, svd_solver="full").fit(train)
    return lambda x, at: np.linalg.norm(x - pca.inverse_transform(pca.transform(x)), axis=1)


def _kmeans(train: np.ndarray, ends: np.ndarray, length: int) -> Callable[..., np.ndarray]:
    """KMeansAD: the distance to the nearest of twenty centres."""
    from sklearn.cluster import KMeans

    means = KMeans(min(20, len(train)), n_init=1, random_state=0).fit(train)
    return lambda x, at: means.transform(x).min(axis=1)


def _autoencoder(train: np.ndarray, ends: np.ndarray, length: int) -> Callable[..., np.ndarray]:
    """The residual of an autoencoder with layers of 64 and 32, 50 epochs, without distillation."""
    learned = deep_autoencoder(train.astype(float), 0, hidden=(64,), latent_dim=32, batch_size=32)
    return lambda x, at: np.sqrt(learned.score(x.astype(float)))


def _neighbours(k: int, *, overlapping: bool) -> Callable[..., Callable[..., np.ndarray]]:
    """The distance to the k-th nearest window as in TSB-AD, or the mean of k that do not overlap."""

    def fit(train: np.ndarray, ends: np.ndarray, length: int) -> Callable[..., np.ndarray]:
        squares = (train**2).sum(axis=1)

        def score(x: np.ndarray, at: np.ndarray | None) -> np.ndarray:
            apart = squares - 2 * x @ train.T + (x**2).sum(axis=1)[:, None]
            if at is not None:
                apart[abs(at[:, None] - ends) < (1 if overlapping else length)] = np.inf
            nearest = np.sqrt(np.maximum(np.sort(np.partition(apart, k, axis=1)[:, :k], axis=1), 0))
            nearest = np.where(np.isfinite(nearest), nearest, 0)
            return nearest[:, -1] if overlapping else nearest.mean(axis=1)

        return score

    return fit


METHODS: dict[str, Callable[[Case], dict[str, np.ndarray]]] = {
    "ADDML": _ours,
    "ADDML, causal": _with(window__causal=True),
    "ADDML, recurrent (window 16)": _with(encoder=Recurrent(), window__length=16),
    "ADDML, the paper's recurrence (centre, one member, window 16)": _with(
        scorer="center", members=1, encoder=Recurrent((), 64, pooling="last"), window__length=16
    ),
    "autoencoder on windows": _on_windows(_autoencoder),
    "Sub-KNN (k = 10, as in TSB-AD)": _on_windows(_neighbours(10, overlapping=True)),
    "three nearest windows that do not overlap": _on_windows(_neighbours(3, overlapping=False)),
    "KMeansAD": _on_windows(_kmeans),
    "PCA residual": _on_windows(_pca),
}


# Running ----------------------------------------------------------------------------------------------------


def measured() -> list[dict[str, str]]:
    """The stored results."""
    return list(csv.DictReader(STORE.open())) if STORE.exists() else []


def measure(case: Case, method: str) -> Iterator[dict[str, Any]]:
    """The result of one method on one series, and of variants that come with it."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = METHODS[method](case)
    seconds = time.perf_counter() - began
    for name, scores in found.items():
        roc, precision_recall = volumes(case.labels, np.asarray(scores, float))
        figures = f"{precision_recall:.4f}", f"{roc:.4f}", f"{seconds:.1f}"
        yield dict(zip(FIELDS, [case.group, case.collection, case.name, name or method, *figures], strict=True))


def table() -> str:
    """The mean VUS-PR of every column, and how far ADDML is ahead, with the 95 % interval of the paired bootstrap."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for row in measured():
        values.setdefault((row["method"], row["group"]), {})[row["series"]] = float(row["vus_pr"])
    counts = {group: len(values.get(("ADDML", group), {})) for group in GROUPS}
    names = list(dict.fromkeys(method for method, _ in values))
    names.sort(key=lambda name: list(METHODS).index(name) if name in METHODS else 0.5)
    lines = ["| mean VUS-PR | " + " | ".join(f"{GROUPS[group]} ({counts[group]})" for group in GROUPS) + " |"]
    lines.append("|---|" + "--:|" * len(GROUPS))
    for name in names:
        cells = [_cell(values.get((name, group), {}), values.get(("ADDML", group), {}), name) for group in GROUPS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(own: dict[str, float], ours: dict[str, float], name: str) -> str:
    """The mean, followed by ADDML's lead."""
    if not ours or own.keys() != ours.keys():
        return "-"
    mean = f"{np.mean(list(own.values())):.3f}"
    if name == "ADDML":
        return f"**{mean}**"
    ahead = np.array([ours[series] - own[series] for series in sorted(own)])
    draws = np.random.default_rng(0).choice(ahead, (DRAWS, len(ahead))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"{mean} ({ahead.mean():+.3f}; {low:+.3f} to {high:+.3f})"


def main() -> None:
    """Measure what is missing, and write the table."""
    named = parse_parts("benchmarks.series", __doc__, [*GROUPS, *METHODS], sys.argv[1:])
    folder = os.environ.get("ADDML_DATA")
    if folder is None:
        raise SystemExit("set ADDML_DATA to the folder that holds series/")
    groups = [name for name in GROUPS if name in named] or list(GROUPS)
    wanted = [name for name in named if name not in GROUPS] or list(METHODS)
    done = {(row["group"], row["series"], row["method"]) for row in measured()}
    for case in cases(Path(folder) / "series"):
        for method in wanted:
            if (case.group, case.name, method) in done or case.group not in groups:
                continue
            rows = list(measure(case, method))
            fresh = not STORE.exists()
            with STORE.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerows(rows)
            print(case.group, case.name, method, rows[0]["vus_pr"], rows[0]["seconds"], flush=True)
    TABLE.write_text(table())
    print(f"written to {TABLE.name}")


if __name__ == "__main__":
    main()
