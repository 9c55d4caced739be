"""What columns add to the score of the views, against the views worked out row by row from their definition."""

import math

import numpy as np
import pytest

from addml import ADDML, MLP, Window
from addml.explain.contributions import columns_of, explained, views_of
from addml.scoring import Views
from tests.explain.conftest import random_model

D = 5
VIEWS = ("columns", "space", "distilled", "tails")


def rows_of(model, random, strangers=200):
    """Some references, one of them twice, and rows that training did not hold, a few of them far out or in between."""
    references = model.scorer_arrays["rows"]
    rows = np.r_[
        references[[0, 7, 21, 42, 59, 7]],
        2 * random.standard_normal((strangers, D)),
        references + 0.05 * random.standard_normal(references.shape),
        0.1 * random.standard_normal((20, D)),
        [[9, 0, 0, 0, 0], [0, 0, 0, -1e6, 0]],
    ]
    return rows.astype(np.float32)


class Oracle:
    """The four views of one row at a time in float64, and their parts by feature."""

    def __init__(self, model):
        self.model, arrays = model, model.scorer_arrays
        self.rows = arrays["rows"].astype(np.float64)
        self.weight = arrays["column_weight"].astype(np.float64)
        self.z = np.stack([self.embedded(row) for row in self.rows])
        self.kept = math.ceil(0.8 * len(self.rows))

    def embedded(self, row):
        """The embeddings of all members one behind the other."""
        z = np.repeat(row[None, None].astype(np.float64), len(self.model.encoder.weights), axis=0)
        for matrix, bias in self.model.encoder.layers:
            z = np.tanh(z @ matrix.astype(np.float64) + bias.astype(np.float64))
        if self.model.distance == "cosine":
            z = z / np.sqrt((z**2).sum(axis=2, keepdims=True))
        return z.ravel()

    def others(self, row):
        """The places of the references without the first that equals the row."""
        same = np.flatnonzero((self.rows == row).all(axis=1))
        return np.setdiff1d(np.arange(len(self.rows)), same[:1])

    def nearest_columns(self, row, places, k):
        """The mean differences from the nearest references; None where it is too close to call which these are."""
        differences = abs(self.rows[places] - row) * self.weight
        order = np.argsort(differences.sum(axis=1))
        last, next_one = differences[order[k - 1 : k + 1]].sum(axis=1)
        return differences[order[:k]].mean(axis=0) if next_one - last > 0.02 else None

    def distance_in_space(self, row, near):
        return np.sqrt(((self.embedded(row) - self.z[near]) ** 2).sum(axis=1)).mean()

    def parts(self, view, row):
        """What each feature adds to a view of a row, and the view; None where rounding decides."""
        row, others = row.astype(np.float64), self.others(row)
        if view == "columns":
            found = self.nearest_columns(row, others, 2)
        elif view == "distilled":
            found = self.nearest_columns(row, others[others < self.kept], 5)
        elif view == "tails":
            low, high = ((self.rows <= row).sum(axis=0), (self.rows >= row).sum(axis=0))
            itself = len(others) < len(self.rows)
            found = -np.log((np.minimum(low, high) - itself + 1) / (len(others) + 1)) * (self.weight > 0)
        else:
            near = others[np.argsort(((self.z[others] - self.embedded(row)) ** 2).sum(axis=1))[:5]]
            return self.slope(row, near) * abs(self.rows[near] - row).mean(axis=0), self.distance_in_space(row, near)
        return None if found is None else (found, found.sum())

    def slope(self, row, near, step=1e-5):
        """How steeply the distance to these references rises along each feature."""
        steps = step * np.eye(len(row))
        up, down = ([self.distance_in_space(row + sign * one, near) for one in steps] for sign in (1, -1))
        return abs(np.subtract(up, down) / (2 * step))


def compressed(z):
    return np.sign(z) * np.log1p(abs(z))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("distance", ["sqeuclidean", "cosine"])
def test_the_parts_of_each_view_alone(random, view, members, distance):
    model = random_model(D, members=members, scorer=Views(views=(view,)), distance=distance)
    rows, oracle, scale = rows_of(model, random)[::4], Oracle(model), model.scale
    found, checked = explained(model, rows, range(D)), 0
    assert (found.view == 0).all()
    for row, score, contributions in zip(rows, found.scores, found.contributions, strict=True):
        expected_parts = oracle.parts(view, row)
        if expected_parts is None:
            continue
        checked, (parts, value) = checked + 1, expected_parts
        # distances along columns are taken in steps of 16 bits, and their values are float32
        expected = compressed((value - scale.median[0, 0]) / scale.unit[0, 0])
        np.testing.assert_allclose(score, expected, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(contributions, score * parts / parts.sum(), rtol=2e-3, atol=2e-3 * abs(score))
    assert checked > len(rows) / 2


@pytest.mark.parametrize("origins", [range(D), [0, 1, 0, 2, 1]], ids=["alone", "together"])
def test_the_view_that_finds_a_row_strangest_is_shared_among_the_columns(random, origins):
    model = random_model(D, members=2, scorer="views")
    rows, oracle, scale = rows_of(model, random), Oracle(model), model.scale
    found = explained(model, rows, list(origins), threads=2)
    np.testing.assert_allclose(found.contributions.sum(axis=1), found.scores, rtol=1e-9)
    np.testing.assert_allclose(found.scores, model.scores(rows, "cpu", 1), atol=1e-6)
    won = set()
    for row, view, score, contributions in zip(rows, found.view, found.scores, found.contributions, strict=True):
        by_view = [oracle.parts(name, row) for name in VIEWS]
        if None in by_view:
            continue
        measured = (np.array([value for _, value in by_view]) - scale.median[:, 0]) / scale.unit[:, 0]
        if np.diff(np.sort(measured)[-2:]) < 0.02:
            continue  # too close to call in float32
        assert view == measured.argmax()
        won.add(VIEWS[view])
        parts = np.bincount(origins, by_view[view][0])
        np.testing.assert_allclose(contributions, score * parts / parts.sum(), rtol=5e-3, atol=5e-3 * abs(score))
    assert won == set(VIEWS)


def test_a_value_far_out_carries_its_score(random):
    model = random_model(D, members=2, scorer="views")
    rows = rows_of(model, random)[-2:]
    found = explained(model, rows, range(D))
    shares = found.contributions / found.scores[:, None]
    assert shares[0, 0] > 0.5
    assert shares[1, 3] > 0.99


def test_a_row_like_all_others_shares_its_score_evenly():
    """Every distance is 0: no column has a part, and all add the same."""
    model = random_model(D, scorer=Views(views=("columns",)))
    model.scorer_arrays["rows"][:] = 1
    found = explained(model, np.ones((3, D), np.float32), range(D))
    assert (found.scores < 0).all()
    np.testing.assert_allclose(found.contributions, np.repeat(found.scores[:, None] / D, D, axis=1))


def test_blocks_and_threads_change_nothing(random):
    model = random_model(D, members=2, scorer="views")
    rows = np.concatenate([rows_of(model, random) for _ in range(3)])
    whole = explained(model, rows, range(D), threads=3)
    for batch in (slice(0, 1), slice(200, 470), slice(None, None, 7)):
        part = explained(model, rows[batch], range(D))
        np.testing.assert_array_equal(part.view, whole.view[batch])
        np.testing.assert_allclose(part.scores, whole.scores[batch], rtol=1e-6)
        np.testing.assert_allclose(part.contributions, whole.contributions[batch], rtol=1e-4, atol=1e-6)


# Detectors --------------------------------------------------------------------------------------------------

SMALL = {
    "epochs": 2,
    "members": 2,
    "encoder": MLP((8,), 4),
    "random_state": 0,
    "device": "cpu",
}


def assert_adds_up(detector, X):
    found = np.asarray(detector.explain(X))
    sums = found.reshape(len(found), -1).sum(axis=1)
    np.testing.assert_allclose(sums, detector.anomaly_score(X), rtol=1e-5, atol=1e-5)
    return found


def test_guided_by_labels_the_parts_are_those_of_the_winning_view(random):
    X = random.standard_normal((200, D))
    X[:8, 4] += 6
    detector = ADDML(**SMALL).fit(X, labels=np.where(np.arange(200) < 8, 1, -1))
    model, rows = detector.model_, np.r_[X[:40], 2 * random.standard_normal((40, D))]
    assert model.scorer.name == "guided"
    assert views_of(model) is model.scorer.inner
    found = assert_adds_up(detector, rows)
    measured = model.scale.measured(model.member_scores(model.vectorizer.prepare(rows), "cpu", 1))
    oracle, prepared, checked = Oracle(model), model.vectorizer.prepare(rows), 0
    for row, contributions, view in zip(prepared, found, measured.argmax(axis=0), strict=True):
        expected_parts = oracle.parts(VIEWS[view], row)
        if expected_parts is None:
            continue
        checked, parts = checked + 1, expected_parts[0]
        expected = contributions.sum() * parts / parts.sum()
        np.testing.assert_allclose(contributions, expected, rtol=1e-2, atol=1e-2 * abs(contributions).sum())
    assert checked > 40


def test_gaps_and_their_flags_count_for_their_column(random):
    X = random.standard_normal((200, D))
    X[::7, 3] = np.nan
    detector = ADDML(**SMALL).fit(X)
    origins = columns_of(detector.model_)
    assert origins == [0, 1, 2, 3, 4, 3]
    found, features = assert_adds_up(detector, X), detector.model_.vectorizer.prepare(X)
    by_feature = explained(detector.model_, features, range(6)).contributions
    np.testing.assert_allclose(found[:, 3], by_feature[:, 3] + by_feature[:, 5], atol=1e-9)
    assert (by_feature[::7, 5] != 0).any()


def test_levels_of_a_category_count_for_their_column():
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
        detector = ADDML(**SMALL).fit(frame)
    strange = pandas.DataFrame({"amount": [1.0, 1e4], "same": "x", "country": ["??", "DE"], "number": [0.0, 0.1]})
    found = assert_adds_up(detector, strange)
    assert found.shape == (2, 4)
    assert (found[:, 1] == 0).all()
    assert found.argmax(axis=1).tolist() == [2, 0]


@pytest.mark.parametrize("causal", [False, True])
def test_steps_of_a_series(random, causal):
    X = np.sin(np.arange(300) / 5)[:, None] + 0.1 * random.standard_normal((300, 3))
    X[200:204, 1] += 5
    detector = ADDML(**SMALL, window=Window(8, causal=causal)).fit(X)
    found = assert_adds_up(detector, X)
    assert found.shape == X.shape
    strangest = detector.anomaly_score(X).argsort()[-3:]
    assert (found[strangest].argmax(axis=1) == 1).all()
    np.testing.assert_allclose(detector.explain(X, rows=[201, 3, 150]), found[[201, 3, 150]], atol=1e-6)
    assert detector.explain(X, rows=[]).shape == (0, 3)
    assert_adds_up(detector, np.r_[X[50:120], X[190:220]])


def test_maps_of_images(random):
    images = random.normal(0.5, 0.1, (80, 1, 8, 8)).clip(0, 1)
    strange = images[:4].copy()
    strange[..., 5:, 5:] = 1.0
    detector = ADDML(**SMALL).fit(images)
    found = assert_adds_up(detector, strange)
    assert found.shape == (4, 8, 8)
    assert all((one[5:, 5:].mean() > one[:5, :5].mean()) for one in found)


def test_the_parts_of_a_row_within_its_group_add_up_to_its_score():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    rows = pandas.DataFrame({"amount": random.normal(size=200), "age": random.normal(size=200)})
    rows["store"] = random.choice(["north", "south"], 200)
    detector = ADDML(epochs=1, members=1, random_state=0, by="store").fit(rows)
    found = np.asarray(detector.explain(rows))
    np.testing.assert_allclose(found.sum(axis=1), detector.anomaly_score(rows), rtol=1e-9)
