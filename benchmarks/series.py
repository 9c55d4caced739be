"""`python -m benchmarks.series`: who finds the labelled periods of real series, and how well.

The SMD machines train on their first part, without labels, and are tested on their second; the NAB series have one
part, which is scored by what was learned from it. Every detector gets the same standardised channels. What was measured
is kept in docs/results/series.csv and not measured again; the table goes to docs/results/series.md and into the guide,
docs/series.md. Methods and groups (smd, nab) named behind the command are the only ones to run.
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
from sklearn.metrics import average_precision_score, roc_auc_score

from addml import ADDML, Recurrent
from addml.inputs.series import Windows, over_windows
from addml.pipeline.vus import volumes
from benchmarks.documents import DOCS, asked, write_part

DOCUMENT = DOCS / "series.md"
RESULTS = DOCUMENT.parent / "results"
STORE, TABLE = RESULTS / "series.csv", RESULTS / "series.md"
FIELDS = ("group", "series", "method", "roc_auc", "average_precision", "vus_roc", "vus_pr", "seconds")
WINDOW = {"smd": 16, "nab": 48}  # of ours, chosen on planted anomalies and on NAB
SHORT = 10  # of the rivals on windows, for whom it was better than 50 on all machines together


class Case(NamedTuple):
    """A series to train on and one to score, with its labels."""

    group: str
    name: str
    train: np.ndarray
    test: np.ndarray
    labels: np.ndarray


def cases(root: Path) -> Iterator[Case]:
    """The machines, then the series of NAB that have an anomaly."""
    for file in sorted((root / "smd").glob("*.npz")):
        with np.load(file) as data:
            yield Case("smd", file.stem, *_standardised(data["train"], data["test"]), data["label"])
    known = json.loads((root / "nab" / "labels" / "combined_windows.json").read_text())
    for file in sorted((root / "nab").glob("real*/*.csv")):
        rows = list(csv.reader(file.open()))[1:]
        times = np.array([row[0] for row in rows], "datetime64[s]")
        labels = np.zeros(len(rows), np.uint8)
        for start, end in known[f"{file.parent.name}/{file.name}"]:
            first, last = (np.datetime64(one.partition(".")[0]) for one in (start, end))
            labels[(times >= first) & (times <= last)] = 1
        if labels.any():
            values = np.array([[float(row[1])] for row in rows], np.float32)
            yield Case("nab", file.stem, *_standardised(values, values), labels)


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1)
    return ((train - mean) / deviation).astype(np.float32), ((test - mean) / deviation).astype(np.float32)


# Detectors: a case -> the scores of the test part's steps ------------------------------------------------------


def _ours(**changes: Any) -> Callable[[Case], np.ndarray]:
    def scores(case: Case) -> np.ndarray:
        detector = ADDML(encoder="recurrent", window=WINDOW[case.group], random_state=0).set_params(**changes)
        return np.asarray(detector.fit(case.train).anomaly_score(case.test))

    return scores


def _on_windows(fit: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]) -> Callable[[Case], np.ndarray]:
    """A detector of rows on flat windows; a step takes the mean of the windows over it."""

    def scores(case: Case) -> np.ndarray:
        windows = [Windows.of([part], SHORT) for part in (case.train, case.test)]
        flat = [windows[0][windows[0].whole(1)].reshape(-1, SHORT * case.train.shape[1])]
        flat.append(windows[1][:].reshape(len(case.test), -1))
        return over_windows(fit(flat[0])(flat[1])[None], windows[1])[0]

    return scores


def _forest(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=200, random_state=0).fit(train)
    return lambda x: -forest.score_samples(x)


def _pca(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.decomposition import PCA

    pca = PCA(0.9, svd_solver="full").fit(train)
    return lambda x: ((x - pca.inverse_transform(pca.transform(x))) ** 2).sum(axis=1)


def _matrix_profile(case: Case) -> np.ndarray:
    """The mean over channels of the distance of each subsequence to the nearest one of the training part."""
    import stumpy

    length, channels = 50, []
    own = case.train is case.test or np.array_equal(case.train, case.test)
    for channel in np.flatnonzero(case.train.std(axis=0) > 0):
        test, train = case.test[:, channel].astype(float), case.train[:, channel].astype(float)
        found = stumpy.stump(test, length) if own else stumpy.stump(test, length, train, ignore_trivial=False)
        channels.append(np.nan_to_num(found[:, 0].astype(float), posinf=np.sqrt(2 * length)))
    profile = np.mean(channels, axis=0)
    ending = np.concatenate([np.repeat(profile[:1], length - 1), profile])
    return over_windows(ending[None], Windows.of([case.test], length))[0]


def _lstm_autoencoder(case: Case) -> np.ndarray:
    """Windows of 32 steps through an LSTM of 64 states and back by another; the squared error of each step."""
    import torch

    torch.manual_seed(0)
    length, channels = 32, case.train.shape[1]
    encoder, decoder = torch.nn.LSTM(channels, 64, batch_first=True), torch.nn.LSTM(64, 64, batch_first=True)
    out = torch.nn.Linear(64, channels)
    network = torch.nn.ModuleList([encoder, decoder, out])

    def rebuilt(x: Any) -> Any:
        state = encoder(x)[1][0][-1]
        return out(decoder(state[:, None].expand(-1, length, -1))[0])

    windows = Windows.of([case.train], length)
    train = torch.from_numpy(windows[windows.whole(4)].copy())
    adam = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(20):
        for part in torch.randperm(len(train)).split(128):
            adam.zero_grad()
            ((rebuilt(train[part]) - train[part]) ** 2).mean().backward()
            adam.step()
    error, count = np.zeros(len(case.test)), np.zeros(len(case.test))
    windows = Windows.of([case.test], length)
    ends = windows.whole(1)
    with torch.no_grad():
        for part in np.array_split(ends, max(1, len(ends) // 512)):
            x = torch.from_numpy(windows[part].copy())
            squares = ((rebuilt(x) - x) ** 2).mean(-1).numpy()
            for step in range(length):
                places = part - (length - 1) + step
                error[places] += squares[:, step]
                count[places] += 1
    return error / np.maximum(count, 1)


def _pyod(make: Callable[[], Any]) -> Callable[[Case], np.ndarray]:
    def scores(case: Case) -> np.ndarray:
        import torch

        torch.manual_seed(0)
        return np.nan_to_num(make().fit(case.train).decision_function(case.test))

    return scores


def _lstmad() -> Any:
    from pyod.models.ts_lstm import LSTMAD

    return LSTMAD(window_size=16, epochs=5, batch_size=256)


def _ts_knn() -> Any:
    from pyod.models.ts_od import TimeSeriesOD

    return TimeSeriesOD("KNN", window_size=SHORT, step=5, score_aggregation="mean")


def _spectral() -> Any:
    from pyod.models.ts_spectral_residual import SpectralResidual

    return SpectralResidual()


def _magnitude(case: Case) -> np.ndarray:
    """How far the first channel is out."""
    return np.abs(case.test[:, 0])


METHODS: dict[str, Callable[[Case], np.ndarray]] = {
    "ADDML": _ours(),
    "ADDML, causal": _ours(window__causal=True),
    "ADDML, last state": _ours(encoder__pooling="last"),
    "ADDML, gru": _ours(encoder__cell="gru"),
    "ADDML, tcn": _ours(encoder__cell="tcn"),
    "ADDML, the paper's (centre, one member)": _ours(
        scorer="center", members=1, encoder=Recurrent((), 64, pooling="last")
    ),
    "PCA on windows": _on_windows(_pca),
    "Isolation Forest on windows": _on_windows(_forest),
    "matrix profile (stumpy)": _matrix_profile,
    "LSTM autoencoder": _lstm_autoencoder,
    "LSTMAD (PyOD)": _pyod(_lstmad),
    "kNN on windows (PyOD TimeSeriesOD)": _pyod(_ts_knn),
    "Spectral Residual (PyOD)": _pyod(_spectral),
    "distance to the training mean": lambda case: (case.test**2).sum(axis=1),
    "largest deviation of a channel": lambda case: np.abs(case.test).max(axis=1),
    "the first channel's magnitude": _magnitude,
}


# Running ----------------------------------------------------------------------------------------------------


def measured() -> list[dict[str, str]]:
    """What is in the store."""
    return list(csv.DictReader(STORE.open())) if STORE.exists() else []


def measure(case: Case, method: str) -> dict[str, Any]:
    """One method on one series."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = np.asarray(METHODS[method](case), float)
    seconds, volume = time.perf_counter() - began, volumes(case.labels, scores)
    figures = (roc_auc_score(case.labels, scores), average_precision_score(case.labels, scores), *volume)
    rounded = [f"{figure:.4f}" for figure in figures]
    return dict(zip(FIELDS, [case.group, case.name, method, *rounded, f"{seconds:.1f}"], strict=True))


def table() -> str:
    """The means over the machines and over NAB, the best VUS-PR on the machines first; a dash where not all ran."""
    rows = measured()
    counts = {group: len({row["series"] for row in rows if row["group"] == group}) for group in WINDOW}

    def mean(method: str, group: str, figure: str) -> float:
        own = [float(row[figure]) for row in rows if (row["method"], row["group"]) == (method, group)]
        return float(np.mean(own)) if len(own) == counts[group] else float("nan")

    names = [name for name in METHODS if any(row["method"] == name for row in rows)]
    names.sort(key=lambda name: -np.nan_to_num(mean(name, "smd", "vus_pr")))
    lines = [
        f"| | SMD ({counts['smd']}): VUS-PR | AP | ROC-AUC | NAB ({counts['nab']}): VUS-PR | AP | ROC-AUC |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        cells = [
            f"{mean(name, group, figure):.3f}"
            for group in WINDOW
            for figure in ("vus_pr", "average_precision", "roc_auc")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |".replace("nan", "-"))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is missing, and write the table."""
    named = asked("benchmarks.series", __doc__, [*WINDOW, *METHODS], sys.argv[1:])
    folder = os.environ.get("ADDML_DATA")
    if folder is None:
        raise SystemExit("set ADDML_DATA to the folder that holds series/")
    groups = [name for name in WINDOW if name in named] or list(WINDOW)
    wanted = [name for name in named if name not in WINDOW] or list(METHODS)
    done = {(row["series"], row["method"]) for row in measured()}
    for case in cases(Path(folder) / "series"):
        for method in wanted:
            if (case.name, method) in done or case.group not in groups:
                continue
            row = measure(case, method)
            fresh = not STORE.exists()
            with STORE.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow(row)
            print(case.name, method, row["vus_pr"], row["seconds"], flush=True)
    TABLE.write_text(table())
    write_part(DOCUMENT, "series", table())


if __name__ == "__main__":
    main()
