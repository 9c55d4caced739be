"""Fit times against the plain reference, PyOD's deep detectors and scikit-learn's forest."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import IsolationForest

import addml
from addml.compute import blas_threads
from benchmarks.reference import fit_reference, plain_encoder
from benchmarks.tables import table
from benchmarks.timing import markdown, seconds

EPOCHS = 50


def fit_ways(X: np.ndarray) -> dict[str, Callable[[], Any]]:
    """One function per detector that fits X, for the full fifty epochs."""
    from pyod.models.auto_encoder import AutoEncoder
    from pyod.models.deep_svdd import DeepSVDD

    scaled = ((X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1)).astype(np.float32)
    return {
        "ADDML.paper()": lambda: addml.ADDML.paper(patience=EPOCHS, random_state=0, device="cpu").fit(X),
        "plain reference": lambda: _reference(scaled),
        "PyOD DeepSVDD": lambda: _quiet(
            DeepSVDD(n_features=X.shape[1], epochs=EPOCHS, random_state=0, verbose=0), scaled
        ),
        "PyOD AutoEncoder": lambda: _quiet(AutoEncoder(epoch_num=EPOCHS, random_state=0, verbose=0), scaled),
        "IsolationForest(100)": lambda: IsolationForest(n_estimators=100, random_state=0).fit(X),
    }


def _reference(X: np.ndarray) -> None:
    random = np.random.default_rng(0)
    order = random.permutation(len(X))
    held_out = -(-len(X) // 10)
    M, V = (torch.from_numpy(X[np.sort(part)]) for part in (order[held_out:], order[:held_out]))
    widths = [X.shape[1], 64, 64]
    flat = [random.uniform(-1, 1, a * b) * np.sqrt(6 / (a + b)) for a, b in ((widths[0], 64), (64, 64))]
    weights = np.concatenate([flat[0], np.zeros(64), flat[1], np.zeros(64)]).astype(np.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # its best setting: two threads are slower on products of this size
    fit_reference(plain_encoder(widths, weights), M, V, random, epochs=EPOCHS, patience=EPOCHS)
    torch.set_num_threads(before)


def _quiet(detector: Any, X: np.ndarray) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        detector.fit(X)
    torch.set_num_threads(before)


def fits() -> str:
    """The table of fit times."""
    header, rows = ["table", "ADDML.paper(), s"], []
    for name in ("letter", "mnist", "shuttle"):
        X, kind = table(name)
        print(f"fitting {name} ({len(X)} x {X.shape[1]}, {kind})", flush=True)
        took = seconds(fit_ways(X))
        ours = took.pop("ADDML.paper()")
        header = ["table", "ADDML.paper(), s", *took]
        rows.append(
            [f"{name} {X.shape[0]} x {X.shape[1]}", f"{ours:.3f}", *(f"{other / ours:.2f}x" for other in took.values())]
        )
        print(rows[-1], flush=True)
    return markdown(header, rows)


def members() -> tuple[float, float, float]:
    """Seconds of one member, of ten, and their ratio, batches of 64 on one thread."""
    X, _ = table("letter")

    def fit(count: int) -> Callable[[], Any]:
        settings = {
            "members": count,
            "batch_size": 64,
            "patience": EPOCHS,
            "n_jobs": 1,
            "random_state": 0,
            "device": "cpu",
        }
        return lambda: addml.ADDML(**settings).fit(X)

    with blas_threads(1):
        took = seconds({"one": fit(1), "ten": fit(10)}, rounds=5)
    return took["one"], took["ten"], took["ten"] / took["one"]
