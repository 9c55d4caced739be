"""Tables nobody should pass, and tables somebody will: each is scored rightly or refused with the reason."""

import datetime
import functools
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from tests.grids import pairwise

SCORERS, DISTANCES = ["views", "center", "dissimilarity", "knn"], ["sqeuclidean", "euclidean", "cosine"]
DAY = datetime.date(2020, 2, 29)


def rows(count, width=3):
    return np.random.default_rng(count).standard_normal((count, width))


# Refused ----------------------------------------------------------------------------------------------------

REFUSED = {
    "empty": (np.empty((0, 4)), ValueError, r"0 sample\(s\) \(shape=\(0, 4\)\).*minimum of 2"),
    "empty list": ([], ValueError, "Expected 2D array"),
    "no columns": (np.empty((9, 0)), ValueError, r"0 feature\(s\)"),
    "one row": (rows(1), ValueError, r"1 sample\(s\).*minimum of 2"),
    "1-D": (rows(9)[:, 0], ValueError, "Expected 2D array, got 1D array"),
    "5-D": (np.ones((4, 3, 2, 2, 2)), ValueError, "dim 5, while dim <= 2"),
    "a number": (3.0, ValueError, "Expected 2D array, got scalar"),
    "nothing": (None, ValueError, "Expected 2D array"),
    "a word": ("table", ValueError, "table: no such file"),
    "ragged": ([[1, 2], [3]], ValueError, "rows of 1 and of 2 values; give all rows the same columns"),
    "complex": (rows(9) + 1j, ValueError, "Complex data not supported"),
    "strings": ([["a", "b"], ["c", "d"]], ValueError, "column '0' holds 'a', not a number"),
    "digits": ([["1", "2"], ["3", "4"]], ValueError, "column '0' holds '1'.*convert it or leave it out"),
    "bytes": (np.array([[b"a"], [b"b"]]), ValueError, "column '0' holds b'a'"),
    "objects": (np.array([[1, 2], [3, {}]], object), TypeError, r"column '1' holds \{\}"),
    "mixed objects": (np.array([[1, 2], [3, "x"]], object), ValueError, "column '1' holds 'x'"),
    "mixed list": ([[1, 2], [3, "x"]], ValueError, "column '1' holds 'x'"),
    "dates": (np.full((9, 1), "2020-02-29", "datetime64[D]"), TypeError, r"column '0' holds datetime.date\(2020"),
    "durations": (np.full((9, 1), 5, "timedelta64[D]"), TypeError, "column '0' holds datetime.timedelta"),
    "names given twice": (
        pd.DataFrame(rows(9), columns=["a", "b", "a"]),
        ValueError,
        "several columns are called 'a'; rename",
    ),
    "names of two types": (pd.DataFrame(rows(9), columns=["a", 1, "b"]), TypeError, "Feature names are only supported"),
    "sparse matrix": (sparse.csr_matrix(np.eye(4)), TypeError, "Sparse data.*toarray"),
    "sparse array": (sparse.coo_array(np.eye(4)), TypeError, "Sparse data.*toarray"),
    "infinity": (np.array([[1, 2], [3, np.inf]]), ValueError, "column '1' holds infinity; replace it by NaN"),
    "both infinities": (np.array([[np.inf, 1], [-np.inf, 2]]), ValueError, "column '0' holds infinity"),
    "infinity and a gap": (np.array([[np.nan, 1], [-np.inf, 2]]), ValueError, "column '0' holds infinity"),
    "float32 infinity": (np.array([[1], [np.inf]], np.float32), ValueError, "column '0' holds infinity"),
    "beyond double": (np.array([["1e400"], ["1"]], np.longdouble), ValueError, "column '0' holds infinity"),
    "infinity in pandas": (pd.DataFrame({"a": [1, 2], "b": [1, -np.inf]}), ValueError, "column 'b' holds infinity"),
    "infinity in polars": (pl.DataFrame({"a": [1, 2], "b": [1.0, np.inf]}), ValueError, "column 'b' holds infinity"),
    "integer over 2**53": (np.array([[1, 2], [3, 2**53 + 1]]), ValueError, r"column '1' holds integers over 2\*\*53"),
    "least integer": (np.array([[1, 2], [-(2**63), 3]]), ValueError, r"column '0' holds integers over 2\*\*53"),
    "greatest unsigned": (
        np.array([[2**64 - 1], [3]], np.uint64),
        ValueError,
        r"column '0' holds integers over 2\*\*53",
    ),
    "in a list": ([[1, 2**53 + 1], [3, 4]], ValueError, r"column '1' holds integers over 2\*\*53.*offset"),
    "beside floats in a list": ([[0.5, 2**53 + 1], [3, 4]], ValueError, r"column '1' holds integers over 2\*\*53"),
    "of Python's own": (np.array([[1, 2**70], [3, 4]], object), ValueError, r"column '1' holds integers over 2\*\*53"),
    "identifiers in pandas": (
        pd.DataFrame({"x": [0.5, 1.5], "id": [2**60, 2**60 + 1]}),
        ValueError,
        r"column 'id' holds integers over 2\*\*53.*leave the column out if it is an identifier",
    ),
    "identifiers in polars": (pl.DataFrame({"x": [0.5, None], "id": [2**60, 1]}), ValueError, "column 'id' holds int"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_table_is_refused_with_the_reason(quick, kind):
    table, error, message = REFUSED[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=message):
            quick().fit(table)


SCORED_KINDS = [kind for kind, (table, _, _) in REFUSED.items() if isinstance(table, np.ndarray) and table.ndim == 2]


@pytest.fixture(scope="module")
def fitted_to(quick):
    """A detector of so many columns, fitted once."""
    return functools.cache(lambda width: quick().fit(rows(20, width)))


@pytest.mark.parametrize("kind", [kind for kind in SCORED_KINDS if kind not in ("one row", "no columns")])
def test_scoring_refuses_it_for_the_same_reason(fitted_to, kind):
    table, error, message = REFUSED[kind]
    detector = fitted_to(table.shape[1])
    with pytest.raises(error, match=message.replace("minimum of 2", "minimum of 1")):
        detector.anomaly_score(table)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_another_number_of_columns_is_refused_at_scoring(fitted, width):
    with pytest.raises(ValueError, match=f"X has {width} features, but ADDML is expecting 4"):
        fitted.anomaly_score(rows(9, width))


def test_infinity_at_scoring_names_the_column_of_the_frame(quick):
    frame = pd.DataFrame(rows(20), columns=["a", "b", "c"])
    detector = quick().fit(frame)
    frame.loc[3, "b"] = np.inf
    with pytest.raises(ValueError, match="column 'b' holds infinity"):
        detector.predict(frame)


# Scored -----------------------------------------------------------------------------------------------------

SCORED = {
    "one column": rows(30, 1),
    "two rows": rows(2),
    "three rows": rows(3),
    "fewer rows than a batch": rows(10),
    "more columns than rows": rows(5, 40),
    "all constant": np.full((30, 3), 7.5),
    "constant and huge": np.full((30, 3), 1e300),
    "one repeated row": np.repeat(rows(1), 30, axis=0),
    "duplicated rows": np.repeat(rows(10), 3, axis=0),
    "constant columns": np.c_[rows(30), np.ones(30), np.zeros(30)],
    "zeros": np.zeros((30, 2)),
    "two values": np.repeat([[0.0, 1.0], [1.0, 0.0]], 15, axis=0),
    "a column of gaps": np.c_[rows(30), np.full(30, np.nan)],
    "nothing but gaps": np.full((30, 2), np.nan),
    "one far row": np.r_[rows(29), [[1e12, -1e12, 1e12]]],
    "booleans": rows(30) > 0,
    "bytes": np.arange(60, dtype=np.uint8).reshape(30, 2),
    "exactly 2**53": np.array([[2**53, 1], [-(2**53), 2], [0, 3]] * 5),
    "float32 around 1e38": rows(30).clip(-3, 3).astype(np.float32) * np.float32(1e38),
    "float64 around 1e38": rows(30) * 1e38,
    "around 1e300": rows(30) * 1e300,
    "the largest of all": np.where(rows(30) > 0.5, 1, -1) * np.finfo(float).max,
    "the smallest of all": rows(30) * 1e-310,
    "far from zero": rows(30) + 1e15,
    "half precision in a frame": pd.DataFrame(rows(30).astype(np.float16)),
}


@pytest.mark.parametrize(("scorer", "distance", "kind"), pairwise(SCORERS, DISTANCES, SCORED))
def test_a_strange_table_has_finite_scores(quick, scorer, distance, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "columns without a single value")
        warnings.filterwarnings("ignore", "member . collapsed")
        detector = quick(scorer=scorer, loss__distance=distance).fit(SCORED[kind])
        scores = detector.anomaly_score(SCORED[kind])
    assert np.isfinite(scores).all()
    assert np.isfinite(detector.threshold_)
    assert np.isfinite(detector.transform(SCORED[kind])).all()
    np.testing.assert_array_equal(scores, detector.anomaly_scores_)


@pytest.mark.parametrize(
    ("loss", "members", "kind"),
    pairwise(
        ["instance", "center"], [1, 3], ["all constant", "one repeated row", "two rows", "three rows", "one column"]
    ),
)
def test_a_tiny_table_trains_under_either_loss(quick, loss, members, kind):
    detector = quick(loss=loss, members=members, epochs=5).fit(SCORED[kind])
    assert np.isfinite(detector.anomaly_scores_).all()
    assert all(np.isfinite(entry["train_loss"]) for entry in detector.history_)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", ["all constant", "one repeated row", "zeros", "constant and huge"])
def test_equal_rows_have_equal_scores_and_a_different_one_scores_higher(quick, members, kind):
    table = SCORED[kind]
    detector = quick(members=members).fit(table)
    assert len(np.unique(detector.anomaly_scores_)) == 1
    assert abs(detector.anomaly_scores_[0]) < 1e-9
    assert not detector.is_anomaly(table).any()
    different = table[:1] * 0.5 - 3
    assert detector.is_anomaly(different).all()
    assert np.isfinite(detector.anomaly_score(different)).all()


@pytest.mark.parametrize("scorer", SCORERS)
def test_duplicated_rows_score_alike(quick, scorer):
    scores = quick(scorer=scorer).fit(SCORED["duplicated rows"]).anomaly_scores_
    np.testing.assert_array_equal(scores[::3], scores[1::3])
    if scorer != "views":  # which sees that each of them has others beside it
        assert len(np.unique(scores)) == 10


def test_a_constant_column_changes_no_ranking_by_its_value(quick):
    scores = [quick().fit(np.c_[rows(30), np.full(30, value)]).anomaly_scores_ for value in (0.0, 1.0, 1e200)]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_the_unit_of_a_column_does_not_matter_however_large(quick):
    table = rows(30).clip(-1.9, 1.9)
    expected = quick().fit(table).anomaly_scores_
    for power in (126, 990, 1021, -126, -990):
        np.testing.assert_array_equal(quick().fit(table * 2.0**power).anomaly_scores_, expected)


def test_float32_around_1e38_is_scored_as_it_would_be_around_1(quick):
    table = rows(30).clip(-1.9, 1.9).astype(np.float32)
    scores = quick().fit(table * np.float32(2.0**126)).anomaly_scores_
    np.testing.assert_allclose(scores, quick().fit(table).anomaly_scores_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "relu", "linear"])
def test_the_largest_numbers_at_scoring_are_far_and_finite(quick, X, activation):
    detector = quick(encoder__activation=activation, encoder__output_activation=activation).fit(X)
    largest = np.finfo(float).max
    scores = detector.anomaly_score(np.array([[largest] * 4, [-largest] * 4, [1e38] * 4]))
    assert np.isfinite(scores).all()
    assert (scores > np.median(detector.anomaly_scores_)).all()


def test_large_floats_are_not_taken_for_integers(quick):
    frame = pd.DataFrame({"x": rows(30)[:, 0] * 1e20, "n": np.arange(30)})
    assert np.isfinite(quick().fit(frame).anomaly_score(frame)).all()


def test_booleans_beside_numbers_in_a_frame(quick):
    table = np.c_[rows(30)[:, 0], rows(30)[:, 1] > 0]
    frame = pd.DataFrame({"x": table[:, 0], "yes": table[:, 1].astype(bool)})
    np.testing.assert_array_equal(quick().fit(frame).anomaly_scores_, quick().fit(table).anomaly_scores_)
