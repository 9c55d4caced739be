"""The protocol against a toy case worked out by hand."""

import numpy as np
import pyarrow as pa
import pytest

from addml.pipeline import rivals
from addml.pipeline.rivals import LabelledTable, Machine, MethodTask, check
from research.datasets import LabelledArray
from research.experiment import fit_each, fits, results

Y = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1])  # six normal rows, three anomalies: two and one in each fold
FOLDS_OF_SEED_0 = [[2, 4, 7], [1, 3, 8], [0, 5, 6]]  # worked out below


def test_eighteen_fits_in_three_seeds_and_three_folds():
    found = fits(Y)
    assert [(one.seed, one.fold, one.one_class) for one in found] == [
        (seed, fold, one_class) for seed in range(3) for fold in range(3) for one_class in (False, True)
    ]
    assert [one.random_state for one in found[::2]] == list(range(9))


def test_folds_are_dealt_out_to_each_kind_of_row_by_itself():
    random = np.random.RandomState(0)
    normal, anomalous = np.repeat([0, 1, 2], 2), np.arange(3)
    random.shuffle(normal)
    random.shuffle(anomalous)
    dealt = np.concatenate([normal, anomalous])
    assert [np.flatnonzero(dealt == fold).tolist() for fold in range(3)] == FOLDS_OF_SEED_0


def test_the_rows_of_each_setting_by_hand():
    for fold, (polluted, clean) in enumerate(zip(fits(Y)[0:6:2], fits(Y)[1:6:2], strict=True)):
        test = FOLDS_OF_SEED_0[fold]
        train = [row for row in range(9) if row not in test]
        assert polluted.test.tolist() == clean.test.tolist() == test
        assert polluted.train.tolist() == train
        assert clean.train.tolist() == [row for row in train if row < 6]  # without the anomalies
        assert polluted.settings == ("seen", "unseen")
        assert clean.settings == ("one-class",)


def test_every_row_is_tested_once_a_seed_with_an_equal_share_of_anomalies():
    y = (np.arange(60) % 6 == 0).astype(int)
    for seed in range(3):
        tests = [one.test for one in fits(y) if one.seed == seed and not one.one_class]
        assert sorted(np.concatenate(tests)) == list(range(60))
        assert sorted(int(y[test].sum()) for test in tests) == [3, 3, 4]


def test_standardised_by_the_training_rows_alone():
    data = LabelledArray("toy", np.array([[1.0, 7], [3, 7], [5, 9]]), np.array([0, 0, 1]))
    train, test = data.standardised(np.array([0, 1]), np.array([0, 1]), np.array([2]))
    assert train.tolist() == [[-1, 0], [1, 0]]  # mean 2, deviation 1; the second column is constant
    assert test.tolist() == [[3, 2]]


def test_a_table_is_prepared_by_its_training_rows_too():
    table = pa.table({"x": [1.0, 3.0, 1.0, 3.0, 5.0], "c": ["a", "b", "a", "b", "new"]})
    data = LabelledTable("toy", table, np.array([0, 0, 0, 0, 1]))
    train, test = data.standardised(np.arange(4), np.arange(4), np.array([4]))
    assert train[:, 0].tolist() == [-1, 1, -1, 1]
    assert test[0, 0] == 3
    assert train.shape[1] == test.shape[1]


class Spy:
    """Remembers what it learned from; a row's score is its first value."""

    def __init__(self, learned):
        self.learned = learned

    def fit(self, X):
        self.learned.append(X)
        self.anomaly_scores_ = X[:, 0]
        return self

    def anomaly_score(self, X):
        return X[:, 0]


def test_what_is_learned_from_and_what_is_tested():
    learned = []
    data = LabelledArray("toy", np.array([[0.0], [1], [2], [3], [4], [5], [6], [7], [8]]), Y)
    fitted = fit_each("Spy", data, fits(Y), (Spy(learned) for _ in range(18)))
    rows = results("Spy", data, fits(Y), fitted)
    assert len(rows) == 27
    for X, fit in zip(learned, fits(Y), strict=True):
        own = data.X[fit.train]
        np.testing.assert_allclose(X, (own - own.mean()) / own.std())
    assert {row["auc"] for row in rows} == {1.0}  # the anomalies are the three largest, wherever they are tested
    assert [row["score_seconds"] is None for row in rows] == [row["setting"] == "seen" for row in rows]
    first = [row for row in rows if (row["seed"], row["fold"]) == (0, 0)]
    assert [row["setting"] for row in first] == ["seen", "unseen", "one-class"]
    assert first[0]["fit_seconds"] == first[1]["fit_seconds"]  # one fit serves both


def test_measures_by_hand():
    found = rivals.measure(np.array([1, 0, 1, 0]), np.array([4.0, 3, 2, 1]))
    assert found == {"auc": pytest.approx(0.75), "ap": pytest.approx((1 + 2 / 3) / 2)}


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([0, 0, 0], "0 anomalies"),
        ([1, 1, 1], "0 normal rows"),
        ([0] * 9 + [1] * 2, "2 anomalies and 9 normal rows; 3 folds need at least 3"),
        ([0] * 9 + [1], "1 anomaly and 9 normal rows"),
    ],
)
def test_labels_that_cannot_be_divided(y, words):
    with pytest.raises(ValueError, match=words):
        check(np.array(y), "toy")


def test_stability_is_how_alike_seeds_rank_one_held_out_fold():
    from itertools import combinations

    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    data = LabelledArray("toy", random.standard_normal((60, 3)), (np.arange(60) % 6 == 0).astype(int))
    first = fits(data.y)[0]
    train, test = data.standardised(first.train, first.train, first.test)
    scores = [
        rivals.make("IsolationForest", random_state=seed).fit(train).anomaly_score(test)
        for seed in (0, 3, 6)  # those of the first fold in the three seeds of the protocol
    ]
    expected = np.mean([spearmanr(*pair).statistic for pair in combinations(scores, 2)])
    found = MethodTask("IsolationForest", data).stability(Machine())
    assert found == pytest.approx(expected)
    assert 0 < found < 0.999


def test_methods_without_a_seed_are_stable(monkeypatch):
    monkeypatch.setattr(rivals, "new_detector", None)  # nothing is fitted for it
    y = (np.arange(60) % 6 == 0).astype(int)
    data = LabelledArray("toy", np.zeros((60, 1)), y)
    assert MethodTask("KNN", data).stability(Machine()) == 1


def test_a_comparison_follows_the_protocol():
    random, y = np.random.default_rng(0), (np.arange(60) % 6 == 0).astype(int)
    data = LabelledArray("toy", random.standard_normal((60, 3)) + 2 * y[:, None], y)
    fitted = fit_each("KNN", data, fits(y), (rivals.make("KNN") for _ in range(18)))
    expected = results("KNN", data, fits(y), fitted)
    found = MethodTask("KNN", data).run(Machine())
    names = ("seed", "fold", "setting", "auc", "ap")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
