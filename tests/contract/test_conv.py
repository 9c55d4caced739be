"""The convolutional encoder in the detector: the same contract as for tables."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import addml


@pytest.fixture(scope="module")
def images():
    """Stripes at a random height, image 5 with a stripe across."""
    random = np.random.default_rng(0)
    X = random.integers(0, 40, (90, 2, 9, 11)).astype(np.uint8)
    for image, place in zip(X, random.integers(3, 6, 90), strict=True):
        image[:, place] += 180
    X[5] = 20
    X[5, :, :, 4] = 220
    return X


@pytest.fixture(scope="module")
def detector(images):
    return addml.ADDML(encoder="conv", members=3, epochs=4, random_state=0).fit(images)


def test_the_strange_image_is_found(images, detector):
    assert detector.anomaly_scores_.argmax() == 5
    np.testing.assert_array_equal(detector.anomaly_score(images), detector.anomaly_scores_)
    assert detector.encoder_.channels == (16, 32)
    assert detector.transform(images).shape == (90, 3 * 32)
    assert detector.predict(images)[5] == -1


def test_an_image_s_score_does_not_depend_on_the_others(images, detector):
    order = np.random.default_rng(1).permutation(90)
    np.testing.assert_array_equal(detector.anomaly_score(images[order]), detector.anomaly_scores_[order])
    np.testing.assert_array_equal(detector.anomaly_score(images[7:8]), detector.anomaly_scores_[7:8])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_same_seed_gives_the_same_scores_on_any_number_of_threads(images, detector, n_jobs):
    again = clone(detector).set_params(n_jobs=n_jobs).fit(images)
    np.testing.assert_array_equal(again.anomaly_scores_, detector.anomaly_scores_)


def test_saved_loaded_and_pickled(tmp_path, images, detector):
    detector.save(tmp_path)
    for copy in (addml.load(tmp_path), pickle.loads(pickle.dumps(detector))):
        np.testing.assert_array_equal(copy.anomaly_score(images), detector.anomaly_scores_)
        assert copy.get_params() == detector.get_params()
        np.testing.assert_array_equal(copy.explain(images[:1]), detector.explain(images[:1]))
        np.testing.assert_array_equal(copy.nearest_normal(images[:3]).rows, detector.nearest_normal(images[:3]).rows)


def test_the_heat_map_adds_up_and_shows_the_place(images, detector):
    heat = detector.explain(images[:8])
    assert heat.shape == (8, 9, 11)
    usual = detector.anomaly_scores_[:8] - heat.sum(axis=(1, 2))
    np.testing.assert_allclose(usual, usual[0], atol=1e-6)
    assert heat[5, :, 2:8].sum() > heat[5, :, [0, 1, 8, 9, 10]].sum()  # the stripe is at column 4


def test_width_and_depth(images):
    for hidden in [(), (5,), (3, 4, 5)]:
        fitted = addml.ADDML(encoder=addml.Conv(hidden, 6), members=2, epochs=2, random_state=0).fit(images)
        assert fitted.encoder_.channels == hidden
        assert fitted.encoder_.outputs == 6
        assert np.isfinite(fitted.anomaly_scores_).all()


def test_early_stopping_and_the_best_network(images):
    settings = {"encoder": "conv", "members": 2, "epochs": 40, "patience": 2, "learning_rate": 0.03, "random_state": 0}
    fitted = addml.ADDML(**settings).fit(images)
    assert len(fitted.history_) < 40
    stopped = [len([epoch for epoch in fitted.history_ if member < len(epoch["members"])]) for member in range(2)]
    assert all(count < 40 for count in stopped)


def test_distillation_drops_the_strange_image_and_keeps_the_share(images):
    X = images.copy()
    X[5] = 255  # far from the centre under any network
    fitted = addml.ADDML(encoder="conv", members=2, epochs=4, normal_ratio=0.6, random_state=0).fit(X)
    kept = fitted.rows_kept()
    assert kept.shape == (4, 2, 90)
    train = 90 - 9
    np.testing.assert_array_equal(kept.sum(axis=2), np.full((4, 2), np.ceil(0.6 * train)))
    assert not kept[:, :, 5].any()


def test_mining_and_both_losses_change_what_is_learned(images):
    def weights(**changes):
        detector = addml.ADDML(members=1, epochs=2, random_state=0).set_params(encoder="conv", **changes)
        return detector.fit(images).encoder_.weights

    plain = weights()
    for changes in ({"loss__hard_ratio": 1.0}, {"loss": "center"}, {"loss__distance": "cosine"}, {"epochs": 1}):
        assert not np.array_equal(plain, weights(**changes))
    np.testing.assert_array_equal(plain, weights(learning_rate=3e-5))  # the encoder's own


def test_collapse_is_found_and_said():
    X = np.random.default_rng(0).standard_normal((60, 1, 6, 6)).astype(np.float32)
    detector = addml.ADDML(encoder="conv", members=1, epochs=60, learning_rate=0.3, weight_decay=10.0, patience=60)
    with pytest.warns(UserWarning, match="member 0 collapsed in epoch"):
        detector.set_params(random_state=0).fit(X)
    assert len(np.unique(detector.anomaly_scores_)) > 30


def test_labels_and_refit(images, detector):
    labels = np.full(90, -1)
    labels[5], labels[10:20] = 1, 0
    fitted = clone(detector).fit(images, labels=labels)
    assert fitted.anomaly_scores_.argmax() == 5
    before = fitted.encoder_.weights.copy()
    assert not np.array_equal(fitted.refit(images).encoder_.weights, before)
    with pytest.raises(ValueError, match="refit continues with 3 networks"):
        fitted.set_params(encoder__hidden=(4,)).refit(images)


def test_floats_grey_images_without_channels_and_uneven_sizes():
    X = np.random.default_rng(0).random((40, 5, 7))
    fitted = addml.ADDML(encoder="conv", members=1, epochs=1, random_state=0).fit(X)
    np.testing.assert_array_equal(fitted.anomaly_score(X[:, None]), fitted.anomaly_scores_)
    assert fitted.explain(X[:2]).shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((20, 9)), r"X has shape \(20, 9\)"),
        (np.zeros((2, 3, 4, 5, 6)), r"X has shape \(2, 3, 4, 5, 6\)"),
        (np.zeros((20, 1, 0, 5)), r"X has shape \(20, 1, 0, 5\)"),
        (np.zeros((1, 1, 4, 4)), r"holds 1 image; give at least 2"),
        (np.zeros((6, 3, 4, 4), np.uint8), "all 6 images of X are the same, every pixel is 0"),
        (np.full((3, 1, 2, 2), np.nan), "image 0 of X holds NaN"),
        (np.full((3, 1, 2, 2), "a"), "dtype"),
        ([np.zeros((2, 2)), np.zeros((3, 3))], "different sizes"),
    ],
)
def test_what_cannot_be_learned_from(X, words):
    with pytest.raises(ValueError, match=words):
        addml.ADDML(encoder="conv").fit(X)


@pytest.mark.parametrize("shape", [(4, 3, 9, 11), (4, 2, 9, 12), (4, 9, 11), (4, 198)])
def test_other_shapes_at_scoring(detector, shape):
    with pytest.raises(ValueError, match="images"):
        detector.anomaly_score(np.zeros(shape))


def test_folders_in_the_detector(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    X = np.random.default_rng(0).integers(0, 255, (12, 6, 5)).astype(np.uint8)
    for place, image in enumerate(X):
        Image.fromarray(image).save(tmp_path / f"{place:02d}.png")
    fitted = addml.ADDML(encoder="conv", members=1, epochs=1, random_state=0).fit(tmp_path)
    np.testing.assert_array_equal(fitted.anomaly_score(X), fitted.anomaly_scores_)
    np.testing.assert_array_equal(fitted.anomaly_score(str(tmp_path)), fitted.anomaly_scores_)
    assert addml.read_images(tmp_path).images.shape == (12, 1, 6, 5)
    with pytest.raises(ValueError, match="is not a folder"):
        fitted.anomaly_score(tmp_path / "nothing")
    Image.fromarray(X[0]).resize((9, 9)).save(tmp_path / "00.png")
    with pytest.warns(UserWarning, match=r"resized to 6 x 5 pixels \(--size\): 1 of 12 images"):
        fitted.anomaly_score(tmp_path)
