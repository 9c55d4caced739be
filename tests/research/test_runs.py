"""Results are kept whole, once, and a stopped experiment goes on where it was."""

import io
from dataclasses import replace

import numpy as np
import pytest

from addml.errors import AddmlError
from addml.pipeline import batches
from research import reproduce, run_store
from research.experiment import Case
from research.reproduce import Choice, stored, waiting
from research.run_store import COLUMNS, Store, key_of
from tests.research.toy import plan, row


def rows_of(method, auc=0.5):
    return [row("one", method, setting, auc) for setting in ("seen", "unseen")]


def keys(*methods):
    return {key_of(rows_of(method)[0]) for method in methods}


def keys_in(store):
    return {key_of(one) for one in store.rows()}


def gathered(store):
    store.gather()
    return store.rows()


def test_parts_become_one_file(tmp_path):
    store = Store(tmp_path, "table2")
    store.add(rows_of("KNN"))
    store.add(rows_of("HBOS"))
    assert keys_in(store) == keys("KNN", "HBOS")
    assert not store.file.exists()
    assert len(gathered(store)) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["table2.parquet"]
    assert keys_in(store) == keys("KNN", "HBOS")


def test_every_row_has_every_column(tmp_path):
    store = Store(tmp_path, "table2")
    store.add(rows_of("KNN"))
    assert all(list(one) == list(COLUMNS) for one in store.rows())


def test_a_stop_between_writing_and_removing_counts_no_row_twice(tmp_path):
    store = Store(tmp_path, "table2")
    store.add(rows_of("KNN"))
    run_store._write(store.file, store.rows())  # as gathering does before it removes the parts
    assert len(store.rows()) == 2
    assert len(gathered(store)) == 2


def test_a_task_run_again_replaces_its_rows(tmp_path):
    store = Store(tmp_path, "table2")
    for auc in (0.5, 0.7):
        store.add(rows_of("KNN", auc))
        gathered(store)
    assert {one["auc"] for one in store.rows()} == {0.7}


def test_a_file_half_written_by_a_killed_run_is_passed_over(tmp_path):
    store = Store(tmp_path, "table2")
    store.add(rows_of("KNN"))
    (store.parts / ".addml-1-2.part").write_bytes(b"PAR1 half")
    assert keys_in(store) == keys("KNN")
    assert len(gathered(store)) == 2


def test_no_part_without_all_its_rows(tmp_path, monkeypatch):
    import pyarrow.parquet

    def fail(*given, **more):
        raise KeyboardInterrupt

    store = Store(tmp_path, "table2")
    monkeypatch.setattr(pyarrow.parquet.ParquetWriter, "write_table", fail)
    monkeypatch.setattr(pyarrow.parquet.ParquetWriter, "write_batch", fail)
    with pytest.raises(KeyboardInterrupt):
        store.add(rows_of("KNN"))
    assert keys_in(store) == set()


def other_table():
    import pyarrow as pa
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.table({"set": ["one"], "auc": [0.5]}), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"PAR1 half of it", "cannot be read"),
        (other_table(), "holds no runs: it has no column 'method'"),
    ],
)
@pytest.mark.parametrize("name", ["table2.parquet", "table2.parts/0123.parquet"])
def test_a_file_that_holds_no_runs_is_named_with_the_remedy(tmp_path, content, words, name):
    (tmp_path / "table2.parts").mkdir()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AddmlError, match=words) as raised:
        Store(tmp_path, "table2").rows()
    assert name in str(raised.value)
    assert "Move it away" in str(raised.value)


@pytest.mark.usefixtures("registry")
def test_a_stopped_experiment_goes_on_where_it_was(tmp_path, monkeypatch):
    own, choice = plan(), Choice()
    tasks = waiting(own, tmp_path, choice)
    assert [(task.set, task.case.method) for task in tasks] == [
        ("one", "HBOS"),  # the longest first
        ("two", "HBOS"),
        ("one", "KNN"),
        ("two", "KNN"),
    ]
    run_task, calls = batches.run_task, []

    def stopped_at_the_third(task, machine):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_task(task, machine)

    monkeypatch.setattr(batches, "run_task", stopped_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        reproduce.run(own, tasks, tmp_path, choice)
    monkeypatch.setattr(batches, "run_task", run_task)
    left = waiting(own, tmp_path, choice)
    assert [(task.set, task.case.method) for task in left] == [("one", "KNN"), ("two", "KNN")]
    reproduce.run(own, left, tmp_path, choice)
    assert waiting(own, tmp_path, choice) == []
    assert len(stored(own, tmp_path)) == 4 * 27
    assert len(waiting(own, tmp_path, Choice(again=True))) == 4


@pytest.mark.usefixtures("registry")
def test_results_do_not_depend_on_the_stop(tmp_path):
    own = plan()
    for folder, parts in (("whole", [slice(None)]), ("parts", [slice(1), slice(1, None)])):
        tasks = waiting(own, tmp_path / folder, Choice())
        for part in parts:
            reproduce.run(own, tasks[part], tmp_path / folder, Choice())
    whole, parts = (
        {(key_of(one), one["setting"], one["seed"], one["fold"]): one["auc"] for one in stored(own, tmp_path / folder)}
        for folder in ("whole", "parts")
    )
    assert whole == parts


@pytest.mark.usefixtures("registry")
def test_missing_sets_are_not_run_and_choices_hold(tmp_path):
    own = plan(sets=("one", "gone"))
    assert {task.set for task in waiting(own, tmp_path, Choice())} == {"one"}
    assert {task.case.method for task in waiting(own, tmp_path, Choice(methods=("KNN",)))} == {"KNN"}
    assert waiting(own, tmp_path, Choice(sets=("gone",))) == []


def test_a_failure_is_told_and_the_others_go_on(tmp_path, registry):
    registry["one"].y[:] = np.arange(60) < 2  # fewer anomalies than folds
    own, told = plan(methods=("HBOS",)), []
    reproduce.run(own, waiting(own, tmp_path, Choice()), tmp_path, Choice(), told.append)
    assert [(one.task.set, bool(one.failure)) for one in told] == [("one", True), ("two", False)]
    assert "2 anomalies and" in told[0].failure
    assert len(stored(own, tmp_path)) == 27
    assert [task.set for task in waiting(own, tmp_path, Choice())] == ["one"]  # it is tried again next time


def test_the_settings_of_a_run_are_stored(tmp_path, registry):
    import json

    own = plan(methods=("ADDML.paper",), sets=("two",))
    reproduce.run(own, waiting(own, tmp_path, Choice()), tmp_path, Choice(command="python -m research table2"))
    (one, *_) = stored(own, tmp_path)
    settings = json.loads(one["settings"])
    assert settings["batch_size"] == 256
    assert settings["one_class"] == {"normal_ratio": 1.0}
    assert {"numpy", "pyod"} <= json.loads(one["versions"]).keys()
    assert (one["rows"], one["columns"], one["device"]) == (48, 3, "cpu")
    assert one["command"] == "python -m research table2"
    assert one["when"].startswith("20")


@pytest.mark.usefixtures("registry")
def test_fits_of_another_experiment_are_borrowed(tmp_path):
    first, second = plan(methods=("HBOS",)), plan(name="rivals", more={"borrows": "table2", "paper": {}})
    reproduce.run(first, waiting(first, tmp_path, Choice()), tmp_path, Choice())
    assert {task.case.method for task in waiting(second, tmp_path, Choice())} == {"KNN"}
    assert {one["experiment"] for one in stored(second, tmp_path)} == {"rivals"}
    assert len(stored(second, tmp_path)) == 54
    reproduce.run(second, waiting(second, tmp_path, Choice(again=True)), tmp_path, Choice())
    assert len(stored(second, tmp_path)) == 108  # none twice


@pytest.mark.usefixtures("registry")
def test_rows_of_other_settings_do_not_count(tmp_path):
    own, other = (plan(more={"paper": {}}) for _ in range(2))
    own, other = (
        replace(one, cases=(Case("KNN", settings={"n_neighbors": k}),), sets=("one",))
        for one, k in ((own, 5), (other, 7))
    )
    reproduce.run(own, waiting(own, tmp_path, Choice()), tmp_path, Choice())
    assert stored(other, tmp_path) == []
    reproduce.run(other, waiting(other, tmp_path, Choice()), tmp_path, Choice())
    assert len(Store(tmp_path, "table2").rows()) == len(stored(other, tmp_path)) == 27  # replaced


def test_a_setting_that_is_new_changes_no_old_run():
    assert run_store.agree('{"a": 1}', '{"a": 1, "new": 2}')
    assert not run_store.agree('{"a": 1}', '{"a": 2, "new": 2}')
