"""The default detector as an ONNX file in onnxruntime: speed and agreement with `anomaly_score`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import addml
from benchmarks.tables import SHAPES, table
from benchmarks.timing import markdown, seconds

AT_ONCE = 1000  # rows that onnxruntime is given
CLOSE = 1e-5  # of 1 + |score|


def exported() -> str:
    """Rows per second of both on one thread, and how their scores differ; detectors are fitted to every second row."""
    heads = ["rows a second", "`anomaly_score`", "onnxruntime", "largest difference", f"over {CLOSE:g}", "decisions"]
    return markdown(heads, [_line(name) for name in SHAPES])


def _line(name: str) -> list[str]:
    X = np.ascontiguousarray(table(name)[0])
    detector = addml.ADDML(random_state=0, device="cpu", n_jobs=1).fit(X[::2])
    session = _session(detector)
    ways = {"own": lambda: detector.anomaly_score(X), "onnx": lambda: _scores(session, X)}
    took, own, other = seconds(ways), detector.anomaly_score(X), _scores(session, X)
    apart = abs(own - other) / (1 + abs(own))
    changed = ((own > detector.threshold_) != (other > detector.threshold_)).sum()
    speeds = [f"{len(X) / took[way]:,.0f}" for way in ways]
    return [
        f"{name}, {len(X):,} x {X.shape[1]}",
        *speeds,
        f"{apart.max():.0e}",
        f"{(apart > CLOSE).sum()}",
        f"{changed}",
    ]


def _session(detector: addml.ADDML) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        addml.to_onnx(detector, file)
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def _scores(session: onnxruntime.InferenceSession, X: np.ndarray) -> np.ndarray:
    parts = [X[start : start + AT_ONCE] for start in range(0, len(X), AT_ONCE)]
    return np.concatenate([session.run(["score"], {"X": part})[0] for part in parts])
