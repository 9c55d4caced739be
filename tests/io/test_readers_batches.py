"""Tables in batches of a fixed schema, as scoring reads them."""

from __future__ import annotations

import datetime
import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml.inputs.disk import draw
from addml.io.read import ReadError, open_batches, read_table

SCHEMA = pa.schema({"n": pa.float64(), "word": pa.string()})


def csv_file(folder: Path, rows: int, last: str = "") -> Path:
    """A CSV of `rows` rows: id, n = id / 2, word."""
    path = folder / "t.csv"
    body = "".join(f"{row},{row / 2},w{row % 3}\n" for row in range(rows))
    path.write_text(f"id,n,word\n{body}{last}", encoding="latin-1")
    return path


def test_csv_comes_in_batches_of_one_schema(tmp_path: Path) -> None:
    batches = open_batches(csv_file(tmp_path, 400_000), schema=SCHEMA, batch_rows=50_000)
    assert batches.schema == SCHEMA
    assert "delimiter: comma" in batches.notes
    lengths, total = [], 0.0
    for batch in batches:
        assert batch.schema == SCHEMA
        lengths.append(batch.num_rows)
        total += sum(batch["n"].to_pylist())
    assert sum(lengths) == 400_000
    assert max(lengths) <= 50_000
    assert total == 400_000 * 399_999 / 4


def test_other_columns_are_text_beside_a_schema(tmp_path: Path) -> None:
    batches = open_batches(csv_file(tmp_path, 3), schema=SCHEMA, columns=["id", "n"])
    assert pa.Table.from_batches(batches).to_pydict() == {"id": ["0", "1", "2"], "n": [0.0, 0.5, 1.0]}


def test_without_a_schema_the_first_block_gives_the_types(tmp_path: Path) -> None:
    batches = open_batches(csv_file(tmp_path, 3))
    assert [str(kind) for kind in batches.schema.types] == ["int64", "double", "string"]


def test_reordered_and_extra_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("extra;word;n\n1;a;1,5\n2;b;2\n")
    table = pa.Table.from_batches(open_batches(tmp_path / "t.csv", schema=SCHEMA))
    assert table.to_pydict() == {"n": [1.5, 2.0], "word": ["a", "b"]}


def test_thousands_and_text_that_looks_like_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('n,word\n"1,234.5","1,000"\n7,"2,000"\n')
    table = pa.Table.from_batches(open_batches(tmp_path / "t.csv", schema=SCHEMA))
    assert table.to_pydict() == {"n": [1234.5, 7.0], "word": ["1,000", "2,000"]}


def test_header_is_known_by_the_names_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2\n1,2\n")
    schema = pa.schema({"1": pa.int64(), "2": pa.int64()})
    assert pa.Table.from_batches(open_batches(tmp_path / "t.csv", schema=schema)).to_pydict() == {"1": [1], "2": [2]}


def test_missing_column(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"has no column 'wird'\. Did you mean 'word'"):
        open_batches(csv_file(tmp_path, 3), schema=pa.schema({"wird": pa.string()}))
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    with pytest.raises(ReadError, match="has no column 'n'"):
        open_batches(tmp_path / "t.parquet", schema=SCHEMA)


def test_number_that_is_text_is_named_by_line_and_column(tmp_path: Path) -> None:
    batches = open_batches(csv_file(tmp_path, 300_000, "7,many,w\n"), schema=SCHEMA, loose=())
    with pytest.raises(ReadError, match=r"t\.csv, line 300002: column 'n' holds 'many' where a number is expected"):
        sum(batch.num_rows for batch in batches)


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (["2024-05-01 12:00", "2024-05-01T12:00:00.25"], None),
        (["2024-05-01 12:00Z", "", "2024-05-01T12:00+02:00"], None),
        (["2024-05-01", "2024-05-01 12:00 +0200"], None),
        (["", ""], None),
        ([" 2024-05-01", "2024-05-02 "], None),
        (["01.05.2024", "31.05.2024"], [1, 31]),
        ([" 01/05/2024", "", " 31/05/2024"], [1, None, 31]),
        (["2024/05/01", "2024/05/31"], [1, 31]),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_are_text_unless_they_have_another_form_than_iso(
    tmp_path: Path, zone: str | None, texts: list[str], days: list[int | None] | None
) -> None:
    lines = [f"{text},{row}" for row, text in enumerate(texts)]
    (tmp_path / "t.csv").write_text("\n".join(["when,n", *lines]) + "\n")
    schema = pa.schema({"when": pa.timestamp("us", zone), "n": pa.int64()})
    found = pa.Table.from_batches(open_batches(tmp_path / "t.csv", schema=schema))["when"]
    if days is None:
        assert found.to_pylist() == [text or None for text in texts]
    else:
        expected = [None if day is None else datetime.datetime(2024, 5, day) for day in days]
        assert found.to_pylist() == expected


def test_a_date_of_another_form_than_the_first_rows_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("when,n\n" + 300 * "31/05/2024,1\n" + "05/31/2024,2\n")  # far below the sample
    with pytest.raises(ReadError, match=r"t\.csv, line 302: column 'when' holds '05/31/2024' where a date is expected"):
        list(open_batches(tmp_path / "t.csv", schema=pa.schema({"when": pa.timestamp("s")})))


def test_a_cell_with_spaces_around_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n,m\n1,2\n many ,3\n")
    with pytest.raises(ReadError, match=r"t\.csv, line 3: column 'n' holds ' ?many ?' where a number is expected"):
        list(open_batches(tmp_path / "t.csv", schema=pa.schema({"n": pa.float64(), "m": pa.int64()}), loose=()))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the first text comes long after the first batch."""
    monkeypatch.setattr("addml.io.csv.STREAM_BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("addml.io.csv_dialect.BLOCK_BYTES", 1 << 12)


def test_a_column_of_numbers_is_text_from_the_batch_with_the_first_text_on(tmp_path: Path, small_blocks: None) -> None:
    """The numbers beside it have a point, whatever the file has; other columns keep their types."""
    lines = [f'{row};{row},5;"1.{row % 1000:03},25";{row % 7}' for row in range(2000)]
    lines[1500], lines[1700] = "1500;void;1.500,25;3", "1700;,5;+1.700,25;many"
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id;n;big;word", *lines]) + "\n")
    schema = pa.schema({"n": pa.float64(), "big": pa.float64(), "word": pa.string()})
    batches = open_batches(path, schema=schema)
    found = list(batches)
    kinds = [str(batch["n"].type) for batch in found]
    assert batches.loose == ["n"]
    assert kinds == sorted(kinds)  # double, then string
    assert set(kinds) == {"double", "string"}
    values = [value for batch in found for value in batch["n"].to_pylist()]
    assert [values[0], values[1500], values[1600], values[1700]] == [0.5, "void", "1600.5", ".5"]
    assert pa.concat_arrays([batch["big"] for batch in found]).to_pylist()[1699:1701] == [1699.25, 1700.25]
    assert len(values) == 2000


def test_numbers_in_a_style_of_their_own_may_become_text(tmp_path: Path, small_blocks: None) -> None:
    lines = [f'{row},"1,{row % 1000:03}.5"' for row in range(2000)]
    lines[1500] = "1500,dear"
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id,price", *lines]) + "\n")
    first = open_batches(path)
    values = [value for batch in first for value in batch["price"].to_pylist()]
    assert first.loose == ["price"]
    assert [values[7], values[1500], values[1501]] == [1007.5, "dear", "1501.5"]
    again = open_batches(path, loose=first.loose)
    assert {batch["price"].type for batch in again} == {pa.string()}
    with pytest.raises(ReadError, match="line 1502: column 'price' holds 'dear' where a number is expected"):
        list(open_batches(path, loose=()))


def test_types_that_the_first_rows_did_not_tell(tmp_path: Path, small_blocks: None) -> None:
    """Whole numbers before fractions, and nothing before something, were errors."""
    lines = [f"{row},{row}," for row in range(2000)]
    lines[1900] = "1900,0.25,late"
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id,n,note", *lines]) + "\n")
    batches = open_batches(path)
    table, _, _ = draw(batches, None, 0)
    assert sorted(batches.loose) == ["n", "note"]
    assert table["n"].to_pylist()[1899:1902] == ["1899", "0.25", "1901"]
    assert table["note"].to_pylist()[1899:1901] == [None, "late"]


def test_ragged_line_far_down(tmp_path: Path) -> None:
    batches = open_batches(csv_file(tmp_path, 300_000, "7,1\n"), schema=SCHEMA)
    with pytest.raises(ReadError, match=r"t\.csv, line 300002: too few fields"):
        sum(batch.num_rows for batch in batches)


def test_reading_begins_again_where_the_first_rows_misled(tmp_path: Path) -> None:
    last = '7,1.5,"two\nlines"\n8,2.5,K\xf6ln\n9,3.5,' + "y" * 9_000_000 + "\n"
    batches = open_batches(csv_file(tmp_path, 400_000, last), schema=SCHEMA)
    table = pa.Table.from_batches(batches)
    assert table.num_rows == 400_003
    assert table["n"].to_pylist() == [row / 2 for row in range(400_000)] + [1.5, 2.5, 3.5]
    assert [text[:9] for text in table["word"].to_pylist()[-3:]] == ["two\nlines", "Köln", "y" * 9]
    assert "encoding: not utf-8 throughout, so read as cp1252" in batches.notes


def test_unclosed_quote_is_found_at_the_end(tmp_path: Path) -> None:
    batches = open_batches(csv_file(tmp_path, 300_000, '7,1,"x\n8,2,y\n'), schema=SCHEMA)
    with pytest.raises(ReadError, match=r"line 300002: a quote .* is opened and never closed"):
        sum(batch.num_rows for batch in batches)


def test_compressed_csv_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(csv_file(tmp_path, 1000).read_bytes())
    (tmp_path / "t.csv.gz").write_bytes(packed)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    for source in (tmp_path / "t.csv.gz", "-"):
        assert sum(batch.num_rows for batch in open_batches(source, schema=SCHEMA)) == 1000


def test_header_only_and_empty(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="holds a header and no rows"):
        open_batches(csv_file(tmp_path, 0), schema=SCHEMA)
    parquet.write_table(SCHEMA.empty_table(), tmp_path / "t.parquet")
    with pytest.raises(ReadError, match="holds no rows"):
        open_batches(tmp_path / "t.parquet", schema=SCHEMA)


def test_parquet_is_cast(tmp_path: Path) -> None:
    table = pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode(), "n": [1, 2, None], "id": [7, 8, 9]})
    parquet.write_table(table, tmp_path / "t.parquet")
    batches = list(open_batches(tmp_path / "t.parquet", schema=SCHEMA, columns=["n", "word", "id"], batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert pa.Table.from_batches(batches).to_pydict() == {
        "n": [1.0, 2.0, None],
        "word": ["a", "b", "a"],
        "id": [7, 8, 9],
    }


def test_parquet_number_that_turned_into_text(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": ["1", "2", "many"], "word": ["a"] * 3}), tmp_path / "t.parquet")
    batches = open_batches(tmp_path / "t.parquet", schema=SCHEMA, batch_rows=2)
    with pytest.raises(ReadError, match=r"t\.parquet, rows 3 to 3: column 'n' \(string\) cannot be read as double"):
        list(batches)


def test_parquet_folder_in_batches(tmp_path: Path) -> None:
    for part in range(3):
        parquet.write_table(pa.table({"n": [part, part + 0.5], "word": ["a", "b"]}), tmp_path / f"{part}.parquet")
    batches = open_batches(tmp_path, schema=SCHEMA)
    assert pa.Table.from_batches(batches)["n"].to_pylist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert "folder: 3 Parquet files" in batches.notes


def test_other_formats_are_cut_into_batches(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(10).reshape(5, 2))
    batches = list(open_batches(tmp_path / "t.npy", schema=pa.schema({"x1": pa.float64()}), batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert pa.Table.from_batches(batches).to_pydict() == {"x1": [1.0, 3.0, 5.0, 7.0, 9.0]}


def test_batches_and_whole_are_the_same(tmp_path: Path) -> None:
    path = csv_file(tmp_path, 200_000)
    whole = read_table(path).table
    assert pa.Table.from_batches(open_batches(path, schema=whole.schema)).equals(whole)


def test_json_from_standard_input_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')))
    assert [batch.to_pydict() for batch in open_batches("-", batch_rows=2)] == [{"a": [1, 2]}, {"a": [3]}]
