"""A few texts in a column of numbers: missing values that count as strange, in the features and in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from addml.inputs.table import Columns, Standardised
from addml.preprocessing.profile import DriftCounter
from addml.preprocessing.scaling import Features

ROWS = 1000
RANDOM = np.random.default_rng(0)
FARES = [f"{fare:.2f}" for fare in RANDOM.normal(20, 5, ROWS)]
OTHERS = {"tip": RANDOM.normal(3, 1, ROWS), "zone": ["north", "south"] * (ROWS // 2)}


def with_texts(texts: dict[int, str | None], fares: Any = FARES) -> pa.Table:
    """The fares, other texts in some rows, and two more columns."""
    changed = [texts.get(row, fare) for row, fare in enumerate(fares)]
    return pa.table({"fare": pa.array(changed, pa.string()), **OTHERS})


def spread_over(count: int, *texts: str) -> dict[int, str]:
    return {row * (ROWS // count): texts[row % len(texts)] for row in range(count)}


def kind_of(texts: dict[int, Any], fares: Any = FARES) -> str | None:
    return Columns.fit(with_texts(texts, fares)).kinds.get("fare")


# Which columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ({17: "void"}, "number"),
        ({0: "void"}, "number"),
        (spread_over(50, "void", "error", "n.v."), "number"),  # five in a hundred
        (spread_over(51, "void"), "category"),  # more
        ({1: "12O", 2: "1 2 3 4"}, "number"),
        ({1: "V57", 2: "V58", 3: "E909"}, "category"),  # codes among numbers
        ({1: "85123A", 2: "85123B", 3: "22423C"}, "category"),
        ({1: "00501"}, "category"),
        ({1: "2024-05-01"}, "number"),
        ({1: "(gap)", 2: '"', 3: "ü" * 500}, "number"),
    ],
)
def test_a_few_texts_leave_a_column_one_of_numbers(texts: dict[int, str], kind: str) -> None:
    assert kind_of(texts) == kind


def test_gaps_are_not_among_the_cells_that_hold_something() -> None:
    gaps = dict.fromkeys(range(500, 1000))
    assert kind_of(gaps | dict.fromkeys(range(25), "void")) == "number"  # of 500
    assert kind_of(gaps | dict.fromkeys(range(26), "void")) == "category"


def test_it_takes_twenty_numbers() -> None:
    for numbers, kind in ((20, "number"), (19, "category")):
        column = [*(f"{row % 7}.5" for row in range(numbers)), "void", *[None] * 5]
        columns = Columns.fit(pa.table({"fare": column, "tip": np.arange(len(column)) % 3}))
        assert columns.kinds["fare"] == kind


@pytest.mark.parametrize(
    ("style", "text"),
    [
        (lambda fare: f"€ {fare:,.2f}", "5 %"),
        (lambda fare: f"{fare:.2f}".replace(".", ","), "12.50"),
        (lambda fare: f"{1000 * fare:,.0f}", "1.5.2"),
        (lambda fare: f"{fare:.1f} %", "7.5"),
        (lambda fare: f"{fare:.3e}", "0x1F"),
        (lambda fare: f"+.{fare:.0f}", "."),
    ],
)
def test_numbers_in_any_style(style: Any, text: str) -> None:
    """What is written in another style than the others is no number among them."""
    table = with_texts({17: text}, [style(float(fare)) for fare in FARES])
    columns, clean = Columns.fit(table), Columns.fit(with_texts({}, [style(float(fare)) for fare in FARES]))
    assert columns.kinds["fare"] == "number"
    drift = columns.counted(table)
    assert [cell.text for cell in drift.texts.first["fare"]] == [text]
    others = np.arange(ROWS) != 17
    values = columns.transform(table)[others, 0]
    np.testing.assert_array_equal(values, clean.transform(table)[others, 0])
    assert np.isfinite(values).all()


@pytest.mark.parametrize("text", ["NA", "n/a", " - ", "?", "null", "NaN", "", "  "])
def test_placeholders_are_plain_gaps_in_every_format(text: str) -> None:
    table = with_texts({5: "void", **dict.fromkeys(range(100, 400), text)})
    columns = Columns.fit(table)
    assert columns.kinds["fare"] == "number"
    assert columns.counted(table).texts.counts == {"fare": 1}
    numbers = columns.transform(table)
    assert np.isnan(numbers[100:400, 0]).all()
    assert np.flatnonzero(numbers[:, 1]).tolist() == [5]


def test_dates_and_categories_are_what_they_were() -> None:
    days = [f"2024-03-{1 + row % 28:02}" for row in range(ROWS)]
    assert kind_of({7: "void"}, days) == "date"
    assert kind_of({7: "void"}, ["red", "green", "7"] * 333 + ["red"]) == "category"
    dictionary = pa.array([str(row % 30) for row in range(ROWS)]).dictionary_encode()
    assert Columns.fit(pa.table({"fare": dictionary, **OTHERS})).kinds["fare"] == "category"


# Features -----------------------------------------------------------------------------------------------------


def test_a_text_is_a_missing_value_with_a_flag_of_its_own() -> None:
    missing, text = with_texts({17: None}), with_texts({17: "void"})
    columns, plain = Columns.fit(text), Columns.fit(missing)
    assert columns.names[:2] == ["fare", "fare (text)"]
    assert columns.used == plain.used
    numbers = columns.transform(text)
    np.testing.assert_array_equal(np.delete(numbers, 1, axis=1), plain.transform(missing))
    assert np.flatnonzero(numbers[:, 1]).tolist() == [17]


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("gaps", [0, 300])
def test_the_flag_is_that_of_a_gap_in_a_column_without_others(robust: bool, gaps: int) -> None:
    def prepared(table: pa.Table) -> tuple[Columns, np.ndarray]:
        columns = Columns.fit(table)
        numbers = columns.transform(table)
        features = columns.rescaled(Features.fit(numbers, robust=robust))
        np.testing.assert_array_equal(Standardised(columns, features).transform(table), features.transform(numbers))
        return columns, features.transform(numbers)

    _, flags = prepared(with_texts({17: None}))
    columns, features = prepared(with_texts({17: "void", **dict.fromkeys(range(500, 500 + gaps))}))
    expected = flags[:, -1]  # of the only gap
    place = columns.names.index("fare (text)")
    assert features[17, place] - features[0, place] == pytest.approx(expected[17] - expected[0], rel=1e-3)
    assert features[17, -1] > features[0, -1]  # the gap flag too


@pytest.mark.parametrize(("side", "sign"), [(0, 1), (1, 1), (-1, -1)])
def test_where_training_had_no_text_it_lies_far_outside_on_the_side_that_matters(side: int, sign: int) -> None:
    clean = pa.table({"fare": [float(fare) for fare in FARES], **OTHERS})
    sides = np.array([side, *[0] * (len(Columns.fit(clean).names) - 1)])
    columns = Columns.fit(clean).with_sides(sides)
    assert columns.names == Columns.fit(clean).names
    text = columns.transform(with_texts({17: "void"}))[17, 0]
    low, high = min(map(float, FARES)), max(map(float, FARES))
    assert text == pytest.approx(high + 10 * (high - low) if sign > 0 else low - 10 * (high - low))
    features = Features.fit(columns.transform(clean), sides, robust=True)
    rows = features.transform(columns.transform(with_texts({17: "void"})))
    assert abs(rows[17, 0]) > 2 * abs(np.delete(rows[:, 0], 17)).max()
    assert Columns.from_plain(columns.to_plain()) == columns


def test_numbers_without_bounds_and_constants_have_a_finite_outside() -> None:
    huge = pa.table({"fare": [1.7e308, -1.7e308] * 20, "flat": [5.0, None] * 20})
    columns = Columns.fit(huge)
    found = columns.transform(pa.table({"fare": ["x"] * 2, "flat": ["x"] * 2}))
    assert found[0].tolist() == [np.finfo(float).max, 15.0]


def test_older_documents_know_no_texts() -> None:
    columns = Columns.fit(pa.table({"fare": [1.5, 2.5, 4.0], "tip": [1, 2, 2]}))
    document = columns.to_plain()
    for column in document["columns"]:
        del column["texts"], column["below"]
    assert Columns.from_plain(document) == columns


def test_a_copy_with_a_text_where_the_other_has_a_gap_is_none() -> None:
    """And one with the same texts is."""
    cents = [str(round(100 * float(fare))) for fare in FARES]
    for at, left_out in ((None, []), ("void", [("cents", "copy of column 'fare'")])):
        pair = [
            [text if row == 3 else one for row, one in enumerate(own)] for own, text in ((FARES, "void"), (cents, at))
        ]
        assert Columns.fit(pa.table({"fare": pair[0], "cents": pair[1], **OTHERS})).left_out == left_out


# Counted and listed -------------------------------------------------------------------------------------------


def test_texts_are_listed_and_are_no_new_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addml.inputs.table.READ_AT_ONCE", 64)
    columns = Columns.fit(pa.table({"fare": [float(fare) for fare in FARES], **OTHERS}))
    table = with_texts({row: f"no {row}" for row in range(60, 67)})
    drift = columns.counted(table)
    assert drift.new_gaps == []
    assert drift.outside == {}
    assert drift.texts.words() == [
        "column 'fare': 7 cells are text and count as missing and strange: "
        '"no 60" (row 61), "no 61" (row 62), "no 62" (row 63), "no 63" (row 64), "no 64" (row 65) and 2 more'
    ]
    halves = DriftCounter(columns)
    for half in (table.slice(0, 62), table.slice(62)):
        halves.add(columns.counted(half))
    assert halves.texts == drift.texts
    assert halves.summary() == drift.summary()
    gap = columns.counted(with_texts({1: None, 2: "void"}))
    assert gap.new_gaps == ["missing values in columns that had none in training took the median: 'fare'"]
    assert gap.texts.words(hidden=True) == [
        "column 'fare': 1 cell is text, not a number, and counts as missing and strange: row 3"
    ]


def test_a_column_in_which_all_is_text_can_be_compared() -> None:
    columns = Columns.fit(pa.table({"fare": [float(fare) for fare in FARES], **OTHERS}))
    drift = columns.counted(with_texts({}, ["x"] * ROWS))
    assert drift.texts.counts["fare"] == ROWS
    assert drift.summary()[0]["gaps_now"] == 1


def test_a_long_text_is_cut_and_quoted() -> None:
    columns = Columns.fit(pa.table({"fare": [float(fare) for fare in FARES], **OTHERS}))
    (words,) = columns.counted(with_texts({0: 'a "b"\n' + "x" * 100})).texts.words()
    assert words.endswith(r'strange: "a \"b\"\n' + "x" * 33 + '…" (row 1)')
