"""`addml diff`: two models over one table."""

import csv
import json

import numpy as np
import pytest

from addml.pipeline.diffs import Example, ModelDiff, anomaly_kind
from tests.cli.running import QUICK, files_in, run_addml, write_small


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
    done.succeeded(
        "300 rows scored by first and second", "rank correlation 0.", "flagged: 30 before, 6 after", "24 gone"
    )
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
    run_addml(tmp_path, *words).succeeded("run record: moved.run.toml")
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
    assert files_in(tmp_path) == {"small.csv"}


def test_what_is_no_model_is_said(folder):
    run_addml(folder, "diff", "first", "none", "small.csv").failed("none: no such file")
    run_addml(folder, "diff", "first", "second").failed("Missing argument", code=2)


def moved(before, after, taus=(0.5, 0.5)):
    import pyarrow as pa

    before, after = np.array(before, float), np.array(after, float)
    flagged = (before > taus[0], after > taus[1])
    return ModelDiff("table", ("a", "b"), (before, after), flagged, pa.table({}))


def test_decisions_and_order_by_hand():
    one = moved([0.9, 0.1, 0.8, 0.2], [0.9, 0.7, 0.3, 0.2])
    assert one.columns["decision"] == ["anomaly", "new", "gone", "normal"]
    assert [row["row"] for row in one.listed(10)] == [2, 3, 4]  # the first row did not move
    assert one.to_json(0)["decisions"] == {"new": 1, "gone": 1, "anomaly": 1, "normal": 1}


def test_agreement_is_spearmans():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    before, after = random.standard_normal((2, 50))
    assert moved(before, after).to_json(0)["rank_agreement"] == pytest.approx(spearmanr(before, after).statistic)
    assert moved([1.0], [2.0]).to_json(0)["rank_agreement"] == 1
    before, after = random.integers(0, 4, (2, 50)).astype(float)  # ties have no order of their own
    assert moved(before, after).to_json(0)["rank_agreement"] == pytest.approx(spearmanr(before, after).statistic)
    assert moved([1.0, 1.0], [3.0, 3.0]).to_json(0)["rank_agreement"] == 1
    assert moved([1.0, 1.0], [3.0, 4.0]).to_json(0)["rank_agreement"] == 0


# Two days under one model -----------------------------------------------------------------------------------


def write_day(folder, name, violet=range(0)):
    """The small table, in which some rows have a colour that training did not see."""
    lines = (folder / "small.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines[1:]]
    for row in violet:
        cells[row - 1][3] = "violet"
    (folder / name).write_text("\n".join([lines[0], *map(",".join, cells)]) + "\n")


def kinds(folder, before, after):
    document = json.loads(run_addml(folder, "diff", "first", before, after, "--json", "--top", 100).succeeded().out)
    return {one["words"]: one for one in document["listed"]}


def test_a_new_kind_of_anomaly_is_first_and_keeps_its_identity(folder):
    words = "colour with a new value"
    write_day(folder, "monday.csv")
    write_day(folder, "tuesday.csv", range(101, 109))
    write_day(folder, "wednesday.csv", range(201, 231))
    first = next(iter(kinds(folder, "monday.csv", "tuesday.csv").values()))
    assert (first["words"], first["status"], first["before"], first["after"]) == (words, "new", 0, 8)
    assert 101 <= first["example"]["row"] <= 108
    assert first["example"]["ids"] == {"name": f"person-{first['example']['row']:05d}"}
    grown = kinds(folder, "tuesday.csv", "wednesday.csv")[words]
    assert (grown["id"], grown["status"], grown["before"], grown["after"]) == (first["id"], "grown", 8, 30)
    gone = kinds(folder, "wednesday.csv", "monday.csv")[words]
    assert (gone["id"], gone["status"], gone["after"]) == (first["id"], "gone", 0)
    assert {one["status"] for one in kinds(folder, "monday.csv", "monday.csv").values()} == {"as before"}


def test_days_on_the_screen_and_in_a_table(folder):
    write_day(folder, "monday.csv")
    write_day(folder, "tuesday.csv", range(101, 109))
    done = run_addml(folder, "diff", "first", "monday.csv", "tuesday.csv", "--output", "kinds.csv")
    done.succeeded("monday.csv (300 rows) and tuesday.csv (300 rows) scored by first", "colour with a new value")
    rows = list(csv.DictReader((folder / "kinds.csv").open()))
    assert sum(int(row["before"]) for row in rows) == 30  # a tenth of the rows that the model was trained on
    run_addml(folder, "diff", "first", "none.csv", "tuesday.csv").failed("none.csv: no such file")


@pytest.mark.parametrize(
    ("before", "after", "ratio", "status"),
    [(0, 1, 1, "new"), (3, 0, 1, "gone"), (2, 0, 1, "fewer"), (10, 12, 1, "as before"), (10, 30, 1, "grown"),
     (30, 10, 1, "fewer"), (10, 30, 3, "as before")],
)  # fmt: skip
def test_what_became_of_a_kind(before, after, ratio, status):
    examples = [Example(1, {}, 1.0, "")]
    assert anomaly_kind("", examples * before, examples * after, (100, 100 * ratio)).status == status
