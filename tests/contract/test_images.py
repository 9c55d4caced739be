"""The detector on arrays of images (n, channels, height, width)."""

import copy
import warnings

import numpy as np
import pytest

import addml


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    X = random.integers(0, 60, (80, 3, 6, 5)).astype(np.uint8)
    X[7, :, 2:4, 2:4] = 255
    return X


@pytest.fixture(scope="module")
def detector(images):
    """One that no test may change."""
    return addml.ADDML(members=2, epochs=3, random_state=0).fit(images)


def test_the_strange_image_is_found(images, detector):
    assert detector.anomaly_scores_.argmax() == 7
    np.testing.assert_array_equal(detector.anomaly_score(images), detector.anomaly_scores_)
    assert detector.n_features_in_ == 90
    assert detector.transform(images).shape == (80, 64)


def test_bytes_and_the_same_numbers_score_alike(images, detector):
    np.testing.assert_array_equal(detector.anomaly_score(images.astype(np.float64)), detector.anomaly_scores_)


@pytest.mark.parametrize("scaling", ["robust", "standard"])
def test_images_of_another_scale_are_warned_of(images, scaling):
    whole = addml.ADDML(members=1, epochs=1, random_state=0, scaling=scaling).fit(images)
    parts = addml.ADDML(members=1, epochs=1, random_state=0, scaling=scaling).fit(images / 255)
    for detector, other in ((whole, images / 255), (parts, images), (parts, images.astype(np.float32))):
        with pytest.warns(UserWarning, match="convert the images to the scale of training"):
            detector.anomaly_score(other)
        with pytest.warns(UserWarning, match="to the scale of training"):
            detector.anomaly_score(other[:1])


def test_dark_and_bright_images_of_the_same_scale_are_not_warned_of(images, detector):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (images, np.zeros_like(images), images // 60, np.full_like(images, 255), np.zeros(images.shape)):
            detector.anomaly_score(other)


def test_saved_and_loaded(tmp_path, images, detector):
    detector.save(tmp_path)
    loaded = addml.load(tmp_path)
    np.testing.assert_array_equal(loaded.anomaly_score(images), detector.anomaly_scores_)
    assert loaded.get_params() == detector.get_params()
    with pytest.raises(ValueError, match=r"images of shape \(1, 6, 5\), the detector was fitted to \(3, 6, 5\)"):
        loaded.anomaly_score(images[:, :1])


@pytest.mark.parametrize("X", [np.zeros((4, 90)), np.zeros((4, 3, 6)), np.zeros((2, 2, 3, 6, 5))])
def test_other_ranks_at_scoring(detector, X):
    with pytest.raises(ValueError, match="images"):
        detector.anomaly_score(X)


def test_masked_pixels_are_refused(detector, images):
    with pytest.raises(ValueError, match="X has masked pixels"):
        detector.anomaly_score(np.ma.masked_greater(images, images.mean()))
    whole = np.ma.masked_greater(images, images.max())
    np.testing.assert_array_equal(detector.anomaly_score(whole), detector.anomaly_scores_)


def test_grey_images_without_their_channel_for_another_encoder(images):
    detector = addml.ADDML(encoder="mlp", members=1, epochs=1, random_state=0).fit(images[:, 0])
    same = addml.ADDML(encoder="mlp", members=1, epochs=1, random_state=0).fit(images[:, :1])
    assert detector.anomaly_scores_.tolist() == same.anomaly_scores_.tolist()


def test_images_for_a_detector_of_tables():
    detector = addml.ADDML(members=1, epochs=1).fit(np.random.default_rng(0).standard_normal((30, 4)))
    with pytest.raises(ValueError, match="dim 4"):
        detector.anomaly_score(np.zeros((2, 1, 2, 2)))


def test_contributions_of_pixels_add_up_and_point_at_the_strange_ones(images, detector):
    heat = detector.explain(images[:10])
    assert heat.shape == (10, 6, 5)
    usual = detector.anomaly_scores_[:10] - heat.sum(axis=(1, 2))
    np.testing.assert_allclose(usual, usual[0], atol=1e-6)
    assert heat[7, 2:4, 2:4].sum() > 0.5 * heat[7].sum()


def test_refit_goes_on(images, detector):
    detector = copy.deepcopy(detector)
    before = detector.encoder_.weights.copy()
    detector.refit(images)
    assert not np.array_equal(before, detector.encoder_.weights)


@pytest.fixture(scope="module", params=["conv", "mlp"])
def large(request):
    """Images of which 32 make a block, and a detector."""
    X = np.random.default_rng(0).integers(0, 255, (40, 1, 72, 72)).astype(np.uint8)
    detector = addml.ADDML(encoder=request.param, members=2, epochs=1, random_state=0, device="cpu").fit(X)
    assert detector.model_.block("cpu") == 32
    return X, detector


def test_large_images_score_alone_as_they_do_among_others(large):
    X, detector = large
    np.testing.assert_array_equal(detector.anomaly_score(X), detector.anomaly_scores_)
    np.testing.assert_array_equal(detector.anomaly_score(X[33:34]), detector.anomaly_scores_[33:34])


@pytest.mark.slow
def test_large_images_are_explained_alone_as_they_are_among_others(large):
    X, detector = large
    np.testing.assert_array_equal(detector.explain(X[31:34])[2], detector.explain(X[33:34])[0])


@pytest.mark.parametrize("shape", [(9, 20, 16, 3), (9, 20, 16, 1), (9, 5, 5, 4)])
def test_colours_that_stand_last_are_warned_of(shape):
    X = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    words = rf"which is {shape[1]} channels of {shape[2]} x {shape[3]} pixels; .*give X.transpose\(0, 3, 1, 2\)"
    with pytest.warns(UserWarning, match=words):
        addml.ADDML(members=1, epochs=1, random_state=0).fit(X)


@pytest.mark.parametrize("shape", [(9, 3, 20, 16), (9, 3, 20, 3), (9, 8, 20, 16), (9, 5, 4, 3)])
def test_colours_that_stand_first_are_not(shape):
    X = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        addml.ADDML(members=1, epochs=1, random_state=0).fit(X)
