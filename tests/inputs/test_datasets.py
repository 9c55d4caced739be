"""Tables on disk: every row in order, whatever the files; and what is wrong with them by file, group and column."""

import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from addml.inputs.disk import is_on_disk, open_source
from addml.io.source import ReadError


def write(folder, number, group=10, **columns):
    folder.mkdir(exist_ok=True)
    path = folder / f"part-{number}.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=group)
    return path


@pytest.fixture
def folder(tmp_path):
    """35, 1 and 64 rows of two columns, in row groups of 10: x counts them."""
    for number, (start, stop) in enumerate([(0, 35), (35, 36), (36, 100)]):
        x = np.arange(start, stop)
        write(tmp_path / "table", number, x=x, y=x / 2)
    return tmp_path / "table"


def read(source, *args, **settings):
    return pa.Table.from_batches(list(source.batches(*args, **settings)))


def test_rows_come_in_the_order_of_the_files(folder):
    source = open_source(folder)
    assert (len(source), source.names) == (100, ["x", "y"])
    assert read(source, rows=7)["x"].to_pylist() == list(range(100))
    assert max(batch.num_rows for batch in source.batches(rows=7)) <= 7


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (9, 11), (30, 37), (34, 36), (99, 100), (0, 100)])
def test_any_range_can_be_read(folder, start, stop):
    assert read(open_source(folder), start, stop)["x"].to_pylist() == list(range(start, stop))


def test_columns_can_be_chosen(folder):
    assert read(open_source(folder, ["y"])).column_names == ["y"]


def test_a_dataset_of_pyarrow_is_one(folder):
    found = dataset.dataset(folder, format="parquet")
    assert is_on_disk(found)
    assert read(open_source(found)).equals(read(open_source(folder)))


def test_a_filtered_dataset_gives_the_rows_that_pass(folder):
    found = dataset.dataset(folder, format="parquet").filter(dataset.field("x") > 89)
    source = open_source(found)
    assert len(source) == 10
    assert read(source, 3, 5)["x"].to_pylist() == [93, 94]


def test_a_dataset_in_memory_is_one():
    source = open_source(dataset.dataset(pa.table({"x": [1, 2, 3]})))
    assert read(source)["x"].to_pylist() == [1, 2, 3]


def test_a_scanner_is_refused(folder):
    with pytest.raises(TypeError, match="Scanner is not a table on disk: give the path"):
        open_source(dataset.dataset(folder, format="parquet").scanner())


def test_a_single_file_is_one(folder):
    assert len(open_source(str(folder / "part-2.parquet"))) == 64


def test_folders_named_by_a_value_are_a_column(tmp_path):
    for year in (2024, 2025):
        (tmp_path / "table" / f"year={year}").mkdir(parents=True)
        parquet.write_table(pa.table({"x": [1, 2]}), tmp_path / "table" / f"year={year}" / "a.parquet")
    assert read(open_source(tmp_path / "table"))["year"].to_pylist() == [2024, 2024, 2025, 2025]


def test_an_array_and_a_table_are_not_on_disk():
    assert not is_on_disk(np.zeros(3))
    assert not is_on_disk(pa.table({"x": [1]}))
    assert is_on_disk("a.parquet")


# What is wrong ----------------------------------------------------------------------------------------------


def test_a_column_that_some_files_lack_is_a_gap_there_and_said(folder):
    write(folder, 9, x=np.arange(3))
    source = open_source(folder)
    assert any("columns that some files do not have" in note and "y" in note for note in source.notes)
    assert read(source)["y"].null_count == 3


def test_numbers_of_two_types_are_joined(folder):
    write(folder, 9, x=np.array([0.5, 1.5]), y=np.zeros(2))
    assert read(open_source(folder))["x"].type == pa.float64()


def test_types_without_anything_in_common_name_the_file(folder):
    write(folder, 9, x=["a", "b"], y=np.zeros(2))
    with pytest.raises(ReadError, match=r"part-9.parquet: .*x has incompatible types: int64 vs string"):
        open_source(folder)


def test_a_file_without_rows_takes_nothing_away(folder):
    write(folder, 9, x=np.empty(0, np.int64), y=np.empty(0))
    assert len(open_source(folder)) == 100


@pytest.mark.parametrize("name", ["part-0.parquet", "part-9.parquet"])
def test_a_file_of_no_bytes_is_named(folder, name):
    (folder / name).write_bytes(b"")
    with pytest.raises(ReadError, match=name):
        open_source(folder)


def test_an_empty_path_is_not_the_present_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert len(open_source("."))
    with pytest.raises(ReadError, match="the path is empty"):
        open_source("")


def test_a_table_without_rows_is_refused(tmp_path):
    write(tmp_path / "table", 0, x=np.empty(0))
    with pytest.raises(ReadError, match="holds no rows"):
        open_source(tmp_path / "table")


def test_another_format_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ReadError, match=r"a.csv: is csv; a path must be Parquet"):
        open_source(tmp_path / "a.csv")


def damage(path, group):
    """Overwrite the bytes of a row group."""
    column = parquet.read_metadata(path).row_group(group).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)


def test_a_damaged_row_group_is_named_with_its_file(folder):
    damage(folder / "part-2.parquet", 3)
    source = open_source(folder)
    with pytest.raises(ReadError, match=r"part-2.parquet, row group 3: .*data is damaged"):
        list(source.batches())


@pytest.mark.parametrize("what", ["has changed", "is gone", "is new"])
def test_a_folder_that_changes_is_noticed(folder, what):
    source, second = open_source(folder), folder / "part-1.parquet"
    source.check_unchanged()
    if what == "has changed":
        os.utime(second, ns=(1, 1))
    elif what == "is gone":
        second.unlink()
    else:
        write(folder, 9, x=np.arange(3), y=np.zeros(3))
    with pytest.raises(ReadError, match=f"{what} since the run began"):
        source.check_unchanged()


def test_a_change_in_one_of_several_datasets_is_noticed(folder, tmp_path):
    parquet.write_table(pa.table({"x": [1], "y": [0.5]}), tmp_path / "other.parquet")
    source = open_source(dataset.dataset([dataset.dataset(folder), dataset.dataset(tmp_path / "other.parquet")]))
    source.check_unchanged()
    os.utime(tmp_path / "other.parquet", ns=(1, 1))
    with pytest.raises(ReadError, match=r"other.parquet: has changed since the run began"):
        source.check_unchanged()


def test_nested_columns_are_spread_out_and_said(tmp_path):
    parquet.write_table(pa.table({"a": [1, 2], "at": [{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}]}), tmp_path / "a.pq")
    source = open_source(tmp_path)
    assert source.names == ["a", "at.x", "at.y"]
    assert "nested columns, flattened to name.part: at" in source.notes
