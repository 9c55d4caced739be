"""How fast a large file is read, prepared and scored by the command line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

import addml
from addml.compute import max_threads, on_threads
from addml.inputs.table import Standardised
from addml.io.read import read_table
from benchmarks.timing import markdown, seconds

ROWS = 1_000_000
RUNS = 3
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "one": ("with `--scorer center --members 1`", {"scorer": "center", "members": 1}),
    "center": ("with `--scorer center`", {"scorer": "center"}),
    "local": ("by default", {}),
}
ADDML = [sys.executable, "-m", "addml"]
AT_ONCE = 16384  # rows, about as many as `addml score` reads at a time


def mixed_table(rows: int, seed: int = 0) -> pa.Table:
    """Thirty realistic columns: numbers (two with gaps), categories, dates, booleans, an identifier, a code."""
    random = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {"id": pa.array(np.arange(rows))}
    for index in range(16):
        columns[f"number_{index}"] = pa.array(np.round(random.standard_normal(rows) * 10**index**0.5, 3))
    for index in range(2):
        gaps = random.random(rows) < 0.05
        columns[f"gaps_{index}"] = pa.array(np.round(random.gamma(2, 10, rows), 2), mask=gaps)
    for index in range(6):
        levels = np.array([f"level {i}" for i in range(4 + 3 * index)])
        columns[f"category_{index}"] = pa.array(levels[random.zipf(1.6, rows) % len(levels)])
    for index in range(2):
        stamps = 1_700_000_000 + random.integers(0, 3 * 10**7, rows)
        columns[f"date_{index}"] = pa.array(stamps.astype("datetime64[s]"))
    for index in range(2):
        columns[f"flag_{index}"] = pa.array(random.random(rows) < 0.2)
    columns["code"] = pa.array(random.integers(0, 500, rows))
    return pa.table(columns)


def files() -> str:
    """The table of reading, preparing and scoring a million rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, table = folder / "million.csv", mixed_table(ROWS)
        pa.csv.write_csv(table, file)
        known = table.slice(0, 50_000).drop(["id"])
        for model, (_, changes) in MODELS.items():
            detector = addml.ADDML(random_state=0, device="cpu", **changes).fit(known)
            detector.save(folder / model)
        took = seconds(
            {
                "pyarrow": lambda: pa.csv.read_csv(file),
                "ours": lambda: _read_and_prepare(file, detector),
            }
        )
        took |= seconds({"help": lambda: subprocess.run([*ADDML, "--help"], capture_output=True, check=True)})
        scored = {model: _score(folder, file, model) for model in MODELS}
    matrix = 4.0 * ROWS * detector.model_.features.width
    rows = [
        ["`pyarrow.csv.read_csv` alone, rows a second", f"{ROWS / took['pyarrow']:,.0f}"],
        ["reading and preparation, rows a second", f"{ROWS / took['ours']:,.0f}"],
        ["ratio", f"{took['pyarrow'] / took['ours']:.2f}"],
        *(
            [f"`addml score` of a model {words}, start to end, rows a second", f"{ROWS / scored[model][0]:,.0f}"]
            for model, (words, _) in MODELS.items()
        ),
        ["`addml --help`, seconds", f"{took['help']:.2f}"],
        [
            "peak memory of the second over the bare imports, times the float32 matrix",
            f"{scored['center'][1] / matrix:.2f}",
        ],
    ]
    return markdown([f"a mixed CSV of {ROWS:,} x {table.num_columns}", "measured"], rows)


def _read_and_prepare(file: Path, detector: addml.ADDML) -> None:
    """Read and prepare as the commands do, on all cores."""
    table, model = read_table(file).table, detector.model_
    assert model.columns is not None
    prepare = Standardised(model.columns, model.features).transform
    parts = (table.slice(start, AT_ONCE) for start in range(0, table.num_rows, AT_ONCE))
    for _ in on_threads(prepare, parts, max_threads(None)):
        pass


def _score(folder: Path, file: Path, model: str) -> tuple[float, float]:
    """The fewest seconds of the command over a few runs, and its peak memory over an idle start."""
    score = [*ADDML, "score", str(file), "--model", str(folder / model), "--quiet", "--no-report"]
    imports = "import addml.detector, addml.inputs.table, pyarrow.csv, pyarrow.parquet, addml.pipeline.run"
    idle = _peak([sys.executable, "-c", imports], folder)
    took, peak = [], 0.0
    for _ in range(RUNS):
        began = time.perf_counter()
        peak = _peak([*score, "--output", str(folder / "scored.csv")], folder)
        took.append(time.perf_counter() - began)
    return min(took), peak - idle


def _peak(command: list[str], folder: Path) -> float:
    """Peak resident memory of a command in bytes."""
    probe = (
        "import os, resource, subprocess, sys;"
        "code = subprocess.run(sys.argv[1:]).returncode;"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", probe, *command], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)
