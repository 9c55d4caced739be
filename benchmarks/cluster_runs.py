"""Runs on a cluster of this machine: how good two workers are, how fast Ray Data scores, what memory workers take.

`python -m benchmarks.cluster_runs quality` compares the scores of one and two workers (ADDML_DATA). It writes its
table into docs/cluster.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from addml.learning.group import Group, TorchGroup
from benchmarks.cluster import EVERY, PAGE

SEEDS = 3


def quality(store: str, rank: int) -> None:
    """The ROC-AUC in percent of two workers that average weights beside that of one, after ten epochs.

    A worker of two makes half as many steps in an epoch: with twice as many epochs it makes as many.
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
        columns = [f"c{place}" for place in range(known.X.shape[1])]
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
    parser.add_argument("part", choices=["quality"])
    parser.add_argument("--worker", nargs=2, metavar=("STORE", "RANK"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return quality(given.worker[0], int(given.worker[1]))
    return two_processes()


if __name__ == "__main__":
    main()
