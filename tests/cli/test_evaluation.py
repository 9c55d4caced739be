"""Labels in words, and the figures of an evaluation."""

import numpy as np
import pyarrow as pa
import pytest

from addml.pipeline.evaluation import CURVE_POINTS, _curve, evaluate
from addml.pipeline.labels import read_label


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, None, 1], [0, 1, -1, 1]),
        ([0.0, 1.0], [0, 1]),
        ([True, False], [1, 0]),
        (["Normal", "ANOMALY", "normal"], [0, 1, 0]),
        (["no", "yes"], [0, 1]),
        (["no", "", " ", "yes"], [0, -1, -1, 1]),
        ([0.0, float("nan"), 1.0, None], [0, -1, 1, -1]),
    ],
)
def test_known_words(values, expected):
    assert read_label(pa.chunked_array([values]), None, "y").tolist() == expected


def test_a_value_that_is_named():
    column = pa.chunked_array([["a", "b"], ["c", None]])
    assert read_label(column, "b", "y").tolist() == [0, 1, 0, -1]
    assert read_label(pa.chunked_array([["a", "", "b"]]), "b", "y").tolist() == [0, -1, 1]
    assert read_label(pa.chunked_array([[2.0, float("nan"), 3.0]]), "3", "y").tolist() == [0, -1, 1]
    with pytest.raises(ValueError, match="no row has 'd'"):
        read_label(column, "d", "y")
    with pytest.raises(ValueError, match="--anomaly-value"):
        read_label(column, None, "y")
    with pytest.raises(ValueError, match="--anomaly-value"):
        read_label(pa.chunked_array([[-1, 1]]), None, "y")  # which of the two is anomalous differs between libraries


def test_figures_of_a_small_table():
    scores, labels = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([1, 0, 1, 0, -1])
    found = evaluate(scores, labels, 2.5, "y")
    assert (found["rows"], found["anomalies"], found["unlabelled"]) == (4, 2, 1)
    assert found["roc_auc"] == pytest.approx(0.75)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["precision_at"] == {2: 0.5}
    assert (found["precision"], found["recall"]) == (pytest.approx(2 / 3), 1)
    assert found["f1"] == pytest.approx(0.8)


def test_curves_are_thinned_and_keep_their_ends():
    random = np.random.default_rng(0)
    labels = (random.random(20_000) < 0.05).astype(int)
    curves = evaluate(random.normal(labels, 1), labels, 2.0, "y")["curves"]
    roc = curves["roc"]
    assert len(roc["fpr"]) == len(roc["tpr"]) <= CURVE_POINTS
    assert (roc["fpr"][0], roc["tpr"][0], roc["fpr"][-1], roc["tpr"][-1]) == (0, 0, 1, 1)
    steep = _curve(x=np.linspace(0, 1, 10**6), y=np.linspace(0, 1, 10**6) ** 0.2)
    assert sum(0 < x < 0.01 for x in steep["x"]) > 50  # a steep start keeps its shape
    assert len(curves["pr"]["recall"]) == len(curves["pr"]["precision"]) <= CURVE_POINTS


@pytest.mark.parametrize("labels", [np.zeros(4), np.ones(4)])
def test_one_kind_of_row_cannot_be_evaluated(labels):
    with pytest.raises(ValueError, match="evaluation needs both"):
        evaluate(np.arange(4.0), labels, 1.0, "y")
