"""A text in a column of numbers of a frame or a table is a missing value that counts as strange, and is warned of."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml import ADDML, load, to_onnx
from addml.errors import DroppedColumnsWarning, TextCellsWarning

ROWS, ROW = 3000, 70
SETTINGS = {"members": 2, "epochs": 2, "random_state": 0, "device": "cpu"}
RANDOM = np.random.default_rng(0)
NUMBERS = {name: RANDOM.normal(10, 2, ROWS).round(3) for name in ("fare", "tip", "tolls")}
LISTED = "column 'fare': 1 cell is text, not a number, and counts as missing and strange: \"void\" (row 71)"
FRAMES = {
    "objects": lambda values: pd.DataFrame({**NUMBERS, "fare": pd.Series(values, dtype=object)}),
    "texts": lambda values: pd.DataFrame({**NUMBERS, "fare": list(map(str, values))}),
    "polars": lambda values: pl.DataFrame({**NUMBERS, "fare": list(map(str, values))}),
    "arrow": lambda values: pa.table({**NUMBERS, "fare": list(map(str, values))}),
}


def fares(text="void", row=ROW):
    return [text if place == row else fare for place, fare in enumerate(NUMBERS["fare"])]


def rank(scores, row=ROW):
    return int((scores > scores[row]).sum()) + 1


@pytest.mark.parametrize("kind", FRAMES)
def test_a_text_among_numbers_is_strange_and_listed(kind, tmp_path):
    frame = FRAMES[kind](fares())
    with pytest.warns(TextCellsWarning) as said:
        detector = ADDML(**SETTINGS).fit(frame)
    assert [str(one.message) for one in said] == [LISTED]
    assert said[0].filename == __file__
    assert rank(detector.anomaly_scores_) <= 5
    detector.save(tmp_path / "model")
    with pytest.warns(TextCellsWarning):
        contributions = np.asarray(detector.explain(frame, rows=[ROW]))[0]
    with pytest.warns(TextCellsWarning):
        again = load(tmp_path / "model", device="cpu").anomaly_score(frame)
    assert detector.feature_names_in_[contributions.argmax()] == "fare"
    np.testing.assert_allclose(again, detector.anomaly_scores_, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::addml.errors.DroppedColumnsWarning")
def test_a_text_is_no_less_strange_than_a_missing_value():
    """In a column that has no others, and in one of which a third is missing."""
    gaps = np.arange(ROWS) % 3 == 0  # not in the row with the text
    for missing in (np.zeros(ROWS, bool), gaps):
        ranks = []
        for text in (None, "void"):
            column = [None if gap else value for gap, value in zip(missing, fares(text), strict=True)]
            detector = ADDML(**SETTINGS).fit(pa.table({**NUMBERS, "fare": [one and str(one) for one in column]}))
            ranks.append(rank(detector.anomaly_scores_))
        assert ranks[1] <= min(3, ranks[0])


@pytest.mark.parametrize("side", ["high", "low"])
def test_by_a_detector_that_has_seen_none(side):
    clean = pa.table(NUMBERS)
    detector = ADDML(**SETTINGS, one_sided={"fare": side}).fit(clean)
    for kind in ("objects", "arrow"):
        with pytest.warns(TextCellsWarning, match="column 'fare': 1 cell is text"):
            scores = detector.anomaly_score(FRAMES[kind](fares()))
        assert rank(scores) == 1
        assert scores[ROW] > detector.threshold_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector.anomaly_score(clean)


def test_whoever_wants_an_error_makes_one_of_the_warning():
    detector = ADDML(**SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TextCellsWarning)
        with pytest.raises(TextCellsWarning) as refused:
            detector.fit(FRAMES["arrow"](fares()))
    assert refused.value.cells.first["fare"][0] == ("fare", ROW + 1, "void")
    assert isinstance(refused.value, DroppedColumnsWarning)
    assert not hasattr(detector, "threshold_")


def test_rows_on_disk_count_as_those_in_memory_do(tmp_path, monkeypatch):
    """Though the sample that columns are fitted to may lack them: here it does not hold the text of the tips."""
    monkeypatch.setattr("addml.disk_fit.LEAST_SAMPLE_BYTES", 0)
    rows = 40_000
    numbers = {name: np.tile(own, 14)[:rows] + np.arange(rows) / rows for name, own in NUMBERS.items()}
    texts = {name: pa.array(numbers[name].round(4)).cast(pa.string()).to_pylist() for name in ("fare", "tip")}
    texts["fare"][ROW], texts["tip"][ROW + 1] = "void", "5..5"
    parquet.write_table(pa.table({**numbers, **texts}), tmp_path / "trips.parquet", row_group_size=5000)
    detector = ADDML(**SETTINGS)
    with pytest.warns(TextCellsWarning) as said:
        detector.fit(tmp_path / "trips.parquet", memory="1MiB")
    tips = LISTED.replace("fare", "tip").replace("void", "5..5").replace("71", "72")
    assert str(said[0].message) == f"{LISTED}; {tips}"
    assert "fare (text)" in detector.model_.columns.names
    assert "tip (text)" not in detector.model_.columns.names
    for row in (ROW, ROW + 1):
        assert rank(detector.anomaly_scores_, row) <= 10


@pytest.mark.filterwarnings("ignore::addml.errors.DroppedColumnsWarning")
def test_onnx_knows_no_texts(tmp_path):
    detector = ADDML(**SETTINGS).fit(FRAMES["arrow"](fares()))
    with pytest.raises(ValueError, match=r"fitted to 'fare' \(has texts\)"):
        to_onnx(detector, tmp_path / "fare.onnx")
