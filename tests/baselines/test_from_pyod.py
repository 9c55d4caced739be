"""What is special about PyOD's detectors."""

import sys

import numpy as np
import pytest

pytest.importorskip("pyod", reason="the extra addml[pyod] is not installed")

from addml.baselines import make
from addml.baselines.from_pyod import MODULES, FromPyOD


def test_settings_reach_pyod(X):
    rival = make("CBLOF", random_state=0, n_clusters=4, contamination=0.05).fit(X)
    assert rival.detector_.n_clusters == 4
    assert rival.detector_.contamination == 0.05
    with pytest.raises(TypeError, match="colour"):
        make("CBLOF", colour="red").fit(X)


def test_scores_are_pyods_on_standardised_rows(X, fresh):
    from pyod.models.copod import COPOD

    ours, Z = make("COPOD").fit(X), (X - X.mean(axis=0)) / X.std(axis=0)
    theirs = COPOD().fit(Z)
    np.testing.assert_allclose(ours.anomaly_scores_, theirs.decision_scores_)
    new = (fresh - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(ours.anomaly_score(fresh), theirs.decision_function(new))


def test_deep_detectors_are_silent(X, capfd):
    make("DeepSVDD", epochs=1).fit(X)
    make("PyODAutoEncoder", epoch_num=1).fit(X)
    assert capfd.readouterr() == ("", "")


def test_torchs_generator_is_left_alone(X):
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make("DeepSVDD", random_state=0, epochs=1).fit(X)
    torch.testing.assert_close(torch.rand(3), expected)


def test_scores_that_are_not_finite_name_the_detector(X, monkeypatch):
    rival = make("ECOD").fit(X)
    monkeypatch.setattr(rival.detector_, "decision_function", lambda Z: np.r_[np.nan, np.inf, np.zeros(len(Z) - 2)])
    with pytest.raises(ValueError, match=r"PyOD's ECOD gave 2 of 200 rows a score that is not finite"):
        rival.anomaly_score(X)


def test_what_pyod_refuses_names_the_detector(X):
    with pytest.raises(ValueError, match=r"PyOD's CBLOF could not be fitted: .*cluster"):
        make("CBLOF", n_clusters=1).fit(X)


def test_what_stops_pyod_names_the_detector(X):
    """With fewer rows than a batch it has no loss to show, and falls over that."""
    with pytest.raises(ValueError, match=r"PyOD's AutoEncoder could not be fitted: .*loss"):
        make("PyODAutoEncoder", epoch_num=1).fit(X[:3])


def test_a_missing_pyod_is_said_at_fit_too(X, monkeypatch):
    for module in MODULES.values():
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'addml\[pyod\]'"):
        FromPyOD("ECOD").fit(X)


def test_an_unknown_detector_is_named(X):
    with pytest.raises(ValueError, match="detector='XYZ'"):
        FromPyOD("XYZ").fit(X)
