"""A fit to rows on disk against one in memory: equal where a portion and the sample hold all rows, else as good."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, parquet
from sklearn.metrics import roc_auc_score

import addml
from addml import ADDML, disk_fit
from addml.arrays import ScratchError
from addml.disk_fit import DiskRows, portions
from addml.errors import DroppedColumnsWarning
from addml.inputs.disk import open_source
from addml.io.source import ReadError
from research.datasets import load as load_set

ROWS = 9000
SMALL = "1MiB"  # which no table here fits into


@pytest.fixture(scope="module")
def table():
    """Two correlated columns, a category with gaps, one that hardly varies, and rows that are all gaps."""
    random = np.random.default_rng(4)
    a = random.normal(size=ROWS)
    place = random.choice(["north", "south", "east"], ROWS).astype(object)
    rare = np.zeros(ROWS)
    rare[8000:8003] = [1.0, 2.0, 3.0]
    b = a + 0.1 * random.normal(size=ROWS)
    b[:90] = random.normal(size=90) * 3
    a[[10, 5000]] = b[[10, 5000]] = rare[[10, 5000]] = np.nan
    place[[10, 5000]] = None
    return pa.table({"a": a, "b": b, "place": place, "rare": pa.array(rare, from_pandas=True)})


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    base = tmp_path_factory.mktemp("table")
    for number in range(3):
        parquet.write_table(table.slice(number * 3000, 3000), base / f"{number}.parquet", row_group_size=700)
    return base


@pytest.fixture
def whole(monkeypatch):
    """Let one portion and the sample hold every row, whatever the memory."""
    monkeypatch.setattr(disk_fit, "portions", lambda rows, most, seed, epoch: portions(rows, rows, seed, epoch))
    monkeypatch.setattr(disk_fit, "SAMPLED", 10**9)
    monkeypatch.setattr(disk_fit, "LEAST_SAMPLE", 10**9)


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    """Samples as small as the memory is."""
    monkeypatch.setattr(disk_fit, "LEAST_SAMPLE_BYTES", 0)


def quick(**changes):
    return ADDML(members=2, epochs=3, random_state=0).set_params(**changes)


@pytest.fixture(scope="module")
def on_disk(folder):
    """A detector fitted to the folder, a portion at a time, that no test may change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_fit, "LEAST_SAMPLE_BYTES", 0)
        return quick().fit(folder, memory=SMALL)


def same(one, other):
    np.testing.assert_array_equal(one.encoder_.weights, other.encoder_.weights)
    np.testing.assert_array_equal(one.anomaly_scores_, other.anomaly_scores_)
    np.testing.assert_array_equal(one.center_, other.center_)
    np.testing.assert_array_equal(one.baseline_, other.baseline_)
    assert one.threshold_ == other.threshold_


def test_a_home_folder_is_found_by_all_that_take_paths(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "table").symlink_to(folder, target_is_directory=True)
    for name in ("cache", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    detector = quick(epochs=1).fit("~/table", checkpoint="~/checkpoint", scratch="~/cache", memory=SMALL)
    detector.write_scores("~/table/0.parquet", "~/scores.csv")
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 3001
    np.testing.assert_array_equal(detector.anomaly_score("~/table"), detector.anomaly_score(folder))
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scaling": "standard", "scorer": "center", "members": 1},
        {"loss": "center", "scorer": "knn", "patience": 1, "learning_rate": 0.05},
        pytest.param({"loss__distance": "euclidean", "scorer": "dissimilarity"}, marks=pytest.mark.slow),
        {"contamination": "auto"},
    ],
    ids=str,
)
def test_the_model_of_one_portion_is_that_of_memory(table, folder, whole, changes):
    resident = quick(**changes).fit(table)
    on_disk = quick(**changes).fit(folder, memory=SMALL)
    same(resident, on_disk)
    np.testing.assert_array_equal(resident.rows_kept(), on_disk.rows_kept())
    np.testing.assert_array_equal(resident.model_.held_out, on_disk.model_.held_out)
    np.testing.assert_array_equal(resident.model_.examples.rows, on_disk.model_.examples.rows)


@pytest.mark.parametrize("scaling", ["robust", "standard"])
def test_many_portions_rank_the_rows_alike(table, folder, scaling):
    resident = ADDML.paper(scaling=scaling, random_state=0, epochs=5).fit(table)
    on_disk = ADDML.paper(scaling=scaling, random_state=0, epochs=5).fit(folder, memory=SMALL)
    assert len(list(portions(ROWS, 2**20 // 4 // (4 * 10 + 24), 0, 0))) > 1
    assert np.corrcoef(np.argsort(np.argsort([resident.anomaly_scores_, on_disk.anomaly_scores_])))[0, 1] > 0.97
    strange = np.arange(ROWS) < 90
    aucs = [roc_auc_score(strange, one.anomaly_scores_) for one in (resident, on_disk)]
    assert abs(aucs[0] - aucs[1]) < 0.02


def test_a_dataset_is_as_good_as_its_folder(folder, on_disk):
    same(on_disk, quick().fit(dataset.dataset(folder, format="parquet"), memory=SMALL))


def test_a_table_that_fits_is_learned_from_in_memory(table, folder, monkeypatch):
    monkeypatch.setattr(disk_fit, "prepare", None)
    same(quick().fit(table), quick().fit(folder, memory="1GiB"))


def test_a_refit_goes_on_from_rows_on_disk(table, folder, whole):
    same(quick().fit(table).refit(table), quick().fit(table).refit(folder, memory=SMALL))


@pytest.fixture(scope="module")
def few(folder):
    """The same, of which 500 scores are remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_fit, "LEAST_SAMPLE_BYTES", 0)
        patch.setattr(disk_fit, "REMEMBERED", 500)
        return quick().fit(folder, memory=SMALL)


def test_the_threshold_is_that_of_all_rows_up_to_the_steps_between_remembered_scores(folder, on_disk, few):
    assert on_disk.threshold_ == np.quantile(on_disk.anomaly_scores_, 0.9)
    assert len(few.anomaly_scores_) == 500
    again = few.anomaly_score(folder)
    assert abs((again > few.threshold_).mean() - 0.1) <= 1 / 500
    assert set(few.anomaly_scores_) <= set(on_disk.anomaly_scores_)


def test_a_model_of_many_rows_is_saved_and_loaded(folder, few, tmp_path):
    few.save(tmp_path / "model")
    loaded = addml.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.anomaly_score(folder), few.anomaly_score(folder))
    np.testing.assert_array_equal(loaded.predict_proba(folder), few.predict_proba(folder))


@pytest.mark.parametrize("name", ["scores.parquet", "scores.csv"])
def test_scores_are_written_part_by_part(folder, on_disk, tmp_path, name):
    on_disk.write_scores(folder, tmp_path / name)
    found = parquet.read_table(tmp_path / name) if name.endswith("parquet") else csv.read_csv(tmp_path / name)
    np.testing.assert_allclose(found["score"].to_numpy(), on_disk.anomaly_scores_, rtol=1e-12)
    assert found["row"].to_pylist() == list(range(1, ROWS + 1))
    assert found["is_anomaly"].to_pylist() == (on_disk.anomaly_scores_ > on_disk.threshold_).tolist()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("memory", [SMALL, "2GiB"])
def test_columns_that_some_files_do_not_have_are_said(tmp_path, memory):
    values = np.random.default_rng(0).normal(size=(4, 6000))
    parquet.write_table(pa.table(list(values), names=list("abcd")), tmp_path / "0.parquet")
    parquet.write_table(pa.table(list(values[:3]), names=list("abc")), tmp_path / "1.parquet")
    with pytest.warns(
        DroppedColumnsWarning, match="columns that some files do not have, read as missing values there: d"
    ):
        quick(epochs=1).fit(tmp_path, memory=memory)


def test_what_looks_at_rows_takes_none_on_disk(table, tmp_path):
    parquet.write_table(table.slice(0, 100), tmp_path / "0.parquet")
    numbers = np.random.default_rng(0).normal(size=(50, 3))
    for rows in (table.slice(0, 100), numbers):
        fitted = quick(epochs=1).fit(rows)
        for source in (tmp_path, str(tmp_path / "0.parquet"), dataset.dataset(tmp_path)):
            for look in (fitted.transform, fitted.explain, fitted.nearest_normal):
                with pytest.raises(TypeError, match="is a table on disk, which only fit, write_scores"):
                    look(source)


@pytest.mark.parametrize("changed", [{"window": 4}, {"encoder": "conv"}], ids=str)
def test_settings_for_another_fit_do_not_change_what_is_scored(table, tmp_path, changed):
    parquet.write_table(table.slice(0, 100), tmp_path / "0.parquet")
    fitted = quick(epochs=1).fit(tmp_path)
    fitted.set_params(**changed)
    np.testing.assert_array_equal(fitted.anomaly_score(tmp_path), fitted.anomaly_scores_)


def test_scores_never_take_the_place_of_the_table(table, tmp_path):
    file = tmp_path / "rows" / "0.parquet"
    file.parent.mkdir()
    parquet.write_table(table.slice(0, 100), file)
    before, fitted = file.read_bytes(), quick(epochs=1).fit(table.slice(0, 100))
    ways = [(file, tmp_path / "." / "rows" / "0.parquet"), (file.parent, file), (file.parent, "new.pq")]
    for source, path in [*ways, (dataset.dataset(file), file), (open_source(file), file)]:
        with pytest.raises(ValueError, match="is the table itself or a part of it"):
            fitted.write_scores(source, str(file.parent / path))
    with pytest.raises(TypeError, match="Table is not a table on disk: give the path of a Parquet file"):
        fitted.write_scores(table, tmp_path / "scores.csv")
    assert [path.name for path in tmp_path.rglob("*")] == ["rows", "0.parquet"]
    assert file.read_bytes() == before
    fitted.write_scores(file.parent, file.parent / "scores.csv")  # which is not read as a part of it
    np.testing.assert_array_equal(fitted.anomaly_score(file.parent), fitted.anomaly_scores_)


def test_nothing_is_left_behind(folder, tmp_path):
    quick(epochs=1).fit(folder, scratch=tmp_path, memory=SMALL)
    assert list(tmp_path.iterdir()) == []


# What goes wrong --------------------------------------------------------------------------------------------


def test_labels_need_memory(folder):
    with pytest.raises(ValueError, match="labels need rows in memory; give memory > 1440000"):
        quick().fit(folder, labels=np.zeros(ROWS), memory=SMALL)


def test_a_disk_that_fills_leaves_neither_files_nor_a_model(folder, tmp_path, monkeypatch):
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("addml.arrays.shutil.disk_usage", lambda folder: usage(10**9, 10**9, 1000))
    detector = quick()
    with pytest.raises(ScratchError, match=r"prepared rows need .*--scratch"):
        detector.fit(folder, scratch=tmp_path, memory=SMALL)
    assert list(tmp_path.iterdir()) == []
    assert not hasattr(detector, "threshold_")


def test_no_folder_for_scratch(folder, tmp_path):
    with pytest.raises(ValueError, match="is not a folder; create it, or give another"):
        quick().fit(folder, scratch=tmp_path / "none", memory=SMALL)


def test_a_folder_that_changes_between_epochs_is_noticed(table, tmp_path, monkeypatch):
    parquet.write_table(table, tmp_path / "0.parquet")
    unchanged = DiskRows.portions

    def change(self, epoch):
        if epoch == 1:
            parquet.write_table(table.slice(1), tmp_path / "0.parquet")
        return unchanged(self, epoch)

    monkeypatch.setattr(DiskRows, "portions", change)
    detector = quick()
    with pytest.raises(ReadError, match=r"0.parquet: has changed since the run began"):
        detector.fit(tmp_path, memory=SMALL)
    assert not hasattr(detector, "threshold_")


@pytest.mark.parametrize("memory", ["2 gigs", 0, -1, None, 1.5, "1KiB", True])
def test_a_size_of_memory_that_is_none(memory):
    with pytest.raises(ValueError, match=r"memory=.* must be a memory size of at least 1 MiB"):
        ADDML().fit(np.zeros((5, 2)), memory=memory)


# How much memory --------------------------------------------------------------------------------------------

PROGRAM = """
import sys, threading, time
from pathlib import Path
import numpy as np
from addml import ADDML
from addml.inputs.disk import open_source
import addml.disk_fit

addml.disk_fit.REMEMBERED = 50_000  # of a million

def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

most, over = [0], threading.Event()
def look():
    while not over.wait(0.005):
        most[0] = max(most[0], held())

threading.Thread(target=look, daemon=True).start()
before = held()
ADDML.fast(epochs=1, random_state=0, n_jobs=1).fit(sys.argv[1], memory="16MiB")
over.set()
print(most[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    held = []
    for times in (1, 4):
        folder = tmp_path / str(times)
        folder.mkdir()
        for number in range(times):
            X = np.random.default_rng(number).normal(size=(250_000, 8)).astype(np.float32)
            parquet.write_table(
                pa.table(list(X.T), names=list("abcdefgh")), folder / f"{number}.parquet", row_group_size=50_000
            )
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True)
        held.append(int(done.stdout) / 1024)
    assert held[1] < held[0] + 20, held  # MB; 750,000 more rows are 24 MB, and their ids, scores and marks 20 MB more


# Agreement --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shuttle", "magic-telescope"])
def test_streaming_finds_as_much_as_memory(name, data_folder, tmp_path):
    known = load_set(name)
    table = pa.table(list(known.X.T), names=[f"c{place}" for place in range(known.X.shape[1])])
    parquet.write_table(table, tmp_path / "table.parquet", row_group_size=4096)
    aucs = {"memory": [], "disk": []}
    for seed in range(3):
        resident = ADDML.paper(random_state=seed, epochs=10)
        on_disk = ADDML.paper(random_state=seed, epochs=10)
        aucs["memory"].append(roc_auc_score(known.y, resident.fit(table).anomaly_scores_))
        aucs["disk"].append(roc_auc_score(known.y, on_disk.fit(tmp_path, memory="4MiB").anomaly_scores_))
    assert abs(np.mean(aucs["memory"]) - np.mean(aucs["disk"])) < 0.003, aucs


# On a device ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_rows_on_disk_go_to_the_device_a_batch_at_a_time(folder, monkeypatch, members):
    """With torch's own CPU device in place of an accelerator."""
    pytest.importorskip("torch")
    settings = {"epochs": 2, "random_state": 0, "members": members}
    here = ADDML.paper(**settings).fit(folder, memory=SMALL)
    monkeypatch.setattr("addml.fit.resolve_device", lambda device: "cpu:0")
    there = ADDML.paper(**settings).fit(folder, memory=SMALL)
    np.testing.assert_allclose(there.history_[-1]["train_loss"], here.history_[-1]["train_loss"], rtol=1e-3)
    assert np.corrcoef(np.argsort(np.argsort([here.anomaly_scores_, there.anomaly_scores_])))[0, 1] > 0.999


def test_how_often_an_epoch_takes_a_row():
    """M twice, two thirds of it once more and V twice; at the end M twice, over all epochs."""
    one = ADDML(members=5, epochs=10, validation_ratio=0.1, normal_ratio=2 / 3)
    assert disk_fit._passes(one) == pytest.approx(5 * (2 * 0.9 + 0.6 + 2 * 0.1 + 2 * 0.9 / 10))
