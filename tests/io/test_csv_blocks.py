"""Delimited text that comes in several blocks."""

import pyarrow as pa
import pytest

from addml.io.csv_dialect import BLOCK_BYTES
from addml.io.read import open_batches, read_table


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("addml.io.csv.STREAM_BLOCK_BYTES", BLOCK_BYTES)


@pytest.mark.parametrize(
    "text",
    [
        'number,word,day\n1.5,"a, ""b""\nc",2024-01-02\n,x,2024-03-04\n',
        "number;word;day\r\n1,5;über;2024-01-02\r\n;x;\r\n",
        'number,word,day\n1.5,5" pipe,2024-01-02\n2.5,"6"" pipe, long",2024-03-04\n',
        "number\tword\tday\n1.5\ta\t2024-01-02\n\t\t\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_tables_in_blocks_are_those_in_one_piece(tmp_path, text, encoding):
    header, rows = text.split("\n", 1)
    (tmp_path / "t.csv").write_bytes((header + "\n" + rows * 120_000).encode(encoding))
    whole = read_table(tmp_path / "t.csv", encoding=encoding).table
    batches = list(open_batches(tmp_path / "t.csv", schema=whole.schema, encoding=encoding, batch_rows=10**6))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).equals(whole)


def test_blank_lines_between_blocks_are_no_rows(tmp_path):
    text = "a,b\n" + "1,2\n" * 600_000 + "\n" * 5_000_000 + "3,4\n"
    (tmp_path / "t.csv").write_text(text)
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    table = pa.Table.from_batches(open_batches(tmp_path / "t.csv", schema=schema))
    assert table.num_rows == 600_001
    assert table["b"][-1].as_py() == 4


def test_an_error_in_a_later_block_names_its_line(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 500_000 + "1,2,3\n" + "1,2\n" * 10)
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    with pytest.raises(ValueError, match=r"t\.csv, line 500002: too many fields, 3 where 2 are expected: '1,2,3'"):
        list(open_batches(tmp_path / "t.csv", schema=schema))
