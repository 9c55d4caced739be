"""What lies far outside, and how a scored table differs from training."""

from __future__ import annotations

import datetime
import json
import math
import re

import numpy as np
import pyarrow as pa
import pytest

from addml.inputs.table import Columns
from addml.preprocessing.numbers import TALLIED, QuantileBins
from addml.preprocessing.profile import DriftCounter, drift_warning, stability_index

START = datetime.datetime(2024, 1, 1)


def trained(rows: int = 1000) -> pa.Table:
    """Amounts 0 to 99 equally often, two countries in three to one, one day after another, half of the flags set."""
    order = np.random.default_rng(0).permutation(rows)
    return pa.table(
        {
            "amount": (order % 100).astype(float),
            "country": np.where(order % 4 == 0, "FR", "DE"),
            "when": [START + datetime.timedelta(days=int(day)) for day in order // 10],
            "flag": order % 8 < 4,
        }
    )


def counted(columns: Columns, *batches: pa.Table | pa.RecordBatch) -> DriftCounter:
    counter = DriftCounter(columns)
    for batch in batches:
        columns.transform(batch, counter)
    return counter


def test_values_far_outside_are_counted() -> None:
    columns = Columns.fit(trained())
    now = pa.table(
        {
            "amount": [50, 198, 199, -99, -100, None],  # training reached from 0 to 99
            "country": ["DE", "XX", None, "YY", "FR", ""],
            "when": [START + datetime.timedelta(days=days) for days in (0, 99, 198, 199, -99, -100)],
            "flag": [True, False, None, True, True, True],
        }
    )
    assert counted(columns, now).outside == {"amount": 2, "country": 2, "when": 2}
    assert counted(columns, trained()).outside == {}


def test_drift_is_said_with_figures() -> None:
    table = trained()
    columns = Columns.fit(table)
    when = [one.as_py() + datetime.timedelta(days=9) for one in table["when"]]
    now = pa.table({"amount": np.array(table["amount"]) + 40, "country": ["FR", "FR", "DE", "FR"] * 250, "when": when})
    now = now.append_column("flag", table["flag"])
    summary = counted(columns, *now.to_batches(max_chunksize=500)).summary()
    words = str(drift_warning(summary, hidden=False))
    assert words.startswith("2 columns have drifted since training: ")
    assert re.search(r"amount: median 49(\.\d)? -> (8[89]|9[01])(\.\d)?(;|$)", words), words  # of two blocks
    assert "country: 'DE' 75% -> 25%" in words
    assert "->" not in str(drift_warning(summary, hidden=True))
    assert drift_warning(counted(columns, table).summary(), hidden=False) is None


def test_the_same_table_does_not_drift() -> None:
    table = trained()
    columns = Columns.fit(table)
    counter = counted(columns, *table.to_batches(max_chunksize=77))
    assert counter.rows == 1000
    for column in counter.summary():
        assert column["psi"] == pytest.approx(0, abs=1e-9)
        assert column["words"] == "much as in training"
    assert {column["column"] for column in counter.summary()} == {"amount", "country", "when", "flag"}


def test_what_drifted_comes_first_and_is_said() -> None:
    columns = Columns.fit(trained())
    table = trained()
    now = table.set_column(0, "amount", pa.array([60.0 + row % 40 for row in range(998)] + [1e6, -1e6]))
    now = now.set_column(1, "country", pa.array(["DE"] * 700 + [None] * 200 + ["XX"] * 100))
    counter = DriftCounter(columns)
    X = columns.transform(now, counter)
    np.testing.assert_array_equal(X, columns.transform(now))
    country, amount, *others = counter.summary()
    assert (country["column"], amount["column"]) == ("country", "amount")
    assert amount["words"] == "clearly higher than in training; 2 far outside the training range"
    assert (amount["outside_count"], amount["unseen_share"]) == (2, 0)
    assert country["words"] == ("clearly different from training; missing 0% then, 20% now; 10.0% unseen in training")
    assert (country["gaps_then"], country["gaps_now"], country["unseen_share"]) == (0, 0.2, 0.1)
    # DE, FR, others, gaps; to the rows of now come four like training's, and an empty bin counts as 0.0001
    pairs = [(0.75, 703 / 1004), (0.25, 1 / 1004), (1e-4, 100 / 1004), (1e-4, 200 / 1004)]
    assert country["psi"] == pytest.approx(sum((now - then) * math.log(now / then) for then, now in pairs), abs=1e-6)
    assert all(column["words"] == "much as in training" for column in others)
    json.dumps(counter.summary())


def test_later_dates_and_few_rows() -> None:
    columns = Columns.fit(trained())
    later = trained().set_column(
        2, "when", pa.array([START + datetime.timedelta(days=90 + row % 9) for row in range(1000)])
    )
    (first, *_) = counted(columns, later).summary()
    assert (first["column"], first["words"]) == ("when", "clearly later than in training")
    few = counted(columns, trained().slice(0, 8))
    assert {column["words"] for column in few.summary()} == {"much as in training"}  # eight rows tell nothing
    assert DriftCounter(columns).summary() == []


def test_bins_of_numbers_with_few_values() -> None:
    spread = QuantileBins.fit(np.array([0.0] * 90 + [1.0] * 10))
    assert (spread.low, spread.middle, spread.high) == (0, 0, 1)
    assert spread.tally(np.array([0.0, 0.0, 1.0, 7.0, np.nan])).tolist() == [2, 1, 1, 1]
    np.testing.assert_allclose(spread.shares, [0.9, 0.1, 0, 0])


def test_large_blocks_are_tallied_by_some_of_their_rows() -> None:
    values = np.random.default_rng(0).normal(size=10 * TALLIED)
    values[::50] = np.nan
    spread = QuantileBins.fit(values)
    counts = spread.tally(values)
    assert counts.sum() == pytest.approx(len(values))
    assert counts[-1] == np.isnan(values).sum()
    np.testing.assert_allclose(counts / len(values), spread.shares, atol=0.005)


def test_the_stability_index_by_hand() -> None:
    then, now = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    assert stability_index(then, now) == pytest.approx(0.25 * math.log(2) + 0.25 * math.log(1.5))
    assert stability_index(then, then) == 0


def test_gaps_that_chance_explains_are_not_said() -> None:
    """Half of training's values are gaps: in 4 rows 1 to 3 gaps are no wonder, in 400 rows 140 are."""
    columns = Columns.fit(pa.table({"x": [None if row % 2 else row % 100 + 0.5 for row in range(1000)]}))

    def words(gaps: int, rows: int) -> str:
        table = pa.table({"x": pa.array([None] * gaps + [50.5] * (rows - gaps), pa.float64())})
        return str(counted(columns, table).summary()[0]["words"])

    assert not any("gaps" in words(gaps, 4) for gaps in (1, 2, 3))
    assert "missing 50% then, 35% now" in words(140, 400)
    assert "gaps" not in words(0, 1)
