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
    with pytest.raises(ValueError, match="'amount'"):
        quick.anomaly_score(frame.astype({"amount": str}).replace({"amount": {frame["amount"].astype(str)[5]: "lots"}}))
