"""Frames of any library as the same Arrow table."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from addml.inputs.frame import as_table, is_frame
from addml.inputs.table import Columns

ROWS = 60
RANDOM = np.random.default_rng(3)
AMOUNTS = [None if row % 9 == 0 else float(value) for row, value in enumerate(RANDOM.normal(size=ROWS))]
COUNTRIES = [None if row % 7 == 0 else ("DE", "FR", "AT")[row % 3] for row in range(ROWS)]
MOMENTS = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=37 * row % 1000) for row in range(ROWS)]
FLAGS = [None if row % 11 == 0 else bool(row % 2) for row in range(ROWS)]
COUNTS = [None if row % 13 == 0 else row * row % 17 for row in range(ROWS)]


def frames() -> dict[str, Any]:
    plain = {"amount": AMOUNTS, "country": COUNTRIES, "when": MOMENTS, "flag": FLAGS, "count": COUNTS}
    pandas = pd.DataFrame(plain, index=np.arange(ROWS) * 2)
    return {
        "pandas": pandas,
        "pandas, nullable": pandas.convert_dtypes(),
        "pandas, objects": pandas.astype(object),
        "pandas, categories": pandas.astype({"country": "category"}),
        "polars": pl.DataFrame(plain),
        "polars, categories": pl.DataFrame(plain).with_columns(pl.col("country").cast(pl.Categorical)),
        "polars, enum": pl.DataFrame(plain).with_columns(pl.col("country").cast(pl.Enum(["AT", "DE", "FR", "XX"]))),
        "pyarrow": pa.table(plain),
        "batch": pa.RecordBatch.from_pydict(plain),
    }


@pytest.mark.parametrize("name", list(frames()))
def test_all_libraries_give_the_same_features(name: str) -> None:
    table = pa.table(frames()["pyarrow"])
    expected = Columns.fit(table)
    arrow = as_table(frames()[name])
    columns = Columns.fit(arrow)
    assert columns == expected
    np.testing.assert_array_equal(columns.transform(arrow), expected.transform(table))
    np.testing.assert_array_equal(expected.transform(arrow), expected.transform(table))


def test_what_is_a_frame() -> None:
    for name, frame in frames().items():
        assert is_frame(frame) or name == "batch"
    for other in (np.ones((2, 2)), [[1]], {"a": [1]}, pd.Series([1]), None):
        assert not is_frame(other)


def test_names_are_texts_and_sparse_columns_written_out() -> None:
    table = as_table(pd.DataFrame({0: pd.arrays.SparseArray([0, 0, 3]), "b": [1, 2, 3]}))
    assert table.to_pydict() == {"0": [0, 0, 3], "b": [1, 2, 3]}


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_numbers_and_texts_in_a_column_are_texts(gap: Any) -> None:
    frame = pd.DataFrame({"m": pd.Series([1, gap, "a", np.float64(2.5), Decimal("0.10")], dtype=object)})
    assert as_table(frame)["m"].to_pylist() == ["1", None, "a", "2.5", "0.10"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"m": pd.Series([1, None, b"a"], dtype=object)}), r"'m' mixes int and bytes \(row 3 is b'a'\)"),
        (pd.DataFrame({"m": pd.Series(["a", (2,)], dtype=object)}), r"'m' mixes str and tuple \(row 2 is \(2,\)\)"),
        (pd.DataFrame({"z": [1j, 2j]}), "column 'z' cannot be read"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns are called 'a'"),
        (pd.DataFrame([[1, 2]], columns=[0, "0"]), "several columns are called '0'"),
        (pa.table([[1], [2]], names=["a", "a"]), "several columns are called 'a'"),
        (pl.LazyFrame({"a": [1]}), "collect"),
        ([[1, 2]], "list is not a data frame"),
    ],
)
def test_frames_that_cannot_be_read(frame: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_table(frame)
