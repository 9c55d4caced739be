"""What the report says first."""

from dataclasses import replace

import numpy as np
import pytest

from addml.findings import Finding, Group, Reason, Track
from addml.report.digest import MOST_ROWS, distillation_words, flat, lead, rows_left, score_words, similar, ungrouped
from tests.report.sample import shop


@pytest.mark.parametrize(
    ("dropped", "said"),
    [
        ([[1.0, 0.0], [1.0, 0.5]], "Every row that stands out was dropped by every member in every epoch."),
        ([[1.0, 0.0], [0.5, 0.5]], "The rows that stand out were dropped 75 % of the time, none of the 1 always."),
        ([[np.nan, 0.0]], "None of the rows that stand out was in the sample that was trained on."),
        (np.zeros((0, 2)), ""),
        (None, ""),
    ],
)
def test_what_distillation_did(dropped, said):
    assert distillation_words(shop(dropped=None if dropped is None else np.array(dropped))) == said


def test_the_first_sentence_stays_short():
    long = tuple(Reason("x", 0.1, "word " * 30) for _ in range(3))
    said = lead(shop(ranked=(replace(shop().ranked[0], reasons=long),)))
    assert len(said) < 220
    assert "…." not in said


def test_groups_of_one_row_are_only_counted():
    findings = shop(groups=(Group(("a",), "a", (1, 2)), Group(("b",), "b", (3,)), Group(("c",), "c", (4,))))
    assert [group.words for group in similar(findings)] == ["a"]
    assert ungrouped(findings) == "2 rows stand out each in its own way."


def test_the_steps_of_listed_events_are_not_left():
    scores = np.repeat([1.0, 9.0, 1.0], [5, 20, 5])
    drawn = Track(("", ""), scores, (), ((5, 25),))
    one = shop(scores=scores, threshold=2.0, rows=30, ranked=(Finding(6, 1, 9.0, True),), track=drawn)
    assert rows_left(one) == ""
    many = tuple(Finding(i, i, 9.0, True) for i in range(1, MOST_ROWS + 3))
    assert rows_left(replace(one, ranked=many)) == "2 more events stand out; the scored table has all of them."


def test_scores_of_a_list_have_the_same_decimals():
    rows = tuple(Finding(i, i, score, True) for i, score in enumerate((12.5, 3.0, 1.25), 1))
    assert [score_words(shop(ranked=rows))(row.score) for row in rows] == ["12.50", "3.00", "1.25"]
    huge = (Finding(1, 1, 1e9, True),)
    assert score_words(shop(ranked=huge))(1e9) == "1,000,000,000"


def test_settings_are_flat():
    given = {"members": 5, "hidden": (64, 32), "none": None, "inner": {"a": True, "empty": {}}, "rate": 1e-3}
    assert flat(given) == [
        ("members", "5"),
        ("hidden", "64, 32"),
        ("none", "none"),
        ("inner.a", "true"),
        ("inner.empty", "{}"),
        ("rate", "0.001"),
    ]
