"""Rows on disk as the training loop sees them."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml.disk_fit import DiskRows, portions
from addml.inputs.disk import open_source

ROWS = 10_000


@pytest.fixture
def values():
    return np.random.default_rng(0).random((ROWS, 3)).astype(np.float32)


@pytest.fixture
def source(tmp_path, values):
    parquet.write_table(pa.table(list(values.T), names=["a", "b", "c"]), tmp_path / "a.parquet", row_group_size=777)
    return open_source(tmp_path / "a.parquet")


@pytest.fixture
def rows(source, values):
    return DiskRows(source, 2 * values, "cpu", 4096 * 2, 5)


def test_rows_are_taken_by_their_ids(rows, values):
    ids = np.random.default_rng(1).integers(0, ROWS, (2, 50))
    np.testing.assert_array_equal(rows.take(ids), 2 * values[ids])
    assert len(rows) == ROWS


def test_slices_are_rows_in_order(rows, values):
    found = [rows.slice(start, 999) for start in range(0, len(rows), 999)]
    np.testing.assert_array_equal(np.concatenate(found), 2 * values)


@pytest.mark.parametrize("most", [512, 5000, 9999])
def test_every_epoch_shuffles_each_row_once_in_other_portions(most):
    first, second = (list(portions(ROWS, most, 5, epoch)) for epoch in (0, 1))
    for epoch in (first, second):
        rows = [row for portion in epoch for start, stop in portion for row in range(start, stop)]
        assert sorted(rows) == list(range(ROWS))
        assert all(portion == sorted(portion) for portion in epoch)
    assert first != second
    assert first == list(portions(ROWS, most, 5, 0))
    assert first != list(portions(ROWS, most, 6, 0))


def test_rows_that_fit_make_one_portion():
    assert list(portions(ROWS, ROWS, 0, 3)) == [[(0, ROWS)]]
