"""`python -m benchmarks.images`: one class of Fashion-MNIST against the other nine, for each of ten, beside rivals.

A detector learns from the training images of one class, in the polluted setting with 5 % of other classes among them,
and ranks all test images. `choose` does the same on classes 0 to 4 with training images held out, the test images
unseen: that is where every setting comes from. What was measured is kept in docs/results/ and not measured again.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.documents import DOCS, write_part
from benchmarks.timing import markdown

RESULTS = DOCS / "results"
DOCUMENTS = {"measure": RESULTS / "images.md", "choose": RESULTS / "images-choice.md"}
STORES = {"measure": RESULTS / "images.csv", "choose": RESULTS / "images-choice.csv"}
FILE = Path(os.environ.get("ADDML_DATA", "data")) / "images" / "fashion_mnist_25k.npz"
FIELDS = ("setting", "normal", "method", "seed", "auc", "precision", "fit_seconds", "score_seconds")
NAMES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
CHOSEN_ON, SHOWN_ON = range(5), range(5, 10)
POLLUTION = 0.05
HELD_OUT = 500, 3000  # training images of the class, and of others, that choosing tests with

Score = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, int, float], Score]  # images (n, 28, 28) uint8, a seed, the share of normal ones -> scores


class Split(NamedTuple):
    """Images to learn from, images to test, and which of those are of another class."""

    train: np.ndarray
    test: np.ndarray
    other: np.ndarray


def split(setting: str, normal: int, seed: int, how: str) -> Split:
    """One class against the others; the seed draws what pollutes and what is held out."""
    data = np.load(FILE)
    x, y = data["x_train"], data["y_train"]
    random = np.random.default_rng([seed, normal])
    own, others = (random.permutation(np.flatnonzero(mark)) for mark in (y == normal, y != normal))
    test, other = data["x_test"], data["y_test"] != normal
    if how == "choose":
        held = np.concatenate([own[: HELD_OUT[0]], others[: HELD_OUT[1]]])
        own, others, test, other = own[HELD_OUT[0] :], others[HELD_OUT[1] :], x[held], y[held] != normal
    count = round(len(own) * POLLUTION / (1 - POLLUTION)) if setting == "polluted" else 0
    return Split(x[np.sort(np.concatenate([own, others[:count]]))], test, other)


# Detectors --------------------------------------------------------------------------------------------------


def addml_with(**changes: Any) -> Fit:
    """Our detector: all rows are learned from where they are known to be normal."""

    def fit(train: np.ndarray, seed: int, normal_ratio: float) -> Score:
        from addml import ADDML

        detector = ADDML(normal_ratio=normal_ratio, random_state=seed, device=DEVICE, **changes)
        detector.fit(train[:, None])
        return lambda test: np.asarray(detector.anomaly_score(test[:, None]))

    return fit


def neighbours(k: int) -> Fit:
    """The distance to the k-th nearest training image."""

    def fit(train: np.ndarray, seed: int, normal_ratio: float) -> Score:
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(n_neighbors=k).fit(flat(train))
        return lambda test: np.asarray(index.kneighbors(flat(test))[0][:, -1])

    return fit


def components(count: int | float) -> Fit:
    """The squared error of an image put together from principal components."""

    def fit(train: np.ndarray, seed: int, normal_ratio: float) -> Score:
        from sklearn.decomposition import PCA

        found = PCA(count, random_state=seed).fit(flat(train))
        return lambda test: ((flat(test) - found.inverse_transform(found.transform(flat(test)))) ** 2).sum(axis=1)

    return fit


def support(explained: float, nu: float) -> Fit:
    """A one-class support vector machine on principal components."""

    def fit(train: np.ndarray, seed: int, normal_ratio: float) -> Score:
        from sklearn.decomposition import PCA
        from sklearn.svm import OneClassSVM

        found = PCA(explained, random_state=seed).fit(flat(train))
        machine = OneClassSVM(nu=nu, gamma="scale").fit(found.transform(flat(train)))
        return lambda test: -machine.score_samples(found.transform(flat(test)))

    return fit


def rival(name: str, **changes: Any) -> Fit:
    """A rival of the package, which standardises every pixel."""

    def fit(train: np.ndarray, seed: int, normal_ratio: float) -> Score:
        from addml.pipeline.rivals import make

        detector = make(name, random_state=seed, **changes).fit(flat(train))
        return lambda test: np.asarray(detector.anomaly_score(flat(test)))

    return fit


def flat(images: np.ndarray) -> np.ndarray:
    """Rows of pixels from 0 to 1."""
    return images.reshape(len(images), -1).astype(np.float32) / 255


DEVICE = "auto"
CONV = "ADDML, conv encoder"
METHODS: dict[str, Fit] = {
    CONV: addml_with(encoder="conv"),
    "ADDML, MLP encoder": addml_with(),
    "ADDML, MLP, rate of conv": addml_with(learning_rate=3e-5),
    "kNN": neighbours(2),
    "kNN, k = 10": neighbours(10),  # the best of the candidates where some of the neighbours are anomalies
    "kNN, k = 50": neighbours(50),  # which does better still on the polluted test images
    "PCA reconstruction": components(16),
    "OC-SVM on PCA": support(0.95, 0.5),
    "Isolation Forest": rival("IsolationForest", trees=300),
    "DeepSVDD (PyOD)": rival("DeepSVDD", epochs=20),
    "AutoEncoder (PyOD)": rival("PyODAutoEncoder", epoch_num=30, batch_norm=False, dropout_rate=0.0),
    "deep autoencoder": rival("DeepAutoencoder", latent_dim=16),
}
SLOW = {"encoder": "conv", "learning_rate": 1e-4}  # what the shape of the network was chosen with
CANDIDATES: dict[str, Fit] = {
    "conv 16-32, rate 1e-4": addml_with(**SLOW),
    "conv 16-32, rate 1e-3": addml_with(encoder="conv", learning_rate=1e-3),
    "conv 16-32, rate 3e-5": addml_with(encoder="conv", learning_rate=3e-5),
    "conv 16-32, rate 1e-4, 3 epochs": addml_with(**SLOW, epochs=3),
    "conv 16-32, untrained": addml_with(encoder="conv", learning_rate=1e-12, epochs=1),
    "conv 16-32, relu": addml_with(**SLOW, activation="relu"),
    "conv 16-32, linear output": addml_with(**SLOW, output_activation="linear"),
    "conv 16-32, standard scaling": addml_with(**SLOW, scaling="standard"),
    "conv 16-32, center": addml_with(**SLOW, scorer="center"),
    "conv 16-32, center, untrained": addml_with(encoder="conv", learning_rate=1e-12, epochs=1, scorer="center"),
    "conv 16-32, knn": addml_with(**SLOW, scorer="knn"),
    "conv 16-32, metric_dim 128": addml_with(**SLOW, metric_dim=128),
    "conv 16": addml_with(**SLOW, hidden=(16,)),
    "conv 32-64": addml_with(**SLOW, hidden=(32, 64)),
    "conv 16-32-64": addml_with(**SLOW, hidden=(16, 32, 64)),
    "MLP": addml_with(),
    "MLP, rate 1e-4": addml_with(learning_rate=1e-4),
    **{f"kNN, k = {k}": neighbours(k) for k in (1, 2, 5, 10, 50)},
    **{f"PCA, {count} components": components(count) for count in (16, 32, 64)},
    **{f"OC-SVM, PCA {share}, nu {nu}": support(share, nu) for share in (0.9, 0.95) for nu in (0.1, 0.5)},
    **{f"Isolation Forest, {trees} trees": rival("IsolationForest", trees=trees) for trees in (100, 300)},
    "DeepSVDD, 20 epochs": rival("DeepSVDD", epochs=20),
    "DeepSVDD, 100 epochs": rival("DeepSVDD", epochs=100),
    "DeepSVDD with autoencoder": rival("DeepSVDD", epochs=20, use_ae=True),
    "AutoEncoder, 10 epochs": rival("PyODAutoEncoder", epoch_num=10),
    "AutoEncoder, 30 epochs": rival("PyODAutoEncoder", epoch_num=30),
    "AutoEncoder, no batch norm": rival("PyODAutoEncoder", epoch_num=30, batch_norm=False, dropout_rate=0.0),
    "deep autoencoder, 64": rival("DeepAutoencoder"),
    "deep autoencoder, 32": rival("DeepAutoencoder", latent_dim=32),
    "deep autoencoder, 16": rival("DeepAutoencoder", latent_dim=16),
}


# Measuring --------------------------------------------------------------------------------------------------


def measure(how: str, settings: Iterable[str], methods: dict[str, Fit], normals: Iterable[int], seeds: int) -> None:
    """Run what the store does not hold yet, method by method, and append it."""
    known = {tuple(row[name] for name in FIELDS[:4]) for row in stored(how)}
    wanted = [
        (setting, normal, name, seed)
        for seed in range(seeds)
        for setting in settings
        for name in methods
        for normal in normals
        if (setting, str(normal), name, str(seed)) not in known
    ]
    for setting, normal, name, seed in wanted:
        data = split(setting, normal, seed, how)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = methods[name](data.train, seed, 1.0 if setting == "one-class" else 2 / 3)
            fitted = time.perf_counter()
            scores = score(data.test)
        area, precision = roc_auc_score(data.other, scores), average_precision_score(data.other, scores)
        row = [setting, normal, name, seed, f"{100 * area:.3f}", f"{100 * precision:.3f}"]
        append(how, [*row, f"{fitted - began:.1f}", f"{time.perf_counter() - fitted:.1f}"])
        print(*row, flush=True)


def speed(device: str) -> None:
    """How long ten detectors of 1,500 images take to train, and to score 10,000 each; the images are drawn."""
    from addml import ADDML

    random = np.random.default_rng(0)
    for turn in ("first", "second"):  # the first one loads and records kernels
        fitted, scored = 0.0, 0.0
        for _ in range(10):
            images = drawn(11_500, random)
            began = time.perf_counter()
            detector = ADDML(encoder="conv", normal_ratio=1.0, random_state=0, device=device).fit(images[:1500])
            middle = time.perf_counter()
            detector.anomaly_score(images[1500:])
            fitted, scored = fitted + middle - began, scored + time.perf_counter() - middle
        print(f"ten classes, {turn} time: {fitted:.1f} s to train, {scored:.1f} s to score 100,000 images", flush=True)


def drawn(count: int, random: np.random.Generator) -> np.ndarray:
    """Bright blobs of some width and height with noise around them, (count, 1, 28, 28) uint8."""
    y, x = np.mgrid[:28, :28] - 14
    wide, high = random.normal(9, 1.5, (2, count, 1, 1))
    blobs = random.uniform(150, 255, (count, 1, 1)) * np.exp(-((x / wide) ** 4) - (y / high) ** 4)
    return (blobs + random.normal(0, 9, blobs.shape)).clip(0, 255).astype(np.uint8)[:, None]


def stored(how: str) -> list[dict[str, str]]:
    """What was measured before."""
    if not STORES[how].exists():
        return []
    with STORES[how].open(newline="") as file:
        return list(csv.DictReader(file))


def append(how: str, row: list[Any]) -> None:
    """Keep one measurement."""
    new = not STORES[how].exists()
    with STORES[how].open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([FIELDS, row] if new else [row])


# Tables -----------------------------------------------------------------------------------------------------


def mean(rows: list[dict[str, str]], field: str, normals: Iterable[int]) -> float:
    """The mean over these classes, of each the mean over its seeds; NaN where one is missing."""
    own = [[float(row[field]) for row in rows if int(row["normal"]) == normal] for normal in normals]
    return float(np.mean([np.mean(values) if values else np.nan for values in own]))


def table(how: str, setting: str) -> str:
    """ROC-AUC of every method, class by class, the best on the classes that nothing was chosen on first."""
    rows = [row for row in stored(how) if row["setting"] == setting]
    by_method = {
        name: [row for row in rows if row["method"] == name] for name in dict.fromkeys(r["method"] for r in rows)
    }
    normals = range(10) if how == "measure" else CHOSEN_ON
    ends = {"all ten": range(10), "5-9": SHOWN_ON} if how == "measure" else {"0-4": CHOSEN_ON}
    order = sorted(by_method, key=lambda name: -mean(by_method[name], "auc", list(ends.values())[-1]))
    body = []
    for name in order:
        own = by_method[name]
        cells = [f"{mean(own, 'auc', [normal]):.1f}" for normal in normals]
        cells += [f"{mean(own, 'auc', some):.2f}" for some in ends.values()]
        body.append([name, *cells, f"{mean(own, 'fit_seconds', normals):.1f}"])
    return markdown([setting, *(NAMES[normal] for normal in normals), *ends, "fit, s"], body)


def main() -> None:
    """Measure, print the tables and write them into the guide."""
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", nargs="?", choices=[*STORES, "show", "speed"], default="measure")
    parser.add_argument("--only", action="append", help="method to measure, as it is named in the tables")
    parser.add_argument("--setting", action="append", choices=("one-class", "polluted"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    DEVICE = given.device
    if given.how == "speed":
        speed(given.device)
        return
    if given.how != "show":
        every = METHODS if given.how == "measure" else CANDIDATES
        methods = {name: every[name] for name in given.only or every}
        settings = given.setting or (("one-class", "polluted") if given.how == "measure" else ("one-class",))
        normals = range(10) if given.how == "measure" else CHOSEN_ON
        measure(given.how, settings, methods, normals, given.seeds)
    for how in STORES if given.how == "show" else [given.how]:
        settings = dict.fromkeys(row["setting"] for row in stored(how))
        write_part(DOCUMENTS[how], how, "\n".join(table(how, setting) for setting in settings))


if __name__ == "__main__":
    main()
