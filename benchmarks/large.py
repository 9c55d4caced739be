"""Millions of rows on disk, fitted and scored in a separate process whose memory and time are measured.

`python -m benchmarks.large 10 20 50` makes tables of 10, 20 and 50 million rows of 32 columns in a temporary folder
(or `--folder`), fits two epochs of the paper's detector to each and writes the scores of all rows. Results are stored
in docs/results/large.json and written into docs/scale.md; `--again` measures them again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.documents import DOCS, machine, write_part
from benchmarks.timing import markdown

DOCUMENT = DOCS / "scale.md"
RESULTS = DOCUMENT.parent / "results" / "large.json"
COLUMNS = 32
FILE_ROWS, GROUP_ROWS = 2_500_000, 131_072
ANOMALIES = 0.01
PRESETS = {"paper": {"epochs": 2}, "fast": {"epochs": 2}, "default": {"epochs": 2}}


def make_table(folder: Path, rows: int) -> None:
    """Parquet files of correlated columns in three clusters; one row in a hundred lacks the correlation."""
    import pyarrow as pa
    from pyarrow import parquet

    random = np.random.default_rng(0)
    mixing, centers = random.normal(size=(3, 8, COLUMNS)), random.normal(size=(3, COLUMNS)) * 2
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        target = folder / f"part-{number:03}.parquet"
        if target.exists():
            continue
        with parquet.ParquetWriter(target.with_suffix(".part"), _schema(), compression="zstd") as writer:
            for first in range(start, min(rows, start + FILE_ROWS), GROUP_ROWS):
                size = min(rows, start + FILE_ROWS, first + GROUP_ROWS) - first
                X = _rows(np.random.default_rng([1, first]), size, mixing, centers)
                writer.write_table(pa.table(list(X.T), schema=_schema()))
        target.with_suffix(".part").rename(target)


def _rows(random: np.random.Generator, size: int, mixing: np.ndarray, centers: np.ndarray) -> np.ndarray:
    kind = random.integers(0, len(mixing), size)
    X = np.empty((size, COLUMNS), np.float32)
    for index in range(len(mixing)):
        own = kind == index
        hidden = random.standard_normal((own.sum(), mixing.shape[1]), np.float32)
        X[own] = hidden @ mixing[index].astype(np.float32) + centers[index]
    X += 0.1 * random.standard_normal(X.shape, np.float32)
    strange = random.random(size) < ANOMALIES
    X[strange] = 3 * random.standard_normal((strange.sum(), COLUMNS), np.float32)
    return X


def _schema() -> object:
    import pyarrow as pa

    return pa.schema([(f"x{index}", pa.float32()) for index in range(COLUMNS)])


class Watch:
    """Peak anonymous memory of this process, sampled ten times a second."""

    def __init__(self) -> None:
        self.most, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, anonymous())


def anonymous(status: Path = Path("/proc/self/status")) -> int:
    """Bytes of anonymous resident memory of a process."""
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def measure(folder: Path, preset: str, memory: str) -> dict[str, float]:
    """Fit and score in this process."""
    from addml import ADDML

    before = anonymous()
    settings = PRESETS[preset]
    make = {"paper": ADDML.paper, "fast": ADDML.fast, "default": ADDML}[preset]
    with Watch() as watch:
        began = time.perf_counter()
        detector = make(random_state=0, **settings).fit(folder, scratch=folder.parent, memory=memory)
        fitted = time.perf_counter()
        detector.write_scores(folder, folder.parent / "scores.parquet")
        scored = time.perf_counter()
    epochs = [entry["seconds"] for entry in detector.history_]
    return {
        "fit": fitted - began,
        "epoch": sum(epochs) / len(epochs),
        "score": scored - fitted,
        "before": before,
        "memory": watch.most,
        "processor": time.process_time(),
    }


def main() -> None:
    """Measure the tables that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("millions", nargs="+", type=float, help="sizes of the tables in millions of rows")
    parser.add_argument("--preset", choices=PRESETS, default="paper")
    parser.add_argument("--memory", default="1GiB", help="the memory limit of the detector")
    parser.add_argument("--folder", type=Path, help="folder for the tables; existing tables are used again")
    parser.add_argument("--again", action="store_true", help="measure again what is stored")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        print(json.dumps(measure(arguments.here, arguments.preset, arguments.memory)))
        return
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for millions in arguments.millions:
        name = f"{millions:g} {arguments.preset}"
        if name not in kept or arguments.again:
            kept[name] = _in_its_own_process(arguments, millions)
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        print(name, {key: round(value, 1) for key, value in kept[name].items()}, flush=True)
    write(kept)


def write(kept: dict[str, dict[str, float]]) -> None:
    """Write the stored results of all tables into docs/scale.md."""
    header = ["rows", "preset", "fit s", "an epoch s", "score s", "processor s", "anonymous MB", "before MB"]
    names = sorted(kept, key=lambda name: (name.split(" ", 1)[1], float(name.split()[0])))
    table = markdown(header, [cells(name, kept[name]) for name in names])
    write_part(DOCUMENT, "large", f"{machine()}\n\n{table}")
    write_part(DOCUMENT, "line", lines(kept))


def cells(name: str, found: dict[str, float]) -> list[str]:
    """A row of the table."""
    millions, preset = name.split()
    seconds = [f"{found[key]:,.0f}" for key in ("fit", "epoch", "score", "processor")]
    memory = [f"{found[key] / 1e6:,.0f}" for key in ("memory", "before")]
    return [f"{float(millions) * 1e6:,.0f}", preset, *seconds, *memory]


def lines(kept: dict[str, dict[str, float]]) -> str:
    """A line through the processor seconds of each preset: its fit and its extrapolation."""
    said = []
    for preset in sorted({name.split()[1] for name in kept}):
        own = {float(name.split()[0]): kept[name]["processor"] for name in kept if name.split()[1] == preset}
        if len(own) < 3:
            continue
        rows, seconds = np.array(sorted(own)), np.array([own[one] for one in sorted(own)])
        slope, start = np.polyfit(rows, seconds, 1, w=1 / seconds)
        off = np.abs(start + slope * rows - seconds) / seconds
        said.append(
            f"- {preset}: {start:.1f} processor seconds, and {slope:.2f} per million rows; no table is more than "
            f"{off.max():.0%} from that line. A billion rows: {(start + slope * 1000) / 3600:.1f} processor hours."
        )
    return "\n".join(said) or "Fewer than three tables were measured."


def _in_its_own_process(arguments: argparse.Namespace, millions: float) -> dict[str, float]:
    base = arguments.folder or Path(tempfile.mkdtemp(prefix="addml-large-"))
    table = base / f"rows-{millions:g}M"
    try:
        make_table(table, round(millions * 1e6))
        options = ["--preset", arguments.preset, "--memory", arguments.memory]
        command = [sys.executable, "-m", "benchmarks.large", "0", "--here", str(table), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)
    finally:
        if arguments.folder is None:
            shutil.rmtree(base)


if __name__ == "__main__":
    main()
