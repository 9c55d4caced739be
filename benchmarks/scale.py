"""`python -m benchmarks.scale`: how the cost of rows on disk grows with rows, columns, members and batch size.

Fits two epochs of the paper's detector to generated Parquet files larger than its memory limit, in processor seconds,
which depend less on other programs than the clock. The tables go into docs/scale.md and docs/results/scale.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.documents import DOCS, machine, parse_parts, write_part
from benchmarks.timing import markdown

DOCUMENT, DETAILS = DOCS / "scale.md", DOCS / "results" / "scale.md"
BASE: dict[str, int] = {"rows": 200_000, "columns": 32, "members": 1, "batch": 256}
STEPS = {
    "rows": (100_000, 200_000, 400_000, 800_000),
    "columns": (8, 32, 128, 512),
    "members": (1, 2, 5, 10),
    "batch": (64, 128, 256, 512, 1024),
}
MEMORY = "16MiB"
SETS, SEEDS, EPOCHS = ("shuttle", "magic-telescope"), 3, 10


def make_table(folder: Path, rows: int, columns: int) -> Path:
    """A Parquet file of normal numbers."""
    import pyarrow as pa
    from pyarrow import parquet

    path = folder / f"{rows}-{columns}.parquet"
    if not path.exists():
        X = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
        parquet.write_table(
            pa.table(list(X.T), names=[f"x{index}" for index in range(columns)]), path, row_group_size=65_536
        )
    return path


def cost(folder: Path, rows: int, columns: int, members: int, batch: int) -> tuple[float, float]:
    """Processor seconds of a fit, and the wall-clock seconds of each epoch."""
    from addml import ADDML

    detector = ADDML.paper(epochs=2, members=members, batch_size=batch, random_state=0)
    path, start = make_table(folder, rows, columns), time.process_time()
    detector.fit(path, scratch=folder, memory=MEMORY)
    return time.process_time() - start, float(np.mean([entry["seconds"] for entry in detector.history_]))


def taking(folder: Path) -> float:
    """The share of an epoch spent reading rows from the cache."""
    from addml.inputs.disk import DiskRows

    take, spent = DiskRows.take, [0.0]

    def timed(self: DiskRows, ids: Any) -> Any:
        start = time.perf_counter()
        taken = take(self, ids)
        spent[0] += time.perf_counter() - start
        return taken

    DiskRows.take = timed  # type: ignore[method-assign]
    try:
        _, epoch = cost(folder, **BASE)
    finally:
        DiskRows.take = take  # type: ignore[method-assign]
    return spent[0] / (2 * epoch)


def growth() -> str:
    """One table per quantity: the cost, and its ratio to the previous step."""
    parts = []
    with tempfile.TemporaryDirectory(prefix="addml-scale-") as name:
        cost(Path(name), **{**BASE, "rows": 20_000})  # what is imported or found out once
        for what, steps in STEPS.items():
            rows, before = [], None
            for step in steps:
                seconds, _ = cost(Path(name), **{**BASE, what: step})
                rows.append([f"{step:,}", f"{seconds:.1f}", "" if before is None else f"{seconds / before:.2f}x"])
                before = seconds
                print(what, rows[-1], flush=True)
            parts.append(markdown([what, "processor s", "of the step before"], rows))
        reading = taking(Path(name))
    base = ", ".join(f"{value:,} {name}" for name, value in BASE.items())
    ratio = f"Taking rows from the cache is {reading:.0%} of the time of an epoch."
    return f"All but one as here: {base}.\n\n" + "\n".join(parts) + f"\n{ratio}"


def agreement() -> str:
    """Mean ROC-AUC over seeds of rows on disk and of rows in memory, in percent."""
    import pyarrow as pa
    from pyarrow import parquet
    from sklearn.metrics import roc_auc_score

    from addml import ADDML
    from research.datasets import load as load_set

    rows = []
    for name in SETS:
        known = load_set(name)
        with tempfile.TemporaryDirectory(prefix="addml-scale-") as folder:
            table = pa.table(list(known.X.T), names=[f"c{index}" for index in range(known.X.shape[1])])
            parquet.write_table(table, Path(folder) / "table.parquet", row_group_size=4096)
            for preset, make in {"paper": ADDML.paper, "default": ADDML}.items():
                found: dict[str, list[float]] = {"2GiB": [], "4MiB": []}
                for seed in range(SEEDS):
                    for memory, aucs in found.items():
                        detector = make(random_state=seed, epochs=EPOCHS).fit(folder, memory=memory)
                        aucs.append(100 * roc_auc_score(known.y, detector.anomaly_scores_))
                inside, outside = (float(np.mean(aucs)) for aucs in found.values())
                rows.append([name, preset, f"{inside:.2f}", f"{outside:.2f}", f"{outside - inside:+.2f}"])
                print(rows[-1], flush=True)
    return markdown(["table", "preset", "in memory", "on disk", "difference"], rows)


def main() -> None:
    """Measure the parts named on the command line, or all, and write them."""
    parts = {"agreement": agreement, "growth": lambda: f"{machine()} {growth()}"}
    for name in parse_parts("benchmarks.scale", __doc__, parts, sys.argv[1:]) or parts:
        write_part(DETAILS if name == "growth" else DOCUMENT, name, parts[name]())


if __name__ == "__main__":
    main()
