"""Words for unusual values, worked out by hand."""

from datetime import UTC, date, datetime

import numpy as np
import pytest

from addml.explain import UsualColumn, column_words

AMOUNT = UsualColumn("amount", "number", low=3, middle=30, high=400)
TEMPERATURE = UsualColumn("temperature", "number", low=60, middle=66, high=72)
BALANCE = UsualColumn("balance", "number", low=0, middle=250, high=9000)
CHANGE = UsualColumn("change", "number", low=-5, middle=0.01, high=5)
STEADY = UsualColumn("steady", "number", low=60, middle=60, high=60)
COUNTRY = UsualColumn("country", "category", levels={"DE": 0.6, "FR": 0.3, "IT": 0.099, "XK": 0.001})
CITY = UsualColumn("city", "category", levels={"Bonn": 0.02, "Kiel": 0.01}, unlisted=0.97)
ABROAD = UsualColumn("abroad", "boolean", levels={"true": 0.004, "false": 0.996})
AGE = UsualColumn("age", "number", low=20, middle=40, high=70, gaps=0.02)
NOTE = UsualColumn("discount", "number", low=5, middle=10, high=20, gaps=0.9)
WHEN = UsualColumn(
    "when",
    "date",
    earliest=datetime(2023, 1, 2, 8),
    latest=datetime(2024, 6, 28, 18),
    hours=(8, 18),
    weekdays=(0.2, 0.2, 0.2, 0.2, 0.19, 0.005, 0.005),
)
NIGHTLY = UsualColumn("backup", "date", hours=(22, 4))
BORN = UsualColumn("born", "date", earliest=date(1940, 1, 1), latest=date(2005, 12, 31))


@pytest.mark.parametrize(
    ("usual", "value", "words", "gist"),
    [
        (AMOUNT, 1230, "amount 41x the usual", "amount above the usual"),
        (AMOUNT, 30 * 2345.6, "amount 2346x the usual", "amount above the usual"),
        (AMOUNT, 1.5, "amount 1/20 of the usual", "amount below the usual"),
        (AMOUNT, 0, "amount 0, usually 3 to 400", "amount below the usual"),
        (AMOUNT, -2, "amount negative", "amount negative"),
        (BALANCE, -0.01, "balance negative", "balance negative"),
        (TEMPERATURE, 97.3, "temperature 97.3, usually 60 to 72", "temperature above the usual"),
        (TEMPERATURE, 72.0004, "temperature 72.0004, usually 60 to 72", "temperature above the usual"),
        (TEMPERATURE, 132, "temperature 2x the usual", "temperature above the usual"),
        (TEMPERATURE, np.float32(59.5), "temperature 59.5, usually 60 to 72", "temperature below the usual"),
        (CHANGE, 12.345, "change 12.3, usually -5 to 5", "change above the usual"),
        (CHANGE, -123456789.5, "change -123456790, usually -5 to 5", "change below the usual"),
        (CHANGE, 1e20, "change 1e+20, usually -5 to 5", "change above the usual"),
        (STEADY, 61, "steady 61, usually 60", "steady above the usual"),
        (COUNTRY, "ZZ", "country 'ZZ' unseen", "country unseen"),
        (COUNTRY, "XK", "country 'XK' rare (0.1%)", "country rare"),
        (COUNTRY, "IT", "country 'IT' uncommon (9.9%)", "country uncommon"),
        (COUNTRY, "a \n" + "b" * 60, "country 'a " + "b" * 37 + "…' unseen", "country unseen"),
        (CITY, "Ulm", "city 'Ulm' rare", "city rare"),
        (ABROAD, True, "abroad true rare (0.4%)", "abroad rare"),
        (ABROAD, np.True_, "abroad true rare (0.4%)", "abroad rare"),
        (AGE, None, "age missing", "age missing"),
        (AGE, float("nan"), "age missing", "age missing"),
        (WHEN, np.datetime64("NaT"), "when missing", "when missing"),
        (NOTE, 7, "discount 7, usually missing", "discount present, usually missing"),
        (NOTE, 200, "discount 20x the usual", "discount above the usual"),
        (WHEN, datetime(2024, 3, 6, 3, 12), "when at 03:12, usually 08 to 18", "when at an unusual hour"),
        (WHEN, datetime(2024, 3, 10, 12), "when on a Sunday", "when on an unusual weekday"),
        (
            WHEN,
            datetime(2024, 3, 10, 3, 12),
            "when on a Sunday at 03:12, usually 08 to 18",
            "when on an unusual weekday at an unusual hour",
        ),
        (WHEN, datetime(2031, 3, 9, 3, 12), "when in 2031, after all others", "when after all others"),
        (WHEN, datetime(1970, 1, 1), "when in 1970, before all others", "when before all others"),
        # the day after training is not what is strange about an early hour
        (WHEN, datetime(2024, 7, 1, 3, 0), "when at 03:00, usually 08 to 18", "when at an unusual hour"),
        (WHEN, datetime(2024, 7, 1, 12, 0), "when on 2024-07-01, after all others", "when after all others"),
        (WHEN, datetime(2024, 3, 6, 3, 12, tzinfo=UTC), "when at 03:12, usually 08 to 18", "when at an unusual hour"),
        (NIGHTLY, datetime(2024, 3, 6, 12, 5), "backup at 12:05, usually 22 to 04", "backup at an unusual hour"),
        (BORN, date(2031, 1, 1), "born in 2031, after all others", "born after all others"),
    ],
)
def test_unusual_values(usual, value, words, gist):
    assert column_words(usual, value) == (words, gist)


@pytest.mark.parametrize(
    ("usual", "value"),
    [
        (AMOUNT, 3),
        (AMOUNT, 400),
        (TEMPERATURE, 72.00000001),
        (STEADY, 60),
        (UsualColumn("unknown", "number"), 5),
        (COUNTRY, "FR"),
        (CITY, "Kiel"),
        (ABROAD, False),
        (NOTE, None),
        (WHEN, datetime(2024, 3, 6, 18, 59)),
        (NIGHTLY, datetime(2024, 3, 6, 23, 5)),
        (NIGHTLY, datetime(2024, 3, 6, 4, 59)),
        (BORN, date(1980, 5, 5)),
    ],
)
def test_ordinary_values_have_no_words(usual, value):
    assert column_words(usual, value) is None
