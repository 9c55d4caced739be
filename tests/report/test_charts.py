"""The numbers behind the charts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from addml.report import charts
from tests.report.sample import shop

scores = arrays(float, st.integers(1, 60), elements=st.floats(-1e9, 1e9))


@given(scores, st.floats(-1e9, 1e9))
def test_every_score_is_in_one_bar_of_its_own_side(values, threshold):
    found = charts.histogram(values, threshold)
    assert found.counts.sum() == len(values)
    assert len(found.counts) <= charts.MAX_BINS + 2
    assert (np.diff(found.edges) > 0).all()
    assert found.counts[found.first_anomalous :].sum() == (values > threshold).sum()


@pytest.mark.parametrize("values", [[5.0], [5.0] * 9, [0.0, 0.0, 1.0], [1e-300, 2e-300], [5e-324, 0.0], [-1e15, 1e15]])
@pytest.mark.parametrize("threshold", [5.0, 0.0, -1e300, 1e300, float("inf"), float("nan")])
def test_odd_scores_have_bars(values, threshold):
    found = charts.histogram(np.array(values), threshold)
    assert found.counts.sum() == len(values)


def test_a_long_tail_does_not_squeeze_the_rest():
    values = np.r_[np.linspace(0, 1, 999), 1e6]
    found = charts.histogram(values, 0.9)
    assert found.edges[-1] < 100
    assert found.above == 1
    assert found.counts[-1] == 1


def test_scores_that_are_not_finite_are_counted():
    found = charts.histogram(np.array([0.0, 1.0, np.nan, np.inf]), 0.5)
    assert found.not_finite == 2
    assert charts.histogram(np.array([np.nan]), 0.5) is None


def test_bars_of_very_unequal_height_are_logarithmic():
    assert charts.histogram(np.r_[np.random.default_rng(0).normal(size=10**5), 7.0], 5.0).log
    assert not charts.histogram(np.linspace(0, 1, 100), 0.9).log


def test_members_that_stopped_leave_gaps():
    one = {"member": 0, "train_loss": 1.0}
    history = ({"epoch": 1, "train_loss": 1.5, "members": [one, {"member": 1, "train_loss": 2.0}]},)
    history += ({"epoch": 2, "train_loss": float("nan"), "members": [{"member": 1, "train_loss": 1.0}]},)
    (panel,) = charts.training(shop(history=history))["panels"]
    assert panel["members"] == [[1.0, None], [2.0, 1.0]]
    assert panel["mean"] == [1.5, None]


def test_a_long_history_is_thinned(million):
    found = charts.training(million)
    assert found["epochs"][0] == 1
    assert found["epochs"][-1] == 2000
    assert len(found["epochs"]) <= charts.MAX_EPOCHS


def test_curves_as_an_evaluation_gives_them():
    roc = {"fpr": [0, 0.5, np.nan, 1], "tpr": [0, 0.8, 0.9, 1]}
    found = charts.curves(shop(evaluation={"curves": {"roc": roc}}))
    assert list(found) == ["roc"]
    assert (found["roc"]["x"], found["roc"]["y"]) == ([0, 0.5, 1], [0, 0.8, 1])
