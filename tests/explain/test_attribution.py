"""Contributions: they add up, for any scorer, distance and number of members; walks against a walk by hand."""

import numpy as np
import pytest

from addml import ADDML, MLP
from addml.explain.attribution import attributions, steps
from addml.scoring import KNN, Views
from tests.grids import pairwise


@pytest.fixture(scope="module", name="X")
def table():
    """200 rows of 5 columns, the first two of which belong together."""
    random = np.random.default_rng(0)
    X = random.standard_normal((200, 5))
    X[:, 1] = X[:, 0] + 0.2 * X[:, 1]
    X[:3, 4] += 9
    return X


@pytest.fixture(scope="module")
def plain(X):
    """One detector of the paper's kind that no test may change."""
    return fitted(X, scorer="center")


def fitted(X, **settings):
    small = {
        "epochs": 2,
        "scorer": "center",
        "members": 2,
        "encoder": MLP((8,), 4),
        "random_state": 0,
        "device": "cpu",
    }
    return ADDML(**small).set_params(**settings).fit(X)


@pytest.mark.parametrize("scorer", ["views", "center"])
@pytest.mark.parametrize("rows", [[5, 2], (5, 2), np.array([5, 2]), slice(3), range(2), [], np.arange(200) % 50 == 7])
def test_some_rows_are_explained_as_among_all(X, rows, scorer):
    detector = fitted(X, scorer=scorer)
    index = np.arange(200)[list(rows) if isinstance(rows, tuple) else rows]
    np.testing.assert_allclose(detector.explain(X, rows=rows), detector.explain(X)[index], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (3, "rows=3 must be a list of row numbers"),
        ([[1]], "must be a list"),
        ([200], "does not select from 200 rows"),
        ("a", "rows='a'"),
    ],
)
def test_rows_that_are_no_places(plain, X, rows, message):
    with pytest.raises(ValueError, match=message):
        plain.explain(X, rows=rows)


def baseline_score(detector):
    return detector.model_.scores(detector.baseline_[None], "cpu", 1)[0]


@pytest.mark.parametrize("scorer", ["views", Views(views=["tails", "columns"]), Views(references=16)], ids=str)
@pytest.mark.parametrize("distance", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize("members", [1, 3])
def test_contributions_of_views_add_up_to_the_score(X, scorer, distance, members):
    detector = fitted(X, scorer=scorer, loss__distance=distance, members=members)
    found = detector.explain(X)
    assert found.shape == X.shape
    np.testing.assert_allclose(found.sum(axis=1), detector.anomaly_score(X), atol=1e-6)


@pytest.mark.parametrize(
    ("scorer", "distance", "members"),
    pairwise(["center", "dissimilarity", "knn", KNN(k=3)], ["sqeuclidean", "euclidean", "cosine"], [1, 3]),
)
def test_contributions_add_up_to_the_score_less_that_of_the_usual_row(X, scorer, distance, members):
    detector = fitted(X, scorer=scorer, loss__distance=distance, members=members)
    found = detector.explain(X)
    assert found.shape == X.shape
    expected = detector.anomaly_score(X) - baseline_score(detector)
    np.testing.assert_allclose(found.sum(axis=1), expected, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("scorer", ["views", "knn"])
@pytest.mark.parametrize("columns", [1, 2, 7, 8, 30])
def test_any_number_of_columns_adds_up(columns, scorer):
    X = np.random.default_rng(1).standard_normal((60, columns))
    detector = fitted(X, scorer=scorer)
    expected = detector.anomaly_score(X) - (0 if scorer == "views" else baseline_score(detector))
    np.testing.assert_allclose(detector.explain(X).sum(axis=1), expected, atol=1e-6)


@pytest.mark.parametrize("scorer", ["views", "center"])
def test_the_column_to_blame_comes_first(X, scorer):
    found = fitted(X[3:], epochs=10, scorer=scorer).explain(X[:3])
    assert (found.argmax(axis=1) == 4).all()
    assert (found[:, 4] > 0).all()


def test_a_column_at_its_usual_value_adds_nothing(plain, X):
    features = plain.model_.vectorizer.prepare(X[:20])
    features[:, 2] = plain.baseline_[2]
    assert abs(attributions(plain.model_, features, plain.baseline_)[:, 2]).max() < 1e-9


def test_the_usual_row_has_no_contributions(plain):
    assert abs(attributions(plain.model_, plain.baseline_[None], plain.baseline_)).max() < 1e-9


def test_the_two_walks_by_hand(X):
    """Two columns: each alone from the row, and each alone from the usual row, averaged."""
    detector = fitted(X[:, :2], scorer="center", members=1)
    features, usual, score = detector.model_.vectorizer.prepare(X[:10, :2]), detector.baseline_, detector.model_

    def at(first, second):
        return score.scores(np.stack([first, second], axis=1).astype(np.float32), "cpu", 1)

    a, b, u, v = features[:, 0], features[:, 1], np.full(10, usual[0]), np.full(10, usual[1])
    first = (at(a, b) - at(u, b) + at(a, v) - at(u, v)) / 2
    second = (at(a, b) - at(a, v) + at(u, b) - at(u, v)) / 2
    np.testing.assert_allclose(detector.explain(X[:10, :2]), np.stack([first, second], axis=1), atol=1e-5)


def test_a_rows_contributions_do_not_depend_on_the_others(X):
    detector = fitted(X)
    whole = detector.explain(X)
    np.testing.assert_array_equal(detector.explain(X[37:40]), whole[37:40])
    detector.n_jobs = 1
    np.testing.assert_array_equal(detector.explain(X), whole)


def test_gaps_and_their_flags_count_for_their_column(X):
    holes = X.copy()
    holes[::7, 3] = np.nan
    detector = fitted(holes)
    found = detector.explain(holes)
    assert found.shape == holes.shape
    np.testing.assert_allclose(found.sum(axis=1), detector.anomaly_score(holes) - baseline_score(detector), atol=1e-6)


def test_categories_and_left_out_columns_of_a_frame():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "amount": random.lognormal(size=200),
            "same": "x",
            "country": random.choice(["DE", "FR", "IT"], 200),
            "number": random.standard_normal(200),
        }
    )
    with pytest.warns(UserWarning, match="columns left out: 'same'"):
        detector = fitted(frame)
    strange = pandas.DataFrame({"amount": [1.0, None], "same": "x", "country": ["??", "DE"], "number": [0.0, 0.1]})
    with pytest.warns(UserWarning, match="missing values in columns.*took the median: 'amount'"):
        found, scores = detector.explain(strange).to_numpy(), detector.anomaly_score(strange)
    assert found.shape == (2, 4)
    assert (found[:, 1] == 0).all()
    assert found[0].argmax() == 2  # a country that training never saw
    np.testing.assert_allclose(found.sum(axis=1), scores - baseline_score(detector), atol=1e-6)


def test_labelled_detectors_add_up_too(X):
    labels = np.full(len(X), -1)
    labels[:3] = 1
    for scorer in ("knn", "center"):
        detector = fitted(X, scorer=scorer)
        detector.fit(X, labels=labels)
        expected = detector.anomaly_score(X) - baseline_score(detector)
        np.testing.assert_allclose(detector.explain(X).sum(axis=1), expected, rtol=1e-2, atol=1e-6)


def test_a_usual_row_that_is_strange_is_replaced_by_a_real_one():
    """The medians of two clusters lie between them, or of three on a ring in its empty middle."""
    random = np.random.default_rng(0)
    angle = 2 * np.pi * random.integers(0, 3, 600) / 3
    X = 10 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.3 * random.standard_normal((600, 2))
    detector = fitted(X, epochs=5, scorer="views")
    assert baseline_score(detector) <= np.median(detector.anomaly_scores_)


@pytest.mark.parametrize(("columns", "alone"), [(1, 6), (3, 6), (6, 6), (7, 6), (30, 6), (1000, 6), (64, 64)])
def test_steps_take_every_column_once(columns, alone):
    edges = steps(columns, alone)
    assert (edges[0], edges[-1]) == (0, columns)
    assert (np.diff(edges) > 0).all()
    assert (np.diff(edges)[: min(columns, alone)] == 1).all()
