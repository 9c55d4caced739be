"""A text in a column of numbers, from a file of any format to the ranked rows: flagged, named, listed; or refused."""

import csv
import json
import sqlite3
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml import model_file
from addml.errors import AddmlError
from addml.pipeline import diffs, sources
from addml.pipeline import run as detecting
from addml.pipeline.options import Options, check
from addml.progress import Progress
from addml.server import models

ROWS, ROW = 2000, 1234  # the place of the text, from 0
QUICK = {"members": 1, "epochs": 2}
RANDOM = np.random.default_rng(1)
DISTANCE = RANDOM.lognormal(1, 0.5, ROWS).round(2)
TABLE = {
    "distance": DISTANCE.tolist(),
    "fare": (3 + 2.5 * DISTANCE + RANDOM.normal(0, 0.5, ROWS)).round(2).tolist(),
    "tip": RANDOM.gamma(2, 1, ROWS).round(2).tolist(),
    "color": [("yellow", "green")[row % 5 == 0] for row in range(ROWS)],
}
LISTED = f"column 'fare': 1 cell is text, not a number, and counts as missing and strange: \"void\" (row {ROW + 1:,})"
REASON = 'fare is "void", not a number'


def with_text(text="void", row=ROW):
    fares = list(TABLE["fare"])
    fares[row] = text
    return TABLE | {"fare": fares}


def lines(table):
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def write(path, table):
    """The table in the format that the name tells."""
    match path.suffix:
        case ".csv" | ".tsv":
            with path.open("w", newline="") as file:
                writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
                writer.writerows([list(table), *zip(*table.values(), strict=True)])
        case ".jsonl":
            path.write_text("".join(json.dumps(line) + "\n" for line in lines(table)))
        case ".json":
            path.write_text(json.dumps(lines(table)))
        case ".parquet":
            texts = {name: list(map(str, own)) if name == "fare" else own for name, own in table.items()}
            parquet.write_table(pa.table(texts), path)
        case ".xlsx":
            pd.DataFrame(table).to_excel(path, index=False)
        case ".db":
            with sqlite3.connect(path) as connection:
                pd.DataFrame(table).to_sql("trips", connection, index=False, dtype={"fare": "BLOB"})
    return path


def options(path, **more):
    query = "select * from trips" if path.suffix == ".db" else None
    file = f"sqlite:///{path}" if query else str(path)
    given = Options(file=file, query=query, device="cpu", jobs=1, **more)
    return given if "model" in more else check(replace(given, **QUICK), "detect")


def run(work, told):
    """What came of a run, and the warnings of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # temporary files of other tests, collected by chance
        outcome = work(told, Progress())
    return outcome, [str(one.message) for one in said]


def check_found(outcome, said, row=ROW):
    """The row is flagged for its text, which is listed."""
    assert said.count(LISTED.replace(f"{ROW + 1:,}", f"{row + 1:,}")) == 1
    (found,) = [one for one in outcome.findings.ranked if one.row == row + 1]
    assert found.is_anomaly
    assert found.reasons[0].words == REASON
    assert found.values["fare"] == "void"
    assert found.rank <= 20


FORMATS = ("csv", "tsv", "jsonl", "json", "parquet", "xlsx", "db")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One that was trained on numbers alone."""
    folder = tmp_path_factory.mktemp("clean")
    trained, said = run(detecting.fit, options(write(folder / "trips.csv", TABLE)))
    assert said == []
    model_file.save(trained.model, folder / "trips.model")
    return folder / "trips.model"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_with_a_text_among_numbers_is_flagged_for_it(tmp_path, kind):
    path = write(tmp_path / f"trips.{kind}", with_text())
    outcome, said = run(detecting.detect, options(path))
    check_found(outcome, said)
    assert outcome.model.columns.kinds["fare"] == "number"


@pytest.mark.parametrize("kind", FORMATS)
def test_so_it_is_by_a_model_that_has_never_seen_one(tmp_path, model, kind):
    path = write(tmp_path / f"trips.{kind}", with_text())
    outcome, said = run(detecting.score, options(path, model=str(model)))
    check_found(outcome, said)
    assert not any("took the median" in sentence for sentence in said)


def test_and_by_one_that_has(tmp_path):
    trained, said = run(detecting.fit, options(write(tmp_path / "trips.csv", with_text())))
    assert said == [LISTED]
    model_file.save(trained.model, tmp_path / "trips.model")
    path = write(tmp_path / "new.csv", with_text(row=7))
    outcome, said = run(detecting.score, options(path, model=str(tmp_path / "trips.model")))
    check_found(outcome, said, row=7)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("csv", "row 1,235"),
        ("jsonl", "row 1,235"),
        ("parquet", "row 1,235"),
        ("xlsx", "row 1,235"),
        ("db", "row 1,235"),
    ],
)
@pytest.mark.parametrize("work", [detecting.detect, detecting.fit, detecting.score])
def test_a_strict_run_stops_at_it(tmp_path, model, kind, place, work):
    path = write(tmp_path / f"trips.{kind}", with_text())
    using = {"model": str(model)} if work is detecting.score else {}
    with pytest.raises(AddmlError) as stopped:
        run(work, options(path, strict=True, **using))
    source = f"sqlite:///{path}" if kind == "db" else str(path)
    assert str(stopped.value) == (
        f"{source}, {place}: column 'fare' holds \"void\" where a number is expected (--strict). Correct the value, or "
        "leave the cell empty if it is unknown."
    )
    clean = write(tmp_path / f"clean.{kind}", TABLE)
    _, said = run(work, options(clean, strict=True, **using))
    assert said == []


def test_the_rows_of_a_sample_are_those_of_the_file(tmp_path):
    """Texts outside the sample are found by whoever scores all rows."""
    texts = with_text(row=0) | {"tip": [str(one) if row < 1990 else "none" for row, one in enumerate(TABLE["tip"])]}
    given = replace(options(write(tmp_path / "trips.csv", texts)), sample=1500)
    trained, said = run(detecting.fit, given)
    assert trained.findings.trained_rows == 1500
    source = detecting.open_source(given)
    source.train(Progress())
    inside = source.sampled[source.sampled >= 1990] + 1
    shown = ", ".join(f'"none" (row {row:,})' for row in inside[:5])
    assert f"column 'tip': {len(inside)} cells are text and count as missing and strange: {shown}" in said[-1]
    outcome, said = run(detecting.detect, given)
    check_found(outcome, said, row=0)
    assert any(sentence.startswith("column 'tip': 10 cells are text") for sentence in said)


def test_texts_are_not_told_where_values_are_redacted(tmp_path):
    path = write(tmp_path / "trips.csv", with_text())
    _, said = run(detecting.detect, options(path, redact=True))
    assert said == [LISTED.replace('"void" (row 1,235)', "row 1,235")]


def test_two_models_list_it_once(tmp_path, model):
    path = write(tmp_path / "trips.csv", with_text())

    def work(told, progress):
        return diffs.compare(str(model), str(model), told, progress)

    moved, said = run(work, options(path))
    assert said == [LISTED]
    assert moved.columns["rank_before"][ROW] <= 20
    with pytest.raises(AddmlError, match="row 1,235: column 'fare' holds"):
        run(work, options(path, strict=True))


# Larger than memory -------------------------------------------------------------------------------------------


def test_a_csv_that_is_read_in_parts_gives_what_one_that_is_held_gives(tmp_path, monkeypatch):
    """The text comes long after the first part, by which columns are typed; numbers have a decimal comma."""
    monkeypatch.setattr("addml.io.csv.STREAM_BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("addml.io.csv_dialect.BLOCK_BYTES", 1 << 12)
    path = tmp_path / "trips.csv"
    table = {name: [str(one).replace(".", ",") for one in own] for name, own in with_text().items()}
    path.write_text("\n".join(";".join(row) for row in [list(table), *zip(*table.values(), strict=True)]) + "\n")
    whole, said = run(detecting.detect, options(path))
    check_found(whole, said)
    monkeypatch.setattr(sources, "free_memory", lambda: 0)
    parts, said = run(detecting.detect, options(path))
    check_found(parts, said)
    assert any(note.startswith("larger than memory") for note in parts.findings.notes)
    np.testing.assert_array_equal(parts.findings.scores, whole.findings.scores)
    with pytest.raises(AddmlError, match=r"trips\.csv, row 1,235: column 'fare'"):
        run(detecting.fit, options(path, strict=True))
    model_file.save(parts.model, tmp_path / "trips.model")
    again, said = run(detecting.score, options(path, model=str(tmp_path / "trips.model")))
    check_found(again, said)
    np.testing.assert_array_equal(again.findings.scores, parts.findings.scores)


# Rows by REST -------------------------------------------------------------------------------------------------


def scored_by(served, rows):
    return json.loads(models.score_rows(served, json.dumps({"rows": rows}).encode()))


def test_rows_by_rest_get_what_those_of_a_file_get(tmp_path, model):
    path = write(tmp_path / "trips.csv", with_text())
    outcome, _ = run(detecting.score, options(path, model=str(model)))
    served = models.Models("cpu", [str(model)])["trips"]
    chosen = [ROW - 1, ROW, ROW + 1]
    sent = [lines(with_text())[row] for row in chosen]
    answer = scored_by(served, sent)
    assert [one["score"] for one in answer["results"]] == pytest.approx(outcome.findings.scores[chosen], rel=1e-4)
    assert answer["results"][1]["is_anomaly"]
    assert answer["results"][1]["reasons"][0]["words"] == REASON
    assert answer["notes"] == [LISTED.replace("1,235", "2")]
    assert scored_by(served, sent[1:2])["results"] == answer["results"][1:2]
