"""Which kind a column is taken for, and why some are left out."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from addml.inputs.table import Columns

ROWS = 40
RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=ROWS)  # a column beside the one looked at, so that something is always left
DAY = datetime.datetime(2024, 1, 1)


def kind_of(values: object, name: str = "it") -> str:
    """The kind of one column, or the reason for which it is left out."""
    columns = Columns.fit(pa.table({"beside": NUMBERS[: len(values)], name: values}))
    return columns.kinds.get(name) or dict(columns.left_out)[name]


def cycled(*values: object, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([values[row * row // 3 % len(values)] for row in range(ROWS)], kind)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (RANDOM.normal(size=ROWS), "number"),
        (np.float32(RANDOM.normal(size=ROWS)), "number"),
        (np.float16(RANDOM.normal(size=ROWS)), "number"),
        *((cycled(1, 2, 5, kind=kind), "number") for kind in (pa.int8(), pa.uint16(), pa.uint64(), pa.int64())),
        (cycled(1, 2, 9, 9, 1), "number"),  # codes given as integers stay numbers
        (cycled(Decimal("1.50"), Decimal("2.25"), Decimal("9.00")), "number"),
        (cycled(Decimal("1.50"), Decimal("2.25"), kind=pa.decimal256(40, 2)), "number"),
        (cycled(datetime.timedelta(hours=1), datetime.timedelta(hours=3)), "number"),
        (cycled(True, False, None), "boolean"),
        (cycled(DAY, DAY.replace(hour=3), None), "date"),
        (cycled(DAY, DAY.replace(hour=3), kind=pa.timestamp("ns", "Europe/Berlin")), "date"),
        (cycled(DAY, DAY.replace(month=3), kind=pa.date64()), "date"),
        (cycled(DAY.date(), DAY.date().replace(month=3)), "date"),
        (cycled(datetime.time(10, 30), datetime.time(11)), "date"),
        (cycled("DE", "FR", None), "category"),
        (cycled("DE", "FR", kind=pa.large_string()), "category"),
        (cycled("DE", "FR", kind=pa.string_view()), "category"),
        (cycled("DE", "FR", None).dictionary_encode(), "category"),
        (cycled(3, 4).dictionary_encode(), "category"),  # who makes codes a dictionary means categories
        (cycled("yes", "no"), "category"),
        (pc.run_end_encode(cycled(1, 2, 5)), "number"),
        (pa.ExtensionArray.from_storage(pa.json_(), cycled("1", "2", "[5]")), "category"),
    ],
)
def test_types(values: object, kind: str) -> None:
    assert kind_of(values) == kind


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1.5", "2", "-3e2"], "number"),
        (["1,234.5", "17.25", "-2,000,000"], "number"),
        (["1.234,5", "17,25", "-2.000.000"], "number"),
        (["12.5 %", "3%", "-4.25%"], "number"),
        (["€ 12,50", "€3,00", "-€1.204,00"], "number"),
        (["12 %", "3", "7"], "category"),  # per cent and not
        (["$5", "€5", "£5"], "category"),
        (["01234", "01235", "99999"], "category"),  # the zero of a postal code says something
        (["2024-01-31", "2024-02-29", "2024-12-01"], "date"),
        (["2024-01-31 10:15", "2024-02-29 23:59:59.5", "2024-12-01"], "date"),
        (["2024-01-31T10:15:00Z", "2024-02-29T10:15:00+02:00", "2024-12-01T00:00:00Z"], "date"),
        (["31.01.2024", "1.2.2024", "24.12.23"], "date"),
        (["01/31/2024", "02/01/2024 3:30 PM", "12/24/2023"], "date"),
        (["31 Jan 2024", "1 February 2024", "24. Dez 2023"], "date"),
        (["Jan 31, 2024", "February 1, 2024", "Dec 24th, 2023"], "date"),
        (["10:15", "23:59:59", "7:05 am"], "date"),
        (["2024-02-30", "2023-02-29", "2024-13-01"], "category"),  # no such days
        (["10:75", "25:10", "10:61"], "category"),
    ],
)
def test_texts_that_read_as_numbers_or_dates(texts: list[str], kind: str) -> None:
    assert kind_of(cycled(*texts)) == kind


def test_texts_among_which_are_numbers_need_no_words() -> None:
    for texts in (["12", "14", "12A"], ["00501", "10115", "75001", "none"]):  # too many others; codes
        assert Columns.fit(pa.table({"a": cycled(*texts), "b": cycled("u", "v", "w")})).notes == []


def test_a_slip_among_dates_is_a_gap_and_said() -> None:
    days = [f"2024-03-{1 + row % 28:02}" for row in range(ROWS)]
    days[7] = "unknown"
    columns = Columns.fit(pa.table({"day": days}))
    assert columns.kinds == {"day": "date"}
    assert columns.notes == [
        "column 'day' is text that reads as dates, iso ('2024-03-01'); 1 of its values do not and count as missing"
    ]
    first = columns.transform(pa.table({"day": days}))[:, 0]
    assert np.flatnonzero(np.isnan(first)).tolist() == [7]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.arange(ROWS), "identifier: counts the rows in steps of 1"),
        (np.arange(ROWS) * -10.0 + 7, "identifier: counts the rows in steps of -10"),
        (np.random.default_rng(1).permutation(ROWS), "identifier: numbers from 0 to 39, none of them twice"),
        (np.random.default_rng(1).integers(-(2**62), 2**62, ROWS), "identifier: numbers of over 16 digits"),
        ([str(uuid.UUID(int=row * 7919)) for row in range(ROWS)], "identifier: UUIDs or hashes"),
        ([f"{row * 7919:032x}" for row in range(ROWS)], "identifier: UUIDs or hashes"),
        ([f"customer {row}" for row in range(ROWS)], "identifier: (nearly) every row has a value of its own"),
        ([f"the parcel came late, on day {row}" for row in range(ROWS)], "free text: 7 words on average"),
        (["same"] * ROWS, "constant: 'same' in every row"),
        (["x" * 10_000] * ROWS, f"constant: '{'x' * 59}…' in every row"),
        ([1.5] * ROWS, "constant: 1.5 in every row"),
        ([True] * ROWS, "constant: true in every row"),
        ([DAY] * ROWS, "constant: 2024-01-01 in every row"),
        ([None] * ROWS, "empty"),
        ([float("nan")] * ROWS, "empty"),
        (pa.array([None] * ROWS, pa.string()), "empty"),
        (["", "  "] * (ROWS // 2), "empty"),
        ([[1, 2]] * ROWS, "not understood: values of type list<"),
        ([{"a": 1}] * ROWS, "not understood: values of type struct<"),
        ([b"\xff"] * ROWS, "not understood: values of type binary"),
    ],
)
def test_left_out(values: object, reason: str) -> None:
    assert kind_of(values).startswith(reason)


def test_a_name_is_supporting_evidence_only() -> None:
    spread = np.random.default_rng(2).integers(0, 10**9, ROWS)  # distinct, as amounts in cents may be
    assert kind_of(spread, "amount") == "number"
    assert kind_of(spread, "customerId").startswith("identifier: by its name")
    assert kind_of(cycled(1, 2, 3), "id") == "number"
    assert kind_of(cycled("a", "b", "c"), "key") == "category"
    mostly = [f"v{row if row % 3 else 0}" for row in range(ROWS)]
    assert kind_of(mostly, "valid") == "category"
    assert kind_of(mostly, "order_id").startswith("identifier: by its name")


def test_few_numbers_are_not_called_identifiers() -> None:
    assert kind_of([3, 1, 2, 4]) == "number"


def test_a_constant_with_gaps_says_something() -> None:
    assert kind_of(cycled(2.5, None)) == "number"
    assert kind_of(cycled("x", None)) == "category"
    assert kind_of(cycled(True, None)) == "boolean"
    assert kind_of(cycled(DAY, None)) == "date"


def test_copies_are_left_out() -> None:
    celsius = RANDOM.normal(size=ROWS)
    celsius[3] = np.nan
    country = np.array(["DE", "FR", "AT"])[RANDOM.integers(0, 3, ROWS)]
    moments = [DAY + datetime.timedelta(minutes=int(minutes)) for minutes in RANDOM.integers(0, 10**5, ROWS)]
    broken = celsius * 1.8 + 32
    broken[5] += 0.01
    table = pa.table(
        {
            "epoch": [int(moment.timestamp()) for moment in moments],
            "celsius": celsius,
            "fahrenheit": celsius * 1.8 + 32,
            "below": -celsius,
            "broken": broken,
            "without_gap": np.nan_to_num(celsius),
            "country": country,
            "name": [{"DE": "Germany", "FR": "France", "AT": "Austria"}[one] for one in country],
            "when": moments,
        }
    )
    columns = Columns.fit(table)
    assert columns.left_out == [
        ("epoch", "copy of column 'when'"),
        ("fahrenheit", "copy of column 'celsius'"),
        ("below", "copy of column 'celsius'"),
        ("country", "copy of column 'name'"),  # the readable one stays
    ]
    assert columns.used == ["celsius", "broken", "without_gap", "name", "when"]


def test_columns_alike_in_a_sample_are_compared_in_full() -> None:
    rows = 5000
    rare = {f"rare{row}": (np.arange(rows) == row).astype(float) for row in (4321, 4322)}
    assert Columns.fit(pa.table(rare)).used == ["rare4321", "rare4322"]


def test_a_table_without_anything_to_learn_from() -> None:
    with pytest.raises(ValueError, match=r"no column is left to learn from: 'a' \(constant: 1 in every row\)"):
        Columns.fit(pa.table({"a": [1, 1]}))
    with pytest.raises(ValueError, match="has no rows"):
        Columns.fit(pa.table({"a": pa.array([], pa.int64())}))
    with pytest.raises(ValueError, match="several columns are called 'a'"):
        Columns.fit(pa.table([[1, 2], [3, 4]], names=["a", "a"]))


def test_infinity_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match="column 'a', row 3 is -inf"):
        Columns.fit(pa.table({"a": [1.0, None, float("-inf")]}))
