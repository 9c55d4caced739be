"""Arrays of numbers (n, d) and of images (n, channels, height, width)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any, ClassVar, Self

import numpy as np

from addml.arrays import evenly_spaced, evenly_spaced_with_ends
from addml.errors import warn, warn_of_columns
from addml.inputs import LazyRows, MemoryRows, Rows, RowShape, Vectorizer, labels_of, sides_of
from addml.io.image_folder import read_images
from addml.preprocessing.profile import ColumnProfile, number_profile
from addml.preprocessing.scaling import NEW_GAPS, Features
from addml.text import IMAGE, counted

PROFILED = 10_000  # training rows used for profiles
LARGEST_EXACT = 2**53  # the largest integer up to which float64 is exact


@dataclass(frozen=True, kw_only=True)
class ArrayVectorizer(Vectorizer):
    """An array (n, d) of numbers with NaN for missing values."""

    @classmethod
    def fit(cls, X: np.ndarray, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, MemoryRows]:
        labels = labels_of(names, X.shape[1])
        check_finite(X, labels)
        features = Features.fit(X, sides_of(config.one_sided, labels), robust=config.robust)
        warn_of_columns("columns without a single value are ignored", features.empty, labels)
        vectorizer = cls(features=features, columns_in=X.shape[1], names=names)
        return vectorizer, MemoryRows(vectorizer.prepare(X), original=X)

    def read(self, X: np.ndarray) -> LazyRows:
        check_finite(X, self.labels)
        warn_of_columns(NEW_GAPS, self.features.new_gaps(X), self.labels)
        return LazyRows(np.asarray(X), self.prepare)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        assert rows is not None
        sample = np.asarray(rows.original[evenly_spaced(np.flatnonzero(normal), PROFILED)], np.float64)
        return tuple(map(number_profile, self.labels, sample.T))


def check_finite(X: np.ndarray, names: list[str]) -> None:
    """Refuse infinity and integers that float64 cannot represent; NaN is a missing value."""
    if X.dtype.kind in "iu":
        if len(large := np.flatnonzero(((X > LARGEST_EXACT) | (X < -LARGEST_EXACT)).any(axis=0))):
            raise _inexact_error(names[large[0]])
        return
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(X.sum())  # faster than looking for infinities
    if not math.isfinite(total) and len(infinite := np.flatnonzero(np.isinf(X).any(axis=0))):
        raise ValueError(f"column {names[infinite[0]]!r} holds infinity; replace it by NaN (a gap) or a finite value")


def _inexact_error(name: str) -> ValueError:
    return ValueError(
        f"column {name!r} holds integers over 2**53, which double precision cannot tell apart; "
        "leave the column out if it is an identifier, or subtract an offset first"
    )


def is_plain(X: Any, vectorizer: ArrayVectorizer) -> bool:
    """Whether X needs none of scikit-learn's checks, which take 6% of the time to score one row."""
    is_floats = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X) > 0
    return bool(is_floats and vectorizer.names is None and X.shape[1] == vectorizer.columns_in)


def as_numbers(table: Any, validate: Callable[[Any], np.ndarray]) -> np.ndarray:
    """A table of numbers as an array of at most float64; `validate` makes the array or raises an error."""
    if isinstance(table, np.ma.MaskedArray):
        table = np.ma.filled(table.astype(object), np.nan)
    try:
        X = validate(table)
        X = X.astype(np.float64) if X.dtype.kind == "O" else X  # from a frame of Python objects
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X has dtype {X.dtype}")
    except (TypeError, ValueError) as error:
        raise _not_numbers_error(table, error) from None
    if X.dtype.kind == "b":
        return X.astype(np.float32)
    with np.errstate(over="ignore"):
        X = X.astype(np.float64) if X.dtype.itemsize > 8 else X
    if X.dtype.kind == "f" and (type(table) is not np.ndarray or table.dtype.kind == "O"):
        _check_exact(table, X)
    return X


def _check_exact(table: Any, X: np.ndarray) -> None:
    """Refuse integers over 2**53 in the table, whose values as floats are X."""
    largest = np.maximum(np.fmax.reduce(X, axis=0), -np.fmin.reduce(X, axis=0))  # ignores NaN
    for column in np.flatnonzero(largest.astype(np.float64) >= LARGEST_EXACT):
        name, values = _columns(table)[column]
        if any(isinstance(value, Integral) and abs(int(value)) > LARGEST_EXACT for value in values()):
            raise _inexact_error(name)


def _not_numbers_error(table: Any, error: Exception) -> Exception:
    """The error for a table that cannot be read as numbers; it names the column and the value if it finds them."""
    if getattr(table, "ndim", 2) == 3:
        return ValueError(f"{str(error).rstrip('.')}; grey images need a channel axis: X[:, None]")
    if isinstance(table, (list, tuple)):
        lengths = {len(row) for row in table if isinstance(row, (list, tuple))}
        if len(lengths) > 1:
            shortest, longest = min(lengths), max(lengths)
            return ValueError(f"X has rows of {shortest} and of {longest} values; give all rows the same columns")
    for name, values in _columns(table):
        for value in values():
            if value is not None and not isinstance(value, (Number, np.number, np.bool_)):
                kind = TypeError if isinstance(error, TypeError) else ValueError
                return kind(f"column {name!r} holds {value!r}, not a number: convert it or leave it out ({error})")
    return error


def _columns(table: Any) -> list[tuple[str, Callable[[], list[Any]]]]:
    """The name of each column of a frame, array or list of rows, with a function that lists its values."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if frame is not table:
        return [(column.name, column.to_list) for column in frame.iter_columns()]
    array = np.array(table, dtype=object) if isinstance(table, (list, tuple)) else np.asarray(table)
    return [(str(index), column.tolist) for index, column in enumerate(array.T)] if array.ndim == 2 else []


PHOTO_SIDE = 320  # pixels; photographs of one size up to this keep it
VALUES = 2**24  # pixel values, from evenly spaced images, that scales are learned from
COLOURS = (1, 3, 4)  # channels of an image: grey, colour, colour with alpha
SAMPLED = 256  # images, in even steps, whose mean pixel is measured
FACTOR = 10.0  # ratio of mean pixel values that suggests another scale


@dataclass(frozen=True, kw_only=True)
class ImageVectorizer(Vectorizer):
    """Images (n, channels, height, width), or a folder of them; each channel has one scale."""

    row_shape: RowShape
    noun: ClassVar[str] = "image"
    largest: ClassVar[int] = 64  # pixels of a side

    @classmethod
    def fit(cls, X: Any, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, LazyRows]:
        images = as_images(_folder(X, largest=cls.largest) if isinstance(X, (str, os.PathLike)) else X, least=2)
        check_varied(images)
        row_shape = RowShape(IMAGE, tuple(images.shape[1:]))
        channels, height, width = row_shape.shape
        if width in COLOURS and min(channels, height) > max(COLOURS):
            warn(
                f"X has shape {images.shape}, which is {channels} channels of {height} x {width} pixels; "
                "if the colours are the last axis, give X.transpose(0, 3, 1, 2)"
            )
        sides = sides_of(config.one_sided, labels_of(None, channels))
        features = cls.scaled(images, row_shape, sides, robust=config.robust)
        vectorizer = cls(features=features, columns_in=row_shape.size, row_shape=row_shape)
        return vectorizer, LazyRows(images, vectorizer.prepare)

    def read(self, X: Any) -> LazyRows:
        """Images of the training shape; files of a folder are resized to it."""
        channels, height, width = self.row_shape.shape
        if isinstance(X, (str, os.PathLike)):
            X = _folder(X, size=(height, width), channels=channels)
        images = as_images(X)
        if images.shape[1:] != self.row_shape.shape:
            raise ValueError(
                f"X holds images of shape {images.shape[1:]}, the detector was fitted to {self.row_shape.shape} "
                "(channels, height, width); convert or resize them"
            )
        if (warning := self.scale_warning(images)) is not None:
            warn(warning)
        return LazyRows(images, self.prepare)

    def scale_warning(self, images: np.ndarray) -> str | None:
        """A warning if pixels seem to have another scale than in training, such as 0 to 1 instead of 0 to 255."""
        sample = images[:: -(-len(images) // SAMPLED)].astype(np.float64)
        mean, usual = float(abs(sample).mean()), float((abs(self.features.mean) + self.features.scale).max())
        is_fraction = images.dtype.kind == "f" and abs(sample).max() <= 1 and (sample % 1).any()  # not dark bytes
        if mean < FACTOR * usual and not (is_fraction and mean * FACTOR < usual):
            return None
        return f"the mean pixel is {mean:.3g}, in training {usual:.3g}; convert the images to the scale of training"

    @staticmethod
    def scaled(images: np.ndarray, row_shape: RowShape, sides: np.ndarray, *, robust: bool) -> Features:
        """The scale of every channel, from at most VALUES pixel values."""
        sample = images[evenly_spaced_with_ends(np.arange(len(images)), max(2, VALUES // row_shape.size))]
        channel = row_shape.channel_of()
        values = sample.reshape(-1, row_shape.size)
        columns = np.stack([values[:, channel == c].ravel() for c in range(row_shape.channels)], axis=1)
        return Features.fit(columns, sides, robust=robust).spread(channel)


class PhotoVectorizer(ImageVectorizer):
    """Photographs for the pretrained encoder, which expects bytes as (x - 127) / 128."""

    largest: ClassVar[int] = PHOTO_SIDE

    @staticmethod
    def scaled(images: np.ndarray, row_shape: RowShape, sides: np.ndarray, *, robust: bool) -> Features:
        """Map black to white: 0 to 255 for bytes, 0 to 1 for fractions, or else the range of the images."""
        if sides.any():
            raise ValueError("one_sided does not apply to encoder='pretrained'; leave it out")
        low, high = (0.0, 255.0) if images.dtype == np.uint8 else (float(images.min()), float(images.max()))
        if low >= 0:
            low, high = 0.0, 1.0 if high <= 1 else max(high, 255.0)
        white = (high - low) / 255
        zeros = np.zeros(row_shape.size)
        sample = images[:: -(-len(images) // SAMPLED)]
        return Features(
            median=zeros + float(np.median(sample.mean(axis=(1, 2, 3)))),
            gaps=np.empty(0, np.int64),
            mean=zeros + low + 127 * white,
            scale=zeros + 128 * white,
            sides=zeros.astype(np.int64),
            knee=np.zeros(1),
            bent_mean=zeros,
            bent_scale=zeros + 1,
        )


def _folder(X: Any, **shape: Any) -> np.ndarray:
    pictures = read_images(X, **shape)
    for note in pictures.notes:
        warn(f"{X}: {note}")
    return pictures.images


def as_images(X: Any, *, least: int = 1) -> np.ndarray:
    """X as an array of images, bytes or finite numbers; grey images may lack the channel axis, (n, height, width)."""
    if np.ma.is_masked(X):
        raise ValueError("X has masked pixels; images cannot have gaps: give a number for every pixel")
    try:
        images = np.asarray(X)
    except ValueError:
        raise ValueError("X holds images of different sizes; resize them to one, or give a folder of files") from None
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise ValueError(f"X has shape {images.shape}; images are (n, channels, height, width), or (n, height, width)")
    if images.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {images.dtype}; images hold numbers: convert them to uint8 or float32")
    if len(images) < least:
        raise ValueError(f"X holds {counted(len(images), 'image')}; give at least {least} to learn from")
    images = images.view(np.uint8) if images.dtype.kind == "b" else images
    if images.dtype.kind == "f":
        is_invalid = ~np.isfinite(images.sum(axis=(1, 2, 3), dtype=np.float64))
        if is_invalid.any():
            raise ValueError(f"image {int(is_invalid.argmax())} of X holds NaN or infinity; give finite numbers")
    return images


def check_varied(images: np.ndarray) -> None:
    if (images == images[:1]).all():
        value = images[0].flat[0]
        detail = f"every pixel is {value}" if (images[0] == value).all() else "they are copies of one"
        raise ValueError(f"all {len(images)} images of X are the same, {detail}; give images that differ")


ACROSS = 8  # patches along a side, at most; contributions of an image are those of its patches


def patch_of(row_shape: RowShape) -> list[int]:
    """The patch of each number of a flat image; all channels of a pixel belong to one patch."""
    return np.broadcast_to(_patches(row_shape), row_shape.shape).ravel().tolist()


def attribution_maps(contributions: np.ndarray, row_shape: RowShape) -> np.ndarray:
    """Contributions of patches (n, patches) as maps (n, height, width), each shared by the pixels of its patch."""
    grid = _patches(row_shape)
    return np.asarray((contributions / np.bincount(grid.ravel()))[:, grid])


def _patches(row_shape: RowShape) -> np.ndarray:
    _, height, width = row_shape.shape
    rows, columns = (np.arange(side) // -(-side // ACROSS) for side in (height, width))
    return np.asarray(rows[:, None] * (columns[-1] + 1) + columns)
