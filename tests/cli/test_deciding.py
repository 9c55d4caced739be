"""Thresholds, probabilities and labels on the command line."""

import csv
import json

import pytest

from addml import load
from tests.cli.running import QUICK, run_addml, write_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with what somebody knows of its rows, and a model of it."""
    folder = tmp_path_factory.mktemp("deciding")
    lines = write_small(folder / "small.csv").read_text().splitlines()
    marks = {42: "yes", 3: "yes", 10: "no", 11: "no"}
    known = [lines[0] + ",checked", *(f"{line},{marks.get(row, '')}" for row, line in enumerate(lines[1:], start=1))]
    (folder / "known.csv").write_text("\n".join(known) + "\n")
    (folder / "empty.csv").write_text("\n".join([known[0], *(line + "," for line in lines[1:])]) + "\n")
    run_addml(folder, "fit", "small.csv", *QUICK, "--model", "model").succeeded()
    return folder


@pytest.mark.parametrize("method", ["auto", "mad", "iqr", "tail", "mixture"])
def test_a_threshold_by_a_method(folder, method):
    done = run_addml(folder, "fit", "small.csv", *QUICK, "--threshold", method, "--model", method).succeeded()
    assert "threshold" in done.out
    assert load(folder / method, device="cpu").decision_.method == method
    scored = run_addml(folder, "score", "small.csv", "--model", "model", "--threshold", method, "--json").succeeded()
    expected = load(folder / "model", device="cpu").set_threshold(method=method).threshold_
    assert json.loads(scored.out)["threshold"] == expected
    run_addml(folder, "info", method).succeeded("threshold", "by ")


def test_false_alarms_of_the_tail(folder):
    done = run_addml(
        folder, "score", "small.csv", "--model", "model", "--threshold", "tail", "--contamination", 0.001, "--json"
    )
    assert json.loads(done.succeeded().out)["decided_by"] == "by the tail of the scores for 0.001 false alarms"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--threshold", "best"), "--threshold best: give a score, or one of auto, mad, iqr, tail, mixture."),
        (("--threshold", 1, "--contamination", 0.1), "give --contamination or a score as --threshold, not both"),
        (("--threshold", "mad", "--contamination", 0.1), "finds the share itself"),
        (("--threshold", "nan"), "is not a score"),
        (("--threshold", "inf"), "is not a score"),
        (("--contamination", 0.6), "--contamination 0.6: give a number from 0 to 0.5"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, options, words):
    done = run_addml(folder, "score", "small.csv", "--model", "model", *options)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())


def test_probabilities_and_confidence_are_in_the_table_and_in_json(folder):
    done = run_addml(folder, "score", "small.csv", "--model", "model", "--output", "out.csv", "--json", "--top", 3)
    top = json.loads(done.succeeded().out)["top"]
    rows = list(csv.DictReader((folder / "out.csv").open()))
    assert all(0 <= float(row[name]) <= 1 for row in rows for name in ("probability", "confidence"))
    first = rows[top[0]["row"] - 1]
    assert float(first["probability"]) == pytest.approx(top[0]["probability"])
    assert float(first["confidence"]) == pytest.approx(top[0]["confidence"])
    highest = max(rows, key=lambda row: float(row["score"]))
    assert float(highest["probability"]) == max(float(row["probability"]) for row in rows)


# Labels -----------------------------------------------------------------------------------------------------


def test_learning_from_a_column(folder):
    done = run_addml(folder, "fit", "known.csv", *QUICK, "--train-labels", "checked", "--model", "taught")
    done.succeeded("learned from checked: 2 anomalies and 2 normal rows labelled", "dropped, labels to learn from")
    model = load(folder / "taught", device="cpu")
    assert model.model_.scorer.name == "guided"
    assert "checked" not in model.model_.columns.used
    run_addml(folder, "score", "small.csv", "--model", "taught").succeeded()  # has no such column


def test_detect_learns_too(folder):
    done = run_addml(folder, "detect", "known.csv", *QUICK, "--train-labels", "checked", "--json", "--no-report")
    assert json.loads(done.succeeded().out)["top"][0]["row"] in (42, 3)


def test_rows_named_by_their_numbers_are_learned_from_as_those_of_a_column(folder):
    known = ("--known-anomalies", "42,3", "--known-normal", "10", "--known-normal", "11")
    done = run_addml(folder, "fit", "small.csv", *QUICK, *known, "--model", "told")
    done.succeeded("learned from answers: 2 anomalies and 2 normal rows labelled")
    run_addml(folder, "fit", "known.csv", *QUICK, "--train-labels", "checked", "--model", "read").succeeded()
    table = folder / "small.csv"
    told, read = (run_addml(folder, "score", table, "--model", name, "--json").succeeded() for name in ("told", "read"))
    assert [row["score"] for row in json.loads(told.out)["top"]] == [
        row["score"] for row in json.loads(read.out)["top"]
    ]


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ("small.csv", ("--known-anomalies", "3", "--known-normal", "3"), ("row 3 is in both",)),
        ("small.csv", ("--known-normal", "9999"), ("there is no row 9999 (--known-normal)",)),
        ("known.csv", ("--train-labels", "cheked"), ("no column 'cheked' (--train-labels)", "checked")),
        ("known.csv", ("--train-labels", "checked", "--label", "checked"), ("both --label", "--train-labels")),
        ("known.csv", ("--train-labels", "checked", "--columns", "checked,height"), ("holds labels (--train-labels)",)),
        ("known.csv", ("--train-labels", "colour"), ("say which value of the label column 'colour'",)),
        ("empty.csv", ("--train-labels", "checked"), ("holds no label",)),
    ],
)
def test_labels_that_cannot_be_learned_from(folder, file, options, words):
    run_addml(folder, "fit", file, *QUICK, "--model", "never", *options).failed(*words)
    assert not (folder / "never").exists()
