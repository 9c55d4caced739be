"""Columns as features, worked out by hand on small tables."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from addml.inputs.table import Columns
from addml.preprocessing.numbers import CellError
from addml.preprocessing.profile import DriftCounter
from addml.preprocessing.scaling import Features

NAN = float("nan")


def messy(rows: int = 300, seed: int = 0) -> pa.Table:
    """Every kind of column, with gaps."""
    random = np.random.default_rng(seed)
    moments = np.datetime64("2024-01-01T00:00:00") + random.integers(0, 200 * 86_400, rows)
    merchants = (random.pareto(1, rows) * 10).astype(int)

    def gappy(values: Any) -> pa.Array:
        return pa.array(values, mask=random.random(rows) < 0.1)

    return pa.table(
        {
            "number": np.arange(rows),
            "amount": gappy(random.normal(50, 10, rows)),
            "pieces": gappy(random.integers(0, 5, rows)),
            "price": gappy(np.array([f"{value:.2f} €".replace(".", ",") for value in random.exponential(30, rows)])),
            "country": gappy(np.array(["DE", "FR", "AT", "CH"])[random.choice(4, rows, p=[0.6, 0.3, 0.06, 0.04])]),
            "merchant": gappy(np.array([f"m{one}" for one in merchants])),
            "member": gappy(random.random(rows) < 0.01),
            "when": gappy(moments),
            "day": gappy(np.array([f"{1 + one % 28:02}.{1 + one % 12:02}.2023" for one in range(rows)])),
            "clock": gappy(np.array([f"{one % 24}:{one % 60:02}" for one in random.integers(0, 5000, rows)])),
            "note": [f"an unusual parcel came, number {row}" for row in range(rows)],
        }
    )


def column_of(columns: Columns, table: pa.Table, name: str) -> list[float]:
    return [float(value) for value in columns.transform(table)[:, columns.names.index(name)]]


# Numbers and truth values -----------------------------------------------------------------------------------


def test_numbers_as_they_are_with_gaps() -> None:
    table = pa.table({"a": pa.array([4, None, 7, 9], pa.int32()), "b": [0.5, NAN, -2.0, 0.25]})
    columns = Columns.fit(table)
    assert (columns.names, columns.used, columns.origins) == (["a", "b"], ["a", "b"], [0, 1])
    np.testing.assert_array_equal(columns.transform(table), [[4, 0.5], [NAN, NAN], [7, -2], [9, 0.25]])


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1.5", " 2 ", None, "-3e2"], [1.5, 2, NAN, -300]),
        (["1,234.5", "", "-2,000,000", "+7"], [1234.5, NAN, -2e6, 7]),
        (["1.234,5", "17,25", "-2.000.000", None], [1234.5, 17.25, -2e6, NAN]),
        (["1'234.5", "17.25", "3", "4"], [1234.5, 17.25, 3, 4]),
        (["12.5 %", "3%", "-4.25%", "0%"], [12.5, 3, -4.25, 0]),
        (["-€ 1.204,00", "€3,00", "€ 12,50", "€ -1,5"], [-1204, 3, 12.5, -1.5]),
        (["5 USD", "1,000 USD", "2.5USD", None], [5, 1000, 2.5, NAN]),
    ],
)
def test_numbers_from_text(texts: list[str | None], numbers: list[float]) -> None:
    table = pa.table({"it": texts})
    columns = Columns.fit(table)
    assert columns.kinds == {"it": "number"}
    assert columns.notes == [f"column 'it' is text that reads as numbers ({texts[0]!r})"]
    np.testing.assert_allclose(columns.transform(table)[:, 0], numbers)


def test_durations_are_seconds_and_decimals_numbers() -> None:
    lengths = pa.array([1500, 60_000, 0], pa.duration("ms"))
    table = pa.table({"length": lengths, "price": [Decimal("1.00"), Decimal("3.00"), Decimal("2.00")]})
    assert Columns.fit(table).transform(table).tolist() == [[1.5, 1], [60, 3], [0, 2]]


def test_truth_values_and_the_rarity_of_a_rare_one() -> None:
    table = pa.table({"even": [True, False, None, True], "beside": [1, 3, 2, 9]})
    columns = Columns.fit(table)
    assert columns.names == ["even", "beside"]
    assert column_of(columns, table, "even")[:2] == [1, 0]
    assert math.isnan(column_of(columns, table, "even")[2])
    rare = pa.table({"flag": [row == 5 for row in range(1000)]})
    columns = Columns.fit(rare)
    assert columns.names == ["flag", "flag (rarity)"]
    rarity = column_of(columns, rare, "flag (rarity)")
    assert rarity[5] == pytest.approx(math.log(0.02 / 0.001))
    assert sum(rarity) == rarity[5]


# Categories -------------------------------------------------------------------------------------------------


def countries() -> pa.Table:
    """1,000 rows: DE 600, FR 390, a gap 9, XX 1."""
    return pa.table({"country": ["DE"] * 600 + ["FR"] * 390 + [None] * 9 + ["XX"]})


def test_few_levels_get_a_column_each() -> None:
    columns = Columns.fit(countries())
    assert columns.names == [
        "country=DE",
        "country=FR",
        "country=(gap)",
        "country (other)",
        "country (rarity)",
    ]
    now = pa.table({"country": ["DE", "FR", None, " ", "XX", "new"]})
    # A gap is as rare as 9 + 1 rows in 1,000, XX as 1 row; a new value as XX, since the next one is new as often.
    gap, once, new = (math.log(0.02 / share) for share in (10 / 1000, 1 / 1000, 2 / 1001))
    expected = [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, gap],
        [0, 0, 1, 0, gap],
        [0, 0, 0, 1, once],
        [0, 0, 0, 1, max(3.0, new)],
    ]
    np.testing.assert_allclose(columns.transform(now), expected)


def test_an_unseen_value_stands_out_however_small_the_table() -> None:
    columns = Columns.fit(pa.table({"country": ["DE", "FR"] * 10}))
    scaled = columns.transform(pa.table({"country": ["DE", "new", None]})) / columns.scales
    assert scaled[0].tolist() == [0.5, 0, 0, 0]
    assert scaled[1].tolist() == scaled[2].tolist() == [0, 0, 0.5, 3]


def test_where_new_values_are_usual_they_do_not_stand_out() -> None:
    values = ["often"] * 60 + [f"once {row}" for row in range(40)]
    columns = Columns.fit(pa.table({"word": values}))
    rarity = column_of(columns, pa.table({"word": ["often", "once 7", "new"]}), "word (rarity)")
    assert rarity == [0, 0, 0]


def test_many_levels_are_hashed_the_same_everywhere() -> None:
    table = pa.table({"code": [f"c{row % 50}" for row in range(500)]})
    columns = Columns.fit(table)
    assert columns.names == [*(f"code (hash {at})" for at in range(8)), "code (rarity)"]
    X = columns.transform(table)
    assert set(np.unique(X[:, :8])) == {-1, 1}
    assert not X[:, 8].any()  # all are equally common
    assert len(np.unique(X, axis=0)) > 40
    again = Columns.fit(pa.table({"code": [f"c{row % 50}" for row in range(50, 0, -1)] * 10})).transform(table)
    np.testing.assert_array_equal(X, again)
    assert columns.transform(pa.table({"code": ["new"]}))[0].tolist() == [0] * 8 + [3]


def test_rare_levels_share_a_column() -> None:
    values = ["a"] * 3000 + ["b"] * 2000 + [f"rare {row // 4}" for row in range(120)]
    columns = Columns.fit(pa.table({"v": values}))
    assert columns.names == ["v=a", "v=b", "v (other)", "v (rarity)"]
    (row,) = columns.transform(pa.table({"v": ["rare 3"]}))
    assert row.tolist() == [0, 0, 1, 0]  # over 2 % of the rows are as rare as this one


def test_only_the_commonest_of_very_many_levels_are_remembered() -> None:
    values = np.concatenate([np.repeat(np.arange(10_000), 2), np.arange(10_000, 12_000)])
    columns = Columns.fit(pa.table({"v": [f"v{value}" for value in values]}))
    document = columns.to_plain()["columns"][0]
    assert (len(document["levels"]), document["rows"]) == (10_000, 22_000)
    counter = DriftCounter(columns)
    columns.transform(pa.table({"v": ["v1", "v9999", "v11000", "new"]}), counter)
    assert counter.outside == {"v": 2}


def test_categories_come_in_other_types() -> None:
    columns = Columns.fit(pa.table({"v": ["7", "8", "x", "true"] * 5}))
    expected = columns.transform(pa.table({"v": ["7", "8"]}))
    for values in ("7", "8"), (7, 8), (7.0, 8.0):
        for kind in (pa.large_string(), pa.string_view()) if values[0] == "7" else (pa.int8(), pa.float64()):
            np.testing.assert_array_equal(columns.transform(pa.table({"v": pa.array(values, kind)})), expected)
    encoded = pa.table({"v": pa.array(["8", "7", "8"]).dictionary_encode().slice(1)})
    np.testing.assert_array_equal(columns.transform(encoded), expected)
    assert columns.transform(pa.table({"v": [True]}))[0, columns.names.index("v=true")] == 1
    assert columns.transform(pa.table({"v": pa.nulls(1)})).shape == (1, len(columns.names))
    with pytest.raises(ValueError, match="column 'v' is now of type list"):
        columns.transform(pa.table({"v": [[1]]}))


# Dates ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_date() -> None:
    # A Monday at 06:00, a Saturday at 18:00, a Thursday at midnight; the middle one in time is the Saturday.
    moments = [datetime.datetime(2024, 1, 1, 6), datetime.datetime(2024, 3, 2, 18), datetime.datetime(2024, 6, 6)]
    table = pa.table({"when": moments})
    columns = Columns.fit(table)
    assert columns.names == [
        "when",
        "when.hour sin",
        "when.hour cos",
        "when.weekday sin",
        "when.weekday cos",
        "when.season sin",
        "when.season cos",
        "when.weekend",
    ]
    days = [(moment - moments[1]).total_seconds() / 86_400 for moment in moments]
    np.testing.assert_allclose(column_of(columns, table, "when"), days)
    np.testing.assert_allclose(column_of(columns, table, "when.hour sin"), [1, -1, 0], atol=1e-9)
    np.testing.assert_allclose(column_of(columns, table, "when.hour cos"), [0, 0, 1], atol=1e-9)
    angles = [2 * math.pi * weekday / 7 for weekday in (0, 5, 3)]
    np.testing.assert_allclose(column_of(columns, table, "when.weekday sin"), np.sin(angles), atol=1e-9)
    np.testing.assert_allclose(column_of(columns, table, "when.weekday cos"), np.cos(angles), atol=1e-9)
    seasons = [2 * math.pi * day / 366 for day in (0, 61, 157)]
    np.testing.assert_allclose(column_of(columns, table, "when.season sin"), np.sin(seasons), atol=0.02)
    assert column_of(columns, table, "when.weekend") == [0, 1, 0]


def test_parts_that_are_the_same_in_all_rows_are_left_out() -> None:
    mondays = pa.table({"day": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 8), datetime.date(2024, 1, 22)]})
    assert Columns.fit(mondays).names == ["day"]  # no times, one weekday, under two months


def test_a_gap_in_a_date_is_one_gap() -> None:
    times = [datetime.datetime(2024, 1, 1, 6), None, datetime.datetime(2024, 1, 2, 12)]
    columns = Columns.fit(pa.table({"when": times}))
    X = columns.transform(pa.table({"when": times}))
    assert np.isnan(X).sum() == 1
    assert math.isnan(X[1, 0])
    np.testing.assert_allclose(X[1, 1:], X[[0, 2], 1:].mean(axis=0))
    assert len(Features.fit(X).gaps) == 1


def test_dates_are_local_time_in_the_zone_of_training() -> None:
    noon = [datetime.datetime(2024, 1, 1, 11), datetime.datetime(2024, 7, 1, 10), datetime.datetime(2024, 7, 2, 10)]
    berlin = pa.table({"when": pa.array(noon, pa.timestamp("s", "UTC")).cast(pa.timestamp("s", "Europe/Berlin"))})
    columns = Columns.fit(berlin)
    assert not any("hour" in name for name in columns.names)  # noon in winter and in summer
    expected = columns.transform(berlin)
    utc = pa.table({"when": pa.array(noon, pa.timestamp("ns", "UTC"))})
    np.testing.assert_allclose(columns.transform(utc), expected)
    local = pa.table({"when": ["2024-01-01 12:00", "2024-07-01 12:00", "2024-07-02T12:00:00"]})
    np.testing.assert_allclose(columns.transform(local), expected)


@pytest.mark.parametrize(
    "texts",
    [
        ["2024-01-31 15:30", "2024-02-01 00:00:00", "2023-12-24 09:05:00.0"],
        ["2024-01-31T15:30+0200", "2024-02-01T00:00:00+02:00", "2023-12-24 09:05:00+02"],  # as the clock there shows
        ["2024-01-31T15:30Z", "2024-02-01T02:00:00+02:00", "2023-12-24T04:05:00-0500"],  # as that of UTC shows
        ["31.01.2024 15:30", "1.2.2024", "24.12.23 9:05"],
        ["01/31/2024 3:30 PM", "2/1/2024", "12/24/2023 9:05 am"],
        ["31 Jan 2024 15:30", "1 February 2024", "Sun, 24 Dec 2023 09:05"],
        ["January 31, 2024 15:30", "Feb 1st, 2024", "Dec 24, 2023 09:05"],
    ],
)
def test_dates_from_text(texts: list[str]) -> None:
    moments = [
        datetime.datetime(2024, 1, 31, 15, 30),
        datetime.datetime(2024, 2, 1),
        datetime.datetime(2023, 12, 24, 9, 5),
    ]
    expected = Columns.fit(pa.table({"when": moments}))
    columns = Columns.fit(pa.table({"when": texts}))
    assert columns.names == expected.names
    table = pa.table({"when": [*texts, None]})
    np.testing.assert_allclose(columns.transform(table)[:3], expected.transform(pa.table({"when": moments})), atol=1e-9)
    typed = columns.transform(pa.table({"when": moments}))
    np.testing.assert_allclose(columns.transform(table)[:3], typed, atol=1e-9)


INSTANTS = pa.array(
    [datetime.datetime(2024, 1, 31, 23, 30), datetime.datetime(2024, 7, 1, 6)], pa.timestamp("us", "UTC")
)
WRITTEN = [  # the same two, wherever the clock stands
    ["2024-01-31T23:30Z", "2024-07-01T06:00:00Z"],
    ["2024-02-01T01:30+02:00", "2024-07-01 08:00 +0200"],
    ["2024-01-31 18:30:00-05", "2024-07-01 02:00:00-04"],
]


@pytest.mark.parametrize("taught", [*WRITTEN, INSTANTS.cast(pa.timestamp("s", "Europe/Berlin"))])
@pytest.mark.parametrize("column", [*WRITTEN, INSTANTS.cast(pa.timestamp("ns", "America/New_York"))])
def test_the_same_instants_read_alike_in_any_zone(taught: Any, column: Any) -> None:
    columns = Columns.fit(pa.table({"when": taught}))
    expected = columns.transform(pa.table({"when": taught}))
    np.testing.assert_allclose(columns.transform(pa.table({"when": column})), expected, atol=1e-9)


def test_without_zones_in_training_what_the_clock_shows_counts() -> None:
    columns = Columns.fit(pa.table({"when": ["31.01.2024 23:30", "1.7.2024 06:00"]}))
    expected = columns.transform(pa.table({"when": ["31.01.2024 23:30", "1.7.2024 06:00"]}))
    table = pa.table({"when": ["31.01.2024 23:30 +05:00", "1.7.2024 06:00 -0300"]})
    np.testing.assert_array_equal(columns.transform(table), expected)


def test_times_of_the_day_with_a_zone() -> None:
    columns = Columns.fit(pa.table({"at": ["06:00+01:00", "18:00+01:00", "23:30+01:00"]}))
    table = pa.table({"at": ["05:00Z", "12:00-05:00", "00:30+02:00"]})
    angles = 2 * np.pi * np.array([6, 18, 23.5]) / 24
    np.testing.assert_allclose(columns.transform(table), np.column_stack([np.sin(angles), np.cos(angles)]), atol=1e-9)


def test_times_of_the_day() -> None:
    typed = pa.table({"at": [datetime.time(6), datetime.time(18), datetime.time(23, 59, 59)]})
    columns = Columns.fit(typed)
    assert columns.names == ["at.hour sin", "at.hour cos"]
    np.testing.assert_allclose(columns.transform(typed)[:2], [[1, 0], [-1, 0]], atol=1e-9)
    as_text = pa.table({"at": ["06:00", "6:00 PM", "23:59:59"]})
    np.testing.assert_array_equal(Columns.fit(as_text).transform(as_text), columns.transform(typed))
    moments = pa.table({"at": [datetime.datetime(2024, 5, 1, 6)]})
    np.testing.assert_allclose(columns.transform(moments), [[1, 0]], atol=1e-9)


# By name, in parts, again -----------------------------------------------------------------------------------


def test_columns_go_by_name() -> None:
    table = messy()
    columns = Columns.fit(table)
    expected = columns.transform(table)
    others = table.select(table.column_names[::-1]).append_column("extra", pa.array(range(len(table))))
    np.testing.assert_array_equal(columns.transform(others), expected)
    np.testing.assert_array_equal(columns.transform(others.combine_chunks().to_batches()[0]), expected)


def test_what_is_left_out_of_the_messy_table() -> None:
    columns = Columns.fit(messy())
    assert [name for name, _ in columns.left_out] == ["number", "note"]
    assert list(columns.kinds.values()) == [
        *("number", "number", "number", "category", "category", "boolean", "date", "date", "date")
    ]
    assert [columns.used[at] for at in columns.origins] == [
        next(used for used in columns.used if name.startswith(used)) for name in columns.names
    ]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_part_of_the_table_is_a_part_of_the_matrix(size: int) -> None:
    table = messy()
    columns = Columns.fit(table)
    whole = columns.transform(table)
    parts = [columns.transform(table.slice(start, size)) for start in range(0, len(table), size)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    chunked = pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=size))
    assert Columns.fit(chunked) == columns
    np.testing.assert_array_equal(columns.transform(chunked), whole)
    dictionaries = pa.Table.from_batches(
        [
            pa.record_batch(
                [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in batch.columns],
                names=table.column_names,
            )
            for batch in chunked.to_batches()
        ]
    )
    np.testing.assert_array_equal(columns.transform(dictionaries), whole)


def test_large_tables_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    table = messy()
    columns = Columns.fit(table)
    whole = columns.transform(table)
    monkeypatch.setattr("addml.inputs.table.READ_AT_ONCE", 64)
    np.testing.assert_array_equal(columns.transform(table), whole)
    bad = table.set_column(1, "amount", pa.array([1.5] * 200 + [np.inf] + [1.0] * 99))
    with pytest.raises(CellError, match="column 'amount', row 201 is inf"):
        columns.transform(bad)


def test_the_table_is_not_changed() -> None:
    table = messy()
    before = table.to_pydict()
    Columns.fit(table).transform(table)
    assert str(table.to_pydict()) == str(before)  # NaN is no NaN


def test_the_largest_and_smallest_numbers() -> None:
    table = pa.table({"a": [1e308, -1e308, 1e308, 0.0], "b": [5e-324, 0.0, 1e-320, 1e-300]})
    columns = Columns.fit(table)
    document = json.dumps(columns.to_plain(), allow_nan=False)
    assert Columns.from_plain(json.loads(document)) == columns
    counter = DriftCounter(columns)
    assert columns.transform(table, counter)[:, 0].tolist() == table["a"].to_pylist()
    assert counter.outside == {}


def test_moments_beyond_the_calendar_of_python() -> None:
    table = pa.table({"when": pa.array([10**12] * 3, pa.timestamp("s")), "a": [1.5, 2.5, 3.5]})
    assert Columns.fit(table).left_out == [("when", "constant: 11,574,074 days after 1970 in every row")]


def test_no_rows() -> None:
    columns = Columns.fit(messy())
    assert columns.transform(messy().slice(0, 0)).shape == (0, len(columns.names))


def test_through_json_and_back() -> None:
    table = messy()
    columns = Columns.fit(table)
    again = Columns.from_plain(json.loads(json.dumps(columns.to_plain(), allow_nan=False)))
    assert again == columns
    assert (again.names, again.origins, again.kinds) == (columns.names, columns.origins, columns.kinds)
    np.testing.assert_array_equal(again.transform(table), columns.transform(table))


# Scales -----------------------------------------------------------------------------------------------------


def test_categories_keep_their_scales_among_standardised_features() -> None:
    table = pa.table({"amount": np.arange(200) % 7, "country": ["DE"] * 100 + ["FR"] * 97 + ["XX"] * 3})
    columns = Columns.fit(table)
    X = columns.transform(table)
    features = columns.rescaled(Features.fit(X)).transform(X)
    assert features[:, 0].std() == pytest.approx(1, abs=1e-5)
    apart = (
        ((features[0, 1:-1] - features[150, 1:-1]) ** 2).sum(),
        ((features[0, 1:-1] - features[199, 1:-1]) ** 2).sum(),
    )
    assert apart == (pytest.approx(0.5), pytest.approx(0.5))
    assert features[199, -1] - features[0, -1] == pytest.approx(math.log(0.02 / 0.015), rel=1e-4)
    assert np.isnan(columns.scales).tolist() == [True, *[False] * 5]


def test_gaps_keep_a_scale_of_their_own() -> None:
    # a tenth of a has gaps, one in a thousand of b: a flag lies 0.71 out, or log(20) where gaps are rarer than 2 %
    a, b = np.random.default_rng(0).standard_normal((2, 1000))
    a[::10], b[7] = np.nan, np.nan
    table = pa.table({"a": pa.array(a, from_pandas=True), "b": pa.array(b, from_pandas=True)})
    columns = Columns.fit(table)
    X = columns.transform(table)
    features = columns.rescaled(Features.fit(X)).transform(X)
    assert features[10, 2] - features[1, 2] == pytest.approx(0.5**0.5, rel=1e-5)
    assert features[7, 3] - features[1, 3] == pytest.approx(math.log(20), rel=1e-5)


def test_the_typical_row() -> None:
    table = pa.table({"a": [1, 5, 100], "c": ["x", "y", "y"], "b": [True, True, False]})
    columns = Columns.fit(table)
    row = dict(zip(columns.names, columns.typical, strict=True))
    assert (row["a"], row["c=y"], row["b"]) == (5, 1, 1)
    np.testing.assert_array_equal(columns.typical[1:], columns.transform(table)[1, 1:])
