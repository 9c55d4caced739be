"""Training that goes on where it was: killed, interrupted, with another run beside it, with other settings or rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from addml import ADDML, MLP
from addml.checkpoint import Checkpoint, CheckpointError, open_checkpoint
from addml.inputs.disk import open_source

KILLS = 20


@pytest.fixture(scope="module", name="X")
def rows():
    return np.random.default_rng(2).normal(size=(400, 5))


@pytest.fixture
def stop(monkeypatch):
    """Let training be interrupted after so many epochs have been kept."""

    def after(epochs):
        before = Checkpoint.save

        def save(self, state, members):
            before(self, state, members)
            if state.epoch == epochs:
                raise KeyboardInterrupt

        monkeypatch.setattr(Checkpoint, "save", save)
        return lambda: monkeypatch.setattr(Checkpoint, "save", before)

    return after


def detector(**changes):
    return ADDML(members=3, epochs=6, random_state=0).set_params(**changes)


@pytest.mark.parametrize("changes", [{}, {"patience": 1, "learning_rate": 0.05}, {"loss": "center", "scorer": "knn"}])
def test_an_interrupted_fit_goes_on_and_gives_the_same_model(X, tmp_path, stop, changes):
    whole, folder = detector(**changes).fit(X), tmp_path / "kept"
    go_on = stop(2)
    with pytest.raises(KeyboardInterrupt):
        detector(**changes).fit(X, checkpoint=folder)
    kept = json.loads((folder / "model.json").read_text())["checkpoint"]
    assert (kept["epoch"], len(kept["history"])) == (2, 2)
    go_on()
    again = detector(**changes).fit(X, checkpoint=folder)
    np.testing.assert_array_equal(again.encoder_.weights, whole.encoder_.weights)
    np.testing.assert_array_equal(again.anomaly_scores_, whole.anomaly_scores_)
    np.testing.assert_array_equal(again.rows_kept(), whole.rows_kept())
    strip = [{name: value for name, value in entry.items() if name != "seconds"} for entry in again.history_]
    assert strip == [{name: value for name, value in entry.items() if name != "seconds"} for entry in whole.history_]
    assert not folder.exists()


def test_what_is_kept_is_not_trained_again(X, tmp_path, stop, monkeypatch):
    go_on = stop(4)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(X, checkpoint=tmp_path / "kept")
    go_on()
    seen = []
    save = Checkpoint.save
    monkeypatch.setattr(
        Checkpoint, "save", lambda self, state, members: (seen.append(state.epoch), save(self, state, members))
    )
    detector().fit(X, checkpoint=tmp_path / "kept")
    assert seen == [5, 6]


def test_a_folder_with_other_files_stays(X, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    detector().fit(X, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 7}, "was made with epochs=6, now it is 7; set it back, or remove the folder"),
        ({"random_state": 1}, "was made with random_state=0, now it is 1"),
        ({"encoder": MLP((32,))}, "was made with encoder='auto', now it is 'MLP'"),
    ],
)
def test_other_settings_are_refused(X, tmp_path, stop, changes, message):
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(X, checkpoint=tmp_path / "kept")
    go_on()
    with pytest.raises(CheckpointError, match=message):
        detector(**changes).fit(X, checkpoint=tmp_path / "kept")
    detector().fit(X, checkpoint=tmp_path / "kept")  # nothing was lost


def test_other_rows_are_refused(X, tmp_path, stop):
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(X, checkpoint=tmp_path / "kept")
    go_on()
    with pytest.raises(CheckpointError, match=r"was made from other rows \(digest .*\); give the same table, or"):
        detector().fit(X[::-1], checkpoint=tmp_path / "kept")


def test_other_labels_are_refused(X, tmp_path, stop):
    labels = np.where(np.arange(len(X)) < 20, 1, -1)
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(X, labels=labels, checkpoint=tmp_path / "kept")
    go_on()
    for other in (None, np.roll(labels, 5)):
        with pytest.raises(CheckpointError, match=r"was made from other rows \(labels .*\); give the same table"):
            detector().fit(X, labels=other, checkpoint=tmp_path / "kept")
    same = detector().fit(X, labels=labels, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(same.anomaly_scores_, detector().fit(X, labels=labels).anomaly_scores_)


def test_another_network_of_one_s_own_is_refused(X, tmp_path, stop):
    nn = pytest.importorskip("torch").nn

    class Bent(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(5, 4), nn.Tanh())

    class Straight(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(5, 4))

    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector(encoder=Bent, members=1).fit(X, checkpoint=tmp_path / "kept")
    go_on()
    with pytest.raises(CheckpointError, match=r"was made with encoder='.*Bent', now it is '.*Straight'"):
        detector(encoder=Straight, members=1).fit(X, checkpoint=tmp_path / "kept")


def test_other_columns_of_the_same_files_are_refused(tmp_path, stop):
    rows = np.random.default_rng(0).normal(size=(9000, 4))
    parquet.write_table(pa.table(list(rows.T), names=list("abcd")), tmp_path / "one.parquet")
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(open_source(tmp_path / "one.parquet", list("abc")), checkpoint=tmp_path / "kept", memory="1MiB")
    go_on()
    with pytest.raises(CheckpointError, match=r"made from other rows \(columns .*'c'\], now .*'d'\]\)"):
        detector().fit(open_source(tmp_path / "one.parquet", list("abd")), checkpoint=tmp_path / "kept", memory="1MiB")


def test_files_that_changed_are_named(tmp_path, stop):
    table = tmp_path / "table"
    table.mkdir()
    rows = np.random.default_rng(0).normal(size=(9000, 4))
    parquet.write_table(pa.table(list(rows.T), names=list("abcd")), table / "one.parquet")
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(table, checkpoint=tmp_path / "kept", memory="1MiB")
    go_on()
    os.utime(table / "one.parquet", ns=(5, 5))
    with pytest.raises(CheckpointError, match=r"made from other rows \(.*one.parquet has changed\)"):
        detector().fit(table, checkpoint=tmp_path / "kept", memory="1MiB")


def test_another_filter_of_the_same_files_is_refused(tmp_path, stop):
    rows = np.random.default_rng(0).normal(size=(12000, 5))
    rows[:, 4] = np.arange(12000) % 2
    parquet.write_table(pa.table(list(rows.T), names=list("abcdh")), tmp_path / "one.parquet")
    whole = dataset.dataset(tmp_path / "one.parquet")
    even, odd = (whole.filter(dataset.field("h") == half) for half in (0, 1))  # as many rows
    go_on = stop(1)
    with pytest.warns(UserWarning, match="constant"), pytest.raises(KeyboardInterrupt):
        detector().fit(even, checkpoint=tmp_path / "kept", memory="1MiB")
    go_on()
    with pytest.raises(CheckpointError, match=r"made from other rows \(filter .*h == 0.*, now .*h == 1"):
        detector().fit(odd, checkpoint=tmp_path / "kept", memory="1MiB")


def test_rows_that_are_in_no_files_are_not_kept_a_checkpoint_of(tmp_path):
    table = pa.table(list(np.random.default_rng(0).normal(size=(4, 9000))), names=list("abcd"))
    with pytest.raises(ValueError, match="InMemoryDataset with a checkpoint: its rows are not in files"):
        detector().fit(dataset.dataset(table), checkpoint=tmp_path / "kept", memory="1MiB")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["checkpoint", "scratch"])
def test_an_empty_path_is_no_folder(X, name):
    with pytest.raises(ValueError, match=f"{name}='' is empty"):
        detector().fit(X, **{name: ""})


def test_a_large_table_is_refused_before_it_is_looked_through(tmp_path, stop, monkeypatch):
    table = pa.table(list(np.random.default_rng(0).normal(size=(4, 9000))), names=list("abcd"))
    parquet.write_table(table, tmp_path / "one.parquet")
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(tmp_path / "one.parquet", checkpoint=tmp_path / "kept", memory="1MiB")
    go_on()
    monkeypatch.setattr("addml.disk_fit.Census.take", lambda *arguments: pytest.fail("was looked through"))
    with pytest.raises(CheckpointError, match="epochs=6, now it is 7"):
        detector(epochs=7).fit(tmp_path / "one.parquet", checkpoint=tmp_path / "kept", memory="1MiB")
    message = "another run is using it"
    with open_checkpoint(tmp_path / "other", {"random_state": 0}), pytest.raises(CheckpointError, match=message):
        detector().fit(tmp_path / "one.parquet", checkpoint=tmp_path / "other", memory="1MiB")


def test_a_fit_that_fails_before_its_first_epoch_leaves_no_checkpoint(tmp_path):
    rows = np.random.default_rng(0).normal(size=(4, 9000))
    rows[0, 5] = np.inf
    parquet.write_table(pa.table(list(rows), names=list("abcd")), tmp_path / "one.parquet")
    with pytest.raises(ValueError, match="row 6 is inf"):
        detector().fit(tmp_path / "one.parquet", checkpoint=tmp_path / "kept", memory="1MiB")
    assert [path.name for path in tmp_path.iterdir()] == ["one.parquet"]


def test_a_second_run_is_refused(X, tmp_path):
    message = rf"another run is using it \(process {os.getpid()}\); wait"
    with open_checkpoint(tmp_path / "kept", {"random_state": 0}), pytest.raises(CheckpointError, match=message):
        detector().fit(X, checkpoint=tmp_path / "kept")
    detector().fit(X, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("damage", [lambda file: file.write_text("{"), lambda file: file.write_text('{"format": 1}')])
def test_a_damaged_checkpoint_is_refused(X, tmp_path, stop, damage):
    go_on = stop(1)
    with pytest.raises(KeyboardInterrupt):
        detector().fit(X, checkpoint=tmp_path / "kept")
    go_on()
    damage(tmp_path / "kept" / "model.json")
    with pytest.raises(CheckpointError, match=r"is not a complete checkpoint .* or remove the folder to start again"):
        detector().fit(X, checkpoint=tmp_path / "kept")


def test_a_seed_is_needed(X, tmp_path):
    with pytest.raises(ValueError, match="random_state=None: a checkpoint needs a whole number"):
        detector(random_state=None).fit(X, checkpoint=tmp_path / "kept")


def test_a_file_is_no_folder(X, tmp_path):
    (tmp_path / "kept").write_text("")
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        detector().fit(X, checkpoint=tmp_path / "kept")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system makes no children by fork")
def test_a_kill_at_any_moment_ends_in_the_same_model(tmp_path):
    program = Path(__file__).with_name("killing.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(program), str(tmp_path), str(KILLS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["models"] == [found["undisturbed"]] * KILLS
    assert found["left"] == []
    assert any(0 < epochs < 6 for epochs in found["kept"]), found["kept"]
