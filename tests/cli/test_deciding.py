"""Thresholds, probabilities and labels on the command line."""

import csv
import json

import numpy as np
import pytest
from scipy.stats import false_discovery_control

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


def test_rows_that_stand_clear(folder):
    done = run_addml(folder, "fit", "small.csv", *QUICK, "--threshold", "auto", "--model", "auto").succeeded()
    assert "threshold" in done.out
    assert load(folder / "auto", device="cpu").decision_.method == "auto"
    scored = run_addml(folder, "score", "small.csv", "--model", "model", "--threshold", "auto", "--json").succeeded()
    expected = load(folder / "model", device="cpu").set_threshold(method="auto").threshold_
    assert json.loads(scored.out)["threshold"] == expected
    run_addml(folder, "info", "auto").succeeded("stand clear of the rest")


def test_an_alarm_rate_is_saved_and_may_be_given_later(folder):
    run_addml(folder, "fit", "small.csv", *QUICK, "--alarm-rate", 0.05, "--model", "alarms").succeeded()
    saved = load(folder / "alarms", device="cpu")
    later = run_addml(folder, "score", "small.csv", "--model", "model", "--alarm-rate", 0.05, "--json").succeeded()
    assert json.loads(later.out)["threshold"] == saved.threshold_
    assert (saved.anomaly_scores_ > saved.threshold_).mean() <= 0.05
    done = run_addml(folder, "score", "small.csv", "--model", "model", "--alarm-rate", 0.0001)
    done.failed("--alarm-rate=0.0001 flags nothing with", "train on 10,000 rows")


def test_a_limit_of_false_alarms_is_about_the_scored_rows(folder):
    limit = ("--max-false-alarms", 0.2, "--json", "--output", "limit.csv", "--top", 2)
    found = json.loads(run_addml(folder, "score", "small.csv", "--model", "model", *limit).succeeded().out)
    rows = list(csv.DictReader((folder / "limit.csv").open()))
    p = np.array([float(row["p_value"]) for row in rows])
    q = false_discovery_control(p, method="bh")
    np.testing.assert_allclose([float(row["probability"]) for row in rows], 1 - q)
    assert [row["is_anomaly"] == "true" for row in rows] == (q <= 0.2).tolist()
    assert found["anomalies"] == (q <= 0.2).sum()


def test_budgets(folder):
    found = json.loads(run_addml(folder, "detect", "small.csv", *QUICK, "--flag", 4, "--json").succeeded().out)
    assert found["anomalies"] == 4
    assert found["decided_by"] == "the 4 highest-scoring rows"
    lines = (folder / "small.csv").read_text().splitlines()
    days = [f"2026-03-{1 + row % 3:02}" for row in range(len(lines) - 1)]
    (folder / "days.csv").write_text(
        "\n".join([f"{lines[0]},day".replace("when", "id"), *map(",".join, zip(lines[1:], days, strict=True))])
    )
    found = json.loads(
        run_addml(folder, "detect", "days.csv", *QUICK, "--id", "id", "--per-day", 2, "--json").succeeded().out
    )
    assert found["anomalies"] == 6
    run_addml(folder, "detect", "small.csv", *QUICK, "--ignore", "when", "--per-day", 2).failed(
        "--per-day needs a date column"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--threshold", "best"), "--threshold best: must be a score or auto."),
        (("--threshold", 1, "--contamination", 0.1), "--threshold and --contamination cannot be combined"),
        (("--flag", 3, "--alarm-rate", 0.1), "--alarm-rate and --flag cannot be combined"),
        (("--alarm-rate", 0), "--alarm-rate 0 would flag nothing"),
        (("--threshold", "nan"), "must be a score or auto"),
        (("--threshold", "inf"), "must be a score or auto"),
        (("--contamination", 0.6), "--contamination 0.6: must be between 0 and 0.5"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, options, words):
    done = run_addml(folder, "score", "small.csv", "--model", "model", *options)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())


def test_p_values_and_probabilities_are_in_the_table_and_in_json(folder):
    done = run_addml(folder, "detect", "small.csv", *QUICK, "--output", "out.csv", "--json", "--top", 3)
    top = json.loads(done.succeeded().out)["top"]
    rows = list(csv.DictReader((folder / "out.csv").open()))
    scores = np.array([float(row["score"]) for row in rows])
    expected = (scores[:, None] <= scores).mean(axis=1)  # of the file, at least as high
    np.testing.assert_allclose([float(row["p_value"]) for row in rows], expected)
    first = rows[top[0]["row"] - 1]
    for name in ("p_value", "probability"):
        assert float(first[name]) == pytest.approx(top[0][name])
    assert float(first["probability"]) == max(float(row["probability"]) for row in rows)


# Labels -----------------------------------------------------------------------------------------------------


def test_learning_from_a_column(folder):
    done = run_addml(folder, "fit", "known.csv", *QUICK, "--train-labels", "checked", "--model", "taught")
    done.succeeded("learned from checked: 2 anomalies and 2 normal rows labelled", "dropped, labels to train on")
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
        ("small.csv", ("--known-normal", "9999"), ("--known-normal: there is no row 9999",)),
        ("known.csv", ("--train-labels", "cheked"), ("no column 'cheked' (--train-labels)", "checked")),
        ("known.csv", ("--train-labels", "checked", "--label", "checked"), ("both --label", "--train-labels")),
        (
            "known.csv",
            ("--train-labels", "checked", "--columns", "checked,height"),
            ("remove it from --columns",),
        ),
        ("known.csv", ("--train-labels", "colour"), ("label column 'colour': name the value",)),
        ("empty.csv", ("--train-labels", "checked"), ("holds no label",)),
    ],
)
def test_labels_that_cannot_be_learned_from(folder, file, options, words):
    run_addml(folder, "fit", file, *QUICK, "--model", "never", *options).failed(*words)
    assert not (folder / "never").exists()
