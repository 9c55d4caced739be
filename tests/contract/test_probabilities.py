"""Probability, p-values, explanations and thresholds as a user of the detector sees them."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from addml import load
from tests.grids import pairwise


def test_probabilities_have_two_columns_that_add_up_to_1(fitted, X):
    likely = fitted.predict_proba(X)
    assert likely.shape == (60, 2)
    np.testing.assert_allclose(likely.sum(axis=1), 1)
    assert ((likely >= 0) & (likely <= 1)).all()


def test_probabilities_rise_with_the_score(fitted, X):
    order = np.argsort(fitted.anomaly_score(X))
    assert (np.diff(fitted.predict_proba(X)[order, 1]) >= 0).all()


def test_the_threshold_does_not_change_them(quick, X):
    detector = quick().fit(X)
    before = detector.predict_proba(X)
    np.testing.assert_array_equal(detector.set_threshold(tau=0.0).predict_proba(X), before)


def test_p_values_count_training_rows_that_score_at_least_as_high(fitted, X):
    expected = (1 + (fitted.anomaly_scores_ >= fitted.anomaly_score(X)[:, None]).sum(axis=1)) / 61
    np.testing.assert_allclose(fitted.p_values(X), expected)


def test_a_limit_of_false_alarms(fitted, X):
    q = false_discovery_control(fitted.p_values(X), method="bh")
    np.testing.assert_array_equal(fitted.is_anomaly(X, max_false_alarms=0.3), q <= 0.3)
    with pytest.raises(ValueError, match="max_false_alarms=2 must be a number"):
        fitted.is_anomaly(X, max_false_alarms=2)


def test_an_alarm_rate(quick, X):
    detector = quick().fit(X).set_threshold(alarm_rate=0.1)
    np.testing.assert_array_equal(detector.is_anomaly(X), detector.p_values(X) <= 0.1)


def test_asking_changes_nothing(quick, X):
    detector = quick().fit(X)
    before = dict(vars(detector))
    for ask in (detector.predict_proba, detector.p_values, detector.explain, detector.nearest_normal):
        ask(X)
    assert all(vars(detector)[name] is value for name, value in before.items())
    assert set(vars(detector)) == set(before)


@pytest.mark.parametrize(("members", "scorer", "labelled"), pairwise([1, 2], ["views", "center"], [False, True]))
def test_saved_and_loaded_they_are_the_same(quick, X, tmp_path, members, scorer, labelled):
    labels = np.where(np.arange(60) >= 57, 1, np.where(np.arange(60) < 5, 0, -1)) if labelled else None
    detector = quick(members=members, scorer=scorer, contamination="auto")
    detector.fit(X, labels=labels).save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    assert again.decision_ == detector.decision_
    for name in ("anomaly_score", "predict_proba", "p_values", "explain"):
        np.testing.assert_array_equal(getattr(again, name)(X), getattr(detector, name)(X))
    assert again.set_threshold(method="auto").threshold_ == detector.threshold_


def test_auto_is_a_contamination(quick, X):
    detector = quick(contamination="auto").fit(X)
    assert detector.decision_.method == "auto"
    assert detector.is_anomaly(X).sum() < 30
    assert quick().fit(X).set_threshold(contamination="auto").threshold_ == detector.threshold_


@pytest.mark.parametrize("table", ["X", "constant", "two rows"])
def test_auto_does_not_fail_on_a_fitted_model(quick, X, table):
    rows = {"X": X, "constant": np.ones((20, 3)), "two rows": X[:2]}[table]
    detector = quick().fit(rows)
    detector.set_threshold(method="auto")
    assert np.isfinite(detector.threshold_)
    assert detector.is_anomaly(rows).sum() <= len(rows) / 2


def test_a_thresholder_of_pythresh_decides(quick, X):
    module = pytest.importorskip("pythresh.thresholds.iqr")
    expected = module.IQR().eval(quick().fit(X).anomaly_scores_)
    for detector in (quick(contamination=module.IQR()).fit(X), quick().fit(X).set_threshold(method=module.IQR())):
        np.testing.assert_array_equal(detector.is_anomaly(X), expected == 1)
        assert detector.decision_.method == "IQR"


def test_a_thresholder_is_not_saved_but_its_threshold_is(quick, X, tmp_path):
    class Half:
        def eval(self, scores):
            return (scores > np.median(scores)).astype(int)

    detector = quick(contamination=Half()).fit(X)
    with pytest.warns(UserWarning, match="not saved, because they are objects: contamination"):
        detector.save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    assert again.threshold_ == detector.threshold_
    assert again.decision_.method == "Half"


# Labels -----------------------------------------------------------------------------------------------------


def test_rows_like_a_labelled_anomaly_score_higher(quick):
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 4))
    X[:20] = [0.0, 2.2, 0.0, 2.2] + 0.1 * random.standard_normal((20, 4))  # a cluster that hardly stands out
    labels = np.full(300, -1)
    labels[:4] = 1
    plain, taught = quick(epochs=5).fit(X).anomaly_scores_, quick(epochs=5).fit(X, labels=labels).anomaly_scores_

    def rank(scores):
        return np.argsort(np.argsort(-scores))[4:20].mean()

    assert rank(taught) < 40 < rank(plain)


@pytest.mark.parametrize(
    "labels",
    [
        np.full(60, -1),
        np.zeros(60, int),
        np.where(np.arange(60) >= 54, 1, 0),
        np.where(np.arange(60) == 54, 1, -1),
        np.where(np.arange(60) == 3, 0, -1),
        np.where(np.arange(60) < 58, 1, -1),
        np.where(np.arange(60) >= 54, 0, -1),  # normal, though distillation would drop them
    ],
    ids=["none", "all normal", "all", "one anomaly", "one normal", "nearly all anomalies", "far rows normal"],
)
@pytest.mark.parametrize("scorer", ["views", "center", "knn"])
def test_any_labels_can_be_learned_from(quick, X, labels, scorer):
    detector = quick(scorer=scorer, contamination="auto").fit(X, labels=labels)
    assert np.isfinite(detector.anomaly_score(X)).all()
    assert np.isfinite(detector.predict_proba(X)).all()
    np.testing.assert_array_equal(detector.anomaly_score(X), detector.anomaly_scores_)
    assert detector.rows_kept()[0][:, labels == 0].any() or not (labels == 0).any()


def test_labels_change_the_threshold(quick, X):
    labels = np.where(np.arange(60) >= 50, 1, 0)
    detector = quick(contamination="auto", epochs=10).fit(X, labels=labels)
    assert abs(detector.is_anomaly(X).sum() - 10) <= 5


def test_labels_that_say_nothing_change_nothing(quick, X):
    one, other = quick().fit(X), quick().fit(X, labels=np.full(60, -1))
    np.testing.assert_array_equal(one.anomaly_scores_, other.anomaly_scores_)


# Refit ------------------------------------------------------------------------------------------------------


def test_refit_goes_on_from_the_present_networks(quick, X):
    detector = quick(epochs=5).fit(X)
    before, features = detector.encoder_.weights.copy(), detector.model_.features
    again = quick(epochs=5).fit(X).refit(X)
    assert again.model_.features.mean == pytest.approx(features.mean)
    moved = np.abs(again.encoder_.weights - before).mean()
    fresh = np.abs(quick(epochs=5, random_state=1).fit(X).encoder_.weights - before).mean()
    assert 0 < moved < fresh / 2


def test_refit_learns_new_labels_and_keeps_the_columns(quick, X):
    labels = np.where(np.arange(60) >= 57, 1, -1)
    detector = quick(epochs=5).fit(X).refit(X[:, :], labels=labels)
    assert detector.model_.scorer.name == "guided"
    assert detector.anomaly_scores_.shape == (60,)
    with pytest.raises(ValueError, match="features"):
        detector.refit(X[:, :2])


def test_refit_needs_a_fit_and_the_same_networks(quick, X):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        quick().refit(X)
    detector = quick().fit(X)
    before = dict(vars(detector))
    detector.set_params(encoder__metric_dim=7)
    with pytest.raises(
        ValueError, match=r"encoder and members ask for 2 of .*\[4, 8, 7\].*: set them back, or use fit"
    ):
        detector.refit(X)
    detector.set_params(encoder__metric_dim=4)
    assert all(vars(detector)[name] is value for name, value in before.items())


@pytest.mark.parametrize(
    "change", [{"scaling": "standard"}, {"one_sided": {0: "high"}}, {"encoder": "conv"}, {"window": 3}], ids=str
)
def test_refit_refuses_what_it_would_not_act_on(quick, X, change):
    detector = quick(encoder__hidden=None).fit(X)
    before = detector.anomaly_scores_
    with pytest.raises(ValueError, match=rf"^refit .*{next(iter(change))}=.*use fit$"):
        detector.set_params(**change).refit(X)
    assert detector.anomaly_scores_ is before


def test_refit_prepares_one_sided_columns_as_before(quick, X):
    detector = quick(one_sided={1: "low"}, scaling="standard").fit(X)
    features = detector.model_.features
    assert detector.refit(X).model_.features is features
    with pytest.raises(ValueError, match=r"one_sided=\{1: 'high'\}"):
        detector.set_params(one_sided={1: "high"}).refit(X)


def test_refit_needs_two_rows_as_fit_does(quick, X):
    detector = quick().fit(X)
    with pytest.raises(ValueError, match="X has 1 row, which is too few"):
        detector.refit(X[:1])
    assert len(detector.anomaly_scores_) == 60


def test_refit_with_more_rows_than_before(quick, X):
    detector = quick().fit(X[:30]).refit(X)
    assert len(detector.anomaly_scores_) == 60


def test_the_margin_follows_the_scale_of_the_data(quick, X):
    labels = np.where(np.arange(60) >= 54, 1, -1)
    natural, none = quick(epochs=5).fit(X, labels=labels), quick(epochs=5, loss__margin=1e-9).fit(X, labels=labels)
    assert not np.array_equal(natural.encoder_.weights, none.encoder_.weights)


def test_refit_of_a_frame_with_categories(quick):
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"amount": random.lognormal(size=80), "country": random.choice(["DE", "FR"], 80)})
    detector = quick().fit(frame[:60])
    columns = detector.model_.columns
    detector.refit(frame, labels=np.where(np.arange(80) < 2, 1, -1))
    assert detector.model_.columns is columns
    np.testing.assert_array_equal(detector.anomaly_score(frame), detector.anomaly_scores_)


def test_explaining_a_row_with_gaps_and_levels_that_training_never_saw(quick):
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"amount": random.lognormal(size=80), "country": random.choice(["DE", "FR"], 80)})
    detector = quick().fit(frame)
    strange = pandas.DataFrame({"amount": [np.nan, 1.0], "country": ["XX", None]})
    with (
        pytest.warns(UserWarning, match="missing values in categories.*'country'"),
        pytest.warns(match="missing values in columns.*'amount'"),
    ):
        found = detector.explain(strange).to_numpy()
    assert np.isfinite(found).all()
    assert found[0, 1] > 0


@pytest.mark.parametrize("ask", ["predict_proba", "p_values", "explain", "nearest_normal"])
def test_before_a_fit_the_remedy_is_said(quick, X, ask):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(quick(), ask)(X)


@pytest.mark.parametrize("ask", ["predict_proba", "p_values", "explain"])
def test_another_number_of_columns_is_refused(fitted, X, ask):
    with pytest.raises(ValueError, match="2 features"):
        getattr(fitted, ask)(X[:, :2])
