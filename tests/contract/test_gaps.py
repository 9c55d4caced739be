"""NaN is a gap: filled by the training median and flagged where training had gaps, warned of where it had none."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

METHODS = ["anomaly_score", "is_anomaly", "score_samples", "decision_function", "predict", "transform", "embed"]


def with_gaps(X):
    table = X.copy()
    table[::7, 1] = table[3::9, 2] = np.nan
    return table


@pytest.mark.parametrize(("row", "column"), [(0, 0), (7, 2), (3, 1), (0, 2), (7, 0)])
def test_a_gap_in_any_place(quick, row, column):
    table = np.random.default_rng(0).standard_normal((8, 3))
    table[row, column] = np.nan
    detector = quick(epochs=1).fit(table)
    assert np.isfinite(detector.anomaly_scores_).all()
    assert detector.encoder_.widths[0] == 4  # three columns and a flag


def test_gaps_in_frames_are_gaps_in_arrays(quick, X):
    table = with_gaps(X)
    expected = quick().fit(table).anomaly_scores_
    names = ["a", "b", "c", "d"]
    masked = np.ma.masked_array(np.nan_to_num(table, nan=7), np.isnan(table))
    frames = [
        pd.DataFrame(table, columns=names),
        pd.DataFrame(table, columns=names).convert_dtypes(),
        pl.DataFrame(table, schema=names).fill_nan(None),
        np.where(np.isnan(table), None, table),
        [[None if np.isnan(value) else value for value in row] for row in table],
        masked,
    ]
    for frame in frames:
        np.testing.assert_array_equal(quick().fit(frame).anomaly_scores_, expected)


def test_a_gap_is_the_median_and_a_flag(quick, X):
    """A detector trained on what the user would have written by hand has the same scores."""
    table, missing = with_gaps(X), np.isnan(with_gaps(X))
    filled = np.where(missing, np.nanmedian(table, axis=0), table)
    by_hand = np.c_[filled, missing[:, [1, 2]]]
    detector = quick(scaling="standard")  # robust flags keep their own scale: tests/preprocessing/test_scaling.py
    expected = detector.fit(by_hand).anomaly_scores_
    np.testing.assert_allclose(detector.fit(table).anomaly_scores_, expected, atol=1e-4)


def test_a_gap_in_a_column_with_gaps_is_not_the_same_as_its_median(quick, X):
    table = with_gaps(X)
    detector = quick().fit(table)
    row = table[1:2].copy()
    row[0, 1] = np.nanmedian(table[:, 1])
    gap = row.copy()
    gap[0, 1] = np.nan
    assert detector.anomaly_score(gap) != detector.anomaly_score(row)


def test_no_warning_where_training_had_gaps(quick, X):
    table = with_gaps(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = quick().fit(table)
        for method in METHODS:
            getattr(detector, method)(table)


@pytest.mark.parametrize("method", METHODS)
def test_a_new_gap_takes_the_median_and_is_warned_of_at_the_users_line(fitted, X, method):
    gap, filled = X[:5].copy(), X[:5].copy()
    gap[2, 3], filled[2, 3] = np.nan, np.median(X[:, 3])
    with pytest.warns(UserWarning, match="none in training took the median: '3'$") as caught:
        result = getattr(fitted, method)(gap)
    assert caught[0].filename == __file__
    np.testing.assert_allclose(result, getattr(fitted, method)(filled), atol=1e-6)
    np.testing.assert_array_equal(result[[0, 1, 3, 4]], getattr(fitted, method)(X[[0, 1, 3, 4]]))


def test_new_gaps_are_named_as_the_frame_names_them_and_not_all_listed(quick):
    names = [f"column {place}" for place in range(8)]
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((30, 8)), columns=names)
    detector = quick().fit(frame)
    frame.iloc[0] = np.nan
    with pytest.warns(UserWarning, match="'column 0', .*'column 4' and 3 more"):
        assert np.isfinite(detector.anomaly_score(frame)).all()


def test_a_new_gap_of_a_table_with_text_is_warned_of_too(quick):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.standard_normal(60), "z": random.standard_normal(60), "c": list("abc") * 20})
    table.loc[5, "z"] = np.nan
    detector = quick().fit(table)
    new = table.copy()
    new.loc[0, ["x", "z"]] = np.nan
    with pytest.warns(UserWarning, match="none in training took the median: 'x'$") as caught:
        scores = detector.anomaly_score(new)
    assert [one.filename for one in caught] == [__file__]
    filled = new.fillna({"x": table["x"].median()})
    np.testing.assert_allclose(scores, detector.anomaly_score(filled), atol=1e-6)
    new.loc[1, "c"] = None
    with pytest.warns(UserWarning, match="categories that had none in training count as unseen: 'c'$"):
        detector.anomaly_score(new[1:])


@pytest.mark.parametrize("names", [None, ["a", "b", "c", "d", "void"]])
def test_a_column_of_gaps_alone_is_warned_of_and_counts_for_nothing(quick, X, names):
    table = pd.DataFrame(np.c_[X, np.full(60, np.nan)], columns=names)
    with pytest.warns(UserWarning, match=f"are ignored: '{'void' if names else '4'}'") as caught:
        detector = quick().fit(table if names else table.to_numpy())
    assert caught[0].filename == __file__
    values = np.c_[X, np.full(60, np.nan)]
    values[:, 4] = np.nan
    assert np.isfinite(detector.anomaly_scores_).all()
    np.testing.assert_array_equal(
        detector.transform(table if names else values), detector.embed(table if names else values)
    )


def test_infinity_is_no_gap(fitted, X):
    row = X[:1].copy()
    row[0, 0] = np.inf
    with pytest.raises(ValueError, match="column '0' holds infinity; replace it by NaN"):
        fitted.predict(row)
