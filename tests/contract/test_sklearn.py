"""ADDML among scikit-learn's estimators: its own checks, its composition tools, the tables it hands on."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from addml import ADDML, KNN, MLP, CenterCloseness, InstanceCloseness, Window

NAMES = ["ash", "beech", "cedar", "dogwood"]


@parametrize_with_checks([ADDML(epochs=2, members=2)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        ADDML.paper(epochs=2),
        ADDML.paper(epochs=2, scorer="knn", loss="center"),
        ADDML(epochs=2, members=2, scorer="dissimilarity", loss=CenterCloseness("cosine")),
    ]
)
def test_scikit_learns_own_checks_of_other_settings(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_no_check_is_skipped_where_scipy_knows_the_array_api():
    program = (
        "from sklearn.utils.estimator_checks import check_estimator; from addml import ADDML;"
        "found = check_estimator(ADDML(epochs=2, members=2), on_skip=None);"
        "print(*{check['status'] for check in found})"
    )
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["passed"]


# The constructor --------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_method():
    assert ADDML().get_params() == {
        "encoder": "auto",
        "loss": "instance",
        "normal_ratio": None,
        "scorer": "views",
        "scaling": "auto",
        "one_sided": None,
        "by": None,
        "window": None,
        "contamination": None,
        "members": 5,
        "epochs": 10,
        "batch_size": 256,
        "learning_rate": None,
        "weight_decay": 1e-5,
        "validation_ratio": 0.1,
        "patience": 5,
        "device": "auto",
        "n_jobs": None,
        "random_state": None,
        "verbose": 0,
    }


def test_the_papers_preset_is_the_papers_method():
    paper = {
        "members": 1,
        "normal_ratio": 2 / 3,
        "encoder": MLP(metric_dim=64),
        "epochs": 50,
        "scorer": "center",
        "scaling": "standard",
        "learning_rate": 1e-3,
    }
    assert ADDML.paper().get_params(deep=False) == ADDML().get_params() | paper
    assert ADDML.paper(normal_ratio=1, members=3).get_params()["normal_ratio"] == 1
    assert ADDML.paper(normal_ratio=1, members=3).get_params()["members"] == 3


def test_every_parameter_and_fitted_attribute_is_documented(fitted):
    learned = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")} - {"model_"}
    for name in [*ADDML().get_params(), *learned]:
        assert name in ADDML.__doc__, name


def test_the_signature_stays_small_and_holds_nothing_of_the_parts():
    assert len(ADDML().get_params()) == 20


def test_the_repr_shows_what_was_changed():
    detector = ADDML(encoder=MLP(hidden=(8,)), loss=InstanceCloseness(hard_ratio=0.5), window=Window(12, causal=True))
    text = " ".join(repr(detector).split())
    assert text == (
        "ADDML(encoder=MLP(hidden=(8,)), loss=InstanceCloseness(hard_ratio=0.5), window=Window(length=12, causal=True))"
    )
    assert repr(ADDML(scorer=KNN())) == "ADDML(scorer=KNN())"
    assert "hard_ratio" in detector._repr_html_()


# Composition ------------------------------------------------------------------------------------------------


def test_a_clone_has_the_settings_and_none_of_the_learning(fitted, X):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.anomaly_score(X)
    np.testing.assert_array_equal(copy.fit(X).anomaly_scores_, fitted.anomaly_scores_)


@pytest.mark.parametrize(
    "method", ["predict", "score_samples", "decision_function", "anomaly_score", "is_anomaly", "embed"]
)
def test_an_unfitted_detector_says_so(quick, X, method):
    with pytest.raises(NotFittedError, match="fit"):
        getattr(quick(), method)(X)


@pytest.mark.parametrize("call", [lambda d: d.save("x"), lambda d: d.set_threshold(tau=1.0), lambda d: d.rows_kept()])
def test_an_unfitted_detector_can_neither_be_saved_nor_decide(quick, call):
    with pytest.raises(NotFittedError, match="fit"):
        call(quick())


def test_a_pipeline_ends_in_it_or_goes_through_it(quick, X):
    last = make_pipeline(StandardScaler(), quick()).fit(X)
    direct = quick().fit(StandardScaler().fit_transform(X))
    np.testing.assert_array_equal(last.predict(X), direct.predict(StandardScaler().fit_transform(X)))
    np.testing.assert_array_equal(last.score_samples(X), -direct.anomaly_scores_)
    through = make_pipeline(quick(), StandardScaler()).fit(X)
    np.testing.assert_array_equal(through.transform(X), StandardScaler().fit_transform(quick().fit(X).transform(X)))


def test_grid_search_scores_by_auc(quick, X):
    y = np.r_[np.ones(54), np.zeros(6)]  # decision_function is higher for normal rows
    order = np.random.default_rng(0).permutation(60)
    folds = [(order[:30], order[30:]), (order[30:], order[:30])]
    search = GridSearchCV(quick(epochs=1), {"encoder__metric_dim": [1, 4]}, scoring="roc_auc", cv=folds).fit(X, y)
    for place, width in enumerate([1, 4]):
        expected = [
            roc_auc_score(y[test], quick(epochs=1, encoder__metric_dim=width).fit(X[train]).decision_function(X[test]))
            for train, test in folds
        ]
        assert search.cv_results_["mean_test_score"][place] == pytest.approx(np.mean(expected))
    assert search.best_score_ > 0.9
    assert set(search.predict(X)) == {-1, 1}


def test_labels_are_routed_through_a_pipeline(quick, X):
    labels = np.r_[np.full(54, -1), np.ones(6, int)]
    with sklearn.config_context(enable_metadata_routing=True):
        routed = Pipeline([("scale", StandardScaler()), ("addml", quick().set_fit_request(labels=True))])
        routed.fit(X, labels=labels)
        with pytest.raises(UnsetMetadataPassedError, match="labels"):
            make_pipeline(StandardScaler(), quick()).fit(X, labels=labels)
    direct = quick().fit(StandardScaler().fit_transform(X), labels=labels)
    np.testing.assert_array_equal(routed["addml"].anomaly_scores_, direct.anomaly_scores_)
    assert not np.array_equal(direct.anomaly_scores_, quick().fit(StandardScaler().fit_transform(X)).anomaly_scores_)


def test_labels_pass_through_fit_predict(quick, X):
    labels = np.r_[np.zeros(54, int), np.ones(6, int)]
    np.testing.assert_array_equal(quick().fit_predict(X, labels=labels), quick().fit(X, labels=labels).predict(X))


@pytest.mark.parametrize("y", [np.arange(60), [1, 2], "nonsense", object()], ids=["array", "list", "str", "object"])
def test_y_is_ignored(quick, fitted, X, y):
    np.testing.assert_array_equal(quick().fit(X, y).anomaly_scores_, fitted.anomaly_scores_)


# Tables -----------------------------------------------------------------------------------------------------


def memory_map(X, folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def strided(X):
    wide = np.zeros((120, 8))
    wide[::-2, ::2] = X
    return wide[::-2, ::2]


TABLES = {
    "list": lambda X, folder: X.tolist(),
    "tuples": lambda X, folder: tuple(map(tuple, X)),
    "F-order": lambda X, folder: np.asfortranarray(X),
    "strided": lambda X, folder: strided(X),
    "big-endian": lambda X, folder: X.astype(">f8"),
    "object": lambda X, folder: X.astype(object),
    "long double": lambda X, folder: X.astype(np.longdouble),
    "read-only memory map": memory_map,
    "pandas": lambda X, folder: pd.DataFrame(X, columns=NAMES),
    "pandas, numbered": lambda X, folder: pd.DataFrame(X),
    "pandas, nullable": lambda X, folder: pd.DataFrame(X, columns=NAMES).convert_dtypes(),
    "polars": lambda X, folder: pl.DataFrame(X, schema=NAMES),
}


@pytest.mark.parametrize("kind", TABLES)
def test_any_kind_of_table_gives_the_same_bits(quick, fitted, X, tmp_path, kind):
    table = TABLES[kind](X, tmp_path)
    detector = quick().fit(table)
    np.testing.assert_array_equal(detector.anomaly_scores_, fitted.anomaly_scores_)
    np.testing.assert_array_equal(detector.anomaly_score(table), fitted.anomaly_scores_)
    np.testing.assert_array_equal(detector.transform(table), fitted.transform(X))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint16, np.int64, bool])
def test_numbers_of_any_type_count_as_what_they_are(quick, X, dtype):
    table = (10 * np.abs(X)).astype(dtype)
    detector, exact = quick().fit(table), quick().fit(table.astype(np.float64))
    np.testing.assert_array_equal(detector.anomaly_scores_, exact.anomaly_scores_)
    np.testing.assert_array_equal(exact.anomaly_score(table), exact.anomaly_scores_)
    np.testing.assert_array_equal(detector.anomaly_score(table), detector.anomaly_scores_)
    assert detector.anomaly_score(table).dtype == np.float64


def test_a_table_is_not_changed(quick, X):
    table = np.where(X > 2, np.nan, X)
    before = table.copy()
    quick().fit(table).predict(table)
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, lambda X, columns: pl.DataFrame(X, schema=columns)], ids=["pandas", "polars"]
)
def test_names_are_kept_and_checked(quick, X, frame):
    detector = quick().fit(frame(X, columns=NAMES))
    assert detector.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="feature names should match"):
        detector.anomaly_score(frame(X, columns=NAMES[::-1]))
    with pytest.raises(ValueError, match="elm"):
        detector.anomaly_score(frame(X, columns=[*NAMES[:3], "elm"]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        detector.anomaly_score(X)


def test_names_at_scoring_alone_are_warned_of(fitted, X):
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        fitted.anomaly_score(pd.DataFrame(X, columns=NAMES))


def test_a_refit_forgets_the_names(quick, X):
    detector = quick().fit(pd.DataFrame(X, columns=NAMES)).fit(X[:, :3])
    assert not hasattr(detector, "feature_names_in_")
    assert detector.n_features_in_ == 3


def test_embeddings_have_names(quick, X):
    detector = quick(members=2, encoder__metric_dim=3).fit(X)
    names = [f"addml{place}" for place in range(6)]
    assert detector.get_feature_names_out().tolist() == names
    frame = quick(members=2, encoder__metric_dim=3).set_output(transform="pandas").fit(X).transform(X)
    assert frame.columns.tolist() == names
    np.testing.assert_array_equal(frame.to_numpy(), detector.transform(X))
