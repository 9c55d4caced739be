"""One pass over a table: a sample that knows every column's ends and gaps, and counts of all rows."""

import numpy as np
import pyarrow as pa
import pytest

from addml.disk_fit import refined
from addml.inputs.disk import Census, ExtremeRows, add_levels
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
    monkeypatch.setattr("addml.inputs.disk.MOST_COUNTED", 10)
    levels = {}
    for counts in ({"name 1": 2, "": 1}, {"name 1": 1}):
        add_levels(levels, "column", counts)
    assert levels["column"] == {"name 1": 3, "": 1}
    for counts in ({f"name {number}": 1 for number in range(11)}, {"name 1": 1}):
        add_levels(levels, "column", counts)
    assert levels == {"column": None}


@pytest.mark.parametrize("robust", [False, True])
def test_means_deviations_and_gaps_are_those_of_all_rows(table, robust):
    found = census(table, 400)
    columns = found.columns()
    before = Features.fit(columns.transform(found.sample), robust=robust)
    standardised = Standardised(columns, before)
    features = refined(before, map(standardised.transform, table.to_batches(max_chunksize=700)))
    numbers = columns.transform(table)
    values = features.transform(numbers).astype(float)[:, : len(before.median)]
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(features.gaps, np.flatnonzero(np.isnan(numbers).any(axis=0)))
    np.testing.assert_allclose(features.mean[len(before.median) :], np.isnan(numbers).mean(axis=0)[features.gaps])


def test_only_the_present_ends_of_a_column_are_kept():
    extremes, values = ExtremeRows(), np.array([3.0, 1.0, 2.0, np.nan, 5.0, 2.0, 0.0, np.nan])
    for start in (0, 4):
        batch = pa.record_batch(
            [pa.array(values[start : start + 4]), pa.array(range(start, start + 4))], ["x", "place"]
        )
        extremes.add(batch, {"x": batch.column(0)}, start)
    rows = {end: (place, row["place"].to_pylist()) for (_, end), (place, row) in extremes.rows.items()}
    assert rows == {"min": (6, [6]), "max": (4, [4]), "gap": (3, [3])}
