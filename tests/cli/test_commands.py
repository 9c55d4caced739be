"""The commands as people use them, on real files."""

import contextlib
import csv
import json
import os
import pty
import sqlite3
import subprocess
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.messy import write_messy
from tests.cli.running import QUICK, command, files_in, write_small


def scored(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# detect -----------------------------------------------------------------------------------------------------


def test_detect_writes_a_scored_table_a_report_and_its_settings(addml, small_csv, tmp_path):
    done = addml("detect", "small.csv", *QUICK)
    done.succeeded("small.csv: 300 rows", "dropped", "name", "small.scored.csv", "small.report.html", "small.run.toml")
    assert files_in(tmp_path) == {"small.csv", "small.scored.csv", "small.report.html", "small.run.toml"}
    rows = scored(tmp_path / "small.scored.csv")
    assert list(rows[0]) == ["name", "row", "score", "rank", "is_anomaly", "p_value", "probability", "reasons"]
    assert [int(row["row"]) for row in rows] == list(range(1, 301))
    assert sorted(int(row["rank"]) for row in rows) == list(range(1, 301))
    by_rank = sorted(rows, key=lambda row: int(row["rank"]))
    assert by_rank[0]["name"] == "person-00042"
    assert "height" in by_rank[0]["reasons"]
    assert [float(row["score"]) for row in by_rank] == sorted((float(row["score"]) for row in rows), reverse=True)
    flagged = [row for row in rows if row["is_anomaly"] == "true"]
    assert len(flagged) == 30  # a tenth, as nothing else was said
    assert all(row["reasons"] for row in flagged)
    assert "<html" in (tmp_path / "small.report.html").read_text()


def test_the_messy_file_gives_up_its_anomalies(addml, tmp_path):
    planted = write_messy(tmp_path / "messy.csv")
    done = addml("detect", "messy.csv", "--top", 10)
    done.succeeded("semicolon", "byte order mark", "decimal mark: comma", "dates", "missing values", "Bestellung")
    rows = scored(tmp_path / "messy.scored.csv")
    top = {int(row["row"]) for row in rows if int(row["rank"]) <= 10}
    assert len(top & set(planted)) >= 5, sorted(set(planted) - top)
    reasons = {row: rows[row - 1]["reasons"] for row in planted}
    assert all("Betrag" in reasons[row] for row, kind in planted.items() if kind == "amount")


def test_the_same_seed_gives_the_same_scores(addml, small_csv, tmp_path):
    for name in ("a.csv", "b.csv"):
        addml("detect", "small.csv", *QUICK, "--seed", 7, "--no-report", "--output", name).succeeded()
    addml("detect", "small.csv", *QUICK, "--seed", 8, "--no-report", "--output", "c.csv").succeeded()
    a, b, c = ((tmp_path / name).read_text() for name in ("a.csv", "b.csv", "c.csv"))
    assert a == b != c


def test_a_run_can_be_repeated_from_its_record(addml, small_csv, tmp_path):
    addml("detect", "small.csv", *QUICK, "--seed", 3, "--ignore", "when,colour", "--top", 4).succeeded()
    record = tomllib.loads((tmp_path / "small.run.toml").read_text())
    assert record["ignore"] == ["when,colour"]
    assert record["run"]["command"].startswith("addml detect small.csv --members 2")
    assert record["run"]["versions"]["addml"]
    first = (tmp_path / "small.scored.csv").read_bytes()
    (tmp_path / "small.scored.csv").unlink()
    addml("detect", "--config", "small.run.toml").succeeded()
    assert (tmp_path / "small.scored.csv").read_bytes() == first


def test_the_command_line_counts_more_than_the_file(addml, small_csv, tmp_path):
    (tmp_path / "settings.toml").write_text('members = 2\nepochs = 3\ntop = 2\none-sided = "height:high"\n')
    done = addml("detect", "small.csv", "--config", "settings.toml", "--top", 5, "--json").succeeded()
    found = json.loads(done.out)
    assert len(found["top"]) == 5
    assert found["settings"]["members"] == 2
    assert found["settings"]["one_sided"] == ["height:high"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("membres = 2", "Did you mean 'members'"), ("members = ", "not a TOML file"), ("members = 'x'", "--members")],
)
def test_a_wrong_settings_file(addml, small_csv, tmp_path, text, words):
    (tmp_path / "settings.toml").write_text(text)
    addml("detect", "small.csv", "--config", "settings.toml").failed(words, code=2)


def test_json_for_machines(addml, small_csv):
    done = addml("detect", "small.csv", *QUICK, "--json", "--top", 3).succeeded()
    found = json.loads(done.out)
    assert found["rows"] == 300
    assert found["anomalies"] == 30
    assert found["top"][0]["row"] == 42
    assert found["top"][0]["ids"] == {"name": "person-00042"}
    assert found["top"][0]["values"]["height"] == 260
    assert found["top"][0]["reasons"][0]["column"]
    assert found["files"]["scored"] == "small.scored.csv"
    assert done.err == ""


def test_quiet_says_nothing(addml, small_csv):
    done = addml("detect", "small.csv", *QUICK, "--quiet").succeeded()
    assert (done.out, done.err) == ("", "")


def test_more_anomalies_than_allowed(addml, small_csv, tmp_path):
    addml("detect", "small.csv", *QUICK, "--fail-above", 29, "-q").failed("30 rows flagged", code=3)
    assert (tmp_path / "small.scored.csv").exists()
    addml("detect", "small.csv", *QUICK, "--fail-above", 30, "-q").succeeded()


def test_other_formats_and_no_reasons(addml, small_csv, tmp_path):
    addml("detect", "small.csv", *QUICK, "--output", "x.parquet", "--report", "x.md", "--top", 2).succeeded()
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.schema.field("score").type == pa.float64()
    assert (tmp_path / "x.md").read_text().startswith("#")
    addml("detect", "small.csv", *QUICK, "--output", "x.jsonl", "--no-report", "--reasons", 0).succeeded()
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert len(lines) == 300
    assert all(line["reasons"] is None for line in lines)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_redacted_output_holds_no_values(addml, small_csv, tmp_path, more):
    done = addml("detect", "small.csv", *QUICK, "--redact", *more).succeeded()
    text = done.out + (tmp_path / "small.report.html").read_text()
    assert "person-00042" not in text
    assert not more or json.loads(done.out)["top"][0]["values"]["height"] == "above the usual"


def test_redacted_scores_hold_no_values(addml, small_csv, model, tmp_path):
    lines = small_csv.read_text().replace(",red,", ",secret,")
    (tmp_path / "today.csv").write_text(lines)
    done = addml("score", "today.csv", "--model", model, "--redact", "--report", "r.html")
    done.succeeded("colour: clearly different from training", "unseen in training", "3 of 4 columns: much as")
    text = done.out + done.err + (tmp_path / "r.html").read_text()
    assert "person-00042" not in text
    assert "secret" not in text


def test_what_is_said_of_the_columns_shows_no_value_when_redacted(addml, small_csv, tmp_path):
    """Constants, examples of how text was read; what could not be read is counted."""
    head, *lines = small_csv.read_text().splitlines()
    days = [f"{1 + row % 28}.3.2025" if row != 7 else "soon" for row in range(len(lines))]
    rows = [f"{line},4711.25,1984-05-06,{day}" for line, day in zip(lines, days, strict=True)]
    small_csv.write_text("\n".join([f"{head},rate,since,day", *rows]) + "\n")
    said = (
        "column 'day' is text that reads as dates, day first ('1.3.2025'); 1 of its values do not and count as missing"
    )
    addml("detect", "small.csv", *QUICK).succeeded(said, "4711.25", "1984-05-06")
    done = addml("detect", "small.csv", *QUICK, "--redact")
    done.succeeded("dropped, constant: [redacted] in every row: rate, since", "1 of its values do not")
    for secret in ("4711.25", "1984-05-06", "1.3.2025"):
        assert secret not in done.out + (tmp_path / "small.report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("evaluate", "--label", "colour", "--model", "m", "--columns", "height"),
            "--columns applies to training and has no effect with --model",
        ),
        (("evaluate", "--label", "colour", "--model", "m", "--ignore", "height"), "--ignore applies to training"),
        (("detect", "--anomaly-value", "red"), "name it with --label"),
        (("detect", "--no-report", "--report", "r.html"), "--no-report contradicts --report and --format"),
        (("detect", "--no-report", "--format", "md"), "--no-report contradicts --report and --format"),
        (("score", "--model", "m", "--format", "md"), "--format needs a report"),
        (("detect", "--contamination", "0"), "a number above 0"),
        (("score", "--model", "m", "--contamination", "0"), "a number above 0"),
        (("fit", "--sample", "100", "--all-rows"), "--all-rows and --sample 100 contradict each other"),
        (("evaluate", "--label", "y", "--sample", "100", "--all-rows"), "--all-rows and --sample 100 contradict"),
        (("diff", "m", "m", "--reasons", "2"), "No such option"),
    ],
)
def test_options_that_would_do_nothing_are_refused(addml, small_csv, words, message):
    addml(*words, small_csv).failed(message, code=2)


def test_training_on_a_sample_is_said(addml, small_csv):
    found = json.loads(addml("detect", "small.csv", *QUICK, "--sample", 100, "--json").succeeded().out)
    assert found["trained_rows"] == 100
    assert any("100 of 300 rows" in note for note in found["notes"])
    found = json.loads(addml("detect", "--config", "small.run.toml", "--all-rows").succeeded().out)
    assert found["trained_rows"] == 300


def test_the_label_is_never_trained_on(addml, small_csv, tmp_path):
    """The scores with a label column are the scores without that column, whatever it holds."""
    lines = small_csv.read_text().splitlines()
    labelled = [f"{line},{'y' if n == 0 else int(n == 42)}" for n, line in enumerate(lines)]
    (tmp_path / "labelled.csv").write_text("\n".join(labelled) + "\n")
    addml("detect", "small.csv", *QUICK, "--no-report", "--output", "a.csv").succeeded()
    done = addml("detect", "labelled.csv", *QUICK, "--label", "y", "--no-report", "--output", "b.csv")
    done.succeeded("ROC-AUC: 1.0000", "the label")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_labels_in_a_file_of_arrays_are_never_trained_on(addml, tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 3))
    X[:30] += 4
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(300) < 30)
    found = json.loads(addml("detect", "a.npz", *QUICK, "--json", "--no-report", "--model", "m").succeeded().out)
    assert found["columns"] == ["x0", "x1", "x2"]
    assert any("--label y" in note for note in found["notes"])
    addml("detect", "a.npz", *QUICK, "--ignore", "y", "--no-report").succeeded("3 columns used")
    for words in (QUICK, ("--model", "m")):
        done = json.loads(addml("evaluate", "a.npz", "--label", "y", *words, "--json").succeeded().out)
        assert done["evaluation"]["anomalies"] == 30
        assert done["columns"] == found["columns"]
    assert "y" not in (tmp_path / "a.scored.csv").read_text().splitlines()[0].split(",")


def test_columns_by_name_with_commas_in_them(addml, tmp_path):
    write_small(tmp_path / "odd.csv", header='name,"height, cm",weight,colour,when')
    found = json.loads(
        addml("detect", "odd.csv", *QUICK, "--columns", "height, cm", "--columns", "weight", "--json").out
    )
    assert found["columns"] == ["height, cm", "weight"]


def test_a_table_from_standard_input(addml, small_csv, tmp_path):
    addml("detect", "-", *QUICK, stdin=small_csv.read_bytes()).succeeded("300 rows", "stdin.scored.csv")


def test_a_table_from_a_database(addml, tmp_path):
    random = np.random.default_rng(1)
    with sqlite3.connect(tmp_path / "shop.db") as base:
        base.execute("create table orders (amount real, items integer, country text)")
        rows = [(float(random.normal(50, 5)), int(random.integers(1, 5)), "DE") for _ in range(200)]
        base.executemany("insert into orders values (?, ?, ?)", [*rows, (5000.0, 2, "FR")])
    done = addml("detect", "sqlite:///shop.db", "--query", "select * from orders", *QUICK, "--json").succeeded()
    assert json.loads(done.out)["top"][0]["row"] == 201
    assert (tmp_path / "shop.scored.csv").exists()


def test_scores_go_back_into_the_database(addml, tmp_path):
    random = np.random.default_rng(1)
    with sqlite3.connect(tmp_path / "shop.db") as base:
        base.execute("create table orders (amount real, items integer)")
        rows = [(float(random.normal(50, 5)), int(random.integers(1, 5))) for _ in range(200)]
        base.executemany("insert into orders values (?, ?)", [*rows, (5000.0, 2)])
    known = ["detect", "sqlite:///shop.db", "--query", "select * from orders", *QUICK, "--no-report"]
    addml(*known, "--output-sql", "scores").succeeded()
    with sqlite3.connect(tmp_path / "shop.db") as base:
        assert base.execute('select "row" from scores order by score desc').fetchone() == (201,)
        assert base.execute("select count(*) from scores").fetchone() == (201,)
    assert not (tmp_path / "shop.scored.csv").exists()
    addml(*known, "--output-sql", "scores", "--output", "both.csv").succeeded("both.csv")
    addml(*known, "--output-sql", "orders").failed("the table 'orders' holds something else", code=1)
    addml("detect", "shop.csv", "--output-sql", "scores").failed("is not a database", code=2)


def test_formulas_are_neutralised(addml, small_csv, tmp_path):
    small_csv.write_text(small_csv.read_text().replace("person-00042", '"=HYPERLINK(""x"")"'))
    addml("detect", "small.csv", *QUICK, "--no-report", "--id", "name").succeeded("formula")
    assert scored(tmp_path / "small.scored.csv")[41]["name"].startswith("'=")


# fit, score, info -------------------------------------------------------------------------------------------


def test_fit_then_score_is_detect(addml, small_csv, tmp_path):
    addml("fit", "small.csv", *QUICK).succeeded("small.model", "dropped", "name")
    done = addml("score", "small.csv", "--model", "small.model", "--output", "later.csv")
    done.succeeded("Compared with the training rows", "later.csv", "later.run.toml")
    addml("detect", "small.csv", *QUICK, "--no-report").succeeded()
    later, own = (scored(tmp_path / name) for name in ("later.csv", "small.scored.csv"))
    for one in (*later, *own):
        del one["p_value"], one["probability"]  # new rows are compared with the training rows, these among themselves
    assert later == own


def test_score_warns_of_values_far_outside(addml, model, tmp_path):
    path = write_small(tmp_path / "today.csv")
    path.write_text(path.read_text().replace("person-00100,", "person-00100,9"))
    done = addml("score", "today.csv", "--model", model).succeeded()
    assert "outside" in done.out + done.err


def test_score_warns_of_gaps_where_training_had_none(addml, small_csv, model, tmp_path):
    header, first, second, *rest = small_csv.read_text().splitlines()
    name, _, weight, colour, when = first.split(",")
    lines = [header, f"{name},,{weight},{colour},{when}", second.replace("green", ""), *rest]
    (tmp_path / "new.csv").write_text("\n".join(lines))
    said = addml("score", "new.csv", "--model", model, "--report", "r.md").succeeded().err
    assert "Warning: missing values in columns that had none in training took the median: 'height'\n" in said
    assert "Warning: missing values in categories that had none in training count as unseen: 'colour'\n" in said
    assert "took the median" in (tmp_path / "r.md").read_text()
    assert addml("score", "small.csv", "--model", model).succeeded().err == ""


def test_score_decides_anew(addml, small_csv, model):
    found = json.loads(addml("score", "small.csv", "--model", model, "--contamination", 0.01, "--json").out)
    assert found["anomalies"] == 3
    found = json.loads(addml("score", "small.csv", "--model", model, "--threshold", 1e9, "--json").out)
    assert found["anomalies"] == 0


def test_a_frame_that_polars_wrote_is_fitted_and_scored(addml, small_csv, tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.read_csv(small_csv).with_columns(polars.col("colour").cast(polars.Categorical))
    frame.write_ipc(tmp_path / "small.arrow")
    addml("fit", "small.arrow", *QUICK, "--model", "m").succeeded()
    addml("score", "small.arrow", "--model", "m").succeeded("person-00042")


def test_ids_of_a_csv_are_copied_as_they_are_written(addml, small_csv, tmp_path):
    """Zeros in front, more digits than any number has, marks between thousands: none of that is a number's."""
    lines = small_csv.read_text().splitlines()
    odd = [f'{row:06d},{10**24 + row},"1,{row % 1000:03d}",{line}' for row, line in enumerate(lines[1:])]
    (tmp_path / "odd.csv").write_text("\n".join(["code,token,shelf," + lines[0], *odd]))
    expected = [{"code": f"{row:06d}", "token": str(10**24 + row), "shelf": f"1,{row:03d}"} for row in range(300)]
    named = ("--id", "code, token", "--id", "shelf")
    for words in (("detect", "odd.csv", *QUICK, *named, "--model", "m"), ("score", "odd.csv", "--model", "m")):
        addml(*words).succeeded()
        rows = scored(tmp_path / "odd.scored.csv")
        assert [{name: row[name] for name in expected[0]} for row in rows] == expected


def test_ids_called_alike_beside_the_columns_of_the_scored_table_are_all_kept(addml, small_csv, tmp_path):
    lines = small_csv.read_text().replace("name,", "score,", 1).splitlines()
    own = [lines[0] + ",id_score,id_id_score"]
    own += [f"{line},second-{row},third-{row}" for row, line in enumerate(lines[1:], 1)]
    (tmp_path / "own.csv").write_text("\n".join(own))
    addml("fit", "own.csv", *QUICK, "--model", "m", "--id", "score,id_score,id_id_score").succeeded()
    addml("score", "own.csv", "--model", "m").succeeded()
    row = list(csv.DictReader((tmp_path / "own.scored.csv").open()))[6]
    kept = {name: row[name] for name in ("id_id_id_score", "id_score", "id_id_score")}
    assert list(kept.values()) == ["person-00007", "second-7", "third-7"]
    assert abs(float(row["score"])) < 100


def test_a_model_remembers_which_columns_name_a_row(addml, small_csv, tmp_path):
    addml("fit", "small.csv", *QUICK, "--id", "colour", "--model", "m").succeeded()
    addml("score", "small.csv", "--model", "m").succeeded()
    assert {row["colour"] for row in scored(tmp_path / "small.scored.csv")} == {"red", "green", "blue"}
    assert "name" not in scored(tmp_path / "small.scored.csv")[0]
    addml("score", "small.csv", "--model", "m", "--id", "name").succeeded()  # what is said counts more
    assert list(scored(tmp_path / "small.scored.csv")[0])[:2] == ["name", "row"]
    moved = json.loads(addml("diff", "m", "m", "small.csv", "--json", "--output", "d.csv").succeeded().out)
    assert moved["rows"] == 300
    assert scored(tmp_path / "d.csv")[0]["colour"] == "red"
    assert json.loads(addml("info", "m", "--json").succeeded().out)["ids"] == ["colour"]
    addml("info", "m").succeeded("id columns: colour")

    text = small_csv.read_text().splitlines()  # without the column the rows go by what was found to name them
    (tmp_path / "less.csv").write_text("\n".join(",".join((*line.split(",")[:3], line.split(",")[4])) for line in text))
    addml("score", "less.csv", "--model", "m").succeeded()
    assert list(scored(tmp_path / "less.scored.csv")[0])[:2] == ["name", "row"]


def test_a_label_names_no_row(addml, small_csv):
    addml("fit", "small.csv", *QUICK, "--id", "name,colour", "--model", "m").succeeded()
    asked = ("evaluate", "small.csv", "--model", "m", "--label", "colour", "--anomaly-value", "red")
    top = json.loads(addml(*asked, "--json").succeeded().out)["top"]
    assert top[0]["ids"] == {"name": "person-00042"}
    addml(*asked, "--id", "colour").failed("'colour' is the label (--label); remove it from --id.")


def test_info_tells_what_a_model_is(addml, model):
    done = addml("info", model).succeeded("height", "weight", "colour", "threshold", "members", "addml")
    about = json.loads(addml("info", model, "--json").succeeded().out)
    assert about["trained_rows"] == 300
    assert "height" in about["columns"]
    assert done.err == ""


# evaluate, demo ---------------------------------------------------------------------------------------------


def test_evaluate_with_and_without_a_model(addml, small_csv, model, tmp_path):
    lines = small_csv.read_text().splitlines()
    rows = [lines[0] + ",kind", *(f"{line},{'odd' if n == 41 else 'fine'}" for n, line in enumerate(lines[1:]))]
    (tmp_path / "labelled.csv").write_text("\n".join(rows) + "\n")
    options = ("--label", "kind", "--anomaly-value", "odd")
    addml("evaluate", "labelled.csv", *options, *QUICK).succeeded(
        "ROC-AUC", "average precision", "precision: 1.000 at 1"
    )
    assert files_in(tmp_path) == {"small.csv", "labelled.csv"}
    done = addml("evaluate", "labelled.csv", *options, "--model", model, "--json", "--figures", "charts").succeeded()
    found = json.loads(done.out)["evaluation"]
    assert found["roc_auc"] == 1
    assert found["curves"]["roc"]["fpr"][0] == 0
    assert {path.suffix for path in (tmp_path / "charts").iterdir()} == {".png", ".svg"}


def test_a_real_file_with_labels(addml, data_folder):
    done = addml("evaluate", data_folder / "odds" / "letter.mat", "--label", "y", "--members", 1, "--json").succeeded()
    found = json.loads(done.out)
    assert (found["rows"], len(found["columns"])) == (1600, 32)
    assert found["evaluation"]["anomalies"] == 100
    assert found["evaluation"]["roc_auc"] > 0.7


def test_demo_ends_with_the_path_of_its_report(addml, tmp_path):
    done = addml("demo", "here").succeeded("ROC-AUC", "377 rows")
    assert done.out.rstrip().endswith("here/breast-cancer.report.html")
    assert (tmp_path / "here" / "breast-cancer.report.html").exists()
    auc = float(done.out.split("ROC-AUC: ")[1].split()[0])
    assert auc > 0.9


# Screen -----------------------------------------------------------------------------------------------------


def test_a_terminal_sees_a_bar(small_csv, tmp_path):
    """Where standard error is a terminal, the command draws bars on it."""
    terminal, end = pty.openpty()
    running = subprocess.Popen(
        command("detect", "small.csv", "--epochs", 40), cwd=tmp_path, stdout=subprocess.PIPE, stderr=end
    )
    os.close(end)
    seen = b""
    with contextlib.suppress(OSError):  # how the end of a terminal is told
        while part := os.read(terminal, 65536):
            seen += part
    out, _ = running.communicate()
    assert running.returncode == 0
    assert b"small.report.html" in out
    assert b"Training" in seen
    assert b"rows/s" in seen


def test_values_far_outside_the_training_range_are_counted(addml, tmp_path, model):
    (tmp_path / "far.csv").write_text("name,height,weight,colour,when\na,99999,70,red,2025-03-01\n")
    done = addml("score", "far.csv", "--model", model).succeeded()
    assert "1 value far outside the training range or unseen in training: height 1" in done.err


def test_drift_is_a_warning_even_when_quiet_and_may_fail(addml, model, tmp_path):
    lines = write_small(tmp_path / "small.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines[1:]]
    inches = [",".join([one[0], f"{float(one[1]) / 2.54:.1f}", *one[2:]]) for one in cells]
    (tmp_path / "inches.csv").write_text("\n".join([lines[0], *inches]) + "\n")
    done = addml("score", "inches.csv", "--model", model, "--quiet", "--fail-on-drift")
    assert done.code == 5
    assert not done.out
    middle = np.median([float(one[1]) for one in cells])
    assert f"1 column has drifted since training: height: median {middle:.3g} -> {middle / 2.54:.3g}" in done.err
    addml("score", "small.csv", "--model", model, "--quiet", "--fail-on-drift").succeeded()
