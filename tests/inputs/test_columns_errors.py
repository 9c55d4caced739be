"""Tables that do not fit the training table, and documents that are no preparation."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from addml.inputs.table import Columns
from addml.preprocessing.numbers import CellError

TABLE = pa.table(
    {
        "amount": [1.5, 2.5, 9.0, 4.0],
        "flag": [True, False, True, True],
        "when": [datetime.datetime(2024, 1, day, day) for day in (1, 2, 5, 9)],
        "day": ["2024-01-31", "2024-03-02", "2024-02-29", "2024-02-29"],
        "country": ["DE", "FR", "DE", "DE"],
    }
)
COLUMNS = Columns.fit(TABLE)


def changed(name: str, values: Any) -> pa.Table:
    return TABLE.set_column(TABLE.column_names.index(name), name, pa.array(values))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("amount", ["1", "x", "inf", "2"], "column 'amount', row 3 is inf"),
        ("amount", pa.array(["1", "inf"] * 2).dictionary_encode(), "column 'amount', row 2 is inf"),
        ("amount", [1.0, None, 2.0, float("inf")], "column 'amount', row 4 is inf"),
        ("amount", [datetime.date(2024, 1, 1)] * 4, r"column 'amount' is now of type date32\[day\]; give numbers"),
        ("flag", ["true", "no", "perhaps", None], "column 'flag', row 3 is 'perhaps'.*true or false"),
        ("flag", [0, 1, 2, None], "column 'flag', row 3 is 2"),
        ("when", ["2024-01-01", "yesterday", "", None], "column 'when', row 2 is 'yesterday'.*dates"),
        ("when", [1, 2, 3, 4], "column 'when' is now of type int64; give dates"),
        ("when", [datetime.time(1)] * 4, r"column 'when' is now of type time64\[us\]; give dates"),
        ("day", ["2024-01-31", "31.01.2024", None, ""], "column 'day', row 2 is '31.01.2024'.*iso"),
        ("day", pa.array(["2024-01-31", "never"] * 2).dictionary_encode(), "column 'day', row 2 is 'never'"),
    ],
)
def test_values_that_do_not_fit(name: str, values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        COLUMNS.transform(changed(name, values))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("amount", [1, 2, 9, 4]),
        ("amount", ["1.5", "2.5", None, ""]),
        ("amount", [True, False, True, None]),
        ("amount", pa.nulls(4)),
        ("flag", [1, 0, 1.0, None]),
        ("flag", ["TRUE", "no", "1", ""]),
        ("flag", pa.nulls(4)),
        ("when", ["2024-01-01 10:30", None, "2024-01-01", ""]),
        ("when", [datetime.date(2024, 1, 1)] * 4),
        ("when", pa.nulls(4)),
        ("day", TABLE["when"].combine_chunks()),
        ("country", [1, 2, 3, 4]),
        ("country", pa.nulls(4)),
    ],
)
def test_types_that_fit(name: str, values: Any) -> None:
    assert COLUMNS.transform(changed(name, values)).shape == (4, len(COLUMNS.names))


def test_the_same_values_in_other_types_are_the_same_features() -> None:
    expected = COLUMNS.transform(TABLE).tolist()
    assert COLUMNS.transform(changed("amount", ["1.5", "2.5", "9", "4e0"])).tolist() == expected
    assert COLUMNS.transform(changed("flag", ["yes", "f", "Y", "1"])).tolist() == expected
    assert COLUMNS.transform(changed("flag", pa.array(["yes", "f", "Y", "1"]).dictionary_encode())).tolist() == expected
    dates = [datetime.date.fromisoformat(day) for day in TABLE["day"].to_pylist()]
    assert COLUMNS.transform(changed("day", dates)).tolist() == expected


def test_an_error_can_be_moved_to_its_row_in_a_larger_table() -> None:
    with pytest.raises(CellError) as caught:
        COLUMNS.transform(changed("flag", ["no", "x", "no", "yes"]))
    caught.value.row += 1000
    assert str(caught.value).startswith("column 'flag', row 1,002 is 'x'")


def test_missing_columns_are_named() -> None:
    renamed = TABLE.rename_columns(["Amount", "flag", "when", "day", "country"])
    with pytest.raises(ValueError, match=r"missing here: 'amount'\. Did you mean 'Amount' or"):
        COLUMNS.transform(renamed)
    with pytest.raises(ValueError, match="missing here: 'flag', 'when', 'day', 'country'"):
        COLUMNS.transform(TABLE.select(["amount"]))
    doubled = TABLE.append_column("flag", TABLE["flag"])
    with pytest.raises(ValueError, match="several columns are called 'flag'"):
        COLUMNS.transform(doubled)


def test_a_column_that_is_not_used_may_stand_twice() -> None:
    others = TABLE.append_column("extra", TABLE["flag"]).append_column("extra", TABLE["flag"])
    assert COLUMNS.transform(others).tolist() == COLUMNS.transform(TABLE).tolist()


# Documents --------------------------------------------------------------------------------------------------


def change(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Put a value at a place such as `columns.0.spread.low`."""

    def apply(document: Any) -> None:
        *path, last = place.split(".")
        for key in path:
            document = document[int(key) if key.isdigit() else key]
        if value is ...:
            del document[last]
        else:
            document[int(last) if last.isdigit() else last] = value

    return apply


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("columns", [], "no columns"),
        ("columns", ..., "columns"),
        ("columns.0", 3, "not subscriptable"),
        ("columns.0.kind", "image", "image"),
        ("columns.0.kind", ..., "kind"),
        ("columns.0.name", 7, "'name' is 7, expected <class 'str'>"),
        ("columns.0.name", "flag", "several columns are called 'flag'"),
        ("columns.0.spread", ..., "missing 1 required positional argument: 'spread'"),
        ("columns.0.spread", None, "'spread' is None"),
        ("columns.0.spread.low", "x", "'low' is 'x', expected <class 'float'>"),
        ("columns.0.written", {"before": 1}, "'before' is 1, expected <class 'str'>"),
        ("columns.1.trues", -1, "'trues' is -1, expected <class 'int'>"),
        ("columns.1.trues", True, "'trues' is True, expected <class 'int'>"),
        ("columns.2.slips", 1, "'slips' is 1, expected <class 'bool'>"),
        ("columns.4.counts", [3, 1.5], "'counts' is 1.5, expected <class 'int'>"),
        ("columns.4.levels", "DE", "'levels' is 'DE', expected"),
        ("left_out", [["a"]], "unpack"),
        ("notes", 3, "iterable"),
        ("rows", ..., "rows"),
    ],
)
def test_a_changed_document_is_refused(place: str, value: Any, message: str) -> None:
    """By errors that `addml.load` turns into one that names the model."""
    document = copy.deepcopy(json.loads(json.dumps(COLUMNS.to_plain())))
    change(place, value)(document)
    with pytest.raises((KeyError, TypeError, ValueError), match=message):
        Columns.from_plain(document)
