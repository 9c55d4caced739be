"""Words that messages share."""

import pytest

from addml.text import counted


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
