"""Every rival under the contract of ADDML."""

import functools

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

from addml.pipeline.rivals import PYOD, RIVALS, SCIKIT_LEARN, make
from research.classic_rivals import CLASSIC_RIVALS

ALL = {**RIVALS, **CLASSIC_RIVALS}
OWN = [*SCIKIT_LEARN, *CLASSIC_RIVALS]
PYOD = [name for name in PYOD if name not in OWN]
QUICK = {
    "DeepSVDD": {"epochs": 2},
    "LUNAR": {"n_epochs": 2},
    "PyODAutoEncoder": {"epoch_num": 2},
}
OTHER_WHEN_NEW = {"KNN", "LOF"}  # a training row is not its own neighbour, an equal new row has it as one
RANKED_TOGETHER = {"ECOD", "COPOD"}  # with the rows scored beside


def rivals(names=(*OWN, *PYOD)):
    """These names; most detectors of PyOD, whose wrapper is one and the same, are slow."""
    late = [name for name in PYOD if name not in ("CBLOF", "ECOD")]
    return [pytest.param(name, marks=[pytest.mark.slow] if name in late else []) for name in names]


every = pytest.mark.parametrize("name", rivals())


def quick(name, **changes):
    if name in PYOD:
        pytest.importorskip("pyod", reason="the extra addml[pyod] is not installed")
    return make(name, random_state=0, rivals=ALL, **QUICK.get(name, {}) | changes)


@pytest.fixture(scope="module")
def fitted(X):
    """A rival by its name, fitted once, that no test may change."""
    return functools.cache(lambda name: quick(name).fit(X))


# Scores -----------------------------------------------------------------------------------------------------


@every
def test_scores_are_finite_numbers_of_every_row(name, fitted, fresh):
    rival = fitted(name)
    for scores, rows in ((rival.anomaly_scores_, 200), (rival.anomaly_score(fresh), 60)):
        assert scores.shape == (rows,)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", rivals(name for name in [*OWN, *PYOD] if name not in ("DeepSVDD", "LUNAR")))
def test_planted_outliers_score_high(name, fitted):
    y = np.arange(200) >= 190
    assert roc_auc_score(y, fitted(name).anomaly_scores_) > 0.85


@every
def test_training_rows_score_alike_when_new(name, fitted, X):
    rival = fitted(name)
    if name in OTHER_WHEN_NEW:
        assert not np.allclose(rival.anomaly_score(X), rival.anomaly_scores_)
    else:
        np.testing.assert_allclose(rival.anomaly_score(X), rival.anomaly_scores_, rtol=1e-6)


@every
def test_a_seed_fixes_the_scores(name, fitted, X, fresh):
    np.testing.assert_array_equal(quick(name).fit(X).anomaly_score(fresh), fitted(name).anomaly_score(fresh))


@pytest.mark.parametrize("name", rivals(name for name in [*OWN, *PYOD] if ALL[name].seeded and name != "MCD"))
def test_another_seed_is_another_fit(name, fitted, X, fresh):
    other = quick(name).set_params(random_state=1).fit(X)
    assert not np.array_equal(other.anomaly_score(fresh), fitted(name).anomaly_score(fresh))


@every
def test_global_generators_are_left_alone(name, X):
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    quick(name).fit(X)
    np.testing.assert_array_equal(np.random.random(3), expected)


@every
def test_scores_follow_their_rows(name, fitted, fresh):
    rival, order = fitted(name), np.random.default_rng(2).permutation(60)
    scores = rival.anomaly_score(fresh)
    np.testing.assert_allclose(rival.anomaly_score(fresh[order]), scores[order], rtol=1e-5)
    if name not in RANKED_TOGETHER:
        np.testing.assert_allclose(rival.anomaly_score(fresh[:7]), scores[:7], rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in OWN if not ALL[name].seeded])
def test_units_do_not_matter(name, fitted, X, fresh):
    units, shift = np.array([1e-3, 1, 10, 1e4, 7]), np.array([5, -1e3, 0, 1, 2])
    scores = fitted(name).anomaly_score(fresh)
    np.testing.assert_allclose(quick(name).fit(X * units + shift).anomaly_score(fresh * units + shift), scores, 1e-6)


@pytest.mark.parametrize("name", OWN)
def test_constant_and_repeated_columns_are_harmless(name, X, fresh):
    def widened(table):
        return np.column_stack([table, table[:, 0], table[:, 1] * 2 + 1, np.full(len(table), 3.7)])

    rival = quick(name).fit(widened(X))
    assert np.isfinite(rival.anomaly_score(widened(fresh))).all()
    assert len(np.unique(rival.anomaly_scores_)) > 10


@pytest.mark.parametrize("name", OWN)
def test_a_table_of_one_value_scores_all_rows_alike(name):
    rival = quick(name).fit(np.full((20, 3), 2.0))
    np.testing.assert_allclose(rival.anomaly_scores_, rival.anomaly_scores_[0], atol=1e-9)
    np.testing.assert_allclose(rival.anomaly_score(np.full((4, 3), 2.0)), rival.anomaly_scores_[0], atol=1e-9)


# Input ------------------------------------------------------------------------------------------------------


@every
def test_an_unfitted_rival_says_so(name, X):
    with pytest.raises(NotFittedError):
        quick(name).anomaly_score(X)


@every
def test_wrong_columns_and_gaps_are_named(name, fitted, X):
    rival, gaps = fitted(name), np.where(X > 2, np.nan, X)
    with pytest.raises(ValueError, match=r"4 features.*expecting 5"):
        rival.anomaly_score(X[:, :4])
    for call in (rival.anomaly_score, quick(name).fit):
        with pytest.raises(ValueError, match="NaN"):
            call(gaps)


@every
def test_a_clone_fits_alike(name, fitted, X):
    rival = fitted(name)
    np.testing.assert_array_equal(clone(rival).fit(X).anomaly_scores_, rival.anomaly_scores_)


@pytest.mark.parametrize("name", OWN)
def test_frames_keep_their_names(name, fitted, X):
    frame = pd.DataFrame(X, columns=list("abcde"))
    rival = quick(name).fit(frame)
    assert rival.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(rival.anomaly_scores_, fitted(name).anomaly_scores_)
    with pytest.raises(ValueError, match="feature names"):
        rival.anomaly_score(frame[list("edcba")])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("IsolationForest", {"n_estimators": 0}),
        ("IsolationForest", {"max_samples": 0}),
        ("OCSVM", {"nu": 0}),
        ("HBOS", {"bins": 0}),
        ("HBOS", {"smoothing": 0}),
        ("PCC", {"trimmed": 1}),
        ("PCC", {"major_share": 0}),
        ("PCC", {"minor_below": -1}),
        ("PCA", {"explained": 1}),
        ("KNN", {"n_neighbors": 0}),
        ("KNN", {"method": "median"}),
        ("LOF", {"n_neighbors": 0}),
    ],
)
def test_a_wrong_setting_is_named(name, change, X):
    with pytest.raises(ValueError, match=next(iter(change))):
        quick(name, **change).fit(X)
