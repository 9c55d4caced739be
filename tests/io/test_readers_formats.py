"""The formats other than delimited text: Parquet, Arrow, JSON, Excel, arrays, databases."""

from __future__ import annotations

import datetime
import gzip
import json
import lzma
import sqlite3
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse
from pyarrow import feather, ipc, parquet

from addml.io.read import ReadError, open_batches, read_table
from addml.io.source import NoRowsError, find_origin

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})


def test_parquet(tmp_path: Path) -> None:
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").table.equals(TABLE)
    assert read_table(tmp_path / "t.parquet", columns=["b"]).table.column_names == ["b"]
    with pytest.raises(ReadError, match="has no column 'c'"):
        read_table(tmp_path / "t.parquet", columns=["c"])


def test_parquet_named_csv_is_told_by_its_content(tmp_path: Path) -> None:
    parquet.write_table(TABLE, tmp_path / "t.csv")
    result = read_table(tmp_path / "t.csv")
    assert result.table.equals(TABLE)
    assert "format: parquet, detected from its content" in result.notes


def test_parquet_folder_with_partitions_and_a_column_that_came_later(tmp_path: Path) -> None:
    for year, table in {2023: pa.table({"a": [1]}), 2024: pa.table({"a": [2.5], "new": ["n"]})}.items():
        (tmp_path / f"year={year}").mkdir()
        parquet.write_table(table, tmp_path / f"year={year}" / "part.parquet")
    (tmp_path / "_SUCCESS").touch()
    result = read_table(tmp_path)
    rows = result.table.select(["a", "new", "year"]).to_pylist()
    assert rows == [{"a": 1.0, "new": None, "year": 2023}, {"a": 2.5, "new": "n", "year": 2024}]
    assert "folder: 2 Parquet files" in result.notes
    assert "columns that some files do not have, read as missing values there: new" in result.notes


def test_nested_and_repeated_columns(tmp_path: Path) -> None:
    table = pa.table([[{"x": 1, "y": 2}], [3], [4]], names=["p", "q", "q"])
    parquet.write_table(table, tmp_path / "t.parquet")
    result = read_table(tmp_path / "t.parquet")
    assert result.table.to_pydict() == {"p.x": [1], "p.y": [2], "q": [3], "q_2": [4]}
    assert "nested columns, flattened to name.part: p" in result.notes
    assert read_table(tmp_path / "t.parquet", columns=["q_2"]).table.to_pydict() == {"q_2": [4]}


def test_views_and_run_lengths_are_read_as_what_they_hold(tmp_path: Path) -> None:
    """Polars writes text as views, and categories as dictionaries of them; Arrow picks no rows out of either."""
    text = pa.array(["x", None, "z"], pa.string_view())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([0.5, 4.0]))
    categories = pa.DictionaryArray.from_arrays([0, 1, 0], pa.array(["u", "v"], pa.string_view()))
    bytes_ = pa.array([b"x", None, b"z"], pa.binary_view())
    table = pa.table({"text": text, "runs": runs, "categories": categories, "bytes": bytes_})
    with ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    read = read_table(tmp_path / "t.arrow").table
    assert read.take([2, 0]).to_pydict() == {
        "text": ["z", "x"],
        "runs": [4.0, 0.5],
        "categories": ["u", "u"],
        "bytes": [b"z", b"x"],
    }
    assert read.filter([False, True, False])["text"].to_pylist() == [None]


def test_arrow_file_stream_and_feather(tmp_path: Path) -> None:
    feather.write_feather(TABLE, tmp_path / "t.feather")
    with ipc.new_stream(str(tmp_path / "t.arrows"), TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert read_table(tmp_path / "t.feather").table.equals(TABLE)
    assert read_table(tmp_path / "t.arrows").table.equals(TABLE)


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_json_lines(tmp_path: Path, codec: str) -> None:
    text = '{"n": 1, "ort": "Köln", "p": {"x": 5}}\n\n{"n": 2.5, "when": "2024-01-02"}\n'
    (tmp_path / "t.jsonl").write_bytes(text.encode(codec))
    table = read_table(tmp_path / "t.jsonl").table
    assert table["n"].to_pylist() == [1.0, 2.5]
    assert table["ort"].to_pylist() == ["Köln", None]
    assert table["p.x"].to_pylist() == [5, None]
    assert table["when"].to_pylist() == [None, datetime.datetime(2024, 1, 2)]


def test_json_lines_compressed_without_a_telling_name(tmp_path: Path) -> None:
    (tmp_path / "t.log").write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    assert read_table(tmp_path / "t.log").table.to_pydict() == {"a": [1, 2]}


def test_json_line_longer_than_a_block(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"a": "' + "x" * 3_000_000 + '"}\n{"a": "y"}\n')
    assert [len(text) for text in read_table(tmp_path / "t.jsonl").table["a"].to_pylist()] == [3_000_000, 1]


def test_json_list(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[\n {"a": 1},\n {"a": 2.5, "b": "x"}\n]\n')
    result = read_table(tmp_path / "t.json")
    assert result.table.to_pydict() == {"a": [1.0, 2.5], "b": [None, "x"]}
    (tmp_path / "t.json").write_text('[\n {"a": 1},\n {"a": }\n]\n')
    with pytest.raises(ReadError, match=r"t\.json, line 3: is not JSON"):
        read_table(tmp_path / "t.json")


def workbook(path: Path) -> None:
    """Two sheets: one with a header, gaps and mixed values, one of bare numbers."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sales"
    day = datetime.datetime(2024, 5, 6)
    rows = [("id", "amount", "amount", "mixed", "day"), ("007", 5, 1.5, 1, day), (), ("008", "NA", 2.5, "two", None)]
    for row in rows:
        sheet.append(row)
    for row in [(1, 2.5), (3, 4.5)]:
        book.create_sheet("Bare").append(row) if "Bare" not in book.sheetnames else book["Bare"].append(row)
    book.save(path)


def test_excel(tmp_path: Path) -> None:
    workbook(tmp_path / "t.xlsx")
    result = read_table(tmp_path / "t.xlsx")
    assert result.table.to_pydict() == {
        "id": ["007", "008"],
        "amount": [5, None],
        "amount_2": [1.5, 2.5],
        "mixed": ["1", "two"],
        "day": [datetime.datetime(2024, 5, 6), None],
    }
    assert "sheet: Sales (not read: Bare)" in result.notes
    assert "left out: 1 blank row of the sheet" in result.notes
    assert "column mixed: holds int and str (row 2 is 'two')" in result.notes


def test_excel_sheet_by_name(tmp_path: Path) -> None:
    workbook(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx", part="Bare").table.to_pydict() == {"x0": [1, 3], "x1": [2.5, 4.5]}
    with pytest.raises(ReadError, match=r"no sheet 'Sale'\. Did you mean 'Sales'\? It has: Sales, Bare"):
        read_table(tmp_path / "t.xlsx", part="Sale")


def test_excel_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workbook(tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ReadError, match=r"pip install 'addml\[excel\]'"):
        read_table(tmp_path / "t.xlsx")


X = np.array([[1.5, 2.0], [3.5, 4.0], [5.5, 6.0]])
Y = np.array([0, 1, 0], dtype=np.uint8)
EXPECTED = {"x0": [1.5, 3.5, 5.5], "x1": [2.0, 4.0, 6.0], "y": [0, 1, 0]}


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=X, y=Y[:, None], other=np.zeros(2))
    result = read_table(tmp_path / "t.npz", labels=["y"])
    assert result.table.to_pydict() == EXPECTED
    assert result.notes[:3] == ["array: X, 2 columns", "labels: array y, as column y", "not read: other"]


@pytest.mark.parametrize("name", ["y", "Label", "outlier", "class"])
def test_labels_beside_a_table_are_not_learned_from_unless_they_are_named(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "t.npz", X=X, **{name: Y})
    scipy.io.savemat(tmp_path / "t.mat", {"data": X, name: Y[:, None]})
    for file in (tmp_path / "t.npz", tmp_path / "t.mat"):
        plain = read_table(file)
        assert plain.table.column_names == open_batches(file).schema.names == ["x0", "x1"]
        assert f"labels left out: array {name} (--label {name} evaluates by it)" in plain.notes
        for options in ({"labels": [name]}, {"columns": ["x0", "x1", name]}):
            assert read_table(file, **options).table[name].to_pylist() == [0, 1, 0]
            assert open_batches(file, **options).schema.names == ["x0", "x1", name]


def test_labels_of_another_table_are_an_error_only_where_they_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", train=X, test=X[:2], y=Y)
    assert read_table(tmp_path / "t.npz", part="test").table.num_rows == 2
    with pytest.raises(ReadError, match="array y has 3 labels for 2 rows"):
        read_table(tmp_path / "t.npz", part="test", labels=["y"])


def test_npz_array_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", train=X, test=X + 1, label=Y)
    assert read_table(tmp_path / "t.npz", part="test").table["x0"].to_pylist() == [2.5, 4.5, 6.5]
    with pytest.raises(ReadError, match=r"has no array X .* It has: train \(3, 2\), test \(3, 2\), label \(3,\)"):
        read_table(tmp_path / "t.npz")
    with pytest.raises(ReadError, match=r"has no array 'tets'\. Did you mean 'test'"):
        read_table(tmp_path / "t.npz", part="tets")


@pytest.mark.parametrize(
    "array", [X, X.astype(">f8"), X.astype(np.float16), X.astype(np.longdouble), np.asfortranarray(X)]
)
def test_npy(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "t.npy", array)
    assert read_table(tmp_path / "t.npy").table.to_pydict() == {name: EXPECTED[name] for name in ("x0", "x1")}


def test_npy_of_one_axis_and_of_named_fields(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", Y)
    assert read_table(tmp_path / "t.npy").table.to_pydict() == {"x0": [0, 1, 0]}
    np.save(tmp_path / "t.npy", np.array([(1, "u"), (2, "v")], dtype=[("n", ">i4"), ("s", "U1")]))
    assert read_table(tmp_path / "t.npy").table.to_pydict() == {"n": [1, 2], "s": ["u", "v"]}


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"X": np.array([{}], dtype=object)}, "pickled Python objects, refused"),
        ({"X": np.zeros((2, 3, 4))}, r"array X has shape \(2, 3, 4\)"),
        ({"X": np.zeros((0, 3))}, r"array X has shape \(0, 3\)"),
        ({"X": X * 1j}, "complex128 values"),
    ],
)
def test_arrays_that_are_no_tables(tmp_path: Path, arrays: dict[str, np.ndarray], expected: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ReadError, match=expected):
        read_table(tmp_path / "t.npz")


def test_npz_that_was_cut(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=X)
    raw = (tmp_path / "t.npz").read_bytes()
    (tmp_path / "t.npz").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ReadError, match="damaged or cut short"):
        read_table(tmp_path / "t.npz")


@pytest.mark.parametrize("version", ["4", "5"])
def test_mat(tmp_path: Path, version: str) -> None:
    scipy.io.savemat(tmp_path / "t.mat", {"X": X, "y": Y[:, None].astype(float)}, format=version)
    assert read_table(tmp_path / "t.mat", labels=["y"]).table.to_pydict() == EXPECTED


def test_mat_of_a_sparse_matrix(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "t.mat", {"X": scipy.sparse.csc_matrix(X)})
    result = read_table(tmp_path / "t.mat")
    assert result.table["x1"].to_pylist() == [2.0, 4.0, 6.0]
    assert "sparse matrix: converted to a dense one" in result.notes


def test_mat_of_version_7_3_says_what_to_do(tmp_path: Path) -> None:
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (tmp_path / "t.mat").write_bytes(head.ljust(512, b"\x00") + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ReadError, match=r"MATLAB 7\.3 \(HDF5\) file.*'-v7'"):
        read_table(tmp_path / "t.mat")
    (tmp_path / "t.mat").write_bytes(b"no such thing")
    with pytest.raises(ReadError, match="damaged or cut short"):
        read_table(tmp_path / "t.mat")


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """The address of a database of three orders."""
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table orders (id integer, amount real, city text, day text)")
        rows = [(1, 5.5, "Köln", "2024-01-02"), (2, None, "10% : off", None), (3, 7.0, None, "2024-01-03")]
        connection.executemany("insert into orders values (?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_sql(shop: str) -> None:
    result = read_table(
        shop, query="-- all\nselect *, id as id from orders where city is null or city not like '%x :y'"
    )
    assert result.table.drop(["day"]).to_pydict() == {
        "id": [1, 2, 3],
        "amount": [5.5, None, 7.0],
        "city": ["Köln", "10% : off", None],
        "id_2": [1, 2, 3],
    }
    assert result.table["day"].to_pylist()[0] == "2024-01-02"
    assert result.notes[0] == f"database: {shop}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (None, "needs a query"),
        ("  ", "needs a query"),
        ("select price from orders", "failed: no such column: price"),
        ("select * from orders where id > 5", "holds no rows"),
        ("drop table orders", "must begin with select"),
        ("/* x */ delete from orders", "must begin with select"),
        ("with few as (select 1) delete from orders", "attempt to write a readonly database"),
        ("with few as (select 1) update orders set amount = 0 returning id", "attempt to write a readonly database"),
    ],
)
def test_sql_errors(shop: str, query: str | None, expected: str) -> None:
    with pytest.raises(ReadError, match=expected):
        read_table(shop, query=query)
    assert read_table(shop, query="select count(*) as n from orders").table.to_pydict() == {"n": [3]}


def test_database_that_does_not_exist_is_not_made(shop: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"no such file\. Did you mean 'shop.db'"):
        read_table(shop.replace("shop.db", "shopp.db"), query="select 1")
    assert not (tmp_path / "shopp.db").exists()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("nosuch://user:secret@host/db", "not a database address"),
        ("postgresql+nodriver://user:secret@host/db", "not a database address"),
        ("nosuch://user:pass/secret@host/db", "not a database address"),
        ("ftp://user:secret@example.org/t.csv", "Download the file"),
    ],
)
def test_addresses_that_are_not_read_and_keep_their_password(address: str, expected: str) -> None:
    pytest.importorskip("sqlalchemy")
    with pytest.raises(ReadError, match=expected) as caught:
        read_table(address, query="select 1")
    assert "secret" not in str(caught.value)


def test_sql_without_its_library(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ReadError, match=r"pip install 'addml\[sql\]'"):
        read_table(shop, query="select 1")


@pytest.mark.parametrize(
    ("name", "rows", "columns", "anomalies"),
    [
        ("odds/letter.mat", 1600, 33, 100),
        ("odds/shuttle.mat", 49_097, 10, 3511),
        ("adbench-dev/38_thyroid.npz", 3772, 7, 93),
    ],
)
def test_real_arrays(data_folder: Path, name: str, rows: int, columns: int, anomalies: int) -> None:
    table = read_table(data_folder / name, labels=["y"]).table
    assert table.shape == (rows, columns)
    assert sum(table["y"].to_pylist()) == anomalies


def test_real_text(data_folder: Path) -> None:
    result = read_table(data_folder / "cmuxstream" / "magic-telescope_sampled.txt.gz")
    assert result.table.shape == (13_283, 11)
    assert result.table["x0"][0].as_py() == 28.7967
    assert "header: none found, the columns are called x0 to x10" in result.notes
    taxi = read_table(data_folder / "series" / "nab" / "realKnownCause" / "nyc_taxi.csv").table
    assert taxi.slice(0, 1).to_pylist() == [{"timestamp": datetime.datetime(2014, 7, 1), "value": 10_844}]


def test_xz_and_zip(tmp_path: Path) -> None:
    text = b"a,b\n1,2\n3,4\n"
    (tmp_path / "t.csv.xz").write_bytes(lzma.compress(text))
    assert read_table(tmp_path / "t.csv.xz").table.to_pydict() == {"a": [1, 3], "b": [2, 4]}
    (tmp_path / "cut.csv.xz").write_bytes(lzma.compress(text * 1000)[:-40])
    with pytest.raises(ReadError, match="the xz data is damaged or cut short"):
        read_table(tmp_path / "cut.csv.xz")
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("__MACOSX/._t.csv", "x")
        archive.writestr("folder/t.csv", text)
    assert find_origin(tmp_path / "one.zip").content is None  # unpacked while reading: it may be a bomb
    result = read_table(tmp_path / "one.zip")
    assert result.table.num_rows == 2
    assert "compression: zip, its file folder/t.csv" in result.notes
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", text)
        archive.writestr("b.jsonl", '{"c": 5}\n')
    with pytest.raises(ReadError, match=r"a zip archive of 2 files \(a.csv, b.jsonl\)"):
        read_table(tmp_path / "two.zip")
    assert read_table(tmp_path / "two.zip", part="b.jsonl").table.to_pydict() == {"c": [5]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"meta": {"n": 2}, "results": [{"a": 1}, {"a": 2}]}, {"a": [1, 2]}),
        ({"page": 1, "data": {"items": [{"a": 1, "b": {"c": 3}}]}}, {"a": [1], "b.c": [3]}),
        ({"a": {"0": 1, "1": 2}, "b": {"0": "x", "1": "y"}}, {"a": [1, 2], "b": ["x", "y"]}),
        ({"a": [1, 2], "b": [3, 4]}, {"a": [1, 2], "b": [3, 4]}),
        ([["a", "b"], [1, 2], [3, 4]], {"a": [1, 3], "b": [2, 4]}),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_rows_of_a_json_document(tmp_path: Path, document: Any, expected: Any, indent: int | None) -> None:
    (tmp_path / "t.json").write_text(json.dumps(document, indent=indent))
    assert read_table(tmp_path / "t.json").table.to_pydict() == expected


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n", "[]", "{}"])
def test_a_file_without_rows_has_its_own_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / ("t.json" if content[:1] in ("[", "{") else "t.csv")
    path.write_text(content)
    with pytest.raises(NoRowsError):
        read_table(path)
