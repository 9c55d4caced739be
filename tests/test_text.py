"""Counts, numbers and values in words."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from addml import text


@pytest.mark.parametrize(
    ("count", "nouns", "said"),
    [
        (1, ("row",), "1 row"),
        (0, ("row",), "0 rows"),
        (2000, ("row",), "2,000 rows"),
        (1, ("anomaly", "anomalies"), "1 anomaly"),
        (2, ("anomaly", "anomalies"), "2 anomalies"),
    ],
)
def test_counts(count, nouns, said):
    assert text.counted(count, *nouns) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (377.0, "377"),
        (-1234567, "-1,234,567"),
        (1.93213, "1.932"),
        (-0.00012345, "-0.0001234"),
        (12345.678, "12,346"),
        (1e300, "1e+300"),
        (float("nan"), "not a number"),
        (float("-inf"), "-∞"),
    ],
)
def test_numbers(value, said):
    assert text.number(value) == said


@pytest.mark.parametrize(
    ("part", "said"),
    [(0, "0%"), (1, "100%"), (0.053, "5.3%"), (0.0996, "10%"), (1e-9, "under 0.01%"), (float("nan"), "–")],
)
def test_percentages(part, said):
    assert text.percent(part) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (np.float32("nan"), "missing"),
        (True, "true"),
        (np.bool_(False), "false"),
        (2024, "2024"),
        (np.int64(-5), "-5"),
        (41000000.0, "41,000,000"),
        (-0.1, "-0.1"),
        (float("inf"), "∞"),
        (dt.datetime(2026, 1, 2, 3, 4), "2026-01-02 03:04:00"),
        (pa.scalar("x"), "x"),
        ("two\nlines\x00", "two lines\N{REPLACEMENT CHARACTER}"),
        ("lone \ud800 surrogate", "lone \N{REPLACEMENT CHARACTER} surrogate"),
    ],
)
def test_raw_values(value, said):
    assert text.cell_text(value) == said


def test_long_text_is_cut_and_shows_it():
    assert text.one_line("a" * 10**6, 20) == "a" * 19 + "…"


def test_a_password_in_an_address_is_not_told():
    said = text.one_line("postgresql://ann:s3cret@db.example/shop")
    assert "s3cret" not in said
    assert "ann" in said


def test_nothing_turns_the_rest_of_a_line_around():
    assert text.one_line("invoice\u202egnp.exe") == "invoice\N{REPLACEMENT CHARACTER}gnp.exe"
    assert text.one_line("\u2067a\u2069") == "\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}"
    spoken = "مرحبا \u200fשלום 👩\u200d🔬"  # letters, marks and joiners of a language stay
    assert text.one_line(spoken) == spoken


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:pa/ss@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:p@ss:w@host/db", "postgresql://me:***@host/db"),
        ("redis://:secret@host", "redis://:***@host"),
        ("of mysql+x://me:secret@host: no table", "of mysql+x://me:***@host: no table"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("https://host:8080/a", "https://host:8080/a"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
        ("me:secret@host", "me:secret@host"),  # no address
    ],
)
def test_passwords_in_addresses_are_hidden(address, shown):
    assert text.without_password(address) == shown
