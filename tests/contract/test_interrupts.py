"""Ctrl-C, or any error, during `fit` leaves the estimator as it was."""

import logging

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

PLACES = [
    "addml.learning.training.adam",
    "addml.learning.training.distill",
    "addml.fit.metric_space",
    "addml.fit.Model.member_scores",
    "addml.decisions.decision.Decision.__init__",
]


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


class PressesCtrlC(logging.Handler):
    """Interrupts at the second message."""

    seen = 0

    def emit(self, record):
        self.seen += 1
        if self.seen == 2:
            raise KeyboardInterrupt


@pytest.fixture
def ctrl_c():
    logger, handler = logging.getLogger("addml"), PressesCtrlC()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def assert_same_state(detector, before):
    assert list(vars(detector)) == list(before)
    assert all(vars(detector)[name] is value for name, value in before.items())


def test_an_interrupt_while_logging_leaves_a_fitted_detector_as_it_was(quick, X, ctrl_c):
    detector = quick(epochs=5).fit(X[:50, :3])
    before, scores = dict(vars(detector)), detector.anomaly_score(X[:, :3])
    detector.verbose = before["verbose"] = 1
    with pytest.raises(KeyboardInterrupt):
        detector.fit(X)
    assert ctrl_c.seen == 2
    assert_same_state(detector, before)
    np.testing.assert_array_equal(detector.anomaly_score(X[:, :3]), scores)


def test_an_interrupt_leaves_an_unfitted_detector_unfitted(quick, X, ctrl_c):
    detector = quick(epochs=5, verbose=1)
    before = dict(vars(detector))
    with pytest.raises(KeyboardInterrupt):
        detector.fit(X)
    assert_same_state(detector, before)
    with pytest.raises(NotFittedError):
        detector.predict(X)
    assert not hasattr(detector, "n_features_in_")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("first", [True, False], ids=["unfitted", "fitted"])
def test_an_interrupt_anywhere_leaves_the_detector_as_it_was(quick, X, monkeypatch, place, first):
    detector = quick() if first else quick().fit(X[:50, :3])
    before = dict(vars(detector))
    scores = None if first else detector.anomaly_score(X[:, :3])
    with monkeypatch.context() as patch:
        patch.setattr(place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            detector.fit(X)
    assert_same_state(detector, before)
    if not first:
        np.testing.assert_array_equal(detector.anomaly_score(X[:, :3]), scores)
    np.testing.assert_array_equal(detector.fit(X).anomaly_scores_, quick().fit(X).anomaly_scores_)


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"random_state": -1}, {"device": "abacus"}])
def test_a_refused_setting_leaves_the_detector_as_it_was(quick, X, settings):
    detector = quick().fit(X).set_params(**settings)
    before = dict(vars(detector))
    with pytest.raises(ValueError, match=next(iter(settings))):
        detector.fit(X[:, :2])
    assert_same_state(detector, before)


def test_a_refused_table_leaves_the_detector_as_it_was(quick, X):
    detector = quick().fit(X)
    before = dict(vars(detector))
    with pytest.raises(ValueError, match="infinity"):
        detector.fit(np.full((9, 2), np.inf))
    assert_same_state(detector, before)


@pytest.mark.parametrize("stopped", [True, False])
def test_logging_is_left_as_it_was(quick, X, ctrl_c, stopped, capfd):
    logger = logging.getLogger("addml")
    before = logger.level, list(logger.handlers)
    ctrl_c.seen = 0 if stopped else 99
    try:
        quick(epochs=3, verbose=1).fit(X)
    except KeyboardInterrupt:
        assert stopped
    assert (logger.level, logger.handlers) == before
    assert "epoch 1: loss" in capfd.readouterr().err


def test_a_quiet_fit_says_nothing(quick, X, capfd):
    quick(epochs=3).fit(X).predict(X)
    assert capfd.readouterr() == ("", "")
