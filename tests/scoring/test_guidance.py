"""Labelled anomalies as counter-references: by brute force, with and without labels, on tensors, after changes."""

from dataclasses import replace

import numpy as np
import pytest

from addml import ADDML, MLP
from addml.scoring import guidance, scorer_from_plain
from addml.scoring.guidance import (
    CLEAR_SIMILARITY,
    COPY_DISTANCE,
    HALF_TRUST_LABELS,
    NEIGHBOURS,
    WEIGHTS,
    Guided,
    best_weight,
    normal_discount,
    plausible,
)
from addml.scoring.scorer import Center
from addml.scoring.views import Views


@pytest.fixture(scope="module", name="X")
def table():
    random = np.random.default_rng(0)
    X = random.standard_normal((150, 3))
    X[:12] = [1.5, -1.5, 1.5] + 0.2 * random.standard_normal((12, 3))
    return X


def fitted(X, labels, **settings):
    small = {
        "epochs": 2,
        "members": 2,
        "encoder": MLP((8,), 4),
        "random_state": 0,
        "device": "cpu",
    }
    return ADDML(**small).set_params(**settings).fit(X, labels=labels)


def labels_of(anomalies, normal=()):
    labels = np.full(150, -1)
    labels[list(anomalies)] = 1
    labels[list(normal)] = 0
    return labels


def similarity(detector, X):
    return guidance.similarity(*nearest(detector, X))


def nearest(detector, X):
    scorer, ready = detector.model_.scorer, detector.model_.scorer_ready("cpu")
    return scorer.nearest(scorer.locate(detector.model_.vectorizer.prepare(X), ready), ready), ready[
        "counter_similarity"
    ]


@pytest.mark.parametrize("count", [1, 4])
def test_similarity_by_brute_force(X, count):
    detector = fitted(X, labels_of(range(count)), scaling="standard")
    arrays = detector.model_.scorer_arrays
    least, middle, deviation, trust, *_ = arrays["counter_similarity"]
    new = np.random.default_rng(1).standard_normal((20, 3))
    x = detector.model_.vectorizer.prepare(new)
    near = np.sort(abs(x[:, None] - arrays["counter_normals"]).sum(axis=2), axis=1)[:, :NEIGHBOURS].mean(axis=1)
    anomalous = abs(x[:, None] - arrays["counter_anomalies"]).sum(axis=2).min(axis=1)
    expected = (np.log(near + least) - np.log(anomalous + least) - middle) / deviation
    np.testing.assert_allclose(similarity(detector, new), expected, atol=0.02)  # distances in small whole steps
    assert trust == pytest.approx((count - 1) / (count - 1 + HALF_TRUST_LABELS))


def test_it_is_added_to_the_score(X):
    """The guided score is the other one plus a multiple of the blended similarity."""
    detector = fitted(X, labels_of(range(4)))
    model, arrays = detector.model_, dict(detector.model_.scorer_arrays)
    arrays["counter_label_weight"] = 0 * arrays["counter_label_weight"]
    plain = replace(model, scorer_arrays=arrays).scores(model.vectorizer.read(X), "cpu", 1)
    similarities, trust = similarity(detector, X), arrays["counter_similarity"][3]
    blended = trust * similarities + (1 - trust) * np.maximum(similarities - CLEAR_SIMILARITY, 0)
    added = detector.anomaly_scores_ - plain
    weight = (added @ blended) / (blended @ blended)
    np.testing.assert_allclose(added, weight * blended, atol=1e-3)
    assert min(abs(weight / plain.std() - np.array(WEIGHTS))) < 1e-2


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("push", [1e3, -1e3])
def test_scores_stay_finite_however_strongly_they_are_pushed(X, members, push):
    """As after a collapse, where logarithms of scores lie far apart, and even at a distance of 0."""
    model = fitted(X, labels_of(range(4)), scorer="center", members=members).model_
    middle = np.repeat(model.scorer_arrays["center"][:, None], 2, axis=1)
    arrays = model.scorer_arrays | {"counter_label_weight": np.full(1, push, np.float32)}
    assert np.isfinite(replace(model, scorer_arrays=arrays).scores(model.vectorizer.read(X), "cpu", 1)).all()
    ready = model.scorer.ready(arrays, model.distance)
    located = model.scorer.locate(model.vectorizer.prepare(X[:2]), ready)
    np.testing.assert_array_equal(model.scorer.score(middle, ready, model.distance, located), 0)


@pytest.mark.parametrize("scorer", ["center", "knn", "views"])
@pytest.mark.parametrize("members", [1, 3])
def test_rows_like_labelled_anomalies_rise_for_any_scorer(X, scorer, members):
    guided, plain = (fitted(X, labels, scorer=scorer, members=members) for labels in (labels_of(range(5)), None))
    ranks = [np.argsort(np.argsort(-detector.anomaly_scores_))[5:12].mean() for detector in (guided, plain)]
    assert ranks[0] < ranks[1]
    assert isinstance(guided.model_.scorer, Guided)
    assert not isinstance(plain.model_.scorer, Guided)


def test_a_labelled_anomaly_does_not_vouch_for_itself(X):
    """A lone label, far from everything else: its own similarity is neutral."""
    assert similarity(fitted(X, labels_of([50])), X)[50] == 0


def dense_rows(X, count):
    """Rows of those whose neighbours are nearest, that nobody would take for anomalies."""
    distances = np.sort(abs(X[12:, None] - X[12:]).sum(axis=2), axis=1)[:, 1 : NEIGHBOURS + 1]
    return 12 + np.argsort(distances.mean(axis=1))[: 5 * count : 5]


def plausible_ones(detector, X, labelled):
    """Which labelled rows are plausible, by brute force: distances of all rows, no row its own neighbour."""
    x, normals = detector.model_.vectorizer.prepare(X), np.setdiff1d(np.arange(len(X)), labelled)
    distances = (abs(x[:, None] - x) * detector.model_.scorer_arrays["counter_column_weight"]).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    near = np.sort(distances[:, normals], axis=1)[:, :NEIGHBOURS].mean(axis=1)
    anomalous = np.sort(distances[:, labelled], axis=1)[:, :2].mean(axis=1)
    least = COPY_DISTANCE * np.median(near)
    far, ratio = np.log(near + least), np.log((near + least) / (anomalous + least))
    return ((far >= np.median(far)) | (ratio >= np.median(ratio)))[labelled]


def counter_references(detector, X, labelled):
    """Which labelled rows are counter-references."""
    kept = detector.model_.scorer_arrays["counter_anomalies"]
    return (detector.model_.vectorizer.prepare(X[labelled])[:, None] == kept).all(axis=2).any(axis=1)


def test_plausible_by_hand():
    rows = np.array([[4.0, 1, 2, 3, 0], [5, 5, 5, 5, 6]])  # in the middle: 2 and 5
    labelled = np.array([[1.0, 2, 1, 9], [4, 4, 5, -2]])
    assert plausible(labelled, rows).tolist() == [False, True, True, True]


def test_a_label_among_normal_rows_is_doubted(X, caplog):
    labelled = np.r_[0:9, dense_rows(X, 2)]
    with caplog.at_level("INFO", "addml"):
        detector = fitted(X, labels_of(labelled))
    found = counter_references(detector, X, labelled)
    assert found.tolist() == [True] * 9 + [False] * 2
    assert found.tolist() == plausible_ones(detector, X, labelled).tolist()
    assert "2 of 11 labelled anomalies look like normal rows" in caplog.text


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_doubt_by_brute_force(X, seed):
    labelled = np.r_[0:5, np.random.default_rng(seed).permutation(np.arange(12, 150))[:6]]
    detector = fitted(X, labels_of(labelled))
    expected = plausible_ones(detector, X, labelled)
    assert 6 <= expected.sum() < 11
    assert counter_references(detector, X, labelled).tolist() == expected.tolist()


def test_of_few_labels_none_is_doubted(X):
    labelled = np.r_[0:5, dense_rows(X, 2)]
    assert counter_references(fitted(X, labels_of(labelled)), X, labelled).all()


@pytest.mark.parametrize(("n_plausible", "n_kept"), [(5, 11), (6, 6)])
def test_where_most_labels_would_be_doubted_none_is(X, monkeypatch, n_plausible, n_kept):
    monkeypatch.setattr(guidance, "plausible", lambda labelled, rows: np.arange(labelled.shape[1]) < n_plausible)
    assert len(fitted(X, labels_of(range(11))).model_.scorer_arrays["counter_anomalies"]) == n_kept


def test_the_weight_is_judged_by_doubted_labels_too(X):
    labelled = np.r_[0:9, dense_rows(X, 2)]
    detector = fitted(X, labels_of(labelled))
    model, arrays = detector.model_, dict(detector.model_.scorer_arrays)
    arrays["counter_label_weight"] = 0 * arrays["counter_label_weight"]
    plain = replace(model, scorer_arrays=arrays).scores(model.vectorizer.read(X), "cpu", 1)
    similarities, trust = similarity(detector, X), arrays["counter_similarity"][3]
    blended = trust * similarities + (1 - trust) * np.maximum(similarities - CLEAR_SIMILARITY, 0)
    weight = ((detector.anomaly_scores_ - plain) @ blended) / (blended @ blended) / plain.std()
    expected = best_weight((plain - np.median(plain)) / plain.std(), blended, np.isin(np.arange(150), labelled))
    assert weight == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("count", [1, 10])
def test_normal_rows_that_are_all_alike(count):
    """A row that has nothing but copies of itself for normal neighbours lies at no distance from them."""
    X = np.zeros((60, 3))
    X[:count] = np.random.default_rng(0).standard_normal((count, 3))
    labels = np.where(np.arange(60) < count, 1, -1)
    scores = fitted(X, labels).anomaly_scores_
    assert np.isfinite(scores).all()
    assert scores[:count].min() > scores[count:].max()


def test_a_row_counts_as_no_farther_from_normal_rows_than_from_one_known_to_be_normal(X):
    """By brute force: how much farther out than usual a row lies is forgiven, down to the distance of the known row."""
    X = np.vstack([X, [[6.0, 6, 6], [6.5, 6, 6], [-6, 6, -6]]])
    detector = fitted(X, np.where(np.arange(153) == 150, 0, -1), scaling="standard")
    x = detector.model_.vectorizer.prepare(X)
    distances = abs(x[:, None] - x).sum(axis=2)
    to_normal = distances[:, 150].copy()
    np.fill_diagonal(distances, np.inf)
    near = np.sort(distances, axis=1)[:, :NEIGHBOURS].mean(axis=1)
    least = COPY_DISTANCE * np.median(near)
    far, usual = np.log(near + least), np.median(np.log(near + least))
    expected = np.maximum(0, far - np.maximum(np.log(to_normal + least), usual)) / far.std()
    found = normal_discount(*nearest(detector, X))
    np.testing.assert_allclose(found, expected, atol=0.05)  # distances in small whole steps
    assert found[150] == pytest.approx((far[150] - usual) / far.std(), abs=0.05)  # the labelled row
    assert found[151] > 1  # a row like it
    assert found[152] == 0  # a row as far out elsewhere
    assert (found[:150] < 0.2).all()


def test_what_is_known_to_be_normal_stands_out_no_more(X):
    X = np.vstack([X, [[6.0, 6, 6], [6.1, 6, 6], [-6, 6, -6]]])
    labels = np.where(np.arange(153) == 150, 0, -1)
    plain, guided = fitted(X, None), fitted(X, labels)
    assert isinstance(guided.model_.scorer, Guided)
    order = np.argsort(-plain.anomaly_scores_)[:3]
    assert {150, 151, 152} == set(order.tolist())
    ranks = np.argsort(np.argsort(-guided.anomaly_scores_))
    assert ranks[152] == 0
    assert ranks[150] > 20
    assert guided.anomaly_score([[6.0, 6.05, 6]]) < plain.anomaly_score([[6.0, 6.05, 6]]) - 1


def test_what_is_forgiven_does_not_hang_on_the_weight_of_similarity(X, monkeypatch):
    falls = []
    for weight in (0.25, 4.0):
        monkeypatch.setattr(guidance, "best_weight", lambda *_, weight=weight: weight)
        detector = fitted(X, labels_of(range(4), range(60, 70)))
        falls.append(
            detector.model_.scorer_arrays["counter_label_weight"][0] * normal_discount(*nearest(detector, X[60:70]))
        )
    assert falls[0].max() > 0.1
    np.testing.assert_allclose(*falls, rtol=1e-5)


def test_labelled_normal_rows_are_references(X):
    detector = fitted(X, labels_of(range(4), range(100, 120)))
    features = detector.model_.vectorizer.prepare(X[100:120])
    kept = detector.model_.scorer_arrays["counter_normals"]
    assert all((abs(kept - row).sum(axis=1) == 0).any() for row in features)


def test_on_tensors_as_on_an_accelerator(X):
    torch = pytest.importorskip("torch")
    detector = fitted(X, labels_of(range(4)))
    model = detector.model_
    arrays = {name: torch.from_numpy(array.copy()) for name, array in model.scorer_arrays.items()}
    ready, features = model.scorer.ready(arrays, model.distance), model.vectorizer.prepare(X)
    z = model.encoder.embed(features[None])
    located = model.scorer.locate(torch.from_numpy(features), ready)
    scores = model.scorer.score(torch.from_numpy(z.copy()), ready, model.distance, located)
    np.testing.assert_allclose(model.combine(scores.numpy().astype(float)), detector.anomaly_scores_, atol=1e-3)


def test_the_best_weight_ranks_labelled_anomalies_highest():
    random = np.random.default_rng(0)
    anomalous = np.arange(200) < 20
    base = random.standard_normal(200)
    helpful, useless = 3 * anomalous + random.standard_normal(200), random.standard_normal(200)
    assert best_weight(base, helpful, anomalous) >= 2
    assert best_weight(base + 3 * anomalous, useless, anomalous) <= 0.5
    assert best_weight(base, helpful, np.arange(200) < 2) == 1  # too few to tell
    assert best_weight(base, helpful, np.ones(200, bool)) == 1


def test_a_guided_scorer_is_plain_values_and_back():
    for inner in (Views(references=64), Center()):
        scorer = Guided(inner)
        assert scorer_from_plain({"name": scorer.name, **scorer.settings()}).settings() == scorer.settings()


def test_it_is_no_scorer_that_a_user_names():
    with pytest.raises(ValueError, match="scorer='guided' is not known"):
        ADDML(scorer="guided").fit(np.ones((5, 2)))
