"""An ONNX file gives what the detector gives: the detector itself is what its scores are compared with."""

import importlib
import json
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError
from torch import nn

import addml
from addml import ADDML, MLP, InstanceCloseness, to_onnx
from addml import onnx as export
from addml.encoders import ACTIVATIONS
from addml.io.write import WriteError
from addml.scoring.scorer import KNN
from addml.scoring.views import Views

CLOSE, RARELY = 1e-5, 1e-2  # of 1 + |score|: for nearly all rows, and where a row lies between two steps of a column
SMALL = {
    "epochs": 2,
    "members": 2,
    "encoder": MLP((8,), 4),
    "random_state": 0,
    "device": "cpu",
}


def table(rows: int = 300, seed: int = 0) -> np.ndarray:
    """Five columns: correlated ones, one with a heavy tail, one of few values, and gaps in two of them."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, 5)) @ np.diag([1, 50, 1e-3, 1, 1]) + [0, 1e6, 0, 3, 0]
    X[:, 1] += 20 * X[:, 0]
    X[:, 3] = np.exp(2 * X[:, 3])
    X[:, 4] = np.round(X[:, 4])
    X[random.random(rows) < 0.1, 0] = np.nan
    X[random.random(rows) < 0.05, 4] = np.nan
    return X


def extremes() -> np.ndarray:
    """Rows with values farther out than any, on both sides, and a row of nothing but gaps."""
    rows = np.repeat(table(1, seed=5), 8, axis=0)
    for place, value in enumerate((1e6, -1e6, 1e30, -1e30, 1.7e308, -1.7e308)):
        rows[place, place % 5] = value
    rows[6], rows[7] = np.nan, 1.7e308
    return rows


def session(detector: ADDML, path) -> onnxruntime.InferenceSession:
    """The detector's file, opened."""
    to_onnx(detector, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def check(detector: ADDML, path, X: np.ndarray) -> None:
    """Scores, decisions and probabilities of the file are those of the detector."""
    names = ["score", "p_value", "probability", "is_anomaly"]
    score, p_value, probability, decision = session(detector, path).run(names, {"X": X})
    expected = detector.anomaly_score(X)
    error = abs(score - expected) / (1 + abs(expected))
    close = 2 * CLOSE if detector.model_.distance == "euclidean" else CLOSE  # roots of zeros that are none in float32
    assert np.quantile(error, 0.99) <= close
    assert error.max() <= RARELY
    near = abs(expected - detector.threshold_) <= RARELY
    np.testing.assert_array_equal(decision[~near], detector.is_anomaly(X)[~near])
    np.testing.assert_array_equal(decision, score > detector.threshold_)
    np.testing.assert_allclose(p_value, detector.training_.p_values(score), rtol=1e-12)
    np.testing.assert_allclose(probability, detector.training_.probability(score), rtol=1e-12, atol=1e-12)


# The same scores ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scaling": "standard"},
        {"one_sided": {0: "high", 3: "low"}},
        {"one_sided": {1: "low"}, "scaling": "standard", "scorer": "center"},
        {"loss": InstanceCloseness("cosine")},
        {"scorer": Views(references=100, views=("space",))},
        {"scorer": Views(views=("columns", "tails"))},
        {"scorer": Views(views=("tails", "distilled")), "scaling": "standard"},
        {"scorer": Views(references=37)},
        {"scorer": "center", "members": 1},
        {"scorer": "center", "loss": InstanceCloseness("euclidean")},
        {"scorer": "center", "loss": InstanceCloseness("cosine")},
        {"encoder": MLP((), 4, output_activation="linear"), "scorer": "center"},
        {"encoder": MLP((8, 6), 4), "members": 5},
    ],
    ids=str,
)
def test_scores_are_those_of_the_detector(settings, tmp_path):
    X = table()
    detector = ADDML(**SMALL | settings).fit(X)
    check(detector, tmp_path / "model.onnx", np.concatenate([X, table(200, seed=1), extremes()]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(activation, tmp_path):
    detector = ADDML(**SMALL | {"encoder": MLP((8,), 4, activation, activation)}).fit(table())
    check(detector, tmp_path / "model.onnx", table(200, seed=1))


def test_the_activations_are_all_there_are():
    assert set(export.ACTIVATIONS) == set(ACTIVATIONS)


@pytest.mark.parametrize("rows", [2, 9, 70, 1100], ids=lambda rows: f"{rows} rows")
def test_any_number_of_references(rows, tmp_path):
    """Few are all neighbours of each other; of many, some rows are no references."""
    X = np.nan_to_num(table(rows))
    check(
        ADDML(**SMALL | {"members": 3}).fit(X),
        tmp_path / "model.onnx",
        np.concatenate([X, table(50, seed=1)]),
    )


def test_rows_that_are_references_are_no_neighbours_of_themselves(tmp_path):
    X = table(200)
    detector = ADDML(**SMALL, scorer=Views(views=("columns",))).fit(X)
    (score,) = session(detector, tmp_path / "model.onnx").run(["score"], {"X": X})
    expected, next_to_them = detector.anomaly_score(X), detector.anomaly_score(X + 1e-4 * np.nanstd(X, axis=0))
    assert np.median(expected - next_to_them) > 0.1
    np.testing.assert_allclose(score, expected, atol=1e-3)


def test_rows_that_stand_in_a_table_many_times(tmp_path):
    X = np.random.default_rng(0).integers(0, 3, (400, 3)).astype(float)
    X[:40] = np.random.default_rng(1).standard_normal((40, 3))
    X[40:50] = X[30:40]
    check(ADDML(**SMALL).fit(X), tmp_path / "model.onnx", X)


def test_a_row_alone_scores_as_among_others(tmp_path):
    detector, X = ADDML(**SMALL).fit(table()), table(20, seed=1)
    opened = session(detector, tmp_path / "model.onnx")
    alone = [opened.run(["score"], {"X": X[row : row + 1]})[0] for row in range(20)]
    np.testing.assert_allclose(np.concatenate(alone), opened.run(["score"], {"X": X})[0], rtol=1e-5, atol=1e-5)


def test_the_order_of_rows_is_the_detectors(tmp_path):
    detector, X = ADDML(**SMALL).fit(table()), table(300, seed=1)
    (score,) = session(detector, tmp_path / "model.onnx").run(["score"], {"X": X})
    expected = detector.anomaly_score(X)
    np.testing.assert_array_equal(np.argsort(score)[-30:], np.argsort(expected)[-30:])
    assert np.corrcoef(np.argsort(np.argsort(score)), np.argsort(np.argsort(expected)))[0, 1] > 1 - 1e-6


# The file -------------------------------------------------------------------------------------------------------


def test_the_file_is_what_onnx_asks_for(tmp_path):
    to_onnx(ADDML(**SMALL).fit(table()), tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert (model.opset_import[0].version, model.ir_version) == (18, 8)
    assert [one.name for one in model.graph.input] == ["X"]
    opened = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [(one.name, one.type, one.shape) for one in opened.get_inputs()] == [("X", "tensor(double)", ["rows", 5])]
    kinds = {one.name: (one.type, one.shape) for one in opened.get_outputs()}
    assert kinds == {
        "score": ("tensor(double)", ["rows"]),
        "p_value": ("tensor(double)", ["rows"]),
        "probability": ("tensor(double)", ["rows"]),
        "is_anomaly": ("tensor(bool)", ["rows"]),
    }


def test_it_tells_of_itself(tmp_path):
    detector = ADDML(**SMALL).fit(table()).set_threshold(tau=0.1 + 0.2)
    about = session(detector, tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert about == {"addml": addml.__version__, "scorer": "views", "threshold": "0.30000000000000004"}


def test_the_names_of_a_frame_are_there(tmp_path):
    frame = pd.DataFrame(table(), columns=list("abcde"))
    opened = session(ADDML(**SMALL, scorer="center").fit(frame), tmp_path / "model.onnx")
    about = opened.get_modelmeta().custom_metadata_map
    assert (json.loads(about["columns"]), about["scorer"]) == (list("abcde"), "center")


def test_columns_that_were_left_out_are_no_input(tmp_path):
    X = table()
    columns = dict(zip("abcde", X.T, strict=True))
    rows = pa.table({"id": [f"row-{row}" for row in range(len(X))], "same": np.ones(len(X)), **columns})
    detector = ADDML(**SMALL).fit(rows)
    opened = session(detector, tmp_path / "model.onnx")
    assert json.loads(opened.get_modelmeta().custom_metadata_map["columns"]) == list("abcde")
    expected = detector.anomaly_score(rows)
    np.testing.assert_allclose(opened.run(["score"], {"X": X})[0], expected, rtol=1e-4, atol=1e-4)


def test_a_saved_model_makes_the_same_file(tmp_path):
    detector = ADDML(**SMALL).fit(table())
    detector.save(tmp_path / "model")
    to_onnx(detector, tmp_path / "now.onnx")
    to_onnx(addml.load(tmp_path / "model"), tmp_path / "later.onnx")
    assert (tmp_path / "now.onnx").read_bytes() == (tmp_path / "later.onnx").read_bytes()


# What is refused ------------------------------------------------------------------------------------------------


def refused(detector: ADDML, path, match: str) -> None:
    """An error with these words, and no file."""
    with pytest.raises(ValueError, match=match):
        to_onnx(detector, path / "model.onnx")
    assert list(path.iterdir()) == []


def test_series_and_images(tmp_path):
    quick = {"epochs": 1, "members": 1, "random_state": 0, "device": "cpu"}
    series = ADDML(window=4, **quick).fit(np.random.default_rng(0).standard_normal((60, 2)))
    refused(series, tmp_path, "fitted to a series.*use addml.load")
    images = ADDML(**quick).fit(np.random.default_rng(0).random((8, 1, 8, 8)))
    refused(images, tmp_path, "fitted to images.*use addml.load")


def test_columns_that_are_not_numbers(tmp_path):
    frame = pd.DataFrame({"a": table()[:, 1], "colour": ["red", "green", "blue"] * 100, "is": [True, False] * 150})
    refused(
        ADDML(**SMALL).fit(frame),
        tmp_path,
        r"'colour' \(category\), 'is' \(boolean\).*drop these columns",
    )


def test_labels(tmp_path):
    labels = np.where(np.arange(300) < 20, 1, -1)
    refused(ADDML(**SMALL).fit(table(), labels=labels), tmp_path, "fitted with labels; fit it without labels")


def test_an_encoder_of_ones_own(tmp_path):
    own = ADDML(**SMALL | {"encoder": lambda: nn.Linear(5, 4)}).fit(np.nan_to_num(table()))
    refused(own, tmp_path, "has a custom .*encoder='mlp'")


def test_other_scorers(tmp_path):
    class Mine(KNN):
        """Scores otherwise."""

    refused(ADDML(**SMALL, scorer=Mine()).fit(table()), tmp_path, "Mine.*fit with one of views, center")
    refused(ADDML(**SMALL, scorer="dissimilarity").fit(table()), tmp_path, "fit with one of views, center")


def test_a_detector_that_is_not_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        to_onnx(ADDML(), tmp_path / "model.onnx")


def test_a_folder_stays_one(tmp_path):
    with pytest.raises(WriteError, match="is a folder"):
        to_onnx(ADDML(**SMALL).fit(table()), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'addml\[onnx\]'"):
        importlib.reload(export)
