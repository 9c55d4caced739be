"""A model as the commands use it."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import addml
from addml import ADDML, model_file
from addml.checkpoint import Checkpoint
from addml.model_file import ModelFileError
from addml.pipeline import batches as module
from addml.pipeline import run
from addml.pipeline.batches import features_of, reasons_for, scoring_device
from addml.pipeline.options import TABLE, Options
from addml.progress import Progress


def test_a_flagged_row_has_a_reason_where_no_row_is_usual_in_every_column():
    """Days all round the year have a mean in the middle of the circle, where none of them is."""
    random, rows = np.random.default_rng(0), np.arange(400)
    days = (np.datetime64("2024-01") + rows % 12).astype("datetime64[D]") + rows % 28
    table = pa.table({"when": days, "country": random.choice(["DE", "FR", "TR"], 400, p=[0.6, 0.3, 0.1])})
    detector = ADDML(random_state=0).fit(table)
    model = detector.model_
    flagged = np.flatnonzero(detector.anomaly_scores_ > detector.threshold_)
    batch = table.take(flagged).combine_chunks().to_batches()[0]
    found = reasons_for(model, batch, features_of(model, batch, 0), 3)
    assert 36 < len(found) == len(flagged) <= 40  # but for ties
    assert all(reasons for reasons in found)


@pytest.mark.parametrize(("asked", "taken"), [("auto", "cpu"), ("cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_a_table_is_scored_on_the_cpu_unless_something_else_is_said(monkeypatch, asked, taken):
    table = pa.table({"x": np.arange(50.0) % 11, "y": np.arange(50.0) % 7})
    model = ADDML(epochs=1, members=1, device="cpu").fit(table).model_
    monkeypatch.setattr(module, "resolve_device", {"auto": "cuda", "cuda:1": "cuda:1", "cpu": "cpu"}.__getitem__)
    assert scoring_device(Options(device=asked), model)[0] == taken


READERS = {
    "load": addml.load,
    "score": lambda folder: run.load_model(Options(model=str(folder)), TABLE),
    "info": lambda folder: run.info(str(folder)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_checkpoint_is_no_model_yet(tmp_path, monkeypatch, read):
    def killed(self, *state):
        save(self, *state)
        raise KeyboardInterrupt

    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", killed)
    table = pa.table({"x": np.arange(50.0) % 11})
    with pytest.raises(KeyboardInterrupt):
        ADDML(epochs=2, members=1, random_state=0).fit(table, checkpoint=tmp_path / "begun")
    with pytest.raises(ModelFileError, match="begun is the checkpoint of an unfinished fit; run the fit again"):
        read(tmp_path / "begun")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("history", [[1], [{"seconds": "x"}], None])
def test_a_history_that_is_none_is_refused_by_all_that_read_it(tmp_path, read, history):
    table = pa.table({"x": np.arange(50.0) % 11, "colour": ["red", "blue"] * 25})
    ADDML(epochs=1, members=1).fit(table).save(tmp_path)
    document, arrays = model_file.read(tmp_path)
    model_file.write(tmp_path, {**document, "history": history}, arrays)
    with pytest.raises(ModelFileError, match="is not a valid model"):
        read(tmp_path)


MOMENTS = np.datetime64("2024-01-01T00:00:00") + np.arange(200) * np.timedelta64(7, "h")  # as a clock shows them
WRITINGS = {"plain": ("", None), "utc": ("Z", "UTC"), "east": ("+02:00", "+02:00"), "fractions": (".250", None)}


def write_dates(folder, name):
    """The same clock in a zone or in none, as CSV and as Parquet, beside a number."""
    ending, zone = WRITINGS[name]
    numbers, moments = np.arange(200) % 7, pa.array(MOMENTS.astype("datetime64[us]"))
    if name == "fractions":
        moments = pa.array(MOMENTS.astype("datetime64[us]") + np.timedelta64(250, "ms"))
    lines = [f"{moment}{ending},{number}" for moment, number in zip(MOMENTS, numbers, strict=True)]
    (folder / f"{name}.csv").write_text("\n".join(["when,n", *lines]) + "\n")
    if zone is not None:
        moments = pa.compute.assume_timezone(moments, zone)
    parquet.write_table(pa.table({"when": moments, "n": numbers}), folder / f"{name}.parquet")


@pytest.mark.parametrize("taught", WRITINGS)
def test_dates_of_a_csv_and_of_parquet_score_alike_whatever_their_zones(tmp_path, taught):
    for name in WRITINGS:
        write_dates(tmp_path, name)
    fitted = run.fit(Options(str(tmp_path / f"{taught}.csv"), members=1, epochs=1), Progress()).model
    model_file.save(fitted, tmp_path / "model")

    def scores(file):
        options = Options(str(tmp_path / file), model=str(tmp_path / "model"), top=0, reasons=0)
        return run.score(options, Progress()).findings.scores

    for name in WRITINGS:
        np.testing.assert_array_equal(scores(f"{name}.csv"), scores(f"{name}.parquet"))
    for name in ("utc", "east"):  # plain dates are on the clock of the zone of training, if it has one
        same = np.array_equal(scores(f"{name}.csv"), scores("plain.csv"))
        assert same == (taught == name or WRITINGS[taught][1] is None)
    np.testing.assert_allclose(scores(f"{taught}.csv"), fitted.training.values)


def test_a_csv_with_odd_cells_is_scored_as_it_was_learned(tmp_path):
    """What Arrow takes for one type when it guesses, and refuses when it is told: days after spaces, 0x1F."""
    days = MOMENTS.astype("datetime64[D]")
    lines = [f"{day}, {row % 7}, {row % 3 > 1} ,{row % 5:#04x}" for row, day in enumerate(days)]
    (tmp_path / "t.csv").write_text("\n ".join(["day, n, flag ,bits", *lines]) + "\n")
    fitted = run.fit(Options(str(tmp_path / "t.csv"), members=1, epochs=1), Progress()).model
    model_file.save(fitted, tmp_path / "model")
    options = Options(str(tmp_path / "t.csv"), model=str(tmp_path / "model"), top=0)
    found = run.score(options, Progress()).findings.scores
    np.testing.assert_allclose(found, fitted.training.values)


def test_a_model_saved_by_python_gives_the_reasons_of_one_saved_by_the_command(tmp_path):
    random = np.random.default_rng(0)
    shops = random.choice(["north", "south"], 200).tolist()
    table = pa.table(
        {"amount": np.append(random.lognormal(3, 0.4, 199), 2000.0), "shop": shops, "n": np.arange(200) % 9}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    fitted = run.fit(Options(str(tmp_path / "t.parquet"), members=1, epochs=1), Progress()).model
    model_file.save(fitted, tmp_path / "command")
    ADDML(members=1, epochs=1, random_state=0).fit(table).save(tmp_path / "python")

    def ranked(name):
        options = Options(str(tmp_path / "t.parquet"), model=str(tmp_path / name))
        return run.score(options, Progress()).findings.ranked

    assert ranked("python") == ranked("command")
    assert ranked("python")[0].reasons[0].words.startswith("amount 2000, far above the usual ")


def test_a_file_is_trained_on_and_scored_without_scikit_learn(tmp_path):
    table = pa.table({"x": np.arange(50.0) % 11, "colour": ["red", "blue"] * 25})
    parquet.write_table(table, tmp_path / "t.parquet")
    ADDML(epochs=1, members=1).fit(table).save(tmp_path / "m")
    code = (
        "import sys; from addml.pipeline import run; from addml.pipeline.options import Options; "
        "from addml.progress import Progress; "
        f"file = {str(tmp_path / 't.parquet')!r}; run.detect(Options(file, epochs=1, members=1), Progress()); "
        f"run.score(Options(file, model={str(tmp_path / 'm')!r}), Progress()); "
        "assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
