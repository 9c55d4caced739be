"""Parameters and labels out of range: refused when `fit` begins, by name, with the value and what to give instead."""

import copy
import math
import re
import sys
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

from addml import ADDML, KNN, MLP, InstanceCloseness, Recurrent, Views, compute
from addml.config import Config

NOT_IN_RANGE = [0, -1, 1.5, math.nan, math.inf, "a", True, None, [0.5], 1 + 0j, 10**400, np.array(0.5), np.bool_(True)]
NOT_WHOLE = [0, -1, 2.5, 2.0, "a", True, None, math.nan, np.float64(2)]


def refused(name, value):
    """A pattern that holds the parameter's name and the value as written."""
    return "(^|: )" + re.escape(f"{name.rpartition('__')[2]}={value!r} ")


@pytest.mark.parametrize("name", ["normal_ratio", "loss__hard_ratio", "validation_ratio", "contamination"])
def test_a_ratio_out_of_range(quick, X, name):
    end = {"validation_ratio": r"1\)", "contamination": r"0.5\]"}.get(name, r"1\]")
    for value in NOT_IN_RANGE:
        if name in ("normal_ratio", "contamination") and value is None:  # that of the encoder, of the kind of row
            continue
        with pytest.raises(ValueError, match=refused(name, value) + r"must be a number in \(0, " + end):
            quick(**{name: value}).fit(X)


@pytest.mark.parametrize(("name", "value"), [("contamination", 0.6), ("contamination", 1), ("validation_ratio", 1)])
def test_a_ratio_just_out_of_range(quick, X, name, value):
    with pytest.raises(ValueError, match=refused(name, value)):
        quick(**{name: value}).fit(X)


@pytest.mark.parametrize("value", [1, 1.0, 1e-9, np.float32(0.5), Fraction(1, 3), np.int64(1)], ids=repr)
def test_a_ratio_in_range(quick, X, value):
    assert np.isfinite(quick(normal_ratio=value, loss__hard_ratio=value).fit(X).anomaly_scores_).all()


@pytest.mark.parametrize("value", [0.5, 0.99, 1e-9])
def test_any_share_may_be_held_out(quick, X, value):
    assert np.isfinite(quick(validation_ratio=value).fit(X).anomaly_scores_).all()


@pytest.mark.parametrize("name", ["encoder__metric_dim", "members", "epochs", "patience", "batch_size"])
def test_a_count_that_is_none(quick, X, name):
    least = 2 if name == "batch_size" else 1
    for value in NOT_WHOLE:
        with pytest.raises(ValueError, match=refused(name, value) + f"must be a whole number of at least {least}"):
            quick(**{name: value}).fit(X)


@pytest.mark.parametrize(
    ("name", "most"),
    [("members", 2**16), ("encoder__metric_dim", 2**16), ("encoder__hidden", 2**16), ("window__length", 2**20)]
    + [(name, 2**63 - 1) for name in ("epochs", "patience", "batch_size", "verbose")],
)
@pytest.mark.parametrize("beyond", [1, 10**400], ids=["just", "far"])
def test_a_count_that_no_machine_has_room_for(quick, X, name, most, beyond):
    value = most + beyond
    with pytest.raises(
        ValueError, match=refused(name, value) + f"is too large; give a whole number of at most {most}$"
    ):
        quick(window=3 if "window" in name else None, **{name: (4, value) if "hidden" in name else value}).fit(X)


@pytest.mark.parametrize("name", ["patience", "batch_size"])
def test_as_many_as_there_are(quick, X, name):
    assert np.isfinite(quick(**{name: sys.maxsize}).fit(X).anomaly_scores_).all()


@pytest.mark.parametrize("value", ["no", -1, 2.5, None], ids=repr)
def test_verbose_is_a_level(quick, X, value):
    with pytest.raises(ValueError, match=refused("verbose", value) + "must be a whole number of at least 0"):
        quick(verbose=value).fit(X)


def test_a_batch_of_one_makes_no_pair(quick, X):
    with pytest.raises(ValueError, match="batch_size=1 must be a whole number of at least 2"):
        quick(batch_size=1).fit(X)


@pytest.mark.parametrize("name", ["learning_rate", "loss__margin"])
@pytest.mark.parametrize(
    "value", [0, -1, "a", (), math.nan, math.inf, True, 10**400], ids=lambda value: repr(value)[:9]
)
def test_a_positive_number_that_is_none(quick, X, name, value):
    with pytest.raises(ValueError, match=refused(name, value) + r"must be a number in \(0, inf\)"):
        quick(**{name: value}).fit(X)


@pytest.mark.parametrize("value", [-1, "a", None, math.nan, math.inf])
def test_a_weight_decay_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=refused("weight_decay", value) + r"must be a number in \[0, inf\)"):
        quick(weight_decay=value).fit(X)


def test_no_weight_decay(quick, X):
    assert np.isfinite(quick(weight_decay=0).fit(X).anomaly_scores_).all()


@pytest.mark.parametrize(
    "value", ["a", "64", 64, (0,), (-1,), (1.5,), (True,), ("a",), {64}, {3: 4}, ((3,),)], ids=repr
)
def test_layers_that_are_none(quick, X, value):
    with pytest.raises(
        ValueError, match=refused("hidden", value) + r"must be a tuple of layer widths.*\(64,\) or \(\)"
    ):
        quick(encoder__hidden=value).fit(X)


@pytest.mark.parametrize("value", [(), (1,), (3, 4, 5), [3], np.array([3, 2]), (np.int64(3),)], ids=repr)
def test_layers(quick, X, value):
    assert quick(encoder__hidden=value).fit(X).encoder_.widths == (4, *value, 4)


@pytest.mark.parametrize("value", ["x", "", None, 3, ["tanh"]], ids=repr)
@pytest.mark.parametrize(
    "name", ["encoder", "encoder__activation", "encoder__output_activation", "loss", "loss__distance", "scorer"]
)
def test_a_word_that_is_not_known(quick, X, name, value):
    with pytest.raises(ValueError, match=refused(name, value) + "is not known; use one of '"):
        quick(**{name: value}).fit(X)


@pytest.mark.parametrize(
    "value", ["x", "gpu", "CPU", "cpu:0", "mps:0", "cuda:x", "cuda:", "cuda:-1", None, 0], ids=repr
)
def test_a_device_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=refused("device", value) + "is not a device; use 'auto', 'cpu', 'cuda'"):
        quick(device=value).fit(X)


@pytest.mark.parametrize("value", ["cuda:99", "mps"])
def test_a_device_that_is_not_here(quick, X, value, monkeypatch):
    monkeypatch.setattr("addml.compute._available", lambda device: False)
    with pytest.raises(ValueError, match=f"device='{value}' is not available here; use device='auto' or device='cpu'"):
        quick(device=value).fit(X)


@pytest.mark.parametrize("value", ["cuda", "mps"])
def test_a_device_without_torch_names_what_to_install(quick, X, value, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=rf"device='{value}' needs torch: pip install 'addml\[gpu\]'"):
        quick(device=value).fit(X)


def test_auto_is_the_cpu_where_there_is_nothing_else(quick, fitted, X, monkeypatch):
    monkeypatch.setattr("addml.compute._available", lambda device: False)
    compute._best_device.cache_clear()
    np.testing.assert_array_equal(quick(device="auto").fit(X).anomaly_scores_, fitted.anomaly_scores_)
    compute._best_device.cache_clear()


@pytest.mark.parametrize("value", [0, 1.5, "a", True, math.nan], ids=repr)
def test_a_number_of_jobs_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=refused("n_jobs", value) + "must be None or -1"):
        quick(n_jobs=value).fit(X)


@pytest.mark.parametrize("value", [0, 1.5, "2"], ids=repr)
@pytest.mark.parametrize("method", ["anomaly_score", "predict_proba", "transform", "explain", "refit"])
def test_a_number_of_jobs_that_is_none_after_fit(fitted, X, method, value):
    detector = copy.deepcopy(fitted).set_params(n_jobs=value)
    with pytest.raises(ValueError, match=refused("n_jobs", value) + "must be None or -1"):
        getattr(detector, method)(X)


@pytest.mark.parametrize("value", [-1, "a", 1.5, True, [1, 2], np.random], ids=lambda value: repr(value)[:9])
def test_a_random_state_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=r"^random_state=.* must be None, a whole number of at least 0, a RandomState"):
        quick(random_state=value).fit(X)


@pytest.mark.parametrize("value", ["yes", None, 1], ids=repr)
def test_a_flag_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=refused("anomaly_pairs", value) + "must be True or False"):
        quick(loss__anomaly_pairs=value).fit(X)


@pytest.mark.parametrize("value", ["hard", 5, []], ids=repr)
def test_a_miner_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=refused("miner", value) + "must be None or a pair miner"):
        quick(loss__miner=value).fit(X)


@pytest.mark.parametrize("settings", [{"loss__anomaly_pairs": True}, {"loss__miner": print}], ids=str)
def test_the_centre_loss_has_no_pairs(quick, settings):
    with pytest.raises(ValueError, match=r"CenterCloseness has no parameter '(anomaly_pairs|miner)'; its param"):
        quick(loss="center", **settings)


@pytest.mark.parametrize("part", [MLP, Recurrent, InstanceCloseness, Views])
def test_a_class_is_no_part(quick, X, part):
    name = "loss" if part is InstanceCloseness else "scorer" if part is Views else "encoder"
    with pytest.raises(ValueError, match=f"{name}=<class .*or a part such as [A-Za-z]+\\(\\)"):
        quick(**{name: part}).fit(X)


@pytest.mark.parametrize("value", ["long", 2.5, (3,), MLP()], ids=repr)
def test_a_window_that_is_none(quick, X, value):
    with pytest.raises(ValueError, match=re.escape(f"window={value!r} must be a number of steps")):
        quick(window=value).fit(X)


@pytest.mark.parametrize("value", [0, -1, 2.5, "a", None, True], ids=repr)
@pytest.mark.parametrize("name", ["k", "references"])
def test_neighbors_that_are_none(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r} must be a whole number of at least 1"):
        KNN(**{name: value}).check()


def test_nothing_is_checked_before_fit(quick):
    detector = quick(epochs=0, encoder__hidden="a", device="abacus", random_state=-1)
    assert detector.get_params()["encoder__hidden"] == "a"


# Labels -----------------------------------------------------------------------------------------------------

ZEROS = np.zeros(60)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (ZEROS[:5], r"labels has shape \(5,\), X has 60 rows; give one label for each row"),
        (ZEROS[:, None], r"labels has shape \(60, 1\)"),
        (1, r"labels has shape \(\)"),
        ([], r"labels has shape \(0,\)"),
        ([[0]] * 59 + [[1, 2]], "labels holds lists of different lengths; give one label for each row"),
        (ZEROS + 2, r"labels holds 2.0 \(float64\); use 0 for normal, 1 for anomaly, -1 for unknown"),
        (ZEROS.astype(int) - 2, r"labels holds -2 \(int64\)"),
        (ZEROS + 0.5, "labels holds 0.5"),
        (np.where(np.arange(60) == 3, np.nan, 0), r"labels holds nan \(float64\); use .* -1 for unknown"),
        (np.where(np.arange(60) == 3, np.inf, 0), "labels holds inf"),
        (ZEROS + 0j, "labels holds .*complex128"),
        (["normal"] * 60, "labels holds normal"),
        (["0"] * 60, r"labels holds 0 \(<U1\)"),
        ([None, *ZEROS[1:]], r"labels holds None \(object\)"),
        ([0, "a"] * 30, "labels holds 0"),
        (pd.Series([pd.NA, 0, 1] * 20), "labels holds <NA>"),
        (pd.Series([True, pd.NA, False] * 20, dtype="boolean"), "labels holds <NA>"),
        ([1, 0, None] * 20, "labels holds None"),
        (np.ma.masked_array(ZEROS, np.arange(60) == 3), "labels holds None .*-1 for unknown"),
        (pd.Series([None, 0, 1] * 20, dtype="Int64"), "labels holds (nan|<NA>)"),
        (ZEROS + 1, "at least two must be normal or unknown"),
        (np.r_[-1, ZEROS[1:] + 1], "at least two must be normal or unknown"),
    ],
    ids=lambda value: repr(value)[:12] if not isinstance(value, str) else "",
)
def test_labels_that_are_none(quick, X, labels, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(X, labels=labels)


MARKS = np.r_[np.zeros(20, int), np.full(34, -1), np.ones(6, int)]


def test_labels_of_any_kind_count_alike(quick, X):
    expected = quick().fit(X, labels=MARKS).anomaly_scores_
    same = [MARKS.astype(float), MARKS.astype(np.int8), MARKS.astype(object), pd.Series(MARKS), pl.Series(MARKS)]
    for labels in [MARKS.tolist(), *same]:
        np.testing.assert_array_equal(quick().fit(X, labels=labels).anomaly_scores_, expected)


def test_flags_are_labels(quick, X):
    expected = quick().fit(X, labels=(MARKS == 1).astype(int)).anomaly_scores_
    np.testing.assert_array_equal(quick().fit(X, labels=MARKS == 1).anomaly_scores_, expected)


def test_unknown_labels_are_no_labels(quick, fitted, X):
    np.testing.assert_array_equal(quick().fit(X, labels=-np.ones(60)).anomaly_scores_, fitted.anomaly_scores_)


def test_anomalies_are_never_kept_and_normal_rows_always(quick, X):
    detector = quick(epochs=4, normal_ratio=0.3, validation_ratio=1e-6).fit(X, labels=MARKS)
    kept = detector.rows_kept()
    assert not kept[:, :, MARKS == 1].any()
    held_out = ~quick(normal_ratio=1, validation_ratio=1e-6).fit(X, labels=MARKS).rows_kept()[0]  # V and the anomalies
    assert held_out[:, MARKS == 1].all()
    assert (kept | held_out)[:, :, MARKS == 0].all()
    assert held_out[:, MARKS != 1].sum(axis=1).tolist() == [2, 2]


@pytest.mark.parametrize("anomaly_pairs", [False, True])
def test_labelled_anomalies_are_pushed_away(quick, X, anomaly_pairs):
    settings = {
        "epochs": 20,
        "members": 1,
        "normal_ratio": 1,
        "loss__margin": 4.0,
        "loss__anomaly_pairs": anomaly_pairs,
    }
    with_labels = quick(**settings).fit(X, labels=MARKS).anomaly_scores_
    without = quick(**settings).fit(X).anomaly_scores_
    assert (with_labels[54:].mean() / with_labels[:54].mean()) > (without[54:].mean() / without[:54].mean())


@pytest.mark.parametrize("loss", ["instance", "center"])
def test_labels_with_two_rows_left(quick, X, loss):
    labels = np.r_[0, -1, np.ones(58, int)]
    assert np.isfinite(quick(loss=loss).fit(X, labels=labels).anomaly_scores_).all()


def test_a_learning_rate_that_is_not_said_is_the_method_s():
    X = np.random.default_rng(0).standard_normal((40, 3))
    said, unsaid = (ADDML(members=1, epochs=2, random_state=0, learning_rate=rate).fit(X) for rate in (1e-3, None))
    np.testing.assert_array_equal(said.encoder_.weights, unsaid.encoder_.weights)


def test_the_constructor_and_a_fit_without_it_have_the_same_defaults():
    own = {one.name: one.default for one in fields(Config) if one.name != "settings"}
    assert own == ADDML().get_params(deep=False)
