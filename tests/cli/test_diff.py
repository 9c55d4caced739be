"""`addml diff`: two models over one table."""

import csv
import json

import numpy as np
import pytest

from addml.pipeline.model_diff import ModelDiff
from tests.cli.running import QUICK, left_in, run_addml, write_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models of one table, the second decided otherwise."""
    folder = tmp_path_factory.mktemp("diff")
    write_small(folder / "small.csv")
    run_addml(folder, "fit", "small.csv", *QUICK, "--model", "first").succeeded()
    run_addml(folder, "fit", "small.csv", *QUICK, "--seed", 5, "--contamination", 0.02, "--model", "second").succeeded()
    return folder


def test_what_moved_is_said(folder):
    done = run_addml(folder, "diff", "first", "second", "small.csv", "--top", 5)
    done.succeeded("300 rows scored by first and second", "ranks agree by 0.", "flagged: 30 before, 6 after", "24 gone")
    assert "person-" in done.out  # the identifier names the rows


def test_as_json_and_as_a_table(folder):
    done = run_addml(folder, "diff", "first", "second", "small.csv", "--json", "--top", 3, "--output", "moved.csv")
    document = json.loads(done.succeeded().out)
    assert document["decisions"]["gone"] == 24
    assert document["rows"] == 300
    assert len(document["moved"]) == 3
    assert {one["decision"] for one in document["moved"]} <= {"gone", "new"}  # changed decisions come first
    rows = list(csv.DictReader((folder / "moved.csv").open()))
    assert len(rows) == 300
    assert sum(row["decision"] == "gone" for row in rows) == 24
    assert sorted(int(row["rank_after"]) for row in rows) == list(range(1, 301))


def test_a_run_can_be_repeated_by_its_record(folder, tmp_path):
    words = ("diff", folder / "first", folder / "second", folder / "small.csv", "--top", 2, "--output", "moved.csv")
    run_addml(tmp_path, *words).succeeded("options of this run: moved.run.toml")
    once = (tmp_path / "moved.csv").read_bytes()
    (tmp_path / "moved.csv").unlink()
    run_addml(tmp_path, "diff", "--config", "moved.run.toml").succeeded("300 rows scored by")
    assert (tmp_path / "moved.csv").read_bytes() == once


def test_an_identifier_called_row_is_kept(folder, tmp_path):
    """By the second model too, where the first knows of no identifier in this table."""
    write_small(tmp_path / "small.csv", header="row,height,weight,colour,when")
    run_addml(tmp_path, "fit", "small.csv", *QUICK, "--model", "own").succeeded()
    run_addml(tmp_path, "diff", folder / "first", "own", "small.csv", "--output", "moved.csv").succeeded()
    row = next(csv.DictReader((tmp_path / "moved.csv").open()))
    assert (row["id_row"], row["row"]) == ("person-00001", "1")


def test_a_model_with_itself_has_not_moved(folder):
    done = run_addml(folder, "diff", "first", "first", "small.csv", "--json")
    document = json.loads(done.succeeded().out)
    assert document["rank_agreement"] == 1
    assert document["moved"] == []
    assert document["shared_first"] == 100


def test_nothing_is_written_unless_asked_for(folder, tmp_path):
    write_small(tmp_path / "small.csv")
    run_addml(tmp_path, "diff", folder / "first", folder / "second", "small.csv").succeeded()
    assert left_in(tmp_path) == {"small.csv"}


def test_what_is_no_model_is_said(folder):
    run_addml(folder, "diff", "first", "none", "small.csv").failed("none", "is not a saved model")
    run_addml(folder, "diff", "first", "second").failed("Missing argument", code=2)


def moved(before, after, taus=(0.5, 0.5)):
    import pyarrow as pa

    before, after = np.array(before, float), np.array(after, float)
    ranks = tuple((-scores).argsort(kind="stable").argsort() + 1 for scores in (before, after))
    flagged = (before > taus[0], after > taus[1])
    return ModelDiff("table", ("a", "b"), before, after, ranks, flagged, pa.table({}))


def test_decisions_and_order_by_hand():
    one = moved([0.9, 0.1, 0.8, 0.2], [0.9, 0.7, 0.3, 0.2])
    assert one.decision.tolist() == ["anomaly", "new", "gone", "normal"]
    assert [row["row"] for row in one.listed(10)] == [2, 3, 4]  # the first row did not move
    assert one.to_json(0)["decisions"] == {"new": 1, "gone": 1, "anomaly": 1, "normal": 1}


def test_agreement_is_spearmans():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    before, after = random.standard_normal((2, 50))
    assert moved(before, after).agreement == pytest.approx(spearmanr(before, after).statistic)
    assert moved([1.0], [2.0]).agreement == 1
    before, after = random.integers(0, 4, (2, 50)).astype(float)  # ties have no order of their own
    assert moved(before, after).agreement == pytest.approx(spearmanr(before, after).statistic)
    assert moved([1.0, 1.0], [3.0, 3.0]).agreement == 1
    assert moved([1.0, 1.0], [3.0, 4.0]).agreement == 0
