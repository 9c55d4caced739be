"""Words that messages share."""

import pytest

from addml.text import counted, without_password


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
    assert counted(count, *nouns) == said


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
    assert without_password(address) == shown
