"""From a score to a decision: signs, thresholds, shares, embeddings, and what training remembers."""

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from addml import ADDML


def test_the_two_signs_say_the_same(fitted, X):
    score = fitted.anomaly_score(X)
    np.testing.assert_array_equal(fitted.score_samples(X), -score)
    np.testing.assert_array_equal(fitted.decision_function(X), fitted.score_samples(X) - fitted.offset_)
    np.testing.assert_array_equal(fitted.is_anomaly(X), score > fitted.threshold_)
    np.testing.assert_array_equal(fitted.predict(X), np.where(score > fitted.threshold_, -1, 1))
    np.testing.assert_array_equal(fitted.predict(X) == -1, fitted.decision_function(X) < 0)
    assert fitted.offset_ == -fitted.threshold_


def test_scores_are_float64_and_those_of_training(fitted, X):
    for values in (fitted.anomaly_score(X), fitted.score_samples(X), fitted.decision_function(X)):
        assert values.dtype == np.float64
        assert values.shape == (60,)
    np.testing.assert_array_equal(fitted.anomaly_score(X), fitted.anomaly_scores_)
    assert fitted.is_anomaly(X).dtype == bool
    assert fitted.predict(X).dtype.kind == "i"


@pytest.mark.parametrize("scorer", ["views", "center", "dissimilarity", "knn"])
@pytest.mark.parametrize("members", [1, 3])
def test_far_rows_score_higher(quick, X, scorer, members):
    detector = quick(epochs=10, scorer=scorer, members=members).fit(X)
    least = 0.9 if scorer == "views" else 0.95  # six rows of a kind among sixty share a small group
    assert roc_auc_score(np.arange(60) >= 54, detector.anomaly_scores_) > least


@pytest.mark.parametrize("contamination", [0.05, 0.1, 0.25, 1 / 3, 0.5])
@pytest.mark.parametrize("rows", [60, 40])
def test_exactly_the_share_of_training_rows_is_called_anomalous(quick, X, contamination, rows):
    detector = quick(contamination=contamination, scorer="center").fit(X[:rows])
    tied = rows - len(np.unique(detector.anomaly_scores_))
    assert tied <= 4  # two rows that are each other's nearest
    flagged = (detector.fit_predict(X[:rows]) == -1).sum()
    assert abs(flagged - contamination * rows) < 1 + tied


@pytest.mark.parametrize("contamination", [0.05, 0.1, 0.25, 1 / 3, 0.5])
@pytest.mark.parametrize("rows", [60, 40])
def test_the_local_score_calls_that_share_anomalous_but_for_ties(quick, X, contamination, rows):
    """Two rows which are each other's nearest may score alike."""
    detector = quick(contamination=contamination).fit(X[:rows])
    scores, share = detector.anomaly_scores_, contamination * rows
    assert len(np.unique(scores)) >= 0.9 * rows
    flagged = detector.predict(X[:rows]) == -1
    at_most = np.ceil(share - 1e-9)
    at_least = np.floor(share + 1e-9) - (scores == scores[~flagged].max()).sum() + 1
    assert at_least <= flagged.sum() <= at_most
    assert scores[flagged].min() > scores[~flagged].max()


def test_tied_scores_are_not_called_anomalous(quick):
    assert (quick().fit_predict(np.ones((20, 3))) == 1).all()


# A threshold of one's own -----------------------------------------------------------------------------------


def test_the_threshold_can_be_set_without_refitting(quick, X):
    detector = quick(scorer="center").fit(X)  # without ties
    encoder = detector.encoder_
    assert detector.set_threshold(contamination=0.5) is detector
    assert detector.is_anomaly(X).sum() == 30
    assert detector.threshold_ == quick(scorer="center", contamination=0.5).fit(X).threshold_
    tau = float(np.sort(detector.anomaly_scores_)[-3])
    detector.set_threshold(tau=tau)
    assert (detector.threshold_, detector.offset_) == (tau, -tau)
    assert detector.is_anomaly(X).sum() == 2  # strictly above
    assert detector.encoder_ is encoder
    assert detector.contamination is None


@pytest.mark.parametrize("tau", [-1e6, -1, 0, 1e300])
def test_tau_may_be_any_finite_number(quick, X, tau):
    detector = quick().fit(X).set_threshold(tau=tau)
    np.testing.assert_array_equal(detector.is_anomaly(X), detector.anomaly_scores_ > tau)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "nothing: give one of contamination, alarm_rate, method and tau"),
        ({"contamination": 0.1, "tau": 1.0}, "contamination=0.1, tau=1.0: give one of"),
        ({"method": "best"}, "method='best' is not known; use one of 'auto'"),
        ({"alarm_rate": 0}, r"alarm_rate=0 must be a number in \(0, 1\]"),
        ({"alarm_rate": 0.001}, "alarm_rate=0.001 flags nothing with 60 calibration rows"),
        ({"contamination": 0}, r"contamination=0 must be a number in \(0, 0.5\]"),
        ({"contamination": 0.6}, r"contamination=0.6 must be a number in \(0, 0.5\]"),
        ({"contamination": "high"}, "contamination='high' must be a number"),
        ({"tau": math.nan}, "tau=nan must be a number"),
        ({"tau": math.inf}, "tau=inf must be a number"),
        ({"tau": "high"}, "tau='high' must be a number"),
        ({"tau": True}, "tau=True must be a number"),
    ],
)
def test_a_threshold_that_makes_no_sense_is_refused(quick, X, asked, message):
    detector = quick().fit(X)
    before = detector.threshold_
    with pytest.raises(ValueError, match=message):
        detector.set_threshold(**asked)
    assert detector.threshold_ == before


# Embeddings and history -------------------------------------------------------------------------------------


def test_embeddings_hold_the_members_side_by_side(quick, X):
    detector = quick(members=3, encoder__metric_dim=4, scaling="standard").fit(X)
    embeddings = detector.transform(X)
    assert embeddings.shape == (60, 12)
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(detector.embed(X), embeddings)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    for e in range(3):
        z = (X - mean) / scale
        for matrix, bias in ((m[e], b[e]) for m, b in detector.encoder_.layers):
            z = np.tanh(z @ matrix + bias)
        np.testing.assert_allclose(embeddings[:, 4 * e : 4 * e + 4], z, atol=1e-6)


def test_one_member_is_what_it_is_among_others(quick, X):
    one, three = quick(members=1).fit(X), quick(members=3).fit(X)
    np.testing.assert_allclose(one.transform(X), three.transform(X)[:, :4], atol=1e-5)


def test_fitted_attributes_have_their_shapes(fitted):
    assert fitted.center_.shape == (2, 4)
    assert fitted.anomaly_scores_.shape == (60,)
    assert fitted.n_features_in_ == 4
    assert fitted.encoder_.widths == (4, 8, 4)
    assert isinstance(fitted.threshold_, float)
    assert not hasattr(fitted, "feature_names_in_")


def test_the_centre_is_the_mean_embedding_of_the_training_rows(quick, X):
    detector = quick(normal_ratio=1).fit(X)  # distillation then keeps all of M
    embeddings = detector.transform(X).reshape(60, 2, 4).astype(np.float64)
    for e, train in enumerate(detector.rows_kept()[0]):
        np.testing.assert_allclose(detector.center_[e], embeddings[train, e].mean(axis=0), atol=1e-5)


def test_history_has_one_entry_an_epoch(quick, X):
    history = quick(epochs=3, members=2, patience=5).fit(X).history_
    assert [entry["epoch"] for entry in history] == [1, 2, 3]
    measured = {"train_loss", "validation_loss", "normal_cutoff", "hard_cutoff", "rows_kept"}
    for entry in history:
        assert set(entry) == {"epoch", "seconds", "members"} | measured
        assert entry["seconds"] > 0
        assert [part["member"] for part in entry["members"]] == [0, 1]
        for name in measured:
            assert entry[name] == pytest.approx(np.mean([part[name] for part in entry["members"]]))


@pytest.mark.parametrize("ratio", [2 / 3, 0.5, 1, 1e-6])
def test_which_rows_were_kept_is_remembered(quick, X, ratio):
    detector = quick(epochs=3, normal_ratio=ratio).fit(X)
    kept = detector.rows_kept()
    assert kept.shape == (len(detector.history_), 2, 60)
    assert kept.dtype == bool
    logged = [[part["rows_kept"] for part in entry["members"]] for entry in detector.history_]
    np.testing.assert_array_equal(kept.sum(axis=2), logged)
    assert (kept.sum(axis=2) == max(2, math.ceil(ratio * 54 - 1e-9))).all()  # M is 60 less the 6 rows of V


def test_the_rows_kept_are_not_stored_above_a_million(quick, X, monkeypatch):
    monkeypatch.setattr("addml.learning.training.MOST_ROWS_REMEMBERED", 59)
    detector = quick().fit(X)
    with pytest.raises(ValueError, match="not stored for tables of over a million rows"):
        detector.rows_kept()


def test_training_stops_when_patience_is_spent(X):
    detector = ADDML.paper(epochs=200, patience=1, learning_rate=0.1, random_state=0, device="cpu").fit(X)
    losses = [entry["validation_loss"] for entry in detector.history_]
    assert len(losses) < 200
    assert losses[-1] >= min(losses[:-1])
    assert all(after < before for before, after in pairwise(losses[:-1]))
