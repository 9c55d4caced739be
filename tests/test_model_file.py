"""Saving and loading: a round trip in every bit, whole or not at all, and nothing believed unchecked."""

import ast
import copy
import errno
import hashlib
import json
import os
import pickle
import stat
from fractions import Fraction
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save as to_bytes

import addml
from addml import MLP, InstanceCloseness, model_file
from addml.io import write
from addml.model_file import ModelFileError
from addml.scoring import KNN, Views

SMALL = {
    "epochs": 2,
    "members": 2,
    "encoder": MLP((8,), 4),
    "random_state": 0,
    "device": "cpu",
}
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((40, 3))
GAPS = np.where(RANDOM.random((40, 3)) < 0.1, np.nan, X)


@pytest.fixture(scope="module")
def detector():
    return addml.ADDML(**SMALL).fit(GAPS)


@pytest.fixture
def saved(detector, tmp_path):
    detector.save(tmp_path / "model")
    return tmp_path / "model"


def test_the_columns_that_name_a_row_go_with_the_model(detector, saved):
    assert addml.load(saved).model_.ids == ()
    rewrite(saved, ids=["order", "line"])
    again = addml.load(saved)
    assert again.model_.ids == ("order", "line")
    again.save(saved)
    assert addml.load(saved).model_.ids == ("order", "line")
    for wrong in (3, None):
        rewrite(saved, ids=wrong)
        with pytest.raises(ModelFileError, match="is not a valid model"):
            addml.load(saved)


def other_detector():
    return addml.ADDML(**SMALL | {"random_state": 7, "encoder": MLP((8,), 3)}).fit(X)


def weights_of(folder):
    (file,) = folder.glob("weights-*.safetensors")
    return file


def checksum(document):
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def rewrite(folder, **changes):
    """Change model.json and make its checksum right again, as an editor who knows how would."""
    document = json.loads((folder / "model.json").read_text()) | changes
    document.pop("checksum", None)
    (folder / "model.json").write_text(json.dumps(document | {"checksum": checksum(document)}))


def put_weights(folder, content):
    """Other bytes under a name and a hash that are right for them."""
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"weights-{digest}.safetensors").write_bytes(content)
    rewrite(folder, weights=digest)


def forge(folder, edit):
    """Change arrays or the document and save with every hash right: only the deeper checks can object."""
    document, arrays = model_file.read(folder)
    document = {name: value for name, value in document.items() if name not in ("format", "arrays", "weights")}
    edit(document, arrays)
    model_file.write(folder, document, arrays)


# The round trip ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"members": 1},
        {"scaling": "standard"},
        {"loss": InstanceCloseness("cosine")},
        {"scorer": Views(references=9, views=("tails", "space")), "members": 1},
        {"scorer": "center"},
        {"scorer": "dissimilarity"},
        {"scorer": "dissimilarity", "loss": InstanceCloseness("euclidean")},
        {"scorer": "knn", "loss": InstanceCloseness("cosine")},
        {"scorer": KNN(k=3, references=9)},
        {"encoder": MLP((), 4, "relu", "linear"), "loss": "center"},
        {"encoder": MLP([5, 6], 4), "contamination": np.float64(0.2), "members": np.int64(3), "n_jobs": 1},
    ],
    ids=str,
)
def test_a_loaded_detector_is_the_saved_one(tmp_path, settings):
    table = X if settings.get("members") == 1 else GAPS
    detector = addml.ADDML(**SMALL | settings).fit(table).set_threshold(contamination=0.3)
    detector.save(tmp_path / "model")
    loaded = addml.load(tmp_path / "model", device="cpu")
    same = loaded.set_params(encoder__hidden=detector.encoder.hidden)  # a list comes back as a tuple
    assert same.get_params() == detector.get_params()
    np.testing.assert_array_equal(loaded.anomaly_score(table), detector.anomaly_scores_)
    np.testing.assert_array_equal(loaded.transform(table), detector.transform(table))
    np.testing.assert_array_equal(loaded.predict(table), detector.predict(table))
    np.testing.assert_array_equal(loaded.anomaly_scores_, detector.anomaly_scores_)
    np.testing.assert_array_equal(loaded.center_, detector.center_)
    np.testing.assert_array_equal(loaded.rows_kept(), detector.rows_kept())
    np.testing.assert_array_equal(loaded.get_feature_names_out(), detector.get_feature_names_out())
    assert (loaded.threshold_, loaded.offset_) == (detector.threshold_, detector.offset_)
    assert loaded.history_ == detector.history_
    assert loaded.n_features_in_ == 3
    assert set(vars(loaded)) == set(vars(detector))


def test_a_loaded_detector_goes_on(saved, detector, tmp_path):
    loaded = addml.load(saved, device="cpu")
    assert loaded.set_threshold(contamination=0.5).is_anomaly(GAPS).sum() == 20
    np.testing.assert_array_equal(loaded.fit(GAPS).anomaly_scores_, detector.anomaly_scores_)
    loaded.save(tmp_path / "again")
    assert addml.load(tmp_path / "again", device="cpu").threshold_ == loaded.threshold_


def test_an_empty_path_is_not_the_model_of_the_present_folder(saved, monkeypatch):
    monkeypatch.chdir(saved)
    assert addml.load(".", device="cpu").n_features_in_
    with pytest.raises(ModelFileError, match="path='' is empty; give the folder of a saved model"):
        addml.load("")


def test_a_model_is_saved_in_a_folder_with_a_name(detector):
    with pytest.raises(ValueError, match="path='' is empty"):
        detector.save("")


def test_names_of_columns_are_kept_and_checked(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "größe", "c/d"])
    addml.ADDML(**SMALL).fit(frame).save(tmp_path / "model")
    loaded = addml.load(tmp_path / "model", device="cpu")
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    assert loaded.feature_names_in_.dtype == object
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["c/d", "a", "größe"]])


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_model_loads_on_the_device_that_is_asked_for(saved, detector, device):
    loaded = addml.load(saved, device=device)
    assert loaded.device == device
    np.testing.assert_allclose(loaded.anomaly_score(GAPS), detector.anomaly_scores_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", ["abacus", "cuda:x", None])
def test_an_unknown_device_is_refused_at_once(saved, device):
    with pytest.raises(ValueError, match="is not a device") as caught:
        addml.load(saved, device=device)
    assert not isinstance(caught.value, ModelFileError)


def test_objects_are_left_out_and_said(tmp_path):
    detector = addml.ADDML(**SMALL | {"random_state": np.random.RandomState(0)}).fit(X)
    with pytest.warns(UserWarning, match="not saved, because they are objects: random_state") as caught:
        detector.save(tmp_path / "model")
    assert caught[0].filename == __file__
    assert addml.load(tmp_path / "model").random_state is None


@pytest.mark.parametrize("name", ["normal_ratio", "loss__hard_ratio", "weight_decay", "contamination"])
def test_fractions_are_saved_as_numbers(tmp_path, name):
    detector, same = (addml.ADDML(**SMALL).set_params(**{name: value}).fit(X) for value in (Fraction(1, 3), 1 / 3))
    detector.save(tmp_path / "model")
    loaded = addml.load(tmp_path / "model")
    assert loaded.get_params()[name] == 1 / 3
    np.testing.assert_array_equal(loaded.anomaly_scores_, same.anomaly_scores_)


def test_a_history_with_what_json_cannot_say(tmp_path):
    detector = addml.ADDML(**SMALL).fit(X)
    detector.history_[0]["hard_cutoff"] = np.inf
    detector.history_[1]["members"][1]["train_loss"] = np.nan
    detector.save(tmp_path / "model")
    loaded = addml.load(tmp_path / "model")
    assert np.isnan(loaded.history_[0].pop("hard_cutoff"))
    assert np.isnan(loaded.history_[1]["members"][1].pop("train_loss"))
    assert loaded.history_[1]["members"][0] == detector.history_[1]["members"][0]


def test_rows_too_many_to_remember(tmp_path, monkeypatch):
    monkeypatch.setattr("addml.learning.training.MOST_ROWS_REMEMBERED", 39)
    addml.ADDML(**SMALL).fit(X).save(tmp_path / "model")
    with pytest.raises(ValueError, match="are not stored for tables of over a million rows"):
        addml.load(tmp_path / "model").rows_kept()


def test_a_setting_that_would_not_load_is_not_saved(tmp_path):
    detector = addml.ADDML(**SMALL).fit(X).set_params(epochs=0)
    with pytest.raises(ValueError, match="epochs=0"):
        detector.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("again", [lambda d: pickle.loads(pickle.dumps(d)), copy.deepcopy, copy.copy])
def test_a_copy_or_a_pickle_scores_alike(detector, again):
    other = again(detector)
    np.testing.assert_array_equal(other.anomaly_score(GAPS), detector.anomaly_scores_)
    assert other.set_threshold(tau=0.0).threshold_ == 0
    assert detector.threshold_ != 0


def test_a_loaded_detector_can_be_pickled_too(saved, detector, tmp_path):
    joblib.dump(addml.load(saved, device="cpu"), tmp_path / "detector.joblib")
    other = joblib.load(tmp_path / "detector.joblib")
    np.testing.assert_array_equal(other.anomaly_score(GAPS), detector.anomaly_scores_)


def test_a_pickle_holds_nothing_that_scoring_worked_out(detector):
    fresh = copy.deepcopy(detector)
    before = len(pickle.dumps(fresh))
    fresh.anomaly_score(GAPS)
    assert len(pickle.dumps(fresh)) == before
    assert "_ready" not in vars(pickle.loads(pickle.dumps(fresh)).model_)


def test_only_scorers_with_references_hold_training_rows(tmp_path):
    """What docs/method.md says of privacy."""
    for scorer in ("views", "knn", "center", "dissimilarity"):
        detector = addml.ADDML(**SMALL, scorer=scorer).fit(X)
        detector.save(tmp_path / scorer)
        prepared = {row.tobytes() for row in detector.model_.vectorizer.prepare(X)}
        arrays = model_file.read(tmp_path / scorer)[1].values()
        rows = [array.reshape(-1, array.shape[-1]) for array in arrays if array.dtype == np.float32]
        held = {row.tobytes() for some in rows for row in some}
        assert bool(held & prepared) == (scorer in ("views", "knn"))


# Writing ----------------------------------------------------------------------------------------------------


def test_a_model_is_two_files(saved, detector):
    names = sorted(file.name for file in saved.iterdir())
    digest = hashlib.sha256(weights_of(saved).read_bytes()).hexdigest()
    assert names == ["model.json", f"weights-{digest}.safetensors"]
    document = json.loads((saved / "model.json").read_text())
    assert document["format"] == 7
    assert document["weights"] == digest
    assert document["addml"] == addml.__version__
    assert document["decision"]["tau"] == detector.threshold_
    assert document["settings"]["encoder"] == {
        "part": "MLP",
        "hidden": [8],
        "metric_dim": 4,
        "activation": "tanh",
        "output_activation": "tanh",
    }
    assert document["vectorizer"]["names"] is None
    assert len(document["history"]) == 2


def test_saving_over_a_model_replaces_it(saved):
    other = other_detector()
    other.save(saved)
    assert len(list(saved.iterdir())) == 2
    np.testing.assert_array_equal(addml.load(saved, device="cpu").anomaly_score(X), other.anomaly_scores_)
    other.save(saved)
    assert len(list(saved.iterdir())) == 2


def test_other_files_of_the_folder_are_left_alone(saved):
    for name in ("notes.txt", "weights-mine.safetensors", "weights-old.bin"):
        (saved / name).write_text("mine")
    other_detector().save(saved)
    assert {"notes.txt", "weights-mine.safetensors", "weights-old.bin"} <= {file.name for file in saved.iterdir()}


def test_folders_above_are_made_and_a_file_in_the_way_is_named(detector, tmp_path):
    detector.save(str(tmp_path / "a" / "b" / "model"))
    assert addml.load(str(tmp_path / "a" / "b" / "model")).threshold_ == detector.threshold_
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFileError, match="file is a file; a model is saved as a folder"):
        detector.save(tmp_path / "file")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_have_the_rights_of_any_other(detector, tmp_path, umask):
    before = os.umask(umask)
    try:
        detector.save(tmp_path / "model")
        (tmp_path / "other").write_text("x")
    finally:
        os.umask(before)
    expected = stat.S_IMODE((tmp_path / "other").stat().st_mode)
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "model").iterdir()} == {expected}


class FailsAt:
    """Calls a function until the given call, which raises instead, before or after doing its work."""

    def __init__(self, function, call, error, late=False):
        self.function, self.left, self.error, self.late = function, call, error, late

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left == 0 and not self.late:
            raise self.error
        result = self.function(*args, **kwargs)
        if self.left == 0:
            raise self.error
        return result


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["fsync 1", "replace 1", "fsync 2", "replace 2"])
def test_a_crash_leaves_the_old_model_or_the_new_one(saved, detector, monkeypatch, step, late, error):
    name, call = step.split()
    other = other_detector()
    with monkeypatch.context() as patch:
        patch.setattr(os, name, FailsAt(getattr(os, name), int(call), error, late))
        with pytest.raises(type(error)):
            other.save(saved)
    new = step == "replace 2" and late
    loaded = addml.load(saved, device="cpu")
    assert loaded.encoder.metric_dim == (3 if new else 4)
    table = X if new else GAPS
    np.testing.assert_array_equal(loaded.anomaly_score(table), (other if new else detector).anomaly_scores_)
    assert not [file.name for file in saved.iterdir() if file.name.startswith(".")]
    other.save(saved)
    assert len(list(saved.iterdir())) == 2


def test_a_crash_in_a_new_folder_leaves_no_model(tmp_path, detector, monkeypatch):
    monkeypatch.setattr(os, "replace", FailsAt(os.replace, 2, OSError("no")))
    with pytest.raises(OSError, match="no"):
        detector.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is not a saved model"):
        addml.load(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named(saved, detector, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot be written: No space left on device\. Free some space") as caught:
        other_detector().save(saved)
    assert caught.value.errno == errno.ENOSPC
    assert len(list(saved.iterdir())) == 2
    assert addml.load(saved).threshold_ == detector.threshold_


def test_a_home_folder_is_found(tmp_path, detector, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    detector.save("~/model")
    assert (tmp_path / "model" / "model.json").exists()
    assert addml.load("~/model").encoder == detector.encoder


def test_a_failed_removal_of_the_old_weights_leaves_the_new_model(saved, monkeypatch):
    other = other_detector()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", FailsAt(Path.unlink, 1, PermissionError("in use")))
        with pytest.raises(PermissionError, match="in use"):
            other.save(saved)
    assert addml.load(saved).threshold_ == other.threshold_


def test_a_reader_between_two_files_of_a_save_reads_again(saved, monkeypatch):
    """The weights that the first look names may be gone when they are opened."""
    other, first = other_detector(), True
    read = Path.read_bytes

    def read_bytes(file):
        nonlocal first
        if file.suffix == ".safetensors" and first:
            first = False
            other.save(saved)
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert addml.load(saved).threshold_ == other.threshold_


# Files that cannot be used ----------------------------------------------------------------------------------


def remove_weights(folder):
    weights_of(folder).unlink()


def cut_weights(folder):
    weights_of(folder).write_bytes(weights_of(folder).read_bytes()[:-100])


def empty_weights(folder):
    weights_of(folder).write_bytes(b"")


def flip_a_bit(folder):
    content = bytearray(weights_of(folder).read_bytes())
    content[-5] ^= 1
    weights_of(folder).write_bytes(content)


def swap_weights(folder):
    other_detector().save(folder.parent / "other")
    weights_of(folder).write_bytes(weights_of(folder.parent / "other").read_bytes())


def swap_weights_with_their_name(folder):
    other_detector().save(folder.parent / "other")
    put_weights(folder, weights_of(folder.parent / "other").read_bytes())


def folder_as_weights(folder):
    name = weights_of(folder)
    name.unlink()
    name.mkdir()


def cut_json(folder):
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text[: len(text) // 2])


def edit_threshold(folder):
    document = json.loads((folder / "model.json").read_text())
    document["decision"]["tau"] = 1e9
    (folder / "model.json").write_text(json.dumps(document))


def nan_threshold(folder):
    text = (folder / "model.json").read_text().replace('"tau": ', '"tau": NaN, "was": ')
    (folder / "model.json").write_text(text)


def overflowing_threshold(folder):
    text = (folder / "model.json").read_text().replace('"tau": ', '"tau": 1e999, "was": ')
    (folder / "model.json").write_text(text)


def deep_json(folder):
    (folder / "model.json").write_text('{"format": 1, "history": ' + "[" * 100_000 + "]" * 100_000 + "}")


def pickled_weights(folder):
    put_weights(folder, pickle.dumps(Trap(folder.parent / "sprung")))


def pickled_json(folder):
    (folder / "model.json").write_bytes(pickle.dumps(Trap(folder.parent / "sprung")))


def huge_header(folder):
    put_weights(folder, (2**63).to_bytes(8, "little") + b"{}")


def half_precision(folder):
    arrays = model_file.read(folder)[1]
    arrays["encoder.weights"] = arrays["encoder.weights"].astype(np.float16)
    shapes = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
    put_weights(folder, to_bytes(arrays))
    rewrite(folder, arrays=shapes)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


DAMAGED = [
    (remove_weights, r"weights-\w+.safetensors is missing; copy the whole folder again"),
    (cut_weights, "is damaged: its hash differs from the one in its name; copy it again"),
    (empty_weights, "is damaged"),
    (flip_a_bit, "is damaged"),
    (swap_weights, "is damaged"),
    (swap_weights_with_their_name, "is not a valid model .*encoder.weights has the shape.*fit and save it again"),
    (folder_as_weights, "safetensors is missing"),
    (lambda folder: (folder / "model.json").unlink(), "model.json is not a file: .*model is not a saved model"),
    (lambda folder: (folder / "model.json").write_text(""), "model.json is truncated or not JSON"),
    (cut_json, r"model.json is truncated or not JSON \(.*line.*; copy it again"),
    (edit_threshold, "model.json was changed after it was saved"),
    (nan_threshold, "model.json contains an invalid value"),
    (overflowing_threshold, "model.json contains an invalid value"),
    (deep_json, "model.json is truncated or not JSON"),
    (pickled_weights, "is not a safetensors file"),
    (pickled_json, "model.json is truncated or not JSON"),
    (huge_header, "is not a safetensors file"),
    (half_precision, "encoder.weights is float16, not float32, float64"),
    (lambda folder: rewrite(folder, format=8), "has format 8, this version of addml reads 7: update addml"),
    (lambda folder: rewrite(folder, format=6), "has format 6, this version of addml reads 7: fit again"),
    (lambda folder: (folder / "model.json").write_text('{"format": 99}'), "has format 99.*update addml"),
    (lambda folder: rewrite(folder, format=0), "does not describe an ADDML model"),
    (lambda folder: rewrite(folder, format=True), "does not describe an ADDML model"),
    (lambda folder: rewrite(folder, format="1"), "does not describe an ADDML model"),
    (lambda folder: (folder / "model.json").write_text("[]"), "does not describe an ADDML model"),
    (lambda folder: rewrite(folder, weights="../../etc/passwd"), "does not name its weights"),
    (lambda folder: rewrite(folder, weights="0" * 63 + "/"), "does not name its weights"),
    (lambda folder: rewrite(folder, weights=None), "does not name its weights"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED, ids=lambda part: getattr(part, "__name__", ""))
def test_a_damaged_file_is_named_with_the_remedy(saved, damage, message):
    damage(saved)
    with pytest.raises(ModelFileError, match=message) as caught:
        addml.load(saved)
    assert "model" in str(caught.value)
    assert not (saved.parent / "sprung").exists()


@pytest.mark.parametrize("marks", [[1], [0], [1, 0]])
def test_whatever_was_labelled_the_scores_come_back(tmp_path, marks):
    labels = np.full(len(X), -1)
    labels[: len(marks)] = marks
    detector = addml.ADDML(**SMALL).fit(X, labels=labels)
    detector.save(tmp_path / "model")
    np.testing.assert_array_equal(addml.load(tmp_path / "model").anomaly_score(X), detector.anomaly_score(X))


@pytest.mark.parametrize("depth", range(300, 1001, 20))
def test_json_of_any_depth_is_refused_cleanly(saved, depth):
    (saved / "model.json").write_text('{"format": 1, "history": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(ModelFileError, match=r"model.json"):
        addml.load(saved)


@pytest.mark.parametrize("name", ["nowhere", "", "file", "file/model", "folder"])
def test_what_is_no_model_folder_is_said(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "model.json").mkdir(parents=True)
    with pytest.raises(ModelFileError, match=r"is not a saved model|give the folder of a saved model"):
        addml.load(name)


def put(name, value):
    return lambda document, arrays: arrays.update({name: value})


def change(name, function):
    return lambda document, arrays: arrays.update({name: function(arrays[name])})


def tell(name, value):
    return lambda document, arrays: document.update({name: value})


def within(part, name, value):
    return lambda document, arrays: document[part].update({name: value})


def setting(name, value):
    return lambda document, arrays: document["settings"].update({name: value})


def with_nan(array):
    array = array.copy()
    array.flat[-1] = np.nan
    return array


INVALID = "is not a valid model .*; fit and save it again"
FORGED = {
    "NaN weights": (change("encoder.weights", with_nan), "encoder.weights contains NaN or infinity"),
    "infinite mean": (change("features.mean", lambda a: a + np.inf), "features.mean contains NaN or infinity"),
    "too few weights": (
        change("encoder.weights", lambda a: a[:, :-1]),
        r"encoder.weights has the shape \(2, 91\), not \(n, 92\)",
    ),
    "weights of a member": (change("encoder.weights", lambda a: a[:1]), INVALID),
    "flat weights": (change("encoder.weights", np.ravel), INVALID),
    "no weights": (lambda document, arrays: arrays.pop("encoder.weights"), "encoder.weights"),
    "layers": (tell("encoder", {"name": "mlp", "widths": [3, 8, 5], "activations": ["tanh"] * 2}), INVALID),
    "an encoder nobody knows": (tell("encoder", {"name": "pickle"}), "KeyError"),
    "text as layers": (tell("encoder", {"name": "mlp", "widths": "684", "activations": ["tanh"] * 2}), INVALID),
    "no layers": (tell("encoder", {"name": "mlp", "widths": [], "activations": []}), INVALID),
    "layers of none": (tell("encoder", {"name": "mlp", "widths": [6, 0, 4], "activations": ["tanh"] * 2}), INVALID),
    "flags as layers": (tell("encoder", {"name": "mlp", "widths": [6, True, 4], "activations": ["tanh"] * 2}), INVALID),
    "activation": (tell("encoder", {"name": "mlp", "widths": [6, 8, 4], "activations": ["tanh", "system"]}), INVALID),
    "encoder": (tell("encoder", None), "is not a valid model"),
    "distance": (tell("distance", "manhattan"), "distance='manhattan' is not known"),
    "scorer": (tell("scorer", {"name": "os.system"}), "is not a valid model"),
    "scorer's settings": (tell("scorer", {"name": "center", "k": 3}), "is not a valid model"),
    "another scorer": (tell("scorer", {"name": "knn", "k": 3, "references": 9}), "is not a valid model"),
    "an earlier scorer": (tell("scorer", {"name": "local", "references": 9, "axes": False}), "is not a valid model"),
    "a view nobody knows": (tell("scorer", {"name": "views", "views": ["inside"]}), "must be some of columns, space"),
    "a scorer of few references": (tell("scorer", {"name": "views", "references": 3}), "at least 8"),
    "a scorer of words": (tell("scorer", {"name": "views", "references": "nine"}), "must be a whole number"),
    "scorer's k": (tell("scorer", {"name": "knn", "k": 0, "references": 9}), "must be a whole number"),
    "no columns": (change("features.median", lambda a: a[:0]), "do not fit together"),
    "scalar median": (put("features.median", np.array(1.0)), "is not a valid model"),
    "fewer columns": (change("features.median", lambda a: a[:2]), "do not fit together"),
    "zero deviation": (change("features.scale", lambda a: a * 0), "out of range"),
    "negative deviation": (change("features.scale", lambda a: -a), "out of range"),
    "gaps elsewhere": (change("features.gaps", lambda a: a + 1), INVALID),
    "gaps as floats": (change("features.gaps", lambda a: a.astype(float)), INVALID),
    "view's unit": (change("scale.unit", lambda a: a * 0), "out of range"),
    "negative unit": (change("scale.unit", lambda a: -a), "out of range"),
    "view's median": (change("scale.median", lambda a: a[:-1]), INVALID),
    "NaN median": (change("scale.median", with_nan), "scale.median contains NaN or infinity"),
    "no unit": (lambda document, arrays: arrays.pop("scale.unit"), "unit"),
    "knee": (change("features.knee", lambda a: -a), "out of range"),
    "infinite knee": (change("features.knee", lambda a: a + np.inf), "features.knee contains NaN or infinity"),
    "shifts": (change("features.bent_mean", lambda a: a[:-1]), INVALID),
    "no shift": (lambda document, arrays: arrays.pop("features.bent_mean"), "bent_mean"),
    "zero reach": (change("features.bent_scale", lambda a: a * 0), "out of range"),
    "reaches": (change("features.bent_scale", lambda a: np.append(a, a)), INVALID),
    "no rows": (change("scorer.rows", lambda a: a[:0]), INVALID),
    "narrow rows": (change("scorer.rows", lambda a: a[..., 1:].copy()), INVALID),
    "double rows": (change("scorer.rows", lambda a: a.astype(float)), INVALID),
    "NaN in rows": (change("scorer.rows", with_nan), "scorer.rows contains NaN or infinity"),
    "negative weight": (change("scorer.column_weight", lambda a: -a), "out of range"),
    "fewer weights of columns": (change("scorer.column_weight", lambda a: a[:-1]), INVALID),
    "fewer references": (change("scorer.references", lambda a: a[:, 1:].copy()), INVALID),
    "references of another member": (change("scorer.references", lambda a: a[:1]), INVALID),
    "no references": (lambda document, arrays: arrays.pop("scorer.references"), "references"),
    "scores": (change("training_scores", lambda a: a[None]), "training_scores|is not a valid model"),
    "no scores": (change("training_scores", lambda a: a[:0]), "training_scores|is not a valid model"),
    "an extra array": (put("payload", np.zeros(3)), r"the arrays \['payload'\] are unexpected"),
    "an extra feature": (put("features.payload", np.zeros(3)), "payload"),
    "threshold": (within("decision", "tau", "high"), "tau='high'"),
    "a threshold beyond all numbers": (within("decision", "tau", 10**400), "OverflowError"),
    "a share beyond all numbers": (within("decision", "share", 10**400), "OverflowError"),
    "columns": (within("vectorizer", "columns_in", 4), "columns_in=4, .* 3 medians do not fit together"),
    "a flag for columns": (within("vectorizer", "columns_in", True), "columns_in=True"),
    "an epoch of words": (lambda document, arrays: document["history"][0].update(epoch="x"), "of the history"),
    "an endless epoch": (lambda document, arrays: document["history"][0].update(epoch=10**30), "of the history"),
    "a member's endless epoch": (
        lambda document, arrays: document["history"][0]["members"][0].update(kept=-(10**400)),
        "of the history",
    ),
    "sides": (setting("one_sided", 3), "one_sided=3 must map columns"),
    "no threshold": (within("decision", "tau", None), "tau"),
    "names": (within("vectorizer", "names", ["a"]), r"the names \['a'\] and 3 medians do not fit together"),
    "equal names": (within("vectorizer", "names", ["a", "a", "b"]), "the names"),
    "names in a word": (within("vectorizer", "names", 3), "is not a valid model"),
    "history": (tell("history", [1, 2]), "is not a valid model"),
    "no history": (tell("history", None), "is not a valid model"),
    "parameters": (tell("settings", []), "is not a valid model"),
    "a setting": (setting("epochs", -1), "epochs=-1"),
    "an unknown setting": (setting("command", "rm"), "command"),
    "a miner": (setting("loss", {"part": "InstanceCloseness", "miner": "os.system"}), "miner='os.system'"),
    "widths": (setting("encoder", {"part": "MLP", "hidden": 5}), "hidden=5 must be a tuple"),
    "a class": (setting("encoder", {"part": "Popen"}), "contains invalid settings"),
    "another part": (setting("loss", {"part": "MLP"}), "contains invalid settings"),
}
HARMLESS = {
    "double weights": change("encoder.weights", lambda a: a.astype(float)),
    "fewer views": tell("scorer", {"name": "views", "references": 9, "views": ["tails"]}),
    "median": change("features.median", lambda a: a[:, None]),
    "single mean": change("features.mean", lambda a: a.astype(np.float32)),
    "negative gaps": change("features.gaps", lambda a: a - 1),
    "gaps twice": change("features.gaps", lambda a: a * 0),
    "two knees": change("features.knee", lambda a: np.append(a, a)),
    "fewer rows": change("scorer.rows", lambda a: a[1:].copy()),
    "centre": change("center", lambda a: a[:, :-1]),
    "kept rows": change("kept", lambda a: a[:, :1]),
    "kept rows of others": change("training_scores", lambda a: np.tile(a, 2)),
    "kept as floats": change("kept", lambda a: a.astype(float)),
    "an extra part": put("scorer.payload", np.zeros(3)),
    "numbers as names": within("vectorizer", "names", [1, 2, 3]),
    "longer history": lambda document, arrays: document["history"].append({"epoch": 3}),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_model_with_every_hash_right_is_refused(saved, kind):
    edit, message = FORGED[kind]
    forge(saved, edit)
    with pytest.raises(ModelFileError, match=message) as caught:
        addml.load(saved)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize("kind", HARMLESS)
def test_a_forged_model_that_scores_finite_numbers_is_harmless(saved, kind):
    forge(saved, HARMLESS[kind])
    forged = addml.load(saved)
    for method in (forged.anomaly_score, forged.predict_proba, forged.p_values):
        assert np.isfinite(method(GAPS)).all()
    assert len(forged.explain(GAPS)) == len(GAPS)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "mlp", "activations": ["tanh", "linear"]},
        {"widths": [20, 16, 16, 20]},
        {"widths": [20, 10**15, 1, 10**15, 20]},
        {"name": "recurrent", "window": 10**12},
    ],
)
def test_a_forged_network_of_windows_is_refused(tmp_path, changes):
    series = np.random.default_rng(0).standard_normal((120, 2))
    addml.ADDML(window=addml.Window(10), epochs=1, members=1, random_state=0).fit(series).save(tmp_path)
    forge(tmp_path, lambda document, arrays: document["encoder"].update(changes))
    with pytest.raises(ModelFileError, match=INVALID):
        addml.load(tmp_path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change("scorer.center", lambda a: a[:, :-1].copy()), INVALID),
        (change("encoder.weights", lambda a: a[:1]), INVALID),
        (tell("scorer", {"name": "knn", "k": 3, "references": 9}), "references"),
        (put("scorer.rows", np.zeros((4, 3), np.float32)), INVALID),
    ],
)
def test_a_forged_model_of_the_papers_is_refused(tmp_path, edit, message):
    addml.ADDML(**SMALL, scorer="center", scaling="standard").fit(GAPS).save(tmp_path)
    forge(tmp_path, edit)
    with pytest.raises(ModelFileError, match=message):
        addml.load(tmp_path)


def low_end(document, arrays):
    document["vectorizer"]["columns"]["columns"][0]["spread"]["low"] = 10**400


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (low_end, "OverflowError"),
        (within("vectorizer", "names", None), "do not fit together|is not a valid model"),
        (within("vectorizer", "names", ["a", "c"]), "do not fit together|is not a valid model"),
    ],
)
def test_a_forged_model_of_a_table_is_refused(tmp_path, edit, message):
    frame = pd.DataFrame({"a": X[:, 0], "b": ["x", "y"] * 20})
    addml.ADDML(**SMALL).fit(frame).save(tmp_path)
    forge(tmp_path, edit)
    with pytest.raises(ModelFileError, match=message):
        addml.load(tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # on the way there
@pytest.mark.parametrize("settings", [{}, {"scorer": "center"}, {"scorer": "center", "members": 1}])
@pytest.mark.parametrize(
    ("name", "value"), [("features.scale", 5e-324), ("features.bent_scale", 1e-300), ("features.bent_mean", -1e308)]
)
def test_numbers_beyond_those_of_any_fit_give_no_scores(tmp_path, settings, name, value):
    addml.ADDML(**SMALL | settings).fit(X).save(tmp_path)
    forge(tmp_path, change(name, lambda array: np.full_like(array, value)))
    if name != "features.scale":
        with pytest.raises(ModelFileError, match="scores are not finite: the model"):
            addml.load(tmp_path)
        return
    forged = addml.load(tmp_path)
    for method in (forged.anomaly_score, forged.predict, forged.predict_proba, forged.p_values, forged.explain):
        with pytest.raises(ValueError, match="scores are not finite: the model"):
            method(X)


def test_a_forgery_that_changes_nothing_loads(saved, detector):
    forge(saved, lambda document, arrays: None)
    assert addml.load(saved).threshold_ == detector.threshold_


@pytest.mark.parametrize("distance", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("scorer", ["dissimilarity", "knn"])
def test_references_are_checked_too(tmp_path, scorer, distance):
    addml.ADDML(**SMALL, scorer=scorer, loss=InstanceCloseness(distance)).fit(X).save(tmp_path)
    name = "scorer.spread" if (scorer, distance) == ("dissimilarity", "sqeuclidean") else "scorer.references"
    forge(tmp_path, change(name, lambda array: array[:, :0]))
    with pytest.raises(ModelFileError, match=INVALID):
        addml.load(tmp_path)


# Nothing is unpickled ---------------------------------------------------------------------------------------

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "torch", "marshal", "shelve", "skops"}


def unpickling(source):
    """The lines of a source that could load a pickle."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNPICKLERS:
            if {alias.name for alias in node.names} & {"load", "loads", "Unpickler", "open"}:
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            *owner, name = ast.unparse(node.func).split(".")
            pickles = any(keyword.arg == "allow_pickle" and not is_false(keyword.value) for keyword in node.keywords)
            loads = owner and owner[0] in UNPICKLERS and name in ("load", "loads", "Unpickler", "open")
            if pickles or loads or name in ("read_pickle", "unpickle"):
                yield node.lineno


def is_false(node):
    return isinstance(node, ast.Constant) and node.value is False


def test_no_source_of_the_package_can_load_a_pickle():
    sources = sorted(Path(addml.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    found = [f"{file}:{line}" for file in sources for line in unpickling(file.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "pickle.load(f)",
        "pickle.loads(b)",
        "pickle.Unpickler(f).load()",
        "from pickle import loads",
        "from joblib import load",
        "joblib.load(f)",
        "torch.load(f, weights_only=True)",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=trust)",
        "pd.read_pickle(f)",
        "shelve.open(f)",
        "def read():\n    import pickle\n    return pickle.load(f)",
    ],
)
def test_a_pickle_would_be_found(source):
    assert list(unpickling(source))


@pytest.mark.parametrize("source", ["np.load(f)", "json.load(f)", "pickle.dumps(d)", "np.load(f, allow_pickle=False)"])
def test_what_is_harmless_is_not(source):
    assert not list(unpickling(source))


def test_weights_that_another_save_named_meanwhile_stay(tmp_path, monkeypatch):
    ours, theirs = ({"a": np.full(3, value)} for value in (1.0, 2.0))
    model_file.write(tmp_path / "m", {}, {"a": np.zeros(3)})
    replace, seen = write.write_whole, []

    def and_then_the_other(file, content):
        replace(file, content)
        if file.name == "model.json" and not seen:
            seen.append(file)
            model_file.write(tmp_path / "m", {}, theirs)

    monkeypatch.setattr(write, "write_whole", and_then_the_other)
    model_file.write(tmp_path / "m", {}, ours)
    np.testing.assert_array_equal(model_file.read(tmp_path / "m")[1]["a"], theirs["a"])
