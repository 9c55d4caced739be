"""What is special about PyOD's detectors."""

import numpy as np
import pytest

pytest.importorskip("pyod", reason="the extra addml[pyod] is not installed")

from addml.pipeline.rivals import make


def standardised(X, rows):
    return (rows - X.mean(axis=0)) / X.std(axis=0)


def test_settings_reach_pyod(X):
    four, two = (make("CBLOF", random_state=0, n_clusters=count).fit(X).anomaly_scores_ for count in (4, 6))
    assert not np.array_equal(four, two)
    with pytest.raises(TypeError, match="colour"):
        make("CBLOF", colour="red").fit(X)


def test_scores_are_pyods_on_standardised_rows(X, fresh):
    from pyod.models.copod import COPOD

    ours, theirs = make("COPOD").fit(X), COPOD().fit(standardised(X, X))
    np.testing.assert_allclose(ours.anomaly_scores_, theirs.decision_scores_)
    np.testing.assert_allclose(ours.anomaly_score(fresh), theirs.decision_function(standardised(X, fresh)))


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


def test_scores_that_are_not_finite_name_the_detector(X):
    rival = make("ECOD").fit(X)
    rival.learned_ = rival.learned_._replace(score=lambda Z: np.r_[np.nan, np.inf, np.zeros(len(Z) - 2)])
    with pytest.raises(ValueError, match=r"ECOD returned non-finite scores for 2 of 200 rows"):
        rival.anomaly_score(X)


def test_what_pyod_refuses_names_the_detector(X):
    with pytest.raises(ValueError, match=r"PyOD's CBLOF could not be fitted: .*cluster"):
        make("CBLOF", n_clusters=1).fit(X)


def test_what_stops_pyod_names_the_detector(X):
    """With fewer rows than a batch it has no loss to show, and fails over that."""
    with pytest.raises(ValueError, match=r"PyOD's AutoEncoder could not be fitted: .*loss"):
        make("PyODAutoEncoder", epoch_num=1).fit(X[:3])
