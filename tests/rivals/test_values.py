"""Scores against values worked out another way."""

import numpy as np
import pytest
from sklearn import ensemble
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from addml.pipeline import rivals
from research.classic_rivals import CLASSIC_RIVALS


def make(name, **settings):
    return rivals.make(name, rivals={**rivals.RIVALS, **CLASSIC_RIVALS}, **settings)


def standardised(X, rows=None):
    return ((X if rows is None else rows) - X.mean(axis=0)) / X.std(axis=0)


# Histograms -------------------------------------------------------------------------------------------------


def test_hbos_by_hand_on_one_column():
    column = np.array([0, 0, 0, 1, 1, 2, 2, 2, 4, 5.0])[:, None]  # bins of one: 3, 2, 3, 0 and 2 of 10 rows
    rival, deviation = make("HBOS").fit(column), column.std()
    density = np.array([3, 2, 3, 0, 2]) / 10 * deviation  # of the standardised column
    told = -np.log2(density + 0.1)
    np.testing.assert_allclose(rival.anomaly_scores_, told[[0, 0, 0, 1, 1, 2, 2, 2, 4, 4]])
    new = np.array([[3.5], [-0.4], [-0.6], [5.4], [5.6], [1e9]])
    np.testing.assert_allclose(rival.anomaly_score(new), told[[3, 0, 3, 4, 3, 3]])


def test_hbos_adds_up_columns(X, fresh):
    whole = make("HBOS").fit(X).anomaly_score(fresh)
    parts = [make("HBOS").fit(X[:, [c]]).anomaly_score(fresh[:, [c]]) for c in range(5)]
    np.testing.assert_allclose(whole, np.sum(parts, axis=0))


@pytest.mark.slow  # PyOD's is compiled first
def test_hbos_is_pyods(X, fresh):
    hbos = pytest.importorskip("pyod.models.hbos")
    theirs = hbos.HBOS(n_bins=5).fit(standardised(X))
    ours = make("HBOS").fit(X)
    np.testing.assert_allclose(ours.anomaly_scores_, theirs.decision_scores_)
    np.testing.assert_allclose(ours.anomaly_score(fresh), theirs.decision_function(standardised(X, fresh)))


# Principal components ---------------------------------------------------------------------------------------


def slow_pcc(X, rows, trimmed, major_share, minor_below):
    """Shyu's classifier, one row and one component at a time."""
    inverse, mean = np.linalg.inv(np.cov(X.T)), X.mean(axis=0)
    far = np.array([(x - mean) @ inverse @ (x - mean) for x in X])
    kept = X[np.sort(np.argsort(far)[: len(X) - int(np.ceil(trimmed * len(X)))])]
    values, axes = np.linalg.eig(np.corrcoef(kept.T))
    order, scores = np.argsort(-values), np.zeros(len(rows))
    for r, row in enumerate((rows - kept.mean(axis=0)) / kept.std(axis=0)):
        explained = 0.0
        for place in order:
            if explained < major_share or values[place] < minor_below:
                scores[r] += (axes[:, place] @ row) ** 2 / values[place]
            explained += values[place] / values.sum()
    return scores


@pytest.mark.parametrize("settings", [(0.005, 0.5, 0.2), (0.1, 0.7, 0.4), (0.05, 0.2, 0.0)])
def test_pcc_is_the_slow_one(X, fresh, settings):
    trimmed, major_share, minor_below = settings
    rival = make("PCC", trimmed=trimmed, major_share=major_share, minor_below=minor_below).fit(X)
    np.testing.assert_allclose(rival.anomaly_scores_, slow_pcc(X, X, *settings))
    np.testing.assert_allclose(rival.anomaly_score(fresh), slow_pcc(X, fresh, *settings))


def test_pcc_with_all_components_is_mahalanobis(X):
    rival = make("PCC", trimmed=0, major_share=1).fit(X)
    inverse, centred = np.linalg.inv(np.cov(X.T, bias=True)), X - X.mean(axis=0)
    np.testing.assert_allclose(rival.anomaly_scores_, np.einsum("ij,jk,ik->i", centred, inverse, centred))


def test_pcc_on_rank_deficient_data_is_that_of_full_rank(X):
    copies = np.column_stack([X, X])  # eigenvalues double, squared coordinates too; five are zero
    full, double = make("PCC", major_share=1).fit(X), make("PCC", major_share=1).fit(copies)
    np.testing.assert_allclose(double.anomaly_scores_, full.anomaly_scores_)
    wide = np.random.default_rng(0).standard_normal((20, 50))  # fewer rows than columns
    assert np.isfinite(make("PCC").fit(wide).anomaly_score(wide + 1)).all()


@pytest.mark.parametrize("major_share", [0.5, 1])
def test_eigenvector_pcc_by_svd(X, major_share):
    """Distances to eigenvectors, each on the side of the row farthest out, over their shares of the variance."""
    Z = standardised(X)
    _, sizes, axes = np.linalg.svd(Z, full_matrices=False)
    shares = sizes**2 / (sizes**2).sum()
    expected = np.zeros(len(Z))
    for place, axis in enumerate(axes):
        if shares[:place].sum() < major_share:
            along = Z @ axis
            tip = axis * np.sign(along[np.abs(along).argmax()])
            expected += np.linalg.norm(Z - tip, axis=1) / shares[place]
    np.testing.assert_allclose(make("EigenvectorPCC", major_share=major_share).fit(X).anomaly_scores_, expected)


def test_eigenvector_pcc_uses_pyods_weights(X):
    pca = pytest.importorskip("pyod.models.pca")
    theirs = pca.PCA(n_components=0.5, svd_solver="full").fit(X)
    Z, expected = standardised(X), np.zeros(200)
    for axis, weight in zip(theirs.components_, theirs.w_components_, strict=True):  # signs depend on scikit-learn
        along = Z @ axis
        expected += np.linalg.norm(Z - axis * np.sign(along[np.abs(along).argmax()]), axis=1) / weight
    np.testing.assert_allclose(make("EigenvectorPCC").fit(X).anomaly_scores_, expected)


def test_pca_leaves_what_the_components_do_not_explain(X):
    Z = standardised(X)
    _, sizes, axes = np.linalg.svd(Z, full_matrices=False)
    count = int((np.cumsum(sizes**2) / (sizes**2).sum() < 0.9).sum()) + 1
    rest = Z @ axes[count:].T
    np.testing.assert_allclose(make("PCA").fit(X).anomaly_scores_, (rest**2).sum(axis=1), atol=1e-12)


# Neighbours, forests, machines ------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "of"), [("largest", np.max), ("mean", np.mean)])
def test_knn_by_brute_force(X, fresh, method, of):
    X = np.concatenate([X, X[:3]])  # a copy of a row is its neighbour, the row itself is not
    rival, Z, new = make("KNN", method=method).fit(X), standardised(X), standardised(X, fresh)
    for row, score in enumerate(rival.anomaly_scores_):
        others = np.linalg.norm(np.delete(Z, row, axis=0) - Z[row], axis=1)
        assert score == pytest.approx(of(np.sort(others)[:5]), abs=1e-7)
    expected = [of(np.sort(np.linalg.norm(Z - row, axis=1))[:5]) for row in new]
    np.testing.assert_allclose(rival.anomaly_score(fresh), expected)


def test_fewer_rows_than_neighbours_take_all_there_are():
    X = np.array([[0.0], [1.0], [5.0]])
    np.testing.assert_allclose(make("KNN").fit(X).anomaly_scores_, np.array([5, 4, 5]) / X.std())
    assert np.isfinite(make("LOF").fit(X).anomaly_scores_).all()


def test_lof_is_scikit_learns(X, fresh):
    rival, Z, new = make("LOF").fit(X), standardised(X), standardised(X, fresh)
    np.testing.assert_allclose(rival.anomaly_scores_, -LocalOutlierFactor().fit(Z).negative_outlier_factor_)
    np.testing.assert_allclose(rival.anomaly_score(fresh), -LocalOutlierFactor(novelty=True).fit(Z).score_samples(new))


@pytest.mark.parametrize(("rows", "samples"), [(200, 200), (300, 256)])
def test_the_forest_has_its_trees_and_samples(X, rows, samples):
    X = np.concatenate([X, X])[:rows]
    rival = make("IsolationForest", random_state=4).fit(X)
    theirs = ensemble.IsolationForest(n_estimators=100, max_samples=samples, random_state=4).fit(standardised(X))
    np.testing.assert_allclose(rival.anomaly_scores_, -theirs.score_samples(standardised(X)))


def test_the_machine_is_scikit_learns(X, fresh):
    theirs = OneClassSVM(kernel="rbf", gamma=1 / 5, nu=0.5).fit(standardised(X))  # the variance of all is one
    np.testing.assert_allclose(make("OCSVM").fit(X).anomaly_score(fresh), -theirs.score_samples(standardised(X, fresh)))
