"""One scorer for all engines: the bits of `addml score` in any batch, one version, one model."""

import hashlib
import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from addml import cluster
from addml.cli.commands import app
from addml.cluster import BatchScorer, parts, ray_fit
from addml.cluster.parts import plan, score_folder
from addml.errors import AddmlError
from addml.progress import Progress


@pytest.fixture(scope="module")
def saved(rows, tmp_path_factory):
    """A model of the rows, and the table that `addml score` writes."""
    folder = tmp_path_factory.mktemp("saved")
    for arguments in (
        ["fit", str(rows), "--id", "id", "--epochs", "2", "--members", "2", "--model", str(folder / "model"), "-q"],
        ["score", str(rows), "--model", str(folder / "model"), "--output", str(folder / "scored.parquet"), "-q"],
    ):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    return folder / "model", parquet.read_table(folder / "scored.parquet")


@pytest.fixture
def here(monkeypatch):
    """Score parts one after another in this process; gives back those that were scored."""
    done = []

    def results(scoring, pending, address, workers):
        for part in pending:
            yield scoring(part)
            done.append(Path(part["target"]).name)

    monkeypatch.setattr(parts, "_results", results)
    return done


def test_every_kind_of_batch_gets_the_bits_of_the_command(rows, saved):
    table, (model, expected) = parquet.read_table(rows), saved
    scores, own = expected["score"].to_numpy(), BatchScorer.of(model, reasons=3)
    whole = own(table)
    assert whole.column_names == [*table.column_names, "score", "is_anomaly", "p_value", "reasons"]
    for name in ("score", "is_anomaly", "p_value"):
        assert whole[name].equals(expected[name]), name
    flagged = np.flatnonzero(expected["is_anomaly"].to_numpy())
    assert whole["reasons"].take(flagged).to_pylist() == expected["reasons"].take(flagged).to_pylist()
    order = np.random.default_rng(0).permutation(len(table))[:700]
    frame = table.to_pandas().iloc[order]
    found = own(frame)
    assert isinstance(found, pd.DataFrame)
    assert found.index.equals(frame.index)
    np.testing.assert_array_equal(found["score"], scores[order])
    found = own(pl.from_arrow(table)[order.tolist()])
    assert isinstance(found, pl.DataFrame)
    np.testing.assert_array_equal(found["score"], scores[order])
    batches = list(own.stream(table.to_batches(max_chunksize=97)))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    np.testing.assert_array_equal(np.concatenate([batch["score"] for batch in batches]), scores)


def test_no_column_need_be_kept(rows, saved):
    table = parquet.read_table(rows).slice(0, 9)
    found = BatchScorer.of(saved[0], columns=())(table)
    assert found.equals(BatchScorer.of(saved[0])(table).select(found.column_names))


def test_an_empty_batch_has_the_columns_of_others(rows, saved):
    table, own = parquet.read_table(rows), BatchScorer.of(saved[0], reasons=1)
    assert own(table.slice(0, 0)).schema == own(table.slice(0, 5)).schema
    assert own(table.slice(0, 0).to_batches()[0] if table.slice(0, 0).to_batches() else table.slice(0, 0)).num_rows == 0
    assert own(table.to_pandas()[:0]).columns.tolist() == own(table).column_names


def test_a_column_named_as_a_result_is_kept_under_another_name(rows, saved):
    table = parquet.read_table(rows).slice(0, 3)
    found = BatchScorer.of(saved[0])(table.append_column("score", pa.array(["a", "b", "c"])))
    assert found["id_score"].to_pylist() == ["a", "b", "c"]
    assert pa.types.is_float64(found["score"].type)


def test_only_a_path_and_a_hash_travel(saved):
    own = BatchScorer.of(saved[0])
    assert len(pickle.dumps(own)) < 1000
    assert pickle.loads(pickle.dumps(own)) == own
    assert own.digest == hashlib.sha256((saved[0] / "model.json").read_bytes()).hexdigest()


def test_another_version_and_another_model_are_refused(saved, rows, tmp_path):
    table = parquet.read_table(rows).slice(0, 3)
    with pytest.raises(AddmlError, match=r"runs addml .*, the sender 0\.0\.1; install one version"):
        BatchScorer(str(saved[0]), BatchScorer.of(saved[0]).digest, version="0.0.1")(table)
    with pytest.raises(AddmlError, match="differs from the sender's model"):
        BatchScorer(str(saved[0]), "0" * 64)(table)
    with pytest.raises(AddmlError, match="every machine needs the model under this path"):
        BatchScorer(str(tmp_path / "none"), "0" * 64)(table)
    with pytest.raises(AddmlError, match=r"the sender 0\.0\.1"):
        ray_fit.check_version("0.0.1")


@pytest.mark.parametrize("kind", [np.array, pd.DataFrame])
def test_numbers_only_have_no_scorer(tmp_path, kind):
    from addml import ADDML
    from addml.pipeline.options import TABLE, Options
    from addml.pipeline.run import load_model

    X = kind(np.random.default_rng(0).normal(size=(50, 3)))
    ADDML(epochs=1, members=1, random_state=0).fit(X).save(tmp_path / "m")
    with pytest.raises(AddmlError, match="was fitted in Python to numbers only"):
        load_model(Options(model=str(tmp_path / "m")), TABLE)
    with pytest.raises(AddmlError, match="is not the model of a table with named columns"):
        BatchScorer.of(tmp_path / "m")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'addml\[ray\]'"), ray_fit.connected(None, 1):
        pass


class OneCore:
    """As much of Ray as `completed` uses: one core, and calls that run when they are waited for."""

    def __init__(self):
        self.most = 0  # calls that were queued at the same time

    def cluster_resources(self):
        return {"CPU": 1.0}

    def remote(self, **options):
        return lambda work: SimpleNamespace(remote=lambda *arguments: (work, arguments))

    def wait(self, calls):
        self.most = max(self.most, len(calls))
        return calls[:1], calls[1:]

    def get(self, call):
        work, arguments = call
        return work(*arguments)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 30])
def test_every_task_is_done_once_however_many_there_are(count):
    ray = OneCore()
    assert list(ray_fit.completed(ray, abs, [(-number,) for number in range(count)])) == [*range(count)]
    assert ray.most <= 4


def test_tasks_of_another_version_are_refused():
    with pytest.raises(AddmlError, match=r"the sender 0\.0\.1"):
        ray_fit._checked("0.0.1", abs, -1)


# Parts ------------------------------------------------------------------------------------------------------


def scored_in(folder):
    tables = [parquet.read_table(file) for file in sorted(folder.glob("*.parquet"))]
    return pa.concat_tables(tables).sort_by([("file", "ascending"), ("row", "ascending")])


def test_parts_hold_the_scores_of_the_command(rows, saved, tmp_path, here, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 900)  # of row groups of 500 rows: parts of 1,000 and 500
    told = score_folder(str(rows), BatchScorer.of(saved[0], reasons=3), str(tmp_path / "out"), Progress())
    assert told == {"rows": 6000, "parts": 8, "scored": 8}
    found = scored_in(tmp_path / "out")
    assert found.column_names == ["id", "file", "row", "score", "is_anomaly", "p_value", "reasons"]
    assert found["id"].equals(saved[1]["id"])
    assert found["score"].equals(saved[1]["score"])
    assert found["row"].to_pylist() == [*range(1, 1501)] * 4


def test_a_killed_run_goes_on_without_scoring_a_part_twice(rows, saved, tmp_path, here, monkeypatch):
    own, write, out = BatchScorer.of(saved[0]), parts.write_pieces, tmp_path / "out"

    def killed(pieces, target):
        write(pieces, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "write_pieces", killed)
    with pytest.raises(KeyboardInterrupt):
        score_folder(str(rows), own, str(out), Progress())
    monkeypatch.setattr(parts, "write_pieces", write)
    first = next(out.glob("*.parquet")).name
    assert score_folder(str(rows), own, str(out), Progress())["scored"] == 3
    assert first not in here
    assert scored_in(out)["score"].equals(saved[1]["score"])
    assert score_folder(str(rows), own, str(out), Progress())["scored"] == 0


def test_an_unreadable_part_is_named_and_the_rest_is_done(rows, saved, tmp_path, here):
    copied, own, out = tmp_path / "rows", BatchScorer.of(saved[0]), tmp_path / "out"
    copied.mkdir()
    for file in rows.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    no_footer, damaged = copied / "1.parquet", copied / "2.parquet"
    whole = {file: file.read_bytes() for file in (no_footer, damaged)}
    no_footer.write_bytes(whole[no_footer][:-100])
    damaged.write_bytes(b"PAR1" + bytes(20_000) + whole[damaged][20_004:])
    with pytest.raises(
        AddmlError, match=r"2 files could not be read: .*1\.parquet.*2\.parquet.*repair the unreadable files"
    ):
        score_folder(str(copied), own, str(out), Progress())
    assert len(list(out.glob("*.parquet"))) == 2
    assert not list(out.glob(".*"))
    no_footer.write_bytes(whole[no_footer])
    (out / parts.MANIFEST).unlink()
    with pytest.raises(AddmlError, match="contains other files"):
        plan(str(copied), own, str(out))


def test_a_part_that_was_mended_is_scored_when_run_again(rows, saved, tmp_path, here):
    copied, own, out = tmp_path / "rows", BatchScorer.of(saved[0]), tmp_path / "out"
    copied.mkdir()
    for file in rows.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    whole = (copied / "1.parquet").read_bytes()
    (copied / "1.parquet").write_bytes(whole[:-100])
    with pytest.raises(AddmlError, match="1 file could not be read"):
        score_folder(str(copied), own, str(out), Progress())
    (copied / "1.parquet").write_bytes(whole)
    assert score_folder(str(copied), own, str(out), Progress())["scored"] == 1
    assert scored_in(out)["score"].equals(saved[1]["score"])


def test_a_full_disk_leaves_no_part_behind(rows, saved, tmp_path, here, monkeypatch):
    from addml.io import write

    def full(*_):
        raise OSError(28, "No space left on device")

    scoring, todo, _ = plan(str(rows), BatchScorer.of(saved[0]), str(tmp_path / "first"))
    monkeypatch.setattr(write.os, "fsync", full)
    assert "No space left on device. Free some space" in scoring(todo[0])["failed"]
    assert [file.name for file in (tmp_path / "first").iterdir()] == [parts.MANIFEST]


def test_scores_of_another_run_are_not_mixed(rows, saved, tmp_path, here):
    own, out = BatchScorer.of(saved[0]), tmp_path / "out"
    score_folder(str(rows), own, str(out), Progress())
    with pytest.raises(AddmlError, match=r"another run \(other threshold\)"):
        score_folder(str(rows), BatchScorer.of(saved[0], threshold=1.0), str(out), Progress())
    assert set(json.loads((out / parts.MANIFEST).read_text())["parts"]) == {file.name for file in out.glob("*.parquet")}
    with pytest.raises(AddmlError, match="is inside the input folder"):
        plan(str(rows), own, str(rows / "out"))


def test_the_model_is_loaded_once_per_process(rows, saved):
    cluster._loaded.cache_clear()
    own = BatchScorer.of(saved[0])
    for batch in parquet.read_table(rows).to_batches(max_chunksize=500):
        own(batch)
    assert cluster._loaded.cache_info().misses == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["score", "rows", "--model", "m", "--workers", "2"], "--workers needs a cluster; add --engine ray"),
        (["score", "rows", "--model", "m", "--engine", "ray", "--flag", "3"], "--flag needs all scores in one place"),
        (["fit", "rows", "--engine", "ray"], "--engine ray trains on all rows; add --all-rows"),
        (["score", "rows", "--model", "m", "--engine", "spark"], "--engine spark: must be one of ray"),
    ],
)
def test_options_that_do_not_fit_a_cluster_are_refused(arguments, words):
    result = CliRunner().invoke(app, arguments)
    assert words in str(result.exception)
