"""A row's values beside the usual ones."""

import math

import pytest

from addml.findings import Finding, Reason, Usual
from addml.report.bars import EDGE, WIDTH, mark_position, range_bar
from addml.report.comparison import MOST_COLUMNS, comparisons, direction
from tests.report.sample import shop

AMOUNT = Usual("amount", "number", "12, mostly 3 to 40", 3.0, 12.0, 40.0)
COUNTRY = Usual("country", "category", "mostly DE", common=(("DE", 0.7), ("AT", 0.01)))


@pytest.mark.parametrize(
    ("value", "one", "said"),
    [
        (41, AMOUNT, "above the usual"),
        (2.9, AMOUNT, "below the usual"),
        (12, AMOUNT, "within the usual"),
        (float("inf"), AMOUNT, "above the usual"),
        (None, AMOUNT, ""),
        ("text", AMOUNT, ""),
        (7, Usual("x", "number", "always 3", 3.0, 3.0, 3.0), "above the usual"),
        (3, Usual("x", "number", "always 3", 3.0, 3.0, 3.0), "within the usual"),
        ("DE", COUNTRY, "a common value"),
        ("AT", COUNTRY, "an uncommon value"),
        ("XX", COUNTRY, "rare or unseen"),
        (True, Usual("gift", "boolean", "", common=(("False", 0.9), ("True", 0.1))), "a common value"),
        (1, None, ""),
    ],
)
def test_where_a_value_lies(value, one, said):
    assert direction(value, one) == said


def test_reasons_come_first_and_belong_to_their_column():
    findings = shop()
    found = comparisons(findings.ranked[0], {one.column: one for one in findings.usual})
    assert [one.column for one in found[:2]] == ["amount", "country"]
    assert found[1].reason == 0.21  # the reason names the feature country=Elbonia
    assert found[-1].reason is None


def test_only_the_most_unusual_columns_are_compared():
    values = {f"c{j}": float(j) for j in range(100)}
    usual = {name: Usual(name, "number", "0", -1.0, 0.0, 1.0) for name in values}
    found = comparisons(Finding(1, 1, 1.0, True, {}, values, (Reason("c3", 0.5, "c3"),)), usual)
    assert [one.column for one in found[:3]] == ["c3", "c99", "c98"]
    assert len(found) == MOST_COLUMNS


def test_marks_stay_on_the_bar_and_in_order():
    places = [mark_position(offset) for offset in (-math.inf, -50, -3, -1, 0, 1, 3, 50, math.inf)]
    assert places == sorted(places)
    assert places[0] >= EDGE
    assert places[-1] <= WIDTH - EDGE


def test_the_middle_of_a_bar_is_one_upright_line():
    assert '<line x1="80.0" x2="80.0" y1="4" y2="12" class="middle">' in str(range_bar(0.5, "half of the way"))
