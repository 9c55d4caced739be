"""Files that cannot be read: each error names the file, the line, the value and the remedy."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml.io.read import ReadError, open_batches, read_table


def refused(folder: Path, content: str | bytes, name: str = "t.csv", **options: Any) -> str:
    """The error message for a file with this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ReadError) as caught:
        read_table(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value).replace(str(path), name)


def test_no_such_file_suggests_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "transactions.csv").write_text("a\n1\n")
    with pytest.raises(ReadError, match=r"no such file\. Did you mean 'transactions.csv'\?"):
        read_table(tmp_path / "transaction.csv")


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"the folder .*nowhere does not exist"):
        read_table(tmp_path / "nowhere" / "t.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    path.chmod(0)
    with pytest.raises(ReadError, match="Permission denied"):
        read_table(path)


def test_folder_without_parquet_files(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"folder without Parquet files or images \(it holds: nothing\)"):
        read_table(tmp_path)
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(ReadError, match=r"\(it holds: 1 \.csv\)\. Name one file"):
        read_table(tmp_path)


def test_empty_files(tmp_path: Path) -> None:
    assert refused(tmp_path, "") == "t.csv: is empty (0 bytes)."
    assert refused(tmp_path, gzip.compress(b""), "t.csv.gz") == "t.csv.gz: is empty (0 bytes)."
    assert refused(tmp_path, "\n\n  \n").startswith("t.csv: is empty")
    assert refused(tmp_path, b"\xef\xbb\xbf").startswith("t.csv: is empty")


def test_header_only(tmp_path: Path) -> None:
    assert refused(tmp_path, "a,b,c\n") == "t.csv: holds a header and no rows: a, b, c."
    assert "holds a header and no rows" in refused(tmp_path, "a,b,c\n\n\n")
    assert "holds a header and no rows" in refused(tmp_path, "1,2\n", header=True)


@pytest.mark.parametrize("seed", range(5))
def test_binary_junk_named_csv(tmp_path: Path, seed: int) -> None:
    junk = np.random.default_rng(seed).bytes(2000)
    assert "is binary data, not text" in refused(tmp_path, junk)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"%PDF-1.7\n...", "PDF"),
        (b"<!DOCTYPE html>\n<html></html>", "web page"),
        (b"\x80\x04\x95\x10\x00\x00\x00", "pickle, refused because reading one can run any code"),
        (b"SQLite format 3\x00....", "sqlite:///"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old .xls"),
        (b"\x89HDF\r\n\x1a\n\x00", "HDF5"),
        (b"PK\x03\x04 cut", "damaged or cut short"),
        (b"\xfd7zXZ\x00", "the xz data is damaged or cut short"),
    ],
)
def test_known_formats_that_are_no_tables(tmp_path: Path, content: bytes, expected: str) -> None:
    assert expected in refused(tmp_path, content)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("a,b\n1,2\n3\n5,6\n", 3, "too few fields, 1 where 2 are expected: '3'"),
        ("a,b\n1,2\n3,4,5\n5,6\n", 3, "too many fields, 3 where 2 are expected: '3,4,5'"),
        ('a,b\n1,"x\ny\nz"\n\n3,4,5\n', 6, "too many fields"),
        ("a,b\r\n1,2\r\n3,4,5\r\n", 3, "quote the cell that holds the delimiter"),
        ("a,b\r1,2\r\n\n3,4,5\n", 4, "too many fields"),
        ("sep=,\na,b\n1,2\n3\n", 4, "too few fields"),
        ('"a\nx",b\n1,2\n3\n', 4, "too few fields"),
    ],
)
def test_ragged_row_is_named_by_its_line(tmp_path: Path, text: str, line: int, expected: str) -> None:
    message = refused(tmp_path, text)
    assert message.startswith(f"t.csv, line {line}: ")
    assert expected in message


def test_ragged_row_far_down(tmp_path: Path) -> None:
    text = "a,b\n" + "1,2\n" * 300_000 + "3\n" + "1,2\n" * 300_000
    assert refused(tmp_path, text).startswith("t.csv, line 300002: too few fields")
    assert refused(tmp_path, gzip.compress(text.encode(), 1), "t.csv.gz").startswith("t.csv.gz, line 300002: ")


def test_quote_that_is_never_closed(tmp_path: Path) -> None:
    for end in ("", "5,6\n" * 3):
        message = refused(tmp_path, f'a,b\n"1",2\n3,"4\n{end}')
        assert message.startswith('t.csv, line 3: a quote (") is opened and never closed')


def test_quote_that_is_never_closed_in_a_large_file(tmp_path: Path) -> None:
    text = 'a,b\n1,"x"\n3,"4\n' + "5,6\n" * 1_000_000
    assert refused(tmp_path, text).startswith('t.csv, line 3: a quote (") is opened and never closed')


def test_given_encoding_that_does_not_fit(tmp_path: Path) -> None:
    message = refused(tmp_path, b"a,b\n1,x\n2,K\xf6ln\n", encoding="utf-8")
    assert message.startswith("t.csv, line 3: byte 0xf6 is not utf-8")
    assert "unknown encoding 'utf-99'" in refused(tmp_path, "a,b\n1,2\n", encoding="utf-99")
    assert "unknown encoding 'zip'" in refused(tmp_path, "a,b\n1,2\n", encoding="zip")  # none of text


@pytest.mark.parametrize("content", ['{"a": 1}\n{"a": 2}\n', '[{"a": 1}, {"a": 2}]'])
def test_given_encoding_that_does_not_fit_json(tmp_path: Path, content: str) -> None:
    for encoding in ("utf-99", "zip"):
        assert f"t.json: unknown encoding '{encoding}'." in refused(tmp_path, content, "t.json", encoding=encoding)
    assert refused(tmp_path, content, "t.json", encoding="utf-16").startswith("t.json: is not utf-16: ")


def test_columns_parted_by_many_spaces(tmp_path: Path) -> None:
    assert "separated by several spaces" in refused(tmp_path, "  1.0   2.0\n 11.0  12.0\n  1.0   3.5\n")


def test_column_that_is_not_there(tmp_path: Path) -> None:
    message = refused(tmp_path, "amount,city\n1,x\n", columns=["amuont"])
    assert message == "t.csv: has no column 'amuont'. Did you mean 'amount'? It has: amount, city."


def test_delimiter_of_two_characters(tmp_path: Path) -> None:
    assert "must be one character" in refused(tmp_path, "a||b\n1||2\n", delimiter="||")


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_compressed_file_that_was_cut(tmp_path: Path, keep: float) -> None:
    raw = gzip.compress("".join(f"{row},{row * 7919 % 10007}\n" for row in range(200_000)).encode())
    message = refused(tmp_path, raw[: int(keep * len(raw))], "t.csv.gz")
    assert message.startswith("t.csv.gz: the gzip data is damaged or cut short")


def test_parquet_that_was_cut(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": list(range(1000))}), tmp_path / "whole.parquet")
    raw = (tmp_path / "whole.parquet").read_bytes()
    assert "Parquet data is damaged or cut short" in refused(tmp_path, raw[: len(raw) // 2], "t.parquet")
    assert "does not begin like one" in refused(tmp_path, b"\x00\x01" * 500, "t.parquet")
    assert "does not begin like one" in refused(tmp_path, "a,b\n1,2\n", "t.parquet")


def test_parquet_without_rows(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "t.parquet")
    with pytest.raises(ReadError, match=r"holds no rows \(0 rows, 1 column\)"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ('{"a": 1}\n{"a": \n{"a": 2}\n', 2, "is not a whole JSON object"),
        ('{"a": 1}\n[1, 2]\n', 2, "is not a JSON object"),
    ],
)
def test_wrong_json_line(tmp_path: Path, text: str, line: int, expected: str) -> None:
    message = refused(tmp_path, text, "t.jsonl")
    assert message.startswith(f"t.jsonl, line {line}: ")
    assert expected in message


def test_options_that_do_not_fit_the_source(tmp_path: Path) -> None:
    assert "A query is only for databases" in refused(tmp_path, "a,b\n1,2\n", query="select 1")
    assert "part='Sheet2' does not apply to it" in refused(tmp_path, "a,b\n1,2\n", part="Sheet2")
    lines = '{"a": 1}\n{"a": 2}\n'
    for name, value in {"delimiter": ";", "header": False, "decimal": ","}.items():
        message = refused(tmp_path, lines, "t.jsonl", **{name: value})
        assert f"is a json file; {name}={value!r} does not apply to it. Leave it out." in message
    parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "t.parquet")
    for reader in (read_table, open_batches):
        with pytest.raises(ReadError, match="is a parquet file; encoding='latin-1' does not apply"):
            reader(tmp_path / "t.parquet", encoding="latin-1")
        with pytest.raises(ReadError, match="sqlite database: is a database; delimiter=';' does not apply"):
            reader("sqlite:///shop.db", query="select 1", delimiter=";")
