"""`addml compare` as a shell runs it."""

import csv
import json

import numpy as np
import pytest

from tests.cli.running import files_in

QUICKEST = ("--methods", "LOF,KNN")


@pytest.fixture
def labelled(tmp_path):
    """120 rows with a category; every twelfth is far away and labelled fraud, one has no label."""
    random = np.random.default_rng(0)
    lines = ["height,weight,colour,kind"]
    for row in range(120):
        far = (row % 12 == 0) * (6 + row / 5)
        kind = "" if row == 5 else "fraud" if far else "normal"
        lines.append(f"{random.normal() + far:.4f},{random.normal() + far:.4f},{('red', 'blue')[row % 2]},{kind}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_ranked_table(addml, labelled):
    done = addml("compare", labelled.name, "--label", "kind", "--methods", "ADDML.paper,LOF,KNN")
    done.succeeded("119 rows, 3 columns, 10 anomalies", "dropped 1 row without a label", "Rank  Method")
    lines = [line.split() for line in done.out.splitlines() if line[:1].isdigit()]
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert {line[1] for line in lines} == {"ADDML.paper", "LOF", "KNN"}
    assert "compare: LOF" in done.err
    head = next(line for line in done.out.splitlines() if line.startswith("Rank")).split("  ")
    assert [word.strip() for word in head if word.strip()][-3:] == ["Stability", "Fit, s", "Score, s"]
    alike = {line[1]: float(line[-3]) for line in lines}
    assert alike["LOF"] == alike["KNN"] == 1
    assert 0.5 < alike["ADDML.paper"] <= 1


def test_json(addml, labelled):
    done = addml("compare", labelled.name, "--label", "kind", *QUICKEST, "--json", "--rank-by", "one-class").succeeded()
    found = json.loads(done.out)
    assert (found["rows"], found["anomalies"], found["by"], found["failures"]) == (119, 10, "one-class", [])
    assert {(one["method"], one["setting"]) for one in found["results"]} == {
        (method, setting) for method in ("LOF", "KNN") for setting in ("seen", "unseen", "one-class")
    }
    assert all(0.9 < one["auc"] <= 1 for one in found["results"] if one["method"] == "KNN")
    assert {one["stability"] for one in found["results"]} == {1.0}  # neither draws anything
    by = [one["auc"] for one in found["results"] if one["setting"] == "one-class"]
    assert by == sorted(by, reverse=True)


@pytest.mark.parametrize("name", ["figures.csv", "figures.jsonl"])
def test_figures_are_written_on_request(addml, labelled, tmp_path, name):
    addml("compare", labelled.name, "--label", "kind", *QUICKEST, "--output", name).succeeded(f"results: {name}")
    text = (tmp_path / name).read_text()
    lines = text.splitlines()
    rows = list(map(json.loads, lines)) if name.endswith("jsonl") else list(csv.DictReader(lines))
    assert len(rows) == 6
    assert float(rows[0]["auc"]) > 0.9
    assert files_in(tmp_path) == {"table.csv", name}


@pytest.mark.slow
def test_two_processes_give_what_one_gives(addml, labelled):
    run = ("compare", labelled.name, "--label", "kind", *QUICKEST, "--json")
    one, two = (json.loads(addml(*run, "--jobs", jobs).succeeded().out)["results"] for jobs in (1, 2))
    assert [(x["method"], x["auc"]) for x in one] == [(x["method"], x["auc"]) for x in two]


def test_a_sample_is_said(addml, labelled):
    done = addml("compare", labelled.name, "--label", "kind", *QUICKEST, "--sample", 90)
    done.succeeded("compared on 90 of 120 rows, drawn at random")


def test_too_small_a_sample_is_told_from_too_few_labels(addml, labelled):
    done = addml("compare", labelled.name, "--label", "kind", *QUICKEST, "--sample", 6)
    done.failed("label 'kind' of 6 of 120 rows: has 0 anomalies")


def test_columns_left_out_are_said(addml, labelled):
    lines = [f"{line},7,{row}" for row, line in enumerate(labelled.read_text().split())]
    lines[0] = "height,weight,colour,kind,same,number"
    labelled.write_text("\n".join(lines) + "\n")
    run = ("compare", labelled.name, "--label", "kind", *QUICKEST, "--ignore", "number")
    addml(*run).succeeded("dropped, --ignore: number", "dropped, the label, for evaluation only: kind", "same")
    told = {one["column"] for one in json.loads(addml(*run, "--json").succeeded().out)["left_out"]}
    assert told == {"kind", "same", "number"}


def test_a_value_that_cannot_be_learned_from_is_told_by_its_row_of_the_file(addml, labelled):
    lines = labelled.read_text().splitlines()
    lines[100] = "inf,1,red,normal"  # row 100, below the header; row 6 has no label
    labelled.write_text("\n".join(lines) + "\n")
    addml("compare", labelled.name, "--label", "kind", *QUICKEST).failed("table.csv: column 'height', row 100 is inf")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "compare needs a label column: --label NAME."),
        (["--label", "kinds"], 1, "has no column 'kinds' (--label). Did you mean 'kind'?"),
        (["--label", "colour"], 1, "label column 'colour': name the value that marks an anomaly"),
        (["--label", "kind", "--methods", "knnn"], 2, "'knnn' is not a known method"),
        (["--label", "kind", "--methods", ","], 2, "--methods is empty; choose from ADDML.paper, ADDML"),
        (["--label", "kind", "--rank-by", "best"], 2, "--rank-by best: must be one of seen, unseen, one-class"),
        (["--label", "kind", "--output", "figures.xyz"], 1, "the name must end in .csv"),
        (["--label", "kind", "--output", "table.csv"], 1, "is also the input, which is never overwritten"),
        (["--label", "kind", "--output", "no/figures.csv"], 1, "the folder no does not exist"),
        (
            ["--label", "kind", "--output", "folder.csv"],
            1,
            "folder.csv: is a folder; give the scored table",
        ),
    ],
)
def test_what_is_wrong_is_said(addml, labelled, tmp_path, arguments, code, words):
    (tmp_path / "folder.csv").mkdir()
    done = addml("compare", labelled.name, *arguments, COLUMNS="300")
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0] * 30, "has 0 anomalies and 30 normal rows"),
        ([1] * 30, "has 30 anomalies and 0 normal rows"),
        ([1, 1] + [0] * 28, "has 2 anomalies and 28 normal rows"),
    ],
)
def test_labels_that_cannot_be_compared_with(addml, tmp_path, labels, words):
    lines = ["x,y,bad", *(f"{row * 1.5},{row % 7},{label}" for row, label in enumerate(labels))]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    addml("compare", "table.csv", "--label", "bad").failed(words)


def test_a_file_that_is_not_there(addml):
    addml("compare", "nothing.csv", "--label", "x").failed("nothing.csv")
