"""The configurations of `benchmarks.golden`: small seeded data, fitted through the public API.

They also run on commits before the constructor took parts: `detector` takes the old flat settings and turns those that
are no longer parameters into parts.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import addml

ENCODERS = {"mlp": "MLP", "conv": "Conv", "recurrent": "Recurrent"}
LOSSES = {"instance": "InstanceCloseness", "center": "CenterCloseness"}
OF_ENCODER = ("hidden", "metric_dim", "activation", "output_activation", "pooling")
OF_LOSS = ("distance", "hard_ratio", "margin", "anomaly_pairs", "miner")
OF_WINDOW = ("stride", "causal")
HOMES = ("addml", "addml.encoders", "addml.learning.losses", "addml.inputs", "addml.inputs.series", "addml.scoring")
TOGETHER = (
    "addml.experiments.together:fit_together",
    "research.together:fit_together",
    "addml.fit:fit_together",
    "addml.fit:fit_many",
)


# The detector of a commit ------------------------------------------------------------------------------------


def found(*places: str) -> Any:
    """The object at the first of these places, "module:name", that exists in this commit."""
    for index in places:
        module, name = index.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this addml has none of {', '.join(places)}")


def part(*names: str) -> Any:
    """The class of the first of these names that exists in this commit."""
    return found(*(f"{home}:{name}" for name in names for home in HOMES))


def detector(preset: str = "", **settings: Any) -> Any:
    """ADDML with these flat settings; those that its constructor no longer takes go to its parts."""
    known = inspect.signature(addml.ADDML.__init__).parameters
    moved = {name: settings.pop(name) for name in list(settings) if name not in known}
    moved.pop("examples", None)  # later 1,000 are always kept
    if own := {name: moved.pop(name) for name in OF_ENCODER if name in moved}:
        settings["encoder"] = part(ENCODERS[settings.get("encoder", "mlp")])(**own)
    if own := {name: moved.pop(name) for name in OF_LOSS if name in moved}:
        settings["loss"] = part(LOSSES[settings.get("loss", "instance")])(**own)
    if "window" in settings and "stride" not in known:
        own = {name: moved.pop(name) for name in OF_WINDOW if name in moved}
        settings["window"] = part("Window")(settings["window"], **own)
    make = getattr(addml.ADDML, preset) if preset else addml.ADDML
    return make(**{"random_state": 0, "device": "cpu", **settings, **moved})


def fit(X: Any, labels: Any = None, memory: str | None = None, **settings: Any) -> Any:
    """A fitted detector; `memory` goes to the constructor or, in later commits, to `fit`."""
    if memory and "memory" in inspect.signature(addml.ADDML.__init__).parameters:
        return detector(memory=memory, **settings).fit(X, labels=labels)
    return detector(**settings).fit(X, labels=labels, **({"memory": memory} if memory else {}))


def record(fitted: Any, new: Any) -> dict[str, Any]:
    """Every output of a fitted detector for its training rows and for new rows."""
    of_series, sliced = getattr(fitted, "window", None) is not None, getattr(new, "iloc", new)
    alone = [sliced[: 30 + i] if of_series else sliced[i : i + 1] for i in range(3)]  # a step has no score by itself
    return {
        "history": fitted.history_,
        "center": fitted.center_,
        "training": fitted.anomaly_scores_,
        "threshold": fitted.threshold_,
        "new": fitted.anomaly_score(new),
        "alone": [fitted.anomaly_score(X) for X in alone],
        "embedding": fitted.embed(new)[:3],
        "probability": fitted.predict_proba(new)[:, 1],
        "p_value": fitted.p_values(new),
        "contributions": np.asarray(fitted.explain(new, rows=range(3))),
    }


# Data --------------------------------------------------------------------------------------------------------


def rows(seed: int, n: int = 300) -> np.ndarray:
    """Six correlated columns; every twentieth row is an outlier."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 6)) @ np.random.default_rng(9).normal(size=(6, 6))
    X[::20] += random.normal(0, 6, (len(X[::20]), 6))
    return X


def gappy(seed: int) -> np.ndarray:
    X = rows(seed)
    X[np.random.default_rng(seed).random(X.shape) < 0.05] = np.nan
    return X


def frame(seed: int, n: int = 240) -> pd.DataFrame:
    """Numbers, dates, categories, booleans, names, missing values, and text among numbers."""
    random = np.random.default_rng(seed)
    items = pd.Series(random.poisson(4, n), dtype=object)
    items[7], items[8], items[40] = "n/k", None, "about 3"
    return pd.DataFrame(
        {
            "order": [f"A{seed}{i:04}" for i in range(n)],
            "when": pd.date_range("2025-01-01", periods=n, freq="7h") + pd.to_timedelta(random.integers(0, 99, n), "s"),
            "shop": np.where(random.random(n) < 0.03, "west", random.choice(["north", "south", "east"], n)),
            "paid": random.random(n) < 0.9,
            "amount": np.round(random.lognormal(3, 0.5, n) * np.where(np.arange(n) % 40 == 5, 20, 1), 2),
            "weight": np.where(random.random(n) < 0.1, np.nan, random.normal(70, 9, n)),
            "items": items,
        }
    )


def images(seed: int, n: int = 80) -> np.ndarray:
    random = np.random.default_rng(seed)
    pictures = 128 + 60 * np.sin(np.arange(12) / 2)[:, None] + random.normal(0, 12, (n, 12, 12))
    pictures[::16, 3:7, 3:7] = 250
    return np.clip(pictures[:, None], 0, 255).astype(np.uint8)  # one channel


def series(seed: int, n: int = 400) -> np.ndarray:
    random, t = np.random.default_rng(seed), np.arange(n)
    X = np.column_stack([np.sin(t / 4), np.cos(t / 7)]) + random.normal(0, 0.1, (n, 2))
    X[150:156, 0] += 2
    X[3, 1] = np.nan
    return X


# Configurations ----------------------------------------------------------------------------------------------

WINDOW: dict[str, Any] = {"encoder": "recurrent", "window": 12, "epochs": 4, "members": 2}
SMALL: dict[str, Any] = {
    "hidden": (16, 8),
    "metric_dim": 8,
    "activation": "relu",
    "output_activation": "linear",
    "members": 2,
}
FITS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "array": (rows, {}),
    "array of 3,000": (partial(rows, n=3000), {}),  # more rows than references, several blocks
    "array one-sided": (gappy, {"one_sided": {0: "high", 3: "low"}, "contamination": 0.05}),
    "frame": (frame, {"one_sided": {"amount": "high"}}),
    "paper": (rows, {"preset": "paper"}),
    "fast": (rows, {"preset": "fast"}),
    "center": (rows, {"loss": "center", "scorer": "center", **SMALL}),
    "knn": (rows, {"scorer": "knn", "distance": "cosine", "hard_ratio": 0.5, "contamination": "auto"}),
    "dissimilarity": (rows, {"scorer": "dissimilarity", "distance": "euclidean", "scaling": "standard"}),
    "images conv": (images, {"encoder": "conv", "epochs": 3, "members": 2}),
    "images mlp": (images, {"encoder": "mlp", "epochs": 5}),
    "series": (series, WINDOW),
    "series recurrent": (series, {**WINDOW, "encoder": "recurrent", "pooling": "last", "stride": 2}),
    "series mlp": (series, {**WINDOW, "encoder": "mlp"}),
}


def plain_fit(name: str, folder: Path) -> dict[str, Any]:
    make, settings = FITS[name]
    return record(fit(make(0), **settings), make(1))


def decisions(folder: Path) -> dict[str, Any]:
    fitted = fit(rows(0))
    asked = ({"method": "auto"}, {"contamination": 0.2}, {"alarm_rate": 0.05})
    return {str(one): fitted.set_threshold(**one).threshold_ for one in asked}


def neighbours(folder: Path) -> dict[str, Any]:
    """The scorer as an object, and `nearest_normal` of new rows."""
    fitted = fit(rows(0), scorer=part("KNN", "Neighbors")(k=5, references=64), examples=1000)
    places, distances = fitted.nearest_normal(rows(1)[:5], k=3)
    return {**record(fitted, rows(1)), "places": places, "distances": distances}


def on_disk(folder: Path) -> dict[str, Any]:
    """Rows on disk that exceed their memory limit, and the same rows in memory."""
    path, large = folder / "large.parquet", pd.concat([frame(seed, 500) for seed in range(10)], ignore_index=True)
    large.astype({"items": str}).to_parquet(path)
    result = {}
    for name, memory in (("on disk", "1MiB"), ("in memory", None)):
        fitted = fit(str(path), memory=memory, preset="paper", epochs=3)
        fitted.write_scores(str(path), folder / "scores.parquet")
        result[name] = {
            "training": fitted.anomaly_scores_,
            "threshold": fitted.threshold_,
            "history": fitted.history_,
            "new": pd.read_parquet(folder / "scores.parquet")["score"].to_numpy(),
        }
    return result


def labelled(folder: Path) -> dict[str, Any]:
    labels = np.full(300, -1)
    labels[:200:20], labels[1:100:5] = 1, 0
    pairs = {"anomaly_pairs": True, "margin": 2.0, "scorer": "center"}
    kinds: dict[str, dict[str, Any]] = {"views": {}, "pairs": pairs}
    return {name: record(fit(rows(0), labels, **own), rows(1)) for name, own in kinds.items()}


def refitted(folder: Path) -> dict[str, Any]:
    return record(fit(rows(0)).refit(rows(2)), rows(1))


def saved(folder: Path) -> dict[str, Any]:
    """Save, load and refit."""
    kinds: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
        "frame": (frame, {}),
        "images": (images, {"encoder": "conv", "epochs": 2}),
        "series": (series, WINDOW),
    }
    result = {}
    for name, (make, settings) in kinds.items():
        fit(make(0), **settings).save(folder / name)
        fitted = addml.load(folder / name, device="cpu")
        result[name] = {"training": fitted.anomaly_scores_, "new": fitted.anomaly_score(make(1))}
        result[f"{name} refit"] = {"new": fitted.refit(make(2)).anomaly_score(make(1))}
    return result


def streamed(folder: Path) -> dict[str, Any]:
    result = {}
    for encoder in ("autoencoder", "recurrent"):
        fitted = fit(series(0), **{**WINDOW, "encoder": encoder}, causal=True)
        stream = fitted.stream()
        steps = [stream.score(step) for step in series(1)[:60]]
        result[encoder] = {**record(fitted, series(1)), "steps": steps}
    return result


def together(folder: Path) -> dict[str, Any]:
    """Eighteen fits, nine of them one-class, in one training call."""
    try:
        fit_all = found(*TOGETHER)
    except ImportError as error:
        return {"skipped": str(error)}
    own = [{"normal_ratio": (2 / 3, 1.0)[seed % 2], "random_state": seed} for seed in range(18)]
    tables = [rows(seed, 100 + seed) for seed in range(18)]
    fits = fit_all([detector("paper", epochs=3, **settings) for settings in own], tables)
    return {str(i): {"training": one.anomaly_scores_, "new": one.anomaly_score(rows(50))} for i, one in enumerate(fits)}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{name: partial(plain_fit, name) for name in FITS},
    "decisions": decisions,
    "neighbours": neighbours,
    "on disk": on_disk,
    "labels": labelled,
    "refit": refitted,
    "saved": saved,
    "stream": streamed,
    "18 together": together,
}
