"""The effect of tf32 products on a CUDA device: AUC on the paper's sets, and fit times."""

from __future__ import annotations

import time

import numpy as np
import torch

from addml.pipeline.rivals import Machine
from benchmarks.tables import SHAPES, labelled
from benchmarks.timing import markdown
from research.datasets import LabelledArray
from research.experiment import run_case
from research.plans import load

SETTINGS = ("seen", "unseen", "one-class")


def precision() -> str:
    """Mean AUC in percent of the paper's preset with float32 and with tf32 products, and seconds of all fits."""
    names = [name for name in SHAPES if labelled(name)[2] == "real"]
    results = {kind: _measured(names, kind == "tf32") for kind in ("float32", "tf32")}
    rows = []
    for setting in SETTINGS:
        one, other = (np.array([results[kind][0][name, setting] for name in names]) for kind in results)
        rows.append([setting, f"{one.mean():.2f}", f"{other.mean():.2f}", f"{abs(one - other).max():.2f}"])
    rows.append(["seconds", *(f"{results[kind][1]:.1f}" for kind in results), ""])
    return markdown([f"{len(names)} sets, products in", "float32", "tf32", "largest change of a set"], rows)


def _measured(names: list[str], tf32: bool) -> tuple[dict[tuple[str, str], float], float]:
    """The mean AUC of every set and setting, and the seconds of all fits."""
    (case,) = [case for case in load("leaders").cases if case.label == "ADDML.paper"]
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, tf32
    found: dict[tuple[str, str], list[float]] = {}
    start = time.perf_counter()
    for name in names:
        X, y, _ = labelled(name)
        for row in run_case(case, LabelledArray(name, X, y.astype(int)), Machine(device="cuda", threads=8)):
            found.setdefault((name, row["setting"]), []).append(100 * row["auc"])
    torch.backends.cuda.matmul.allow_tf32 = before
    return {key: float(np.mean(values)) for key, values in found.items()}, time.perf_counter() - start
