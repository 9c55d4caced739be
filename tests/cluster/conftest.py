"""Tables and groups of processes for the tests of the cluster."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

SETTINGS = {"epochs": 3, "members": 2, "batch_size": 64, "random_state": 0, "encoder": "mlp", "n_jobs": 1}


def write_rows(folder, files=4, rows=1500, seed=0):
    folder.mkdir()
    random = np.random.default_rng(seed)
    for number in range(files):
        X = random.normal(size=(rows, 4)) * [1, 2, 3, 1]
        X[:20] += 8
        table = {"id": [f"{number}-{row}" for row in range(rows)], **dict(zip("abcd", X.T, strict=True))}
        table["kind"] = random.choice(["x", "y", "z"], rows)
        parquet.write_table(pa.table(table), folder / f"{number}.parquet", row_group_size=rows // 3)
    return folder


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    """A folder of Parquet files."""
    return write_rows(tmp_path_factory.mktemp("cluster") / "rows")


@pytest.fixture(scope="session")
def together(tmp_path_factory):
    """Fit a table in a group of gloo processes; returns their exit codes and their errors."""

    def fit(table, size, **more):
        store = tmp_path_factory.mktemp("store") / uuid.uuid4().hex
        job = {"table": str(table), "size": size, "store": str(store), "settings": SETTINGS, **more}
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        program = [sys.executable, str(Path(__file__).with_name("fitting.py"))]
        processes = [
            subprocess.Popen(
                [*program, json.dumps({**job, "rank": rank})], env=environment, stderr=subprocess.PIPE, text=True
            )
            for rank in range(size)
        ]
        errors = [process.communicate(timeout=240)[1] for process in processes]
        return [process.returncode for process in processes], errors

    return fit
