"""A local Ray cluster of two nodes, started once: scores, a lost worker, driver and cluster, many fits."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from addml import ADDML
from addml.cli.commands import app
from addml.cluster import BatchScorer
from addml.cluster.ray_fit import LOOPBACK, QUIET
from addml.config import Config
from addml.fit import Fit, fit
from tests.cluster.conftest import SETTINGS
from tests.cluster.test_group import Turns, assert_same

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LONG = {**SETTINGS, "epochs": 30, "patience": 30, "random_state": 1}


@pytest.fixture(scope="module")
def cluster():
    """The address of two nodes, with this process as a driver."""
    os.environ |= {**QUIET, **LOOPBACK, "OMP_NUM_THREADS": "1"}
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-cluster installs it")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes.add_node(num_cpus=2)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(scope="module")
def model(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "m"
    ADDML(epochs=1, members=1, random_state=0).fit(parquet.read_table(rows).drop(["id"])).save(folder)
    return folder


def test_nothing_listens_beyond_loopback(cluster):
    import psutil

    found = set()
    for process in psutil.process_iter():
        if "ray" in " ".join(process.cmdline()[:2]) and process.pid != os.getpid():
            found |= {one.laddr.ip for one in process.net_connections() if one.status == "LISTEN"}
    assert found
    assert found <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_ray_data_scores_as_one_process(cluster, rows, model, tmp_path):
    from ray import data

    from addml.cluster.parts import score_dataset

    own = BatchScorer.of(model)
    expected = own(parquet.read_table(rows))
    arguments = ["score", str(rows), "--model", str(model), "--output", str(tmp_path / "out"), "--engine", "ray"]
    result = CliRunner().invoke(app, [*arguments, "--workers", "2", "--reasons", "0", "--json"])
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout)["scored"] == 4
    scored = parquet.read_table(tmp_path / "out").sort_by([("file", "ascending"), ("row", "ascending")])
    assert scored["score"].equals(expected["score"])
    found = score_dataset(data.read_parquet(str(rows)), own, workers=2).to_pandas()
    np.testing.assert_array_equal(np.sort(found["score"]), np.sort(expected["score"]))


def test_many_fits_are_tasks(cluster):
    from addml.cluster.ray_fit import fit_many

    X = np.random.default_rng(0).normal(size=(200, 3))
    fits = [Fit(Config.resolve({**SETTINGS, "random_state": seed}), X + seed) for seed in range(12)]
    models = fit_many(fits)
    alone = fit(fits[7].config, fits[7].X)
    np.testing.assert_array_equal(models[7].encoder.weights, alone.encoder.weights)
    np.testing.assert_array_equal(models[7].training.values, alone.training.values)


def test_a_comparison_and_a_grid_search_run_on_the_cluster(cluster, tmp_path):
    from joblib import parallel_backend
    from ray.util.joblib import register_ray
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GridSearchCV

    random = np.random.default_rng(0)
    X, y = random.normal(size=(90, 3)), np.tile([0] * 8 + [1], 10)
    X[y == 1] += 4
    table = pa.table({**dict(zip("abc", X.T, strict=True)), "label": y})
    parquet.write_table(table, tmp_path / "t.parquet")
    arguments = [
        "compare",
        str(tmp_path / "t.parquet"),
        "--label",
        "label",
        "--methods",
        "IsolationForest,HBOS",
        "--json",
    ]
    here, there = (CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--engine", "ray"]))
    assert there.exit_code == 0, there.exception
    assert aucs_of(there.stdout) == aucs_of(here.stdout)

    def auc(detector, X, y):
        return roc_auc_score(y, detector.anomaly_score(X))

    register_ray()
    detector = ADDML(members=1, random_state=0)
    with parallel_backend("ray"):
        search = GridSearchCV(detector, {"epochs": [1, 2]}, scoring=auc, cv=2, error_score="raise").fit(X, y)
    assert search.best_score_ > 0.9


def aucs_of(output):
    return sorted((one["method"], one["setting"], one["auc"]) for one in json.loads(output)["results"])


def epochs_in(checkpoint):
    try:
        return json.loads((checkpoint / "model.json").read_text())["checkpoint"]["epoch"]
    except (OSError, ValueError):
        return 0


def wait_for_epoch(checkpoint, epoch, process=None):
    end = time.monotonic() + 150
    while epochs_in(checkpoint) < epoch:
        assert time.monotonic() < end, "no epoch was kept"
        assert process is None or process.poll() is None, process.stderr.read()
        time.sleep(0.02)


def expected_model(rows):
    group = Turns(2)
    return group.run(lambda rank: fit(Config.resolve(LONG), rows, group=group))[0]


def test_a_fit_goes_on_after_a_lost_cluster_a_lost_driver_and_a_lost_worker(cluster, rows, tmp_path):
    import psutil

    from addml.cluster.ray_fit import fit_rows

    output = tmp_path / "model"
    checkpoint = Path(f"{output}.checkpoint")

    def begun(address):
        program = (
            "from addml.cluster.ray_fit import fit_rows\n"
            f"fit_rows({LONG!r}, {str(rows)!r}, {str(output)!r}, address={address!r}, workers=2, every=0)"
        )
        return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)

    driver = begun(None)  # which starts a cluster of its own
    wait_for_epoch(checkpoint, 1, driver)
    whole = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
    names = set()
    for one in whole:
        with suppress(psutil.NoSuchProcess):  # Ray's helpers come and go; one that just ended is a zombie
            names.add(one.name())
    assert {"raylet", "gcs_server"} <= names
    for one in whole:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    driver.wait()
    assert 0 < epochs_in(checkpoint) < LONG["epochs"] - 8, "too late for a kill"

    kept = epochs_in(checkpoint)
    driver = begun(cluster)
    wait_for_epoch(checkpoint, kept + 2, driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    kept = epochs_in(checkpoint)
    assert kept < LONG["epochs"] - 4, "too late for a kill"
    assert not output.exists()

    found = {}
    thread = threading.Thread(
        target=lambda: found.update(model=fit_rows(LONG, rows, output, workers=2, every=0)), daemon=True
    )
    thread.start()
    wait_for_epoch(checkpoint, kept + 2)
    named = [one for one in psutil.process_iter() if "RayTrainWorker" in " ".join(one.cmdline())]
    max(named, key=lambda one: one.create_time()).kill()
    assert epochs_in(checkpoint) < LONG["epochs"], "too late for a kill"
    thread.join(280)
    assert_same(found["model"], expected_model(rows))
    assert not checkpoint.exists()
