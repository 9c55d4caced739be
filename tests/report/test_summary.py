"""What a report says first, and how rows compare with usual values."""

from dataclasses import replace

import numpy as np
import pytest

from addml.findings import Finding, Group, Reason, Track, Usual
from addml.report import write_report
from addml.report.sections import flat
from addml.report.summary import (
    MAX_COLUMNS,
    MAX_ROWS,
    RankedRows,
    comparisons,
    key_figures,
    lead,
    position,
    score_format,
)
from tests.report.sample import shop

AMOUNT = Usual("amount", "number", "12, mostly 3 to 40", 3.0, 12.0, 40.0)
COUNTRY = Usual("country", "category", "mostly DE", common=(("DE", 0.7), ("AT", 0.01)))


def test_the_first_sentence_stays_short():
    long = tuple(Reason("x", 0.1, "word " * 30) for _ in range(3))
    said = lead(shop(ranked=(replace(shop().ranked[0], reasons=long),)))
    assert len(said) < 220
    assert "…." not in said


def test_groups_of_one_row_are_only_counted():
    findings = shop(groups=(Group(("a",), "a", (1, 2)), Group(("b",), "b", (3,)), Group(("c",), "c", (4,))))
    shown = RankedRows(findings).filters()
    assert shown.count("<li>") == 1
    assert '<b>2 rows</b><span class="words">a</span>' in shown
    assert RankedRows(shop()).filters() == ""


def test_hidden_groups_are_counted():
    findings = shop(groups=tuple(Group((str(i),), str(i), (2 * i, 2 * i + 1)) for i in range(14)))
    assert "2 more groups are not shown." in RankedRows(findings).filters()


def test_the_steps_of_listed_events_are_not_left():
    scores = np.repeat([1.0, 9.0, 1.0], [5, 20, 5])
    drawn = Track(("", ""), scores, (), ((5, 25),))
    one = shop(scores=scores, threshold=2.0, rows=30, ranked=(Finding(6, 1, 9.0, True),), track=drawn)
    assert RankedRows(one).unlisted() == ""
    many = tuple(Finding(i, i, 9.0, True) for i in range(1, MAX_ROWS + 3))
    assert (
        RankedRows(replace(one, ranked=many)).unlisted()
        == "2 more events are flagged; the scored table has all of them."
    )


def test_scores_of_a_list_have_the_same_decimals():
    rows = tuple(Finding(i, i, score, True) for i, score in enumerate((12.5, 3.0, 1.25), 1))
    assert [score_format(shop(ranked=rows))(row.score) for row in rows] == ["12.50", "3.00", "1.25"]
    huge = (Finding(1, 1, 1e9, True),)
    assert score_format(shop(ranked=huge))(1e9) == "1,000,000,000"


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


# Decisions --------------------------------------------------------------------------------------------------


def decided():
    findings = shop()
    ranked = tuple(replace(one, p_value=one.rank / 2400) for one in findings.ranked)
    return replace(findings, ranked=ranked, decided_by="the 10% highest-scoring training rows")


@pytest.mark.parametrize("name", ["r.html", "r.md"])
@pytest.mark.parametrize("redact", [False, True])
def test_the_report_says_how_rare_and_how_decided(tmp_path, name, redact):
    text = write_report(decided(), tmp_path / name, redact=redact).read_text(encoding="utf-8")
    assert "1 in 2,400" in text
    assert "the 10% highest-scoring training rows" in text


def test_rarity_and_threshold():
    assert "1 in 2,400" in RankedRows(decided()).top()
    assert "1 in " not in RankedRows(shop()).top()
    assert ("Threshold", "higher scores are flagged") in [(label, note) for label, _, note in key_figures(shop())]


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_without_p_values_nothing_is_said(tmp_path, name):
    assert "1 in " not in write_report(shop(), tmp_path / name).read_text(encoding="utf-8")


# Comparison with the usual values ---------------------------------------------------------------------------


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
    assert position(value, one).words == said


def test_reasons_come_first_and_belong_to_their_column():
    findings = shop()
    found = comparisons(findings.ranked[0], {one.column: one for one in findings.usual})
    assert [one.column for one in found[:2]] == ["amount", "country"]
    assert found[1].contribution == "21%"
    assert found[-1].contribution == ""


def test_columns_of_one_reason_show_what_they_contribute_together():
    values = dict.fromkeys(["other", "a", "width, mm", "c", "d", "mm"], 1.0)
    reasons = (
        Reason("d", 0.4, "d unusually high"),
        Reason("c, a", 0.35, "unusual combination of c and a"),
        Reason("width, mm", 0.1, "width, mm 7, rare"),
    )
    found = comparisons(Finding(1, 1, 9.0, True, {}, values, reasons), {})
    assert [(one.column, one.contribution) for one in found] == [
        ("d", "40%"), ("a", "35% together"), ("c", "35% together"), ("width, mm", "10%"), ("other", ""), ("mm", ""),
    ]  # fmt: skip


def test_only_the_most_unusual_columns_are_compared():
    values = {f"c{j}": float(j) for j in range(100)}
    usual = {name: Usual(name, "number", "0", -1.0, 0.0, 1.0) for name in values}
    found = comparisons(Finding(1, 1, 1.0, True, {}, values, (Reason("c3", 0.5, "c3"),)), usual)
    assert [one.column for one in found[:3]] == ["c3", "c99", "c98"]
    assert len(found) == MAX_COLUMNS
