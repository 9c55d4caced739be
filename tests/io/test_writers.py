"""Tables written by name: whole or not at all, and without spreadsheet formulas."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from addml.io.read import read_table
from addml.io.write import WriteError, open_writer, write_table

TABLE = pa.table({"id": [1, 2, 3], "score": [0.5, None, 2.25], "word": ["a, b", 'say "c"', None]})


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.csv.gz", "t.csv.zst", "t.CSV", "t.jsonl", "t.jsonl.gz", "t.parquet"]
)
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    assert write_table(TABLE, tmp_path / name) == []
    assert read_table(tmp_path / name).table.equals(TABLE)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_csv_is_plain_text(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [["id", "score", "word"], ["1", "0.5", "a, b"], ["2", "", 'say "c"'], ["3", "2.25", ""]]


def test_a_number_below_zero_is_no_formula(tmp_path: Path) -> None:
    """Ids are copied as text."""
    numbers, formulas = ["-1.50", "-3e-5", "-0,25", "-7"], ["-1+1", "-", "-2\n", "-cmd|x", "+49"]
    write_table(pa.table({"id": numbers + formulas}), tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as stream:
        _, *rows = csv.reader(stream)
    assert [row[0] for row in rows] == [*numbers, *(f"'{cell}" for cell in formulas)]


def test_formulas_are_neutralised_and_counted(tmp_path: Path) -> None:
    cells = ["=1+1", "+49", "-x", "@sum", "\tx", "\rx", "a=b", "", None]
    table = pa.table({"=head": cells, "n": [-1.5] * len(cells)})
    notes = write_table(table, tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["'=head", "n"]
    assert [row[0] for row in rows] == ["'=1+1", "'+49", "'-x", "'@sum", "'\tx", "'\rx", "a=b", "", ""]
    assert {row[1] for row in rows} == {"-1.5"}
    assert notes == ["text cells that start like a formula, now with a leading apostrophe: 6"]
    assert write_table(table, tmp_path / "t.parquet") == []
    assert parquet.read_table(tmp_path / "t.parquet").equals(table)


def test_categories_lists_and_long_text_in_csv(tmp_path: Path) -> None:
    table = pa.table(
        {
            "kind": pa.array(["=a", "b"]).dictionary_encode(),
            "list": [[1, 2], None],
            "long": pa.array(["@x", "y"], pa.large_string()),
        }
    )
    assert write_table(table, tmp_path / "t.csv")[0].endswith(": 2")
    with open(tmp_path / "t.csv", newline="") as stream:
        assert list(csv.reader(stream))[1:] == [["'=a", "[1, 2]", "'@x"], ["b", "", "y"]]


def test_json_lines(tmp_path: Path) -> None:
    day = datetime.datetime(2024, 1, 2, 3, 4)
    table = pa.table({"n": [1.5, float("inf"), float("nan"), None], "é": ["=x", "ü", None, ""], "d": [day] * 4})
    notes = write_table(table, tmp_path / "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {"n": 1.5, "é": "=x", "d": "2024-01-02 03:04:00"}
    assert [json.loads(line)["n"] for line in lines] == [1.5, None, None, None]
    assert notes == ["infinite and NaN values, written as null: 2"]


def test_pieces_become_one_file(tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet", "t.jsonl"):
        with open_writer(tmp_path / name, TABLE.schema) as writer:
            for batch in TABLE.to_batches(max_chunksize=2):
                writer.write(batch)
            assert not (tmp_path / name).exists()
        assert read_table(tmp_path / name).table.equals(TABLE)


def _line(number: int, word: str) -> str:
    guard = "'" if word.startswith("=") else ""
    return f'{number},"{guard}{word}"'


def test_many_pieces_are_text_in_their_order(tmp_path: Path) -> None:
    numbers, words = list(range(100_000)), [f"={n}" if n % 1000 == 0 else f"w{n}" for n in range(100_000)]
    table = pa.table({"n": numbers, "word": words})
    with open_writer(tmp_path / "t.csv", table.schema) as writer:
        writer.write(table.slice(0, 70_000))  # more than becomes text together
        for batch in table.slice(70_000).to_batches(max_chunksize=700):
            writer.write(batch)
    expected = ['"n","word"', *(_line(n, w) for n, w in zip(numbers, words, strict=True))]
    assert (tmp_path / "t.csv").read_text().splitlines() == expected
    assert writer.notes == ["text cells that start like a formula, now with a leading apostrophe: 100"]


def _write_and_fail(path: Path, error: type[BaseException]) -> None:
    with open_writer(path, TABLE.schema) as writer:
        writer.write(TABLE)
        raise error


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.jsonl"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_leaves_the_old_file_and_no_part(tmp_path: Path, name: str, error: type[BaseException]) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(error):
        _write_and_fail(tmp_path / name, error)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.jsonl"])
def test_full_disk_leaves_nothing(tmp_path: Path, name: str) -> None:
    resource = pytest.importorskip("resource")
    table = pa.table({"a": [os.urandom(50).hex() for _ in range(50_000)]})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(WriteError, match=rf"{name}: cannot be written: File too large\. Free some space"):
            write_table(table, tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_device_is_written_to_and_not_replaced() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(WriteError, match=r"/dev/full: cannot be written: No space left on device"):
        write_table(TABLE, "/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_table(TABLE, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert read_table(tmp_path / "real.csv").table.equals(TABLE)


def test_permissions_of_a_replaced_file_are_kept(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("old")
    (tmp_path / "t.csv").chmod(0o600)
    write_table(TABLE, tmp_path / "t.csv")
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o600


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    for name, expected in {
        "t.txt": r"must end in \.csv",
        "t.parquet.gz": "already compressed",
        "no/t.csv": r"the folder .*no does not exist",
        "d.csv": "is a folder",
    }.items():
        with pytest.raises(WriteError, match=expected):
            write_table(TABLE, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="Permission denied"):
        write_table(TABLE, tmp_path / "t.csv")
    tmp_path.chmod(0o700)


def test_compressed_output_is_compressed(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv.gz")
    assert gzip.decompress((tmp_path / "t.csv.gz").read_bytes()).startswith(b'"id"')
