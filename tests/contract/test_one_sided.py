"""Columns where only one direction matters."""

import numpy as np
import pandas as pd
import pytest

from addml import ADDML
from addml.preprocessing.scaling import Features


def test_values_on_the_other_side_count_as_the_median():
    X = np.array([[1.0, 1], [2, 2], [3, 3], [4, 4], [np.nan, 9]])
    features = Features.fit(X, np.array([1, -1]))  # medians 2.5 and 3
    folded = np.array([[2.5, 1], [2.5, 2], [3, 3], [4, 3], [2.5, 3]])  # the gap takes the median
    mean, scale = folded.mean(0), folded.std(0)
    np.testing.assert_allclose(features.transform(X)[:, :2], (folded - mean) / scale, rtol=1e-6)
    np.testing.assert_allclose(features.transform(np.array([[-99.0, 99]]))[0, :2], ([2.5, 3] - mean) / scale, rtol=1e-6)
    assert features.transform(np.array([[-99.0, 99]]))[0, 2] < 0  # no gap here


@pytest.mark.parametrize("kind", [np.asarray, lambda X: pd.DataFrame(X, columns=["amount", "b", "c"])])
def test_only_the_named_direction_stands_out(kind):
    X = np.random.default_rng(0).standard_normal((300, 3))
    name = 0 if kind is np.asarray else "amount"
    detector = ADDML(members=1, epochs=10, random_state=0, one_sided={name: "high"}).fit(kind(X))
    rows = np.zeros((3, 3))
    rows[:, 0] = np.median(X[:, 0]), -9, 9
    usual, low, high = detector.anomaly_score(kind(rows))
    assert low == usual
    assert high > 3 * usual


def test_a_level_of_another_column_has_not_its_name():
    """The feature of the level x of the column t is called t=x, as the second column is."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"t": ["x", "y"] * 25, "t=x": random.normal(size=50), "when": pd.date_range("2026", periods=50)}
    )
    detector = ADDML(members=1, epochs=1, one_sided={"t=x": "high", "when": "low"}).fit(table)
    columns, sides = detector.model_.columns, detector.model_.features.sides
    assert [(columns.used[columns.origins[place]], sides[place]) for place in np.flatnonzero(sides)] == [
        ("t=x", 1),
        ("when", -1),
    ]
    for part in ("t", "t=y", "t (rarity)", "when.weekend"):
        with pytest.raises(ValueError, match=r"not a number column of X.*(t=x|when)"):
            detector.set_params(one_sided={part: "high"}).fit(table)


def test_it_is_saved(tmp_path):
    from addml import load

    X = np.random.default_rng(0).standard_normal((50, 2))
    detector = ADDML(members=1, epochs=1, random_state=0, one_sided={1: "low"}).fit(X)
    detector.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.one_sided == {"1": "low"}
    np.testing.assert_array_equal(loaded.anomaly_score(X), detector.anomaly_score(X))


@pytest.mark.parametrize(
    ("one_sided", "message"),
    [
        ({"amuont": "high"}, "one_sided names 'amuont'.*Did you mean 'amount'"),
        ({"amount": "up"}, "use 'high' or 'low'"),
        ("amount:high", "must map columns"),
        ({7: "high"}, "one_sided names 7"),
    ],
)
def test_what_cannot_be_is_refused(one_sided, message):
    X = pd.DataFrame(np.eye(4), columns=["amount", "b", "c", "d"])
    with pytest.raises(ValueError, match=message):
        ADDML(one_sided=one_sided).fit(X)
