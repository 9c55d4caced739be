"""Vectorizers of tables, images and series, and which one X asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from addml.arrays import evenly_spaced_with_ends
from addml.errors import DroppedColumnsWarning, warn, warn_of_columns, warn_of_texts
from addml.inputs.array import ArrayVectorizer
from addml.inputs.frame import as_table, has_other_than_numbers, is_frame
from addml.inputs.image import as_images, channels_last, other_scale, varied
from addml.inputs.rows import LazyRows, Rows, WindowRows
from addml.inputs.series import Sampling, Series, Windows, choose_window, read_series, windows_of
from addml.inputs.table import Columns, DriftCounter, Standardised
from addml.inputs.vectorizer import Form, Settings, Vectorizer, names_or_places, sides_of
from addml.io.image_folder import read_images
from addml.preprocessing.groups import Groups
from addml.preprocessing.profile import ColumnProfile, channel_profiles, column_profiles
from addml.preprocessing.scaling import Features
from addml.text import counted, did_you_mean, listed

BRIGHTER = 0.08  # of white: how far the median brightness of images may lie from that of training
PHOTO_SIDE = 320  # pixels; photographs of one size up to this keep it
VALUES = 2**24  # numbers of images, at even steps, that scales are learned from


def vectorizer_for(X: Any, settings: Settings, *, images: bool = False) -> type[Vectorizer]:
    """The vectorizer for the kind of rows that X and the settings ask for; `images` for an encoder of images alone."""
    if settings.window is not None:
        return SeriesVectorizer
    if settings.by and not is_frame(X):
        kind = type(X).__name__
        raise ValueError(f"by={list(settings.by)!r} names columns of a data frame or an Arrow table, and X is {kind}")
    if isinstance(X, (str, os.PathLike)) or getattr(X, "ndim", 2) in (3, 4) or images:
        return PhotoVectorizer if settings.frozen else ImageVectorizer
    return TableVectorizer if settings.by or has_other_than_numbers(X) else ArrayVectorizer


def vectorizer_of(document: dict[str, Any], features: Features, *, photographs: bool = False) -> Vectorizer:
    """The vectorizer of a saved model; raises ValueError where its parts do not fit together."""
    columns, form, names, given = (document[name] for name in ("columns", "form", "names", "columns_in"))
    numbers, gaps = len(features.median), features.gaps.tolist()
    named = names is None or (len(set(names)) == given and all(isinstance(name, str) for name in names))
    own: dict[str, Any] = {"columns_in": given, "names": names and tuple(names), "features": features}
    if columns is not None:
        known = Columns.from_plain(columns)
        one: Vectorizer = TableVectorizer(columns=known, **own)
        fits = len(known.names) == numbers and set(known.used) <= set(names)
    elif form is not None:
        shape = Form.from_plain(form)
        images = PhotoVectorizer if photographs else ImageVectorizer
        one = (SeriesVectorizer if shape.is_series else images)(form=shape, **own)
        fits = given == (shape.channels if shape.is_series else shape.size) and shape.size == numbers
    else:
        one, fits = ArrayVectorizer(**own), given == numbers
    if type(given) is not int or not named or not fits or gaps != sorted({*gaps} & {*range(numbers)}):
        raise ValueError(f"columns_in={given!r}, the names {names} and {numbers} medians do not fit together")
    return one


# Tables -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TableVectorizer(Vectorizer):
    """A frame or an Arrow table with columns of any kind; columns go by name."""

    columns: Columns

    @classmethod
    def fit(cls, X: Any, settings: Settings, names: tuple[str, ...] | None = None) -> tuple[Self, LazyRows]:
        """Decide the type of every column, and learn its scale."""
        table = _read_table(X, least=2)
        columns = Columns.fit(table.drop_columns(_group_columns(table, settings.by)))
        warn_of_dropped(columns)
        columns = columns.within_groups(table, settings.by)
        sides = sides_of(settings.one_sided, columns.own_names)
        columns = columns.facing(sides)
        drift = DriftCounter(columns)
        numbers = columns.transform(table, drift)
        warn_of_texts(drift.texts)
        features = columns.rescaled(Features.fit(numbers, sides, robust=settings.robust))
        names = tuple(table.column_names)
        one = cls(features=features, columns_in=len(names), names=names, columns=columns)
        rows = LazyRows(table, one.prepare, features.transform(numbers))
        rows.groups = one.groups_of(table)
        return one, rows

    def read(self, X: Any) -> LazyRows:
        if not is_frame(X):
            raise TypeError(f"the detector was fitted to a table with named columns; give such a table, not {type(X)}")
        table = _read_table(X, least=1)
        drift = self.columns.counted(table)
        for sentence in (*drift.new_gaps, *drift.unseen_words):
            warn(sentence)
        warn_of_texts(drift.texts)
        rows = LazyRows(table, self.prepare)
        rows.groups = self.groups_of(table)
        return rows

    def prepare(self, values: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """Some rows as features; `drift` counts them in passing."""
        return self._standardised.transform(values, drift)

    @cached_property
    def _standardised(self) -> Standardised:
        return Standardised(self.columns, self.features)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        return column_profiles(self.columns, rows.values.filter(normal) if isinstance(rows, LazyRows) else None)

    def sides(self, one_sided: Any) -> np.ndarray:
        return sides_of(one_sided, self.columns.own_names)


def _read_table(X: Any, least: int) -> pa.Table:
    table = as_table(X)
    if len(table) < least:
        samples = counted(len(table), "sample")
        raise ValueError(f"X has {samples}, while a minimum of {least} is required: give more rows")
    return table


def _group_columns(table: pa.Table, by: tuple[str, ...]) -> list[str]:
    """The columns that name groups, which must be there."""
    for name in by:
        if name not in table.column_names:
            hint = did_you_mean(name, table.column_names) or f" The columns are: {listed(table.column_names, 10)}."
            raise ValueError(f"by={list(by)!r}: there is no column {name!r}.{hint}")
    return list(by)


def warn_of_dropped(columns: Columns) -> None:
    """Warn of the columns that are not learned from, and of values that became missing ones."""
    if columns.left_out:
        reasons = [f"{name!r} ({reason})" for name, reason in columns.left_out]
        warn(f"columns left out: {listed(reasons, between='; ')}", DroppedColumnsWarning)
    for note in columns.unread:
        warn(note, DroppedColumnsWarning)


# Images -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ImageVectorizer(Vectorizer):
    """Images (n, channels, height, width), or a folder of them; the numbers of a channel are scaled alike."""

    form: Form
    noun: ClassVar[str] = "image"
    largest: ClassVar[int] = 64  # pixels of a side

    @classmethod
    def fit(cls, X: Any, settings: Settings, names: tuple[str, ...] | None = None) -> tuple[Self, LazyRows]:
        images = as_images(_folder(X, largest=cls.largest) if isinstance(X, (str, os.PathLike)) else X, least=2)
        varied(images)
        if (turned := channels_last(images)) is not None:
            warn(turned)
        form = Form("images", tuple(images.shape[1:]))
        sides = sides_of(settings.one_sided, list(map(str, range(form.channels))))
        features = cls.scaled(images, form, sides, robust=settings.robust)
        one = cls(features=features, columns_in=form.size, form=form)
        return one, LazyRows(images, one.prepare)

    def read(self, X: Any) -> LazyRows:
        """Images of the same shape; those of a folder are resized to it."""
        channels, height, width = self.form.shape
        if isinstance(X, (str, os.PathLike)):
            X = _folder(X, size=(height, width), channels=channels)
        images = as_images(X)
        if images.shape[1:] != self.form.shape:
            raise ValueError(
                f"X holds images of shape {images.shape[1:]}, the detector was fitted to {self.form.shape} "
                "(channels, height, width); convert or resize them"
            )
        if (strange := self.strange(images)) is not None:
            warn(strange)
        return LazyRows(images, self.prepare)

    def strange(self, images: np.ndarray) -> str | None:
        """How images differ from those of training as a whole; None if they do not."""
        return other_scale(images, self.features.mean, self.features.scale)

    @staticmethod
    def scaled(images: np.ndarray, form: Form, sides: np.ndarray, *, robust: bool) -> Features:
        """The scale of every channel, by some of the images where there are many."""
        some = images[evenly_spaced_with_ends(np.arange(len(images)), max(2, VALUES // form.size))]
        channel = form.channel_of()
        values = some.reshape(-1, form.size)
        columns = np.stack([values[:, channel == c].ravel() for c in range(form.channels)], axis=1)
        return Features.fit(columns, sides, robust=robust).spread(channel)

    def prepare(self, values: np.ndarray) -> np.ndarray:
        return self.features.transform(values.reshape(len(values), self.form.size))

    def sides(self, one_sided: Any) -> np.ndarray:
        sides = sides_of(one_sided, list(map(str, range(self.form.channels))))
        return np.asarray(sides[self.form.channel_of()])


class PhotoVectorizer(ImageVectorizer):
    """Photographs for the pretrained encoder, which takes (x - 127) / 128 of bytes."""

    largest: ClassVar[int] = PHOTO_SIDE

    def strange(self, images: np.ndarray) -> str | None:
        """That their scale or their brightness is not that of training; None if both are."""
        usual, white = float(self.features.median[0]), 255 / 128 * float(self.features.scale[0])
        here = float(np.median(images.mean(axis=(1, 2, 3))))
        found = super().strange(images)
        if found is not None or abs(here - usual) <= BRIGHTER * white:
            return found
        word = "brighter" if here > usual else "darker"
        return (
            f"these images are {word} than those of training ({here / white:.0%} of white, {usual / white:.0%} then), "
            "and may be flagged for that alone; light them as in training, or fit the model again"
        )

    @staticmethod
    def scaled(images: np.ndarray, form: Form, sides: np.ndarray, *, robust: bool) -> Features:
        """Black is 0 and white 255, or 1 where no number is larger; other numbers go from the least to the largest."""
        if sides.any():
            raise ValueError("one_sided does not apply to encoder='pretrained'; leave it out")
        low, high = (0.0, 255.0) if images.dtype == np.uint8 else (float(images.min()), float(images.max()))
        if low >= 0:
            low, high = 0.0, 1.0 if high <= 1 else max(high, 255.0)
        white = (high - low) / 255
        size, own = np.zeros(form.size), images[:: -(-len(images) // 256)]
        median = size + float(np.median(own.mean(axis=(1, 2, 3))))
        mean, scale = size + low + 127 * white, size + 128 * white
        gaps, knee = np.empty(0, np.int64), np.zeros(1)
        return Features(median, gaps, mean, scale, size.astype(np.int64), knee, size, size + 1)


def _folder(X: Any, **shape: Any) -> np.ndarray:
    """The images of a folder; what was changed is reported."""
    found = read_images(X, **shape)
    for note in found.notes:
        warn(f"{X}: {note}")
    return found.images


# Series -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SeriesVectorizer(Vectorizer):
    """One series or many: a row is the window that ends at a step."""

    form: Form
    entities: Groups | None = None
    noun: ClassVar[str] = "step"

    @classmethod
    def fit(cls, X: Any, settings: Settings, names: tuple[str, ...] | None = None) -> tuple[Self, WindowRows]:
        """Learn the scale of every channel, and of every entity where there are some."""
        sampling = Sampling()
        series = read_series(X, settings.by, sampling)
        names = None if series[0].names is None else tuple(series[0].names)
        channels = series[0].values.shape[1]
        assert settings.window is not None
        labels, length = names_or_places(names, channels), settings.window.length
        series = [_in_order(one, labels, named=names is not None) for one in series]
        entities = _entities(series, labels, settings.by)
        series = [_on_whole_scale(one, entities) for one in series]
        medians = _medians(series, labels)
        if length == "auto":
            length, sampling.window = choose_window(max(series, key=lambda one: len(one.values)))
        windows = _windows(series, int(length), medians, sampling)
        _check_enough(windows, int(length))
        form = Form("series", windows.shape[1:], bool(settings.window.causal))
        features = Features.fit(windows.steps, sides_of(settings.one_sided, labels), robust=settings.robust)
        if channels > 1 and not settings.robust:
            features = features.bent  # a channel a hundred deviations out would be all that counts
        features = replace(features, median=medians)  # later series are filled as this one was
        features = features.spread(form.channel_of())
        one = cls(features=features, columns_in=channels, names=names, form=form, entities=entities)
        rows = one._rows(windows, sampling, series)
        rows.steps = np.concatenate([own.values for own in series])
        return one, rows

    def read(self, X: Any) -> WindowRows:
        sampling = Sampling()
        series = read_series(X, () if self.groups is None else self.groups.by, sampling)
        channels = series[0].values.shape[1]
        if channels != self.columns_in:
            raise ValueError(
                f"X has {counted(channels, 'channel')}, the detector was fitted to {self.columns_in}; "
                "give the same ones"
            )
        series = [_in_order(one, self.labels, named=self.names is not None) for one in series]
        series = [_on_whole_scale(one, self.entities) for one in series]
        windows = _windows(series, self.form.shape[0], self.step_features.median, sampling)
        return self._rows(windows, sampling, series)

    def _rows(self, windows: Windows, sampling: Sampling, series: Sequence[Series]) -> WindowRows:
        rows = WindowRows(windows.prepared(self.step_features.transform), sampling)
        if self.entities is not None:
            codes = [self.entities.code(one.key) for one in series]
            rows.groups = np.repeat(codes, [len(one.values) for one in series])
        return rows

    @property
    def groups(self) -> Groups | None:
        """The entities, each with a scale and a threshold of its own."""
        return self.entities

    def with_groups(self, groups: Groups) -> Self:
        return replace(self, entities=groups)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"entities": None if self.entities is None else self.entities.to_json()}

    @property
    def step_features(self) -> Features:
        """How one step becomes features."""
        return self.features.first(self.form.channels)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        steps = rows.steps if isinstance(rows, WindowRows) else None
        return () if steps is None else channel_profiles(self.labels, steps[normal])

    def prepare(self, values: np.ndarray) -> np.ndarray:
        return self.features.transform(values.reshape(len(values), self.form.size))

    def sides(self, one_sided: Any) -> np.ndarray:
        return np.asarray(sides_of(one_sided, self.labels)[self.form.channel_of()])


def _entities(series: Sequence[Series], names: list[str], by: tuple[str, ...]) -> Groups | None:
    """The level and spread of every channel in each entity; None without entities."""
    if not by:
        return None
    keys = np.repeat([str(one.key) for one in series], [len(one.values) for one in series])
    values = np.concatenate([one.values for one in series]).astype(np.float64)
    groups = Groups.fit(pa.table({by[0]: keys}), by[:1], dict(zip(names, values.T, strict=True)))
    return replace(groups, by=by)


def _on_whole_scale(one: Series, entities: Groups | None) -> Series:
    """The series on the level and spread of all of them, where it is that of an entity."""
    if entities is None:
        return one
    code = entities.code(one.key)
    return replace(one, values=one.values * entities.ratio[code] + entities.shift[code])


def _in_order(one: Series, names: list[str], *, named: bool) -> Series:
    """The channels in the order of training, where both have names."""
    if one.names is None or not named or one.names == names:
        return one
    if set(one.names) != set(names):
        raise ValueError(f"X has the channels {one.names} where others have {names}; give the same ones everywhere")
    return replace(one, values=one.values[:, [one.names.index(name) for name in names]], names=names)


def _windows(series: Sequence[Series], window: int, usual: np.ndarray, sampling: Sampling) -> Windows:
    windows = windows_of(series, window, usual, sampling)
    for sentence in sampling.words():
        warn(sentence)
    return windows


def _check_enough(windows: Windows, window: int) -> None:
    whole, longest = len(windows.whole(1)), int(windows.age.max()) + 1
    if whole < 2:
        most = 4 * longest // 5  # so that a second one begins a quarter of it later
        remedy = f"give a window of at most {most}, or " if longest > 1 else "give "
        raise ValueError(
            f"window={window} makes {counted(whole, 'whole window')} of X, whose longest series has "
            f"{counted(longest, 'step')} in a row at most; {remedy}a longer series"
        )


def _medians(series: Sequence[Series], names: list[str]) -> np.ndarray:
    """The median of every channel, 0 where there is no value; stands for what is missing before any value is known."""
    channels = np.concatenate([one.values for one in series]).astype(np.float64).T
    known = [values[~np.isnan(values)] for values in channels]
    empty = np.array([place for place, values in enumerate(known) if not len(values)], np.int64)
    warn_of_columns("channels without a single value tell nothing", empty, names)
    return np.array([2 * np.median(own / 2) if len(own) else 0.0 for own in known])  # halves: two may overflow
