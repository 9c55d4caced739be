"""Small pictures in the report: bytes as they are, deeper images from their darkest to their brightest pixel."""

import io

import numpy as np
import pytest

from addml.io.image_folder import Pictures
from addml.pipeline.image_source import thumbnails

Image = pytest.importorskip("PIL.Image")


def shown(images):
    """The pixels of the most typical image's thumbnail, where it is the first of `images`."""
    names = tuple(f"{place}.png" for place in range(len(images)))
    found = thumbnails(Pictures(names, images, ()), np.zeros(len(images)), np.arange(0), np.arange(1), None)
    return np.asarray(Image.open(io.BytesIO(found[0].image)))[..., 0]


def test_bytes_are_shown_as_they_are():
    images = np.array([[[[10, 20], [30, 40]]], [[[0, 0], [50, 50]]]], np.uint8)
    np.testing.assert_array_equal(shown(images), images[0, 0])


def test_dark_images_of_more_bits_can_be_seen():
    images = np.array([[[[0.0, 0.5], [1.0, 2.0]]], [[[-2.0, 0.0], [3.0, 0.0]]]], np.float32)
    np.testing.assert_array_equal(shown(images), [[102, 128], [153, 204]])  # 51 a unit, from -2 to 3
    np.testing.assert_array_equal(shown(np.full((2, 1, 2, 2), 7.0, np.float32)), np.zeros((2, 2)))
