"""Frames with columns that are not numbers, straight into the detector."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from addml import ADDML, load


@pytest.fixture
def frame():
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "order": [f"A-{n}" for n in range(200)],
            "amount": random.standard_normal(200),
            "country": random.choice(["DE", "FR"], 200),
            "day": pd.date_range("2026-01-01", periods=200, freq="7h"),
        }
    )


@pytest.fixture
def quick():
    return ADDML(members=2, epochs=3, random_state=0, device="cpu")


def test_what_is_left_out_is_said(quick, frame):
    with pytest.warns(UserWarning, match=r"columns left out: 'order' \(identifier") as said:
        quick.fit(frame)
    assert [warning.filename for warning in said] == [__file__]  # at the user's line


def test_values_that_became_gaps_are_said(quick, frame):
    frame = frame[["amount"]].assign(day=[f"2026-01-{1 + n % 28:02d}" for n in range(200)])
    frame.loc[[3, 40], "day"] = "soon"
    with pytest.warns(UserWarning, match="'day' is text.*; 2 of its values do not and count as missing"):
        quick.fit(frame)


@pytest.mark.filterwarnings("ignore:columns left out")
def test_columns_go_by_name_in_any_library(quick, frame, tmp_path):
    scores = quick.fit(frame).anomaly_scores_
    quick.save(tmp_path / "model")
    for detector in (quick, load(tmp_path / "model", device="cpu")):
        for same in (frame[frame.columns[::-1]], frame.assign(more=1), pl.from_pandas(frame), pa.table(frame)):
            np.testing.assert_array_equal(detector.anomaly_score(same), scores)
    with pytest.raises(ValueError, match="missing here: 'amount'"):
        quick.anomaly_score(frame.drop(columns="amount"))
    with pytest.raises(TypeError, match="fitted to a table with named columns"):
        quick.anomaly_score(np.zeros((2, 4)))


@pytest.mark.parametrize("name", [str, int, lambda place: ("group", place), lambda place: place or "first"])
def test_columns_of_any_names_are_explained(quick, frame, name):
    named = frame[["amount", "country", "day"]].set_axis([name(place) for place in range(3)], axis=1)
    contributions = quick.fit(named).explain(named)
    assert quick.feature_names_in_.tolist() == [str(name(place)) for place in range(3)]
    np.testing.assert_array_equal(contributions, quick.fit(frame.drop(columns="order")).explain(frame))


def test_bins_are_categories(quick, frame):
    bins = pd.cut(frame["amount"], 3)
    text = bins.astype(str).where(bins.notna(), None)
    scores = quick.fit(frame[["amount"]].assign(bin=text)).anomaly_scores_
    assert quick.model_.columns.kinds["bin"] == "category"
    np.testing.assert_array_equal(quick.anomaly_score(frame[["amount"]].assign(bin=bins)), scores)
    np.testing.assert_array_equal(quick.fit(frame[["amount"]].assign(bin=bins)).anomaly_scores_, scores)


@pytest.mark.parametrize("part", ["date", "time", "to_pydatetime"])
def test_dates_that_are_objects_are_dates(quick, frame, part):
    """As pandas has the dates and times of a database."""
    values = [getattr(day, part)() for day in frame["day"]]
    objects = frame[["amount"]].assign(day=pd.Series([None, *values[1:]], dtype=object))
    scores = quick.fit(objects).anomaly_scores_
    assert quick.model_.columns.kinds == {"amount": "number", "day": "date"}
    np.testing.assert_array_equal(quick.fit(pa.Table.from_pandas(objects)).anomaly_scores_, scores)


def test_a_batch_of_arrow_is_a_table(quick, frame):
    batch = pa.RecordBatch.from_pandas(frame.drop(columns="order"))
    scores = quick.fit(batch).anomaly_scores_
    assert quick.feature_names_in_.tolist() == ["amount", "country", "day"]
    np.testing.assert_array_equal(quick.anomaly_score(batch), scores)
    np.testing.assert_array_equal(quick.fit(frame.drop(columns="order")).anomaly_scores_, scores)


def test_a_lazy_frame_is_to_be_collected(quick, frame):
    lazy = pl.from_pandas(frame.drop(columns="order")).lazy()
    with pytest.raises(TypeError, match=r"X is a lazy frame.*pass X\.collect\(\)"):
        quick.fit(lazy)
    quick.fit(lazy.collect())
    with pytest.raises(TypeError, match=r"pass X\.collect\(\)"):
        quick.anomaly_score(lazy)


@pytest.mark.parametrize("ask", ["anomaly_score", "predict", "predict_proba", "explain", "transform", "refit"])
def test_a_table_without_rows_is_refused(quick, frame, ask):
    frame = frame.drop(columns="order")
    with pytest.raises(ValueError, match="X has 0 samples, while a minimum of 1 is required"):
        getattr(quick.fit(frame[:50]), ask)(frame[:0])
    with pytest.raises(ValueError, match="X has 1 sample, while a minimum of 2 is required"):
        quick.fit(frame[:1])
