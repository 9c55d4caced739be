"""Runs on a local Ray cluster: quality of two workers, speed of Ray Data, memory of workers.

`python -m benchmarks.cluster_runs quality` compares the scores of one and two workers (ADDML_DATA), `scoring` the speed
of Ray Data and of `addml score`, `memory` measures workers against their limit. Tables go into docs/cluster.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from addml.learning.group import Group, TorchGroup
from addml.progress import Progress
from benchmarks.cluster import COLUMNS, EVERY, PAGE
from benchmarks.large import anonymous

SEEDS = 3
WORKERS, FILE_ROWS = 2, 100_000
SCORED, TURNS = 1_600_000, 3  # rows; each turn with both, one after the other
FITTED = {"256MiB": 1_000_000, "512MiB": 2_000_000}  # rows that take more than that


def quality(store: str, rank: int) -> None:
    """ROC-AUC in percent of one worker and of two that average weights, after ten epochs.

    Each of two workers makes half the steps of one in an epoch, so it is also run for twice the epochs.
    """
    import pyarrow as pa
    import torch.distributed as dist
    from pyarrow import parquet
    from sklearn.metrics import roc_auc_score

    from addml import ADDML
    from addml.checkpoint import Storage
    from addml.config import Config
    from addml.fit import fit
    from benchmarks.documents import write_part
    from research.datasets import load as load_set

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    lines = [
        "| table | preset | one worker | two workers | difference | two workers, as many steps | difference |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name in ("shuttle", "magic-telescope"):
        known, path = load_set(name), Path(f"{store}-{name}-{rank}.parquet")
        order = np.random.default_rng(0).permutation(len(known.y))  # a file may be sorted by its labels
        columns = [f"c{index}" for index in range(known.X.shape[1])]
        parquet.write_table(pa.table(list(known.X[order].T), names=columns), path, row_group_size=4096)

        def auc(make: Any, seed: int, epochs: int, group: Group) -> float:
            config = Config.resolve(make(random_state=seed, epochs=epochs, n_jobs=1).get_params(deep=False))
            model = fit(config, path, storage=Storage(memory="1MiB"), group=group)  # noqa: B023
            return 100 * float(roc_auc_score(known.y[order], model.training.values))  # noqa: B023

        for preset, make in {"paper": ADDML.paper, "default": ADDML}.items():
            runs = ((10, Group()), (10, TorchGroup(EVERY)), (20, TorchGroup(EVERY)))
            one, two, twice = (np.mean([auc(make, seed, *run) for seed in range(SEEDS)]) for run in runs)
            words = f"{two:.2f} | {two - one:+.2f} | {twice:.2f} | {twice - one:+.2f}"
            lines.append(f"| {name} | {preset} | {one:.2f} | {words} |")
    if rank == 0:
        write_part(PAGE, "quality", "\n".join(lines))


# Ray ------------------------------------------------------------------------------------------------------------


class Peaks:
    """Peak and initial anonymous memory of each Ray worker whose title contains a name."""

    def __init__(self, name: str) -> None:
        self.name, self.first, self.most = name, dict[int, int](), dict[int, int]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, StopIteration, ValueError):
                    if self.name in (folder / "cmdline").read_text():
                        bytes_now, own = anonymous(folder / "status"), int(folder.name)
                        self.first.setdefault(own, bytes_now)
                        self.most[own] = max(self.most.get(own, 0), bytes_now)

    def told(self) -> str:
        """Two cells: at first, at most."""
        largest = max(self.most, key=lambda own: self.most[own])
        return f"{self.first[largest] / 2**20:.0f} | {self.most[largest] / 2**20:.0f}"


def write_files(folder: Path, rows: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    for number in range(rows // FILE_ROWS):
        random = np.random.default_rng(number)
        table = pa.table({f"c{index}": random.normal(size=FILE_ROWS).astype(np.float32) for index in range(COLUMNS)})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=50_000)


class Steady(Progress):
    """The rate of scoring once every worker has started, counted from the end of the first parts."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []  # seconds, rows

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> Any:
        """Record when rows are done."""
        return nullcontext(lambda rows: self.ends.append((time.perf_counter(), rows * rows_each)) if rows else None)

    def rate(self) -> float:
        """Rows a second."""
        after = self.ends[WORKERS:]
        return sum(rows for _, rows in after) / (after[-1][0] - self.ends[WORKERS - 1][0])


def scoring() -> None:
    """Rows a second of `addml score` and of Ray Data with as many processes, start-up excluded, and their memory."""
    import pyarrow as pa

    from addml import ADDML
    from addml.cluster.parts import score_table
    from addml.pipeline import run
    from addml.pipeline.options import Options
    from benchmarks.documents import write_part

    rates: dict[str, list[float]] = {"processes": [], "ray": []}
    loads: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Peaks("MapWorker") as peaks:
        write_files(Path(folder, "rows"), SCORED)
        X = np.random.default_rng(9).normal(size=(20_000, COLUMNS))
        table = pa.table(list(X.T), names=[f"c{index}" for index in range(COLUMNS)])
        ADDML(epochs=2, random_state=0).fit(table).save(Path(folder, "model"))
        options = Options(file=f"{folder}/rows", model=f"{folder}/model", jobs=WORKERS, workers=WORKERS)
        for turn in range(TURNS):
            loads.append(os.getloadavg()[0])
            for engine, own in rates.items():
                steady = Steady()
                if engine == "ray":
                    score_table(options, f"{folder}/scored-{turn}", steady)
                else:
                    run.score(options, steady, mapped=False)
                own.append(steady.rate())
                print(engine, f"{own[-1]:,.0f} rows/s", flush=True)
    lines = [
        "| turn | `addml score`, rows/s | `--engine ray`, rows/s | ratio | load of the machine |",
        "|--:|--:|--:|--:|--:|",
    ]
    for turn, (alone, ray) in enumerate(zip(*rates.values(), strict=True)):
        lines.append(f"| {turn + 1} | {alone:,.0f} | {ray:,.0f} | {ray / alone:.2f} | {loads[turn]:.1f} |")
    lines += ["", f"A worker took {peaks.told().replace(' | ', ' MiB at first and ')} MiB at most."]
    write_part(PAGE, "scoring", "\n".join(lines))


def memory() -> None:
    """Peak memory of a worker during a fit, next to its limit."""
    from addml.checkpoint import Storage
    from addml.cluster.ray_fit import fit_rows
    from benchmarks.documents import write_part

    lines = ["| `memory` | rows | a worker at first, MiB | at most, MiB |", "|--:|--:|--:|--:|"]
    with tempfile.TemporaryDirectory() as name:
        for bound, rows in FITTED.items():
            folder = Path(name) / str(rows)
            write_files(folder, rows)
            with Peaks("RayTrainWorker") as peaks:
                storage = Storage(memory=bound, scratch=name)
                settings = {"epochs": 1, "random_state": 0, "n_jobs": 1}
                fit_rows(settings, folder, f"{folder}.model", storage=storage, workers=WORKERS)
            lines.append(f"| {bound} | {rows:,} | {peaks.told()} |")
            print(lines[-1], flush=True)
    write_part(PAGE, "memory", "\n".join(lines))


# Start ----------------------------------------------------------------------------------------------------------


def two_processes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, "-m", "benchmarks.cluster_runs", "quality", "--worker", f"{folder}/store"]
        begun = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
        codes = [one.wait() for one in begun]
        if any(codes):
            raise SystemExit("a process failed; see above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"quality": two_processes, "scoring": scoring, "memory": memory}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--worker", nargs=2, metavar=("STORE", "RANK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return quality(arguments.worker[0], int(arguments.worker[1]))
    return parts[arguments.part]()


if __name__ == "__main__":
    main()
