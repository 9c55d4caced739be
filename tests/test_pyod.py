"""PyOD's contract: what its detectors promise, and its own ensembles and thresholders with ours inside."""

import importlib
import sys

import numpy as np
import pytest
from sklearn.base import clone

from addml import ADDML

pytest.importorskip("pyod", reason="the extra addml[pyod] is not installed")

from pyod.models.base import BaseDetector

from addml import pyod

QUICK = {"epochs": 2, "members": 2, "random_state": 0}


@pytest.fixture(scope="module", name="X")
def rows():
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 5))
    X[:12] += 7
    return X


@pytest.fixture(scope="module")
def fitted(X):
    return pyod.ADDML(contamination=0.04, **QUICK).fit(X)


def test_scores_are_those_of_the_detector(fitted, X):
    expected = ADDML(**QUICK).fit(X)
    assert isinstance(fitted, BaseDetector)
    np.testing.assert_array_equal(fitted.decision_scores_, expected.anomaly_scores_)
    np.testing.assert_array_equal(fitted.decision_function(X), fitted.decision_scores_)
    np.testing.assert_array_equal(fitted.decision_function(X + 0.5), expected.anomaly_score(X + 0.5))


def test_anomalies_are_1(fitted, X):
    """12 of 300 rows are 4 %, and they lie apart."""
    np.testing.assert_array_equal(fitted.labels_, np.arange(300) < 12)
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    assert fitted.threshold_ == pytest.approx(np.percentile(fitted.decision_scores_, 96))
    assert fitted.predict([[7.0] * 5, [0.0] * 5]).tolist() == [1, 0]


def test_what_pyod_adds_works(fitted, X):
    scores = fitted.decision_scores_
    linear = (scores - scores.min()) / (scores.max() - scores.min())
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], linear, atol=1e-12)
    labels, confidence = fitted.predict(X, return_confidence=True)
    assert (confidence[labels == 1] > 0.5).mean() > 0.5
    assert set(fitted.predict_with_rejection(X, c_r=0.1)) <= {0, 1, -2}


def test_settings_are_those_of_addml(X):
    detector = pyod.ADDML(contamination=0.2, epochs=3)
    assert detector.get_params() == {**ADDML().get_params(), "contamination": 0.2, "epochs": 3}
    detector.set_params(contamination=0.25, **QUICK)
    again = clone(detector)
    assert again is not detector
    assert again.get_params() == detector.get_params()
    assert again.fit(X).labels_.sum() == 75
    assert again.detector_.contamination == 0.25
    with pytest.raises(TypeError, match="colour"):
        pyod.ADDML(colour="red")


def test_a_share_that_pyod_does_not_know_is_refused(X):
    with pytest.raises(ValueError, match=r"contamination='auto': PyOD takes a share"):
        pyod.ADDML(contamination="auto").fit(X)
    with pytest.raises(ValueError, match=r"contamination must be in \(0, 0.5\]"):
        pyod.ADDML(contamination=0.7)


def test_a_thresholder_decides(X):
    module = pytest.importorskip("pythresh.thresholds.iqr")
    fitted = pyod.ADDML(contamination=module.IQR(), **QUICK).fit(X)
    np.testing.assert_array_equal(fitted.labels_, module.IQR().eval(fitted.decision_scores_))


def test_ensembles_of_pyod_take_it(X):
    pytest.importorskip("combo", reason="PyOD's ensembles need combo")
    from pyod.models.feature_bagging import FeatureBagging

    bag = FeatureBagging(pyod.ADDML(**QUICK), n_estimators=2, contamination=0.04, random_state=0).fit(X)
    np.testing.assert_array_equal(bag.labels_, np.arange(300) < 12)


def test_without_pyod_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyod"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "addml.pyod")
    with pytest.raises(ImportError, match=r"^addml\.pyod needs PyOD: pip install 'addml\[pyod\]'"):
        importlib.import_module("addml.pyod")
