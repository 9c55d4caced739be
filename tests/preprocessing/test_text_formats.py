"""Numbers and dates written as text mean the same in a CSV file, a data frame and a JSON file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from addml.arrow import NumberFormat, are_codes, date_format, number_format, parse_dates
from addml.inputs.table import Columns
from addml.io.read import read_table

FEBRUARY, JANUARY = 20485.0, 20455.0  # 1 February and 2 January 2026 in days since 1970


def first_days(texts: list[str]) -> float:
    """The day that the first text stands for."""
    values = pa.array(texts)
    found = date_format(values, np.ones(len(texts)))
    assert found is not None
    return float(parse_dates(values, found.form, None)[0])


@pytest.mark.parametrize(
    ("texts", "day"),
    [
        (["01/02/2026", "05/06/2026"], JANUARY),  # nothing decides
        (["01-02-2026", "05-06-2026"], JANUARY),
        (["01.02.2026", "05.06.2026"], FEBRUARY),  # points
        (["01/02/2026", "13/06/2026"], FEBRUARY),  # a day over 12
        (["01.02.2026", "05.13.2026"], JANUARY),
        (["01/02/2026", "05/13/2026"], JANUARY),
        (["01.02.2026", *["03.04.2026"] * 30, "soon"], FEBRUARY),  # a slip
        (["2026/02/01", "2026/06/05"], FEBRUARY),
    ],
)
def test_whether_the_day_comes_first(texts: list[str], day: float) -> None:
    assert first_days(texts) == day


def test_dates_that_contradict_each_other_are_none() -> None:
    assert date_format(pa.array(["13/01/2026", "01/13/2026"]), np.ones(2)) is None


@pytest.mark.parametrize(
    ("texts", "is_guess"), [(["01/02/2026"], True), (["01.02.2026"], False), (["13/02/2026"], False)]
)
def test_a_guess_is_known_as_one(texts: list[str], is_guess: bool) -> None:
    found = date_format(pa.array(texts), np.ones(1))
    assert found is not None
    assert found.is_guess == is_guess


@pytest.mark.parametrize(
    ("texts", "decimal", "found"),
    [
        (["1.234", "2.345"], ".", NumberFormat()),
        (["1.234", "2.345"], ",", NumberFormat(thousands=".", decimal=",")),
        (["1,234", "2,345"], ".", NumberFormat(thousands=",")),
        (["1,5", ",5"], ".", NumberFormat(thousands=".", decimal=",")),
        (["1,5", "1.5"], ".", None),
        ([".", "1"], ".", None),
    ],
)
def test_number_formats(texts: list[str], decimal: str, found: NumberFormat | None) -> None:
    assert number_format(pa.array(texts), decimal) == found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["00501", "94105"], True),
        (["00501", "20.5"], True),
        (["01", "12"], False),  # months
        (["007.5", "112.5"], False),
        (["-012", "012"], False),  # a code has no sign
    ],
)
def test_codes(texts: list[str], expected: bool) -> None:
    assert are_codes(pa.array(texts)) == expected


ROWS = 60
COLUMNS = {
    "guessed": [f"{1 + row % 12:02}/{1 + row % 11:02}/2026" for row in range(ROWS)],
    "american": [f"{1 + row % 12:02}/{1 + row % 28:02}/2026" for row in range(ROWS)],
    "german": [f"{1 + row % 28:02}.{1 + row % 12:02}.2026 {row % 24:02}:30" for row in range(ROWS)],
    "zoned": [f"2026-03-{1 + row % 28:02}T{row % 24:02}:15:00+02:00" for row in range(ROWS)],
    "thousands": [f"{1000 * (row % 17) + 5000:,}.5" for row in range(ROWS)],
    "month": [f"{1 + row % 12:02}" for row in range(ROWS)],
    "code": [f"{row % 13:05}" for row in range(ROWS)],
}


def test_a_file_and_a_frame_give_the_same_features(tmp_path: Path) -> None:
    frame = pa.table(COLUMNS)
    lines = [",".join(COLUMNS), *(",".join(f'"{cell}"' for cell in row) for row in zip(*COLUMNS.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "t.json").write_text(json.dumps(frame.to_pylist()))
    fitted = Columns.fit(frame)
    for name in ("t.csv", "t.json"):
        table = read_table(tmp_path / name).table
        columns = Columns.fit(table)
        assert columns.kinds == fitted.kinds
        assert columns.names == fitted.names
        np.testing.assert_allclose(columns.transform(table), fitted.transform(frame), rtol=0, atol=1e-9)
