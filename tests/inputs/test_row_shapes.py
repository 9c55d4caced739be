"""Rows that are no rows of a table: their form, their checks, and features shared by a channel."""

from dataclasses import asdict

import numpy as np
import pytest

from addml import ADDML
from addml.config import Config
from addml.inputs import RowShape
from addml.inputs.array import ImageVectorizer, as_images, check_varied
from addml.preprocessing.scaling import Features


def test_the_channel_of_every_number_of_a_flat_row():
    assert RowShape("image", (2, 1, 3)).channel_of().tolist() == [0, 0, 0, 1, 1, 1]
    assert RowShape("series", (3, 2)).channel_of().tolist() == [0, 1, 0, 1, 0, 1]


def test_a_form_as_plain_values_and_back():
    form = RowShape("series", (3, 2))
    assert RowShape.from_json(asdict(form)) == form


@pytest.mark.parametrize("document", [{"kind": "image", "shape": [3, 2]}, {"kind": "code", "shape": [3]}])
def test_no_form(document):
    with pytest.raises(ValueError, match="rows of kind"):
        RowShape.from_json(document | {"causal": True})


def test_channels_are_scaled_alike():
    X = np.random.default_rng(0).uniform(0, 255, (50, 2, 3, 4))
    X[:, 1] = X[:, 1] * 10 + 7
    prepared = ImageVectorizer.fit(X, Config.resolve(ADDML(scaling="standard").get_params()))[0].prepare(X)
    prepared = prepared.reshape(X.shape)
    expected = (X - X.mean(axis=(0, 2, 3), keepdims=True)) / X.std(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(prepared, expected, rtol=1e-5, atol=1e-6)


def test_features_with_gaps_are_not_spread():
    features = Features.fit(np.array([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]]))
    with pytest.raises(ValueError, match=r"columns \[1\] have missing values"):
        features.spread(np.array([0, 1, 1]))


def test_rows_are_prepared_when_they_are_asked_for():
    X = np.random.default_rng(0).integers(0, 256, (9, 1, 2, 2)).astype(np.uint8)
    vectorizer, rows = ImageVectorizer.fit(X, Config.resolve(ADDML().get_params()))
    ids = np.array([[3, 1], [8, 3]])
    np.testing.assert_array_equal(rows.take(ids), vectorizer.features.transform(X.reshape(9, 4))[ids])
    assert rows.values is X
    assert len(rows) == 9
    assert rows.take(np.empty(0, np.int64)).shape == (0, 4)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 4)), r"X has shape \(3, 4\); images are \(n, channels, height, width\)"),
        (np.zeros((3, 1, 0, 4)), "images are"),
        ([np.zeros((2, 2)), np.zeros((3, 2))], "images of different sizes"),
        (np.array([[[["a"]]]]), "X has dtype <U1; images hold numbers"),
        (np.full((2, 1, 1, 1), np.nan), "image 0 of X holds NaN or infinity"),
        (np.zeros((1, 1, 2, 2)), "X holds 1 image; give at least 2"),
    ],
)
def test_what_is_no_array_of_images(X, message):
    with pytest.raises(ValueError, match=message):
        as_images(X, least=2)


def test_images_that_are_all_the_same():
    with pytest.raises(ValueError, match="all 3 images of X are the same, every pixel is 0"):
        check_varied(np.zeros((3, 1, 2, 2)))
    with pytest.raises(ValueError, match="copies of one"):
        check_varied(np.repeat(np.arange(4.0).reshape(1, 1, 2, 2), 3, axis=0))


def test_grey_images_and_flags():
    assert as_images(np.zeros((3, 4, 5))).shape == (3, 1, 4, 5)
    assert as_images(np.ones((3, 4, 5), bool)).dtype == np.uint8
