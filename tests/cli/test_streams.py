"""Files that are read a part at a time, or that come only once."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from addml.cli import outputs
from addml.compute import on_threads
from addml.inputs.disk import draw
from addml.io.read import open_batches
from addml.pipeline import run, sources
from addml.pipeline.options import Options
from addml.pipeline.ranking import highest
from addml.progress import Progress
from addml.text import without_password
from tests.cli.running import run_addml, write_small


def batches(rows, size):
    table = pa.table({"x": np.arange(rows)})
    return iter(table.to_batches(max_chunksize=size))


@pytest.mark.parametrize("size", [7, 64, 1000])
def test_the_sample_does_not_depend_on_how_the_rows_come(size):
    whole, places, rows = draw(batches(1000, 1000), 100, seed=3)
    part, other_places, _ = draw(batches(1000, size), 100, seed=3)
    assert rows == 1000
    assert whole["x"].to_pylist() == part["x"].to_pylist() == places.tolist() == other_places.tolist()
    assert len(set(places)) == 100
    assert draw(batches(1000, size), 100, seed=4)[1].tolist() != places.tolist()


def test_a_sample_of_more_rows_than_there_are_is_all_of_them():
    table, places, rows = draw(batches(50, 7), 100, seed=0)
    assert table["x"].to_pylist() == places.tolist() == list(range(50))
    assert rows == 50


def test_a_file_too_large_for_memory_gives_the_same_scores(tmp_path, monkeypatch):
    options = Options(
        file=str(write_small(tmp_path / "small.csv")), ignore=("colour",), members=2, epochs=3, sample=150
    )
    held = run.detect(options, Progress())
    monkeypatch.setattr(sources, "free_memory", lambda: 1000)
    read_twice = run.detect(options, Progress())
    assert any("read twice" in note for note in read_twice.findings.notes)
    assert pa.concat_tables(read_twice.scored).equals(pa.concat_tables(held.scored))
    assert read_twice.findings.trained_rows == 150


def test_results_come_in_order_and_a_failure_ends_the_others():
    assert list(on_threads(lambda number: number**2, range(20), threads=3)) == [number**2 for number in range(20)]
    with pytest.raises(ZeroDivisionError):
        list(on_threads(lambda number: 1 / (3 - number), range(1000), threads=2))


def test_the_highest_come_first_and_of_equal_ones_the_first():
    assert highest(np.array([1.0, 5.0, 3.0, 5.0]), 3).tolist() == [1, 3, 2]
    assert highest(np.array([1.0, 2.0]), 9).tolist() == [1, 0]


def test_names_for_outputs():
    names = {"a/b.csv.gz": "b", "-": "stdin", "sqlite:///data/shop.db": "shop", "x.parquet": "x", "x": "x"}
    assert {file: outputs.stem_of(file) for file in names} == names
    assert without_password("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"


def test_parquet_and_standard_input_score_like_the_csv(addml, model, small_csv, tmp_path):
    table = pyarrow.csv.read_csv(small_csv)
    when = table["when"].cast(pa.timestamp("us"))
    pq.write_table(table.set_column(4, "when", when), tmp_path / "small.parquet")
    for name, source in {"csv": "small.csv", "parquet": "small.parquet"}.items():
        addml("score", source, "--model", model, "--output", f"{name}.jsonl").succeeded()
    addml("score", "-", "--model", model, "--output", "stdin.jsonl", stdin=small_csv.read_bytes()).succeeded()
    by_csv, by_parquet, by_stdin = ((tmp_path / f"{name}.jsonl").read_text() for name in ("csv", "parquet", "stdin"))
    assert by_csv == by_parquet == by_stdin


def test_a_pipe(addml, model, small_csv):
    """As the shell has it for <(cat small.csv)."""
    reading, writing = os.pipe()
    with open(reading), open(writing, "wb") as pipe:
        pipe.write(small_csv.read_bytes())  # which it holds
        pipe.close()
        done = addml("score", f"/dev/fd/{reading}", "--model", model, "--json", "--output", "x.csv").succeeded()
    assert json.loads(done.out)["rows"] == 300


def test_what_is_wrong_with_standard_input_is_said_of_it(tmp_path, model):
    run_addml(tmp_path, "score", "-", "--model", model).failed("Error: standard input: is empty", code=4)
    rows = b"name,height,weight,colour,when\na,tall,1,red,\n"
    done = run_addml(tmp_path, "score", "-", "--model", model, "--strict", stdin=rows)
    done.failed("Error: standard input, row 1: column 'height' holds \"tall\" where a number is expected (--strict)")
    run_addml(tmp_path, "score", "-", "--model", model, stdin=b"name\na\n").failed(
        "Error: standard input: lacks 4 columns that the model needs: 'height', 'weight', 'colour', 'when'."
    )


def test_what_is_large_is_told_by_size(tmp_path, monkeypatch):
    path = write_small(tmp_path / "small.csv")
    assert sources.open_input(Options(str(path))).table is not None
    monkeypatch.setattr(sources, "free_memory", lambda: 4 * path.stat().st_size - 1)
    assert sources.open_input(Options(str(path))).table is None
    assert sources.expected_rows(str(path)) == 301


def test_rows_of_a_compressed_text_are_not_known(tmp_path):
    with pa.CompressedOutputStream(tmp_path / "t.csv.gz", "gzip") as stream:
        stream.write(b"a\n1\n2\n")
    assert sources.expected_rows(str(tmp_path / "t.csv.gz")) is None


def test_rows_of_a_file_that_is_read_whole_are_known(tmp_path):
    feather.write_feather(pa.table({"a": range(10_000)}), tmp_path / "t.arrow")
    assert open_batches(tmp_path / "t.arrow", batch_rows=16).rows == 10_000
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    assert open_batches(tmp_path / "t.csv").rows is None


def test_rows_of_parquet_are_known_before_they_are_read(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for rows in (3, 4):
        pq.write_table(pa.table({"a": range(rows)}), folder / f"{rows}.parquet")
    assert sources.expected_rows(str(folder)) == 7
    assert sources.expected_rows(str(folder / "4.parquet")) == 4
    (folder / "3.parquet").write_bytes(b"PAR1 and nothing else")
    assert sources.expected_rows(str(folder)) is None
    assert sources.expected_rows(str(tmp_path / "nowhere")) is None
