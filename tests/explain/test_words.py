"""Words for unusual values, worked out by hand."""

from datetime import UTC, date, datetime

import numpy as np
import pytest

from addml.explain.reasons import and_list, unusual, unusual_together
from addml.preprocessing.profile import ColumnProfile

AMOUNT = ColumnProfile("amount", "number", low=3, middle=30, high=400)
LATITUDE = ColumnProfile("latitude", "number", low=33, middle=38, high=42)
TEMPERATURE = ColumnProfile("temperature", "number", low=60, middle=66, high=72)
BALANCE = ColumnProfile("balance", "number", low=0, middle=250, high=9000)
CHANGE = ColumnProfile("change", "number", low=-5, middle=0.01, high=5)
STEADY = ColumnProfile("steady", "number", low=60, middle=60, high=60)
COUNTRY = ColumnProfile("country", "category", levels={"DE": 0.6, "FR": 0.3, "IT": 0.099, "XK": 0.001})
CITY = ColumnProfile("city", "category", levels={"Bonn": 0.02, "Kiel": 0.01}, unlisted=0.97)
ABROAD = ColumnProfile("abroad", "boolean", levels={"true": 0.004, "false": 0.996})
AGE = ColumnProfile("age", "number", low=20, middle=40, high=70, gaps=0.02)
NOTE = ColumnProfile("discount", "number", low=5, middle=10, high=20, gaps=0.9)
WHEN = ColumnProfile(
    "when",
    "date",
    earliest=datetime(2023, 1, 2, 8),
    latest=datetime(2024, 6, 28, 18),
    hours=(8, 18),
    weekdays=(0.2, 0.2, 0.2, 0.2, 0.19, 0.005, 0.005),
)
COUNTY = ColumnProfile("county_id", "number", low=1001, middle=29_000, high=54_000, form="code")
ARRIVAL = ColumnProfile("arrival_time", "number", low=600, middle=1400, high=2300, form="clock")
NIGHTLY = ColumnProfile("backup", "date", hours=(22, 4))
BORN = ColumnProfile("born", "date", earliest=date(1940, 1, 1), latest=date(2005, 12, 31))


def column_words(profile, value):
    """What is unusual about a value, with and without the value itself; None for an ordinary one."""
    found = unusual(profile, value)
    return found and tuple(f"{profile.column} {text}" for text in found)


@pytest.mark.parametrize(
    ("profile", "value", "words", "summary"),
    [
        (AMOUNT, 1230, "amount 1230, far above the usual 30", "amount unusually high"),
        (AMOUNT, 30 * 2345.6, "amount 70,368, far above the usual 30", "amount unusually high"),
        (AMOUNT, 1.5, "amount 1.5, far below the usual 30", "amount unusually low"),
        (AMOUNT, 0, "amount 0, below the usual 3 to 400", "amount unusually low"),
        (AMOUNT, -2, "amount -2, usually not negative", "amount negative"),
        (BALANCE, -0.01, "balance -0.01, usually not negative", "balance negative"),
        (LATITUDE, 9.5, "latitude 9.5, far below the usual 38", "latitude unusually low"),
        (TEMPERATURE, 97.3, "temperature 97.3, far above the usual 66", "temperature unusually high"),
        (TEMPERATURE, 72.0004, "temperature 72.0004, above the usual 60 to 72", "temperature unusually high"),
        (TEMPERATURE, 132, "temperature 132, far above the usual 66", "temperature unusually high"),
        (TEMPERATURE, np.float32(59.5), "temperature 59.5, below the usual 60 to 72", "temperature unusually low"),
        (CHANGE, 12.345, "change 12.3, far above the usual 0.01", "change unusually high"),
        (CHANGE, -123456789.5, "change -123,456,790, far below the usual 0.01", "change unusually low"),
        (CHANGE, 1e20, "change 1e+20, far above the usual 0.01", "change unusually high"),
        (STEADY, 61, "steady 61, 60 in over 90% of rows", "steady unusually high"),
        (COUNTRY, "ZZ", "country 'ZZ', never seen in training", "country with a new value"),
        (COUNTRY, "XK", "country 'XK', rare (0.1% of rows)", "country with a rare value"),
        (COUNTRY, "IT", "country 'IT', uncommon (9.9% of rows)", "country with an uncommon value"),
        (
            COUNTRY,
            "a \n" + "b" * 60,
            "country 'a " + "b" * 37 + "…', never seen in training",
            "country with a new value",
        ),
        (CITY, "Ulm", "city 'Ulm', rare", "city with a rare value"),
        (ABROAD, True, "abroad true, rare (0.4% of rows)", "abroad with a rare value"),
        (ABROAD, np.True_, "abroad true, rare (0.4% of rows)", "abroad with a rare value"),
        (AGE, None, "age is missing", "age is missing"),
        (AGE, float("nan"), "age is missing", "age is missing"),
        (WHEN, np.datetime64("NaT"), "when is missing", "when is missing"),
        (NOTE, 7, "discount 7, usually missing", "discount present, usually missing"),
        (NOTE, 200, "discount 200, far above the usual 10", "discount unusually high"),
        (WHEN, datetime(2024, 3, 6, 3, 12), "when at 03:12, usually 08:00 to 18:59", "when at an unusual hour"),
        (WHEN, datetime(2024, 3, 10, 12), "when on a Sunday, a rare weekday", "when on a rare weekday"),
        (
            WHEN,
            datetime(2024, 3, 10, 3, 12),
            "when on a Sunday at 03:12, usually 08:00 to 18:59",
            "when on a rare weekday at an unusual hour",
        ),
        (WHEN, datetime(2031, 3, 9, 3, 12), "when in 2031, later than all others", "when later than all others"),
        (WHEN, datetime(1970, 1, 1), "when in 1970, earlier than all others", "when earlier than all others"),
        # the day after training is not what is strange about an early hour
        (WHEN, datetime(2024, 7, 1, 3, 0), "when at 03:00, usually 08:00 to 18:59", "when at an unusual hour"),
        (WHEN, datetime(2024, 7, 1, 12, 0), "when on 2024-07-01, later than all others", "when later than all others"),
        (
            WHEN,
            datetime(2024, 3, 6, 3, 12, tzinfo=UTC),
            "when at 03:12, usually 08:00 to 18:59",
            "when at an unusual hour",
        ),
        (NIGHTLY, datetime(2024, 3, 6, 12, 5), "backup at 12:05, usually 22:00 to 04:59", "backup at an unusual hour"),
        (BORN, date(2031, 1, 1), "born in 2031, later than all others", "born later than all others"),
    ],
)
def test_unusual_values(profile, value, words, summary):
    assert column_words(profile, value) == (words, summary)


@pytest.mark.parametrize(
    ("usual", "value"),
    [
        (AMOUNT, 3),
        (AMOUNT, 400),
        (TEMPERATURE, 72.00000001),
        (STEADY, 60),
        (ColumnProfile("unknown", "number"), 5),
        (COUNTRY, "FR"),
        (CITY, "Kiel"),
        (ABROAD, False),
        (NOTE, None),
        (WHEN, datetime(2024, 3, 6, 18, 59)),
        (NIGHTLY, datetime(2024, 3, 6, 23, 5)),
        (NIGHTLY, datetime(2024, 3, 6, 4, 59)),
        (BORN, date(1980, 5, 5)),
        (COUNTY, 99_999),
        (ARRIVAL, 5),
    ],
)
def test_ordinary_values_have_no_words(usual, value):
    assert column_words(usual, value) is None


@pytest.mark.parametrize(
    ("profile", "value", "words"),
    [
        (AMOUNT, 12.0, "12, unusual given the other columns"),
        (COUNTY, 48_201, "48201, unusual given the other columns"),
        (ARRIVAL, 5, "0005, unusual given the other columns"),
        (COUNTRY, "DE", "'DE', unusual given the other columns"),
        (AGE, float("nan"), "missing, unusual given the other columns"),
    ],
)
def test_ordinary_values_that_do_not_fit_their_row(profile, value, words):
    assert unusual_together(profile, value) == (words, "unusual given the other columns")


def test_names_in_a_sentence():
    assert [and_list(list("abc")[:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]
