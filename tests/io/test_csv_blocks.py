"""Blocks of whole rows of a delimited text, against Python's own reader, and the tables that come of them."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest

from addml.io import csv as csv_tables
from addml.io.csv import UnclearRowsError, row_blocks
from addml.io.csv_dialect import BLOCK_BYTES, Writing
from addml.io.read import open_batches, read_table

PIECES = ["", "a", "12.5", ",", '"', '""', "\n", "\r\n", "über", ' "', '",', '"\n"', "\t", ";"]


@pytest.fixture
def cores():
    """As on a machine of four cores."""
    before = pa.cpu_count()
    pa.set_cpu_count(4)
    yield
    pa.set_cpu_count(before)


def written(rows, **how):
    text = io.StringIO(newline="")
    csv.writer(text, **how).writerows(rows)
    return text.getvalue().encode()


def read(text, **how):
    return list(csv.reader(io.StringIO(text.decode(), newline=""), **how))


def blocks_of(text, size, writing):
    return list(row_blocks(pa.BufferReader(text), size, writing))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_hold_whole_rows(seed):
    random = np.random.default_rng(seed)
    how = {"delimiter": random.choice([",", ";", "\t"]), "quotechar": random.choice(['"', "'"])}
    how |= {"lineterminator": random.choice(["\n", "\r\n"]), "quoting": int(random.choice([0, 1]))}
    rows = [["".join(random.choice(PIECES, random.integers(0, 4))) for _ in range(4)] for _ in range(200)]
    text = written(rows, **how)
    writing = Writing(how["delimiter"], how["quotechar"])
    found = blocks_of(text, 300, writing)
    assert b"".join(found) == text
    assert len(found) > 5
    assert [row for block in found for row in read(block, delimiter=writing.delimiter, quotechar=writing.quote)] == rows


def test_a_last_row_needs_no_line_end():
    assert blocks_of(b'1,2\n3,"4"', 5, Writing(",")) == [b"1,2\n", b'3,"4"']
    assert blocks_of(b"1,2\n3,4", 100, Writing(",")) == [b"1,2\n", b"3,4"]


@pytest.mark.parametrize(
    "text",
    [
        b'1,5" pipe\n2,6" pipe\n' * 9,  # quotes that are part of a text
        b'1, "a,b"\n' * 9,  # what a blank stands before is no quoted cell
        b'1,"a"b\n' * 9,
        b'1,"a\n' + b"2,b\n" * 9,  # never closed
        b"1," + b"a" * 200 + b"\n",  # longer than a block
        b"1,2\r3,4\r" * 20,  # no line ends of these
    ],
)
def test_where_rows_end_may_be_unclear(text):
    with pytest.raises(UnclearRowsError):
        blocks_of(text, 60, Writing(","))


def test_quotes_that_are_text_and_those_that_are_escaped():
    assert b"".join(blocks_of(b'1,5" pipe\n' * 9, 60, Writing(",", None))) == b'1,5" pipe\n' * 9
    with pytest.raises(UnclearRowsError):
        blocks_of(b'1,"a\\"b"\n' * 9, 60, Writing(",", '"', "\\"))


@pytest.mark.parametrize(
    ("text", "in_blocks"),
    [
        ('number,word,day\n1.5,"a, ""b""\nc",2024-01-02\n,x,2024-03-04\n', True),
        ("number;word;day\r\n1,5;über;2024-01-02\r\n;x;\r\n", True),
        ('number,word,day\n1.5,5" pipe,2024-01-02\n2.5,"6"" pipe, long",2024-03-04\n', False),
        ("number\tword\tday\n1.5\ta\t2024-01-02\n\t\t\n", True),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
@pytest.mark.usefixtures("cores")
def test_tables_in_blocks_are_those_in_one_piece(tmp_path, monkeypatch, text, in_blocks, encoding):
    header, rows = text.split("\n", 1)
    (tmp_path / "t.csv").write_bytes((header + "\n" + rows * 120_000).encode(encoding))
    whole = read_table(tmp_path / "t.csv", encoding=encoding).table
    given = []

    def spied(*arguments):
        for block in row_blocks(*arguments):
            given.append(block)
            yield block

    monkeypatch.setattr(csv_tables, "row_blocks", spied)
    monkeypatch.setattr(csv_tables, "STREAM_BLOCK_BYTES", BLOCK_BYTES)
    batches = list(open_batches(tmp_path / "t.csv", schema=whole.schema, encoding=encoding, batch_rows=10**6))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).equals(whole)
    assert bool(given) == (in_blocks and encoding != "utf-16")


@pytest.mark.usefixtures("cores")
def test_blank_lines_between_blocks_are_no_rows(tmp_path, monkeypatch):
    text = "a,b\n" + "1,2\n" * 600_000 + "\n" * 5_000_000 + "3,4\n"
    (tmp_path / "t.csv").write_text(text)
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    monkeypatch.setattr(csv_tables, "STREAM_BLOCK_BYTES", BLOCK_BYTES)
    table = pa.Table.from_batches(open_batches(tmp_path / "t.csv", schema=schema))
    assert table.num_rows == 600_001
    assert table["b"][-1].as_py() == 4


@pytest.mark.usefixtures("cores")
def test_an_error_in_a_later_block_names_its_line(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 500_000 + "1,2,3\n" + "1,2\n" * 10)
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    with pytest.raises(ValueError, match=r"t\.csv, line 500002: too many fields, 3 where 2 are expected: '1,2,3'"):
        list(open_batches(tmp_path / "t.csv", schema=schema))
