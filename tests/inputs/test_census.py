"""One pass over a table: a sample that knows every column's ends and gaps, and counts of all rows."""

import numpy as np
import pyarrow as pa
import pytest

from addml.inputs.census import Census, Held, Levels, Moments
from addml.inputs.table import Columns, Standardised
from addml.preprocessing.scaling import Features

ROWS = 5000


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    rare, gappy = np.zeros(ROWS), random.normal(size=ROWS)
    rare[4321] = 9.0
    gappy[77] = np.nan
    flag = np.zeros(ROWS, bool)
    flag[[5, 4000]] = True
    place = random.choice(["north", "south", "east"], ROWS, p=[0.6, 0.3, 0.1]).astype(object)
    place[1234] = "moon"
    place[99] = None
    return pa.table({"plain": random.normal(size=ROWS), "rare": rare, "gappy": gappy, "flag": flag, "place": place})


def census(table, most, rows=512):
    return Census.take(table.to_batches(max_chunksize=rows), most, 0)


def test_a_sample_of_everything_is_the_table(table):
    found = census(table, ROWS)
    assert found.is_whole
    assert found.sample.drop_columns(["gappy"]).equals(table.drop_columns(["gappy"]))  # which has NaN
    assert found.columns().to_plain() == Columns.fit(table).to_plain()


def test_the_sample_holds_the_ends_and_a_gap_of_every_column(table):
    found = census(table, 200)
    assert 200 <= len(found.places) <= 200 + 3 * table.num_columns
    assert {4321, 77, 99} <= set(found.places.tolist())
    assert (np.diff(found.places) > 0).all()
    assert found.sample["plain"].to_pylist() == table["plain"].take(found.places).to_pylist()
    assert found.sample["plain"].combine_chunks().to_numpy().max() == table["plain"].to_numpy().max()


def test_a_column_that_hardly_varies_is_no_constant(table):
    columns = census(table, 200).columns()
    assert columns.kinds == {
        "plain": "number",
        "rare": "number",
        "gappy": "number",
        "flag": "boolean",
        "place": "category",
    }
    assert columns.rows == ROWS


def test_categories_and_truth_values_are_counted_in_all_rows(table):
    columns = {column.name: column for column in census(table, 200).columns().fitted}
    place, flag = columns["place"], columns["flag"]
    known = [value for value in table["place"].to_pylist() if value]
    assert dict(zip(place.levels, place.counts, strict=True)) == {name: known.count(name) for name in set(known)}
    assert (place.gaps, place.rows, flag.trues, flag.falses) == (1, ROWS, 2, ROWS - 2)


def test_too_many_values_are_not_counted(monkeypatch):
    monkeypatch.setattr("addml.inputs.census.MOST_COUNTED", 10)
    levels = Levels()
    levels.add(pa.array([f"name {number}" for number in range(11)]))
    levels.add(pa.array(["name 1"]))
    assert levels.too_many
    assert not levels.counts


@pytest.mark.parametrize("robust", [False, True])
def test_means_deviations_and_gaps_are_those_of_all_rows(table, robust):
    found = census(table, 400)
    columns = found.columns()
    before = Features.fit(columns.transform(found.sample), robust=robust)
    moments, standardised = Moments(before), Standardised(columns, before)
    for batch in table.to_batches(max_chunksize=700):
        moments.add(standardised.transform(batch))
    features = moments.refined()
    numbers = columns.transform(table)
    values = features.transform(numbers).astype(float)[:, : len(before.median)]
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(features.gaps, np.flatnonzero(np.isnan(numbers).any(axis=0)))
    np.testing.assert_allclose(features.mean[len(before.median) :], np.isnan(numbers).mean(axis=0)[features.gaps])


def test_a_row_that_many_columns_point_at_is_held_once():
    random = np.random.default_rng(0)
    values = random.normal(size=(50, 300))
    values[7], values[40] = 9.0, -9.0
    held = Held()
    for start in (0, 25):
        batch = pa.record_batch([*values[start : start + 25].T], names=[f"c{place}" for place in range(300)])
        held.keep(np.array([7]) if start == 0 else np.array([7, 40]), batch, start)
    assert held.places.tolist() == [7, 40]
    assert held.table.num_rows == 2
    assert held.table["c123"].to_pylist() == [9.0, -9.0]


def test_rows_that_are_no_longer_the_ends_are_let_go():
    held = Held()
    for start, wanted in ((0, [1, 3]), (4, [1, 6]), (8, [1, 6])):
        held.keep(np.array(wanted), pa.record_batch([pa.array(range(start, start + 4))], names=["place"]), start)
    assert held.places.tolist() == held.table["place"].to_pylist() == [1, 6]
