"""Series of any kind: arrays, lists, frames with times; zones, gaps, irregular steps; what is refused."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from addml.inputs.series import (
    Sampling,
    Series,
    check_times,
    choose_window,
    forward_filled,
    period_of,
    read_series,
    utc_times,
    windows_of,
)


def frame(times, **columns):
    columns = columns or {"a": np.arange(len(times), dtype=float)}
    return pd.DataFrame({"when": times, **columns})


def test_one_series_or_many_of_one_channel_or_many():
    shapes = [[one.values.shape for one in read_series(X)] for X in (np.zeros(5), np.zeros((5, 3)), [1, 2, 3])]
    assert shapes == [[(5, 1)], [(5, 3)], [(3, 1)]]
    many = read_series([np.zeros((5, 2)), np.zeros((9, 2), np.float32)])
    assert [(one.values.shape, one.values.dtype.name) for one in many] == [((5, 2), "float64"), ((9, 2), "float32")]


@pytest.mark.parametrize("kind", [lambda x: x, pl.from_pandas, lambda x: pa.Table.from_pandas(x, preserve_index=False)])
def test_frames_have_channels_by_name_and_one_time_column(kind):
    table = frame(pd.date_range("2026-01-01", periods=4, freq="h"), cpu=[1, 2, 3, 4], load=[0.5, None, 1, 2])
    (one,) = read_series(kind(table))
    assert one.names == ["cpu", "load"]
    assert one.values[:, 0].tolist() == [1, 2, 3, 4]
    assert np.isnan(one.values[1, 1])
    assert (np.diff(one.times) == np.timedelta64(1, "h")).all()


def test_a_pandas_index_of_times_is_the_time():
    index = pd.date_range("2026-01-01", periods=3, freq="min", tz="Europe/Berlin")
    (one,) = read_series(pd.DataFrame({"a": [1.0, 2, 3]}, index=index))
    assert str(one.times[0]) == "2025-12-31T23:00:00.000000000"


@pytest.mark.parametrize("kind", ["times", "periods", "durations", "arrow"])
def test_whatever_pandas_indexes_by_time_has_that_time(kind):
    times = pd.date_range("2026-01-01", periods=4, freq="h").delete(1)
    index = {
        "times": times,
        "periods": times.to_period("h"),
        "durations": times - times[0],
        "arrow": pd.Index(pd.array(times, "timestamp[us, UTC][pyarrow]")),
    }[kind]
    for X in (pd.DataFrame({"a": [1.0, 2, 3]}, index=index), pd.Series([1, 2, 3], index=index)):
        (one,) = read_series(X)
        assert (np.diff(one.times) / np.timedelta64(1, "h")).tolist() == [2, 1]
        assert one.values.tolist() == [[1], [2], [3]]


def test_single_columns_are_series_of_one_channel():
    column = pd.Series([1, None, 3], dtype="Int64", name="north")
    many = read_series([column, pl.Series("south", [4, None]), pa.chunked_array([[5.0], [6.0]])])
    assert [one.values.shape for one in many] == [(3, 1), (2, 1), (2, 1)]
    np.testing.assert_array_equal(np.concatenate([one.values for one in many])[:, 0], [1, np.nan, 3, 4, np.nan, 5, 6])
    assert [one.names for one in many] == [None] * 3


def test_rows_are_sorted_by_entity_and_time_and_those_of_one_time_averaged():
    when = pd.to_datetime(["2026-01-02", "2026-01-03", "2026-01-01", "2026-01-02", "2026-01-01", "2026-01-02"])
    table = pd.DataFrame(
        {"when": when, "host": list("bbaabb"), "a": [2.0, 3, 7, 8, 1, np.nan], "b": [4.0, 0, 0, 0, 0, 6]}
    )
    sampling = Sampling()
    first, second = read_series(table, ("host",), sampling)
    assert (first.key, second.key) == ("a", "b")
    assert (first.values[:, 0].tolist(), second.values.tolist()) == ([7, 8], [[1, 0], [2, 5], [3, 0]])
    assert sampling.steps == [3, 4, 0, 1, 2, 3]
    assert (sampling.unsorted, sampling.repeated) == (1, 1)
    assert sampling.notes() == [
        "rows sorted by time: 1 out of order",
        "rows with the same time averaged: 1 repeat",
    ]


def test_frames_in_a_dict_or_list_are_entities_unless_they_name_their_own():
    one = frame(pd.date_range("2026-01-01", periods=4, freq="h"))
    named = one.assign(host=list("abab"))
    assert [series.key for series in read_series({"north": one, "south": one}, ("host",))] == ["north", "south"]
    assert [series.key for series in read_series([one, named], ("host",))] == ["0", "a", "b"]
    with pytest.raises(ValueError, match="X has no column 'host'"):
        read_series(one, ("host",))


def test_what_a_mask_hides_is_missing():
    (one,) = read_series(np.ma.masked_greater(np.array([[1, 2], [9, 4]]), 5))
    np.testing.assert_array_equal(one.values, [[1, 2], [np.nan, 4]])


def test_columns_may_be_named_by_numbers():
    (one,) = read_series(pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=pd.date_range("2026", periods=2)))
    assert one.names == ["0", "1"]
    assert one.values.tolist() == [[1, 2], [3, 4]]


def test_zones_are_compared_in_utc():
    times = utc_times(["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T02:00:00Z"], "x")
    assert [str(time)[:16] for time in times] == ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:00"]


def even(times, window=5, values=None):
    values = np.arange(len(times), dtype=float) if values is None else values
    minutes = np.datetime64("2026-01-01") + np.asarray(times) * np.timedelta64(1, "m")
    series = read_series(frame(minutes, a=values))
    sampling = Sampling()
    return windows_of(series, window, np.zeros(1), sampling), sampling


def test_a_short_gap_is_filled_and_said_and_gets_no_score():
    windows, sampling = even([*range(10), *range(12, 30)])
    assert len(windows) == 28
    assert windows[10:11][0, :, 0].tolist() == [8, 9, 9, 9, 10]
    assert sampling.notes() == ["2 missing steps (1 gap) forward-filled"]


def test_a_gap_longer_than_the_window_begins_the_series_anew():
    windows, sampling = even([*range(20), *range(100, 120)])
    assert windows[20:21][0, :, 0].tolist() == [20] * 5
    assert sampling.breaks == 1
    assert sampling.filled_steps == 0
    assert len(windows.values) == 40 + 2 * 4  # nothing is filled in for so long a time


def test_irregular_steps_are_taken_in_order_and_said():
    times = np.cumsum(np.random.default_rng(0).integers(1, 20, 50))
    windows, sampling = even(times)
    assert len(windows) == 50
    assert "sampled irregularly" in sampling.notes()[0]


def test_missing_values_take_the_one_before_or_the_usual_one():
    values, missing = forward_filled(np.array([[np.nan, 1], [5, np.nan], [np.nan, np.nan]]), np.array([7.0, 8.0]))
    assert values.tolist() == [[7, 1], [5, 1], [5, 1]]
    assert missing == 4


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 3, 4)), r"X has shape \(2, 3, 4\); give \(steps,\), \(steps, channels\) or a list"),
        (np.zeros((0, 3)), r"X has shape \(0, 3\)"),
        (["a", "b"], "X does not hold numbers"),
        (np.array([1.0, np.inf]), "X holds infinity at step 1, channel 0"),
        ([np.zeros((5, 2)), np.zeros((5, 3))], r"series 1 of X has 3 channels, series 0 has 2"),
        (frame(pd.to_datetime(["2026-01-01", None])), "no time in row 1"),
        (frame(np.array(["9999-12-31", "2026-01-01"], "datetime64[s]")), "'when': 9999-12-31.*outside the years"),
        (frame(pd.date_range("2026", periods=2), a=["x", "y"]), r"has 1 column without numbers, \['a'\]; pass numbers"),
        (frame(pd.date_range("2026", periods=2), b=pd.date_range("2025", periods=2)), "2 time columns"),
    ],
)
def test_what_is_no_series_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        read_series(X)


@pytest.mark.parametrize("values", [[datetime.time(8), datetime.time(9)], [True, False], ["soon", "later"]])
def test_what_is_no_time_is_refused(values):
    with pytest.raises(ValueError, match=r"the column: .*; give ISO 8601 times"):
        utc_times(np.array(values, object), "the column")


@pytest.mark.parametrize("last", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_no_time_is_refused(last):
    with pytest.raises(ValueError, match="t has no time in row 3; remove the row or add its time"):
        check_times(np.array([0.0, 1.0, last]), "t", first=1)


def test_times_in_whole_numbers_stay_exact():
    times = utc_times(np.array([2**60, 2**60 + 1]), "the column")  # nanoseconds, closer than float64 tells
    check_times(times, "the column")
    assert times.tolist() == [2**60, 2**60 + 1]


def test_where_series_begin_is_known():
    times = (
        pd.date_range("2026-01-01", periods=40, freq="min")
        .delete(range(20, 35))
        .append(pd.date_range("2026-01-02", periods=40, freq="min"))
    )
    series = [*read_series(frame(times)), *read_series(np.zeros((5, 1)))]
    windows_of(series, 4, np.zeros(1), sampling := Sampling())
    assert sampling.begins == [0, 20, 25, 65]


def wave(period, steps):
    noise = np.random.default_rng(0).normal(0, 0.1, steps)
    return np.sin(2 * np.pi * np.arange(steps) / period) + noise


@pytest.mark.parametrize("period", [12, 50, 288])
def test_the_period_is_the_lag_at_which_a_series_resembles_itself_most(period):
    assert abs(period_of(wave(period, 3000)) - period) <= 2


def test_what_rises_for_ever_or_never_changes_has_no_period():
    assert period_of(np.arange(1000.0)) is None
    assert period_of(np.ones(1000)) is None
    assert period_of(wave(900, 9000).cumsum().cumsum()) is None


@pytest.mark.parametrize(
    ("values", "window", "reason"),
    [
        (wave(50, 3000)[:, None], 50, "the period of the series"),
        (np.where(np.arange(3000) % 7, wave(50, 3000), np.nan)[:, None], 50, "the period of the series"),
        (np.tile(wave(50, 3000)[:, None], 3), 10, "the default for 3 channels"),
        (np.arange(1000.0)[:, None], 125, "the series has no clear period of 6 to 303 steps"),
        (np.arange(100.0)[:, None], 25, "the series has no clear period of 6 to 303 steps"),
        (wave(50, 120)[:, None], 30, "a quarter of the series; its period of 5"),
        (np.full((9, 1), np.nan), 4, "the series has no clear period"),
    ],
)
def test_the_window_is_the_period_of_a_single_channel(values, window, reason):
    chosen, said = choose_window(Series(values))
    assert abs(chosen - window) <= 1
    assert reason in said
