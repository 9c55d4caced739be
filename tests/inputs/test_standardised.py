"""Columns and features in one, against one after the other: equal to the last bit."""

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from addml.inputs import table as standardised
from addml.inputs.table import Columns, Standardised
from addml.preprocessing.numbers import CellError
from addml.preprocessing.profile import DriftCounter
from addml.preprocessing.scaling import Features
from tests.inputs.test_columns import messy


@pytest.fixture(params=[False, True], ids=["standard", "robust"], autouse=True)
def robust(request, monkeypatch):
    """Both ways to scale."""
    monkeypatch.setattr(Features, "fit", partial(Features.fit, robust=request.param))


def fitted(table, one_sided=()):
    columns = Columns.fit(table)
    X = columns.transform(table)
    sides = np.zeros(X.shape[1], np.int64)
    for feature, side in one_sided:
        sides[columns.names.index(feature)] = side
    return columns, columns.rescaled(Features.fit(X, sides))


def assert_same(columns, features, table):
    found = Standardised(columns, features).transform(table)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, features.transform(columns.transform(table)))


def strange(table):
    """The table with what training did not hold: an unseen level, huge numbers, gaps in every column."""
    changed = {"country": pa.array(["new", *["DE"] * 299]), "amount": pa.array([1e300, -1e300, *[50.0] * 298])}
    table = table.select([name for name in table.column_names if name not in changed])
    for name, column in changed.items():
        table = table.append_column(name, column)
    nothing = pa.table([pa.nulls(3, kind) for kind in table.schema.types], names=table.column_names)
    return pa.concat_tables([table, nothing])


@pytest.mark.parametrize("at_once", [1, 7, 100, 4096])
def test_every_kind_of_column_with_gaps(monkeypatch, at_once):
    monkeypatch.setattr(standardised, "AT_ONCE", at_once)
    table = messy()
    columns, features = fitted(table)
    assert len(features.gaps)
    assert {"number", "boolean", "date", "category"} == set(columns.kinds.values())
    for part in (table, table.slice(5, 1), table.slice(0, 0), strange(table), table.to_batches()[0]):
        assert_same(columns, features, part)


def test_one_sided_columns():
    table = messy()
    columns, features = fitted(table, [("amount", 1), ("pieces", -1)])
    assert_same(columns, features, table)


@pytest.mark.parametrize("names", [["country"], ["country", "merchant"], ["amount"], ["member", "country", "when"]])
def test_categories_alone_and_among_others(names):
    table = messy().select(names)
    assert_same(*fitted(table), table)


def test_a_flag_of_gaps_for_a_category():
    # no fit makes one, a model file may hold one
    table = messy().select(["country", "amount"])
    columns, features = fitted(table)
    gaps = np.union1d(features.gaps, [1])
    wide = {name: np.append(getattr(features, name), 0.5) for name in ("mean", "scale", "bent_mean", "bent_scale")}
    assert_same(columns, replace(features, gaps=gaps, **wide), table)


def test_rows_are_counted_in_passing():
    table = messy()
    columns, features = fitted(table)
    expected, found = DriftCounter(columns), DriftCounter(columns)
    columns.transform(strange(table), expected)
    Standardised(columns, features).transform(strange(table), found)
    assert found.summary() == expected.summary()


def test_an_error_names_the_row():
    table = pa.table({"amount": [1.0, 2.0, 4.0], "pieces": [3, 4, 9]})
    columns, features = fitted(table)
    with pytest.raises(CellError) as error:
        Standardised(columns, features).transform(pa.table({"amount": [1, 2, np.inf], "pieces": [3, 4, 9]}))
    assert (error.value.column, error.value.row) == ("amount", 3)
