"""Times as files have them: dates in any order, epochs, numbers."""

import numpy as np
import pyarrow as pa
import pytest

from addml.inputs.times import Ordered, column_times


def read(values, kind=None):
    times, note = column_times(pa.chunked_array([pa.array(values, kind)]), "the column")
    return times, note


def test_the_whole_column_says_whether_the_day_comes_first():
    times, note = read(["01/03/2026 10:00", "02/03/2026 10:00", "13/03/2026 10:00"])
    assert times.astype("datetime64[m]").astype(str).tolist()[0] == "2026-03-01T10:00"
    assert note == "times such as '01/03/2026 10:00' are read day first"
    times, note = read(["03/01/2026", "03/02/2026", "03/13/2026"])
    assert str(times[2])[:10] == "2026-03-13"
    assert note == "times such as '03/01/2026' are read month first"


@pytest.mark.parametrize(("texts", "first"), [
    ([f"{day:02}/03/2026" for day in range(1, 13)], "2026-03-02"),
    ([f"03/{day:02}/2026" for day in range(1, 13)], "2026-03-02"),
])  # fmt: skip
def test_where_no_value_tells_the_more_regular_order_is_taken_and_said(texts, first):
    times, note = read(texts)
    assert str(times[1])[:10] == first
    assert note.endswith("(ambiguous; this order makes steps more regular)")


def test_where_neither_the_values_nor_the_steps_tell_it_is_not_claimed():
    _, note = read([f"01/03/2026 {hour:02}:00" for hour in range(24)])
    assert note.endswith("are read day first (ambiguous; use ISO 8601 if it is the other order)")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_epochs_are_times(unit):
    expected = np.datetime64("2026-03-01T00:00:00", "ns") + np.arange(3) * np.timedelta64(60, "s")
    numbers = expected.astype(f"datetime64[{unit}]").astype(np.int64)
    times, note = read(numbers.tolist())
    assert (times == expected).all()
    assert note.endswith("seconds since 1970 (UTC)")
    fractions, _ = read((numbers / 10**3 if unit == "ms" else numbers.astype(float)).tolist())
    assert abs(fractions - expected).max() < np.timedelta64(1, "us")


@pytest.mark.parametrize("numbers", [[0, 1, 2], [2026, 2027], [1.7e9, np.nan], [5 * 10**9, 6 * 10**9]])
def test_other_numbers_stay_numbers(numbers):
    times, note = read(numbers)
    np.testing.assert_array_equal(times, numbers)
    assert note is None


@pytest.mark.parametrize(
    ("times", "first", "note"),
    [
        (["2026-03-01T01:30:00+02:00", "2026-03-01T01:31:00+02:00"], "2026-02-28T23:30", "times are converted to UTC"),
        (["2026-03-01T01:30:00Z", "2026-03-01T01:31:00Z"], "2026-03-01T01:30", None),
        ([20260228, 20260301], "2026-02-28T00:00", "times such as 20260228 are read as dates"),
        ([20260301013000, 20260301013100], "2026-03-01T01:30", "times such as 20260301013000 are read as dates"),
        (["202603010130", "202603010131"], "2026-03-01T01:30", "times such as 202603010130 are read as dates"),
        ([20260131, 20260132], "20260131", None),  # a counter
    ],
)
def test_a_file_says_how_its_times_are_read(times, first, note):
    found, said = read(times)
    assert str(found[0]).startswith(first)
    assert said == note


def test_dates_and_iso_texts_need_no_note_unless_they_have_another_zone():
    for values, kind in ((["2026-03-01T00:00:00Z"], None), ([1], pa.timestamp("s")), ([20513], pa.date32())):
        assert read(values, kind)[1] is None
    assert read([1], pa.timestamp("s", "UTC"))[1] is None
    assert read([1], pa.timestamp("s", "Asia/Tokyo"))[1] == "times are converted to UTC"
    times, _ = read(["2026-03-01T00:00:00+01:00", "2026-03-01T00:00:00Z"])
    assert np.diff(times) == np.timedelta64(1, "h")


def test_a_slip_among_dates_names_its_row():
    with pytest.raises(ValueError, match="'soon' in row 2; give ISO 8601"):
        read(["2026-03-01", "soon", "2026-03-03"])


def test_a_slip_among_dates_in_another_order_does_too():
    days = [f"{day:02}.03.2026" for day in range(1, 31)]
    with pytest.raises(
        ValueError, match=r"'31.02.2026' in row 5 is not a date if read day first like the others; correct it"
    ):
        read([*days[:4], "31.02.2026", *days[4:]])


def test_steps_of_rows_without_times_keep_their_order():
    ordered = Ordered.of(np.arange(4.0)[:, None], None, np.array([1, 0, 1, 0]))
    assert ordered.values[:, 0].tolist() == [1, 3, 0, 2]
    assert ordered.steps.tolist() == [2, 0, 3, 1]
