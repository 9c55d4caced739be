"""What a user passes as X, checked once, and how it becomes features: numbers, a table with names, images."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from addml import parameters
from addml.arrays import is_resident, to_numpy
from addml.fitting import channel_features, fitted_columns, form_of, warn, warn_of_columns, warn_of_texts
from addml.inputs.disk import is_on_disk
from addml.inputs.forms import Form
from addml.inputs.frame import has_other_than_numbers, is_frame, settled
from addml.inputs.image import as_images, channels_last, other_scale, varied
from addml.inputs.series import Sampling, Series, Windows, read_series, windows_of
from addml.io.image_folder import is_image_folder
from addml.model import MetricModel
from addml.preprocessing.scaling import NEW_GAPS, Features
from addml.recipe import Recipe
from addml.text import counted

if TYPE_CHECKING:
    from addml.inputs.table import Columns
    from addml.preprocessing.text_values import TextCells


class Reads(Recipe):
    """An estimator that takes arrays, frames and images; `model_` knows which once it is fitted."""

    model_: MetricModel
    sampling_: Sampling
    n_features_in_: int
    _texts: TextCells  # in columns of numbers of the table that was learned from

    def _read(self, X: Any, *, fitting: bool = False, resident: bool = False) -> Any:
        """X, checked once, here: an array of numbers (n, ...) with NaN for gaps, or a pyarrow table.

        A tensor on a device stays there where `resident` allows it.
        """
        X = settled(X)
        if self.window is not None if fitting else self._is_series:
            return self._series(to_numpy(X) if is_resident(X) else X, fitting)
        if is_resident(X):
            if resident:
                return self._resident(X)
            X = to_numpy(X)
        if self._takes_images(X) if fitting else self.model_.form is not None:
            return self._images(X, fitting)
        if is_on_disk(X):
            raise TypeError(
                f"{X!r} is a table on disk, which fit, the methods that score and write_scores take; "
                "read the rows to look at, and give them: pyarrow.parquet.read_table(...)"
            )
        if has_other_than_numbers(X) if fitting else self.model_.columns is not None:
            return self._table(X, fitting)
        if fitting or not self._is_plain(X):
            X = self._numbers(X, fitting)
        parameters.finite(X, self._names())
        if not fitting:
            warn_of_columns(NEW_GAPS, self.model_.features.new_gaps(X), self._names())
        return np.asarray(X)

    def _is_on_disk(self, X: Any, *, fitting: bool = False) -> bool:
        """Whether X is a table on disk, which is read part by part: no series and no folder of images."""
        if not is_on_disk(X):
            return False
        if not fitting:
            return self.model_.form is None
        path = isinstance(X, (str, os.PathLike))
        return self.window is None and not (path and (self.encoder == "conv" or is_image_folder(X)))

    def _resident(self, X: Any) -> Any:
        shape = (self.n_features_in_,) if self.model_.form is None else self.model_.form.shape
        if tuple(X.shape[1:]) != shape or not len(X) or X.is_complex():
            raise ValueError(f"X has shape {tuple(X.shape)} ({X.dtype}); the detector was fitted to rows of {shape}")
        return X

    @property
    def _is_series(self) -> bool:
        return self.model_.form is not None and self.model_.form.is_series

    def _series(self, X: Any, fitting: bool) -> Windows:
        """The windows that end at each step of one series or of many; what was filled is said."""
        series = read_series(X)
        channels = series[0].values.shape[1]
        if fitting:
            self._take_channels(series)
        elif channels != self.n_features_in_:
            raise ValueError(
                f"X has {counted(channels, 'channel')}, the detector was fitted to {self.n_features_in_}; "
                "give the same ones"
            )
        series = [self._by_name(one) for one in series]
        window = int(self.window) if fitting else self.model_.form.shape[0]  # type: ignore[arg-type, union-attr]
        usual = _usual(series, self._names()) if fitting else self.model_.step_features.median
        windows, self.sampling_ = windows_of(series, window, usual)
        for sentence in self.sampling_.words():
            warn(sentence)
        if fitting:
            self._enough(windows)
        return windows

    def _take_channels(self, series: list[Series]) -> None:
        self.n_features_in_ = series[0].values.shape[1]
        vars(self).pop("feature_names_in_", None)
        if series[0].names is not None:
            self.feature_names_in_ = np.array(series[0].names, object)

    def _by_name(self, one: Series) -> Series:
        """The channels in the order of fit, where both have names."""
        names = self._names()
        if one.names is None or not hasattr(self, "feature_names_in_") or one.names == names:
            return one
        if set(one.names) != set(names):
            raise ValueError(f"X has the channels {one.names} where others have {names}; give the same ones everywhere")
        return Series(one.values[:, [one.names.index(name) for name in names]], names, one.times)

    def _enough(self, windows: Windows) -> None:
        whole = len(windows.whole(1))
        if whole < 2:
            longest = int(windows.age.max()) + 1
            most = 4 * longest // 5  # so that a second one begins a quarter of it later
            remedy = f"give a window of at most {most}, or " if longest > 1 else "give "
            raise ValueError(
                f"window={self.window} makes {counted(whole, 'whole window')} of X, whose longest series has "
                f"{counted(longest, 'step')} in a row at most; {remedy}a longer series"
            )

    def _takes_images(self, X: Any) -> bool:
        folder = isinstance(X, (str, os.PathLike))
        return folder or getattr(X, "ndim", 2) == 4 or self.encoder == "conv"

    def _images(self, X: Any, fitting: bool) -> np.ndarray:
        if isinstance(X, (str, os.PathLike)):
            X = self._folder(X, fitting)
        images = as_images(X, least=2 if fitting else 1)
        if fitting:
            varied(images)
            turned = channels_last(images)
            if turned is not None:
                warn(turned)
            self.n_features_in_ = math.prod(images.shape[1:])
            vars(self).pop("feature_names_in_", None)
            return images
        assert self.model_.form is not None
        if images.shape[1:] != self.model_.form.shape:
            raise ValueError(
                f"X holds images of shape {images.shape[1:]}, the detector was fitted to {self.model_.form.shape} "
                "(channels, height, width); convert or resize them"
            )
        strange = other_scale(images, self.model_.features.mean, self.model_.features.scale)
        if strange is not None:
            warn(strange)
        return images

    def _folder(self, X: Any, fitting: bool) -> np.ndarray:
        """The images of a folder, in the size that was fitted to; what was changed is said."""
        from addml.io.image_folder import read_images  # Pillow

        shape: dict[str, Any] = {}
        if not fitting:
            assert self.model_.form is not None
            channels, height, width = self.model_.form.shape
            shape = {"size": (height, width), "channels": channels}
        found = read_images(X, **shape)
        for note in found.notes:
            warn(f"{X}: {note}")
        return found.images

    def _table(self, X: Any, fitting: bool) -> Any:
        """A frame with columns that are not numbers, as a pyarrow table; columns go by name."""
        if not fitting and not is_frame(X):
            raise TypeError(f"the detector was fitted to a table with named columns; give such a table, not {type(X)}")
        from addml.inputs.table import as_table  # pyarrow, only where there is a table

        table, least = as_table(X), 2 if fitting else 1
        if len(table) < least:
            raise ValueError(
                f"X has {counted(len(table), 'sample')}, while a minimum of {least} is required: give more rows"
            )
        if fitting:
            validate_data(self, table, skip_check_array=True)  # its names are texts, whatever those of X are
        else:
            assert self.model_.columns is not None
            drift = self.model_.columns.counted(table)
            for sentence in drift.new_gaps:
                warn(sentence)
            warn_of_texts(drift.texts)
        return table

    def _numbers(self, given: Any, fitting: bool) -> np.ndarray:
        if isinstance(given, np.ma.MaskedArray):
            given = np.ma.filled(given.astype(object), np.nan)
        least = 2 if fitting else 1
        try:
            X: np.ndarray = validate_data(
                self, given, reset=fitting, dtype="numeric", ensure_all_finite=False, ensure_min_samples=least
            )
            X = X.astype(np.float64) if X.dtype.kind == "O" else X  # of a frame of Python objects
            if X.dtype.kind not in "biuf":
                raise TypeError(f"X has dtype {X.dtype}")
        except (TypeError, ValueError) as error:
            raise parameters.not_numbers(given, error) from None
        parameters.exact(given, X, self._names())
        if X.dtype.kind == "b":
            return X.astype(np.float32)
        with np.errstate(over="ignore"):
            return X.astype(np.float64) if X.dtype.itemsize > 8 else X

    def _is_plain(self, X: Any) -> bool:
        """An array that needs none of scikit-learn's checks, which cost more than scoring a row."""
        plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X) > 0
        return plain and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")

    def _names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", map(str, range(self.n_features_in_))))

    # How it is prepared --------------------------------------------------------------------------------------

    def _prepared(self, X: Any, start: MetricModel | None) -> tuple[Columns | None, Features, np.ndarray]:
        """How columns become features, learned from X or as before, and the numbers of X."""
        if start is not None:
            return start.columns, start.features, X if start.columns is None else start.columns.transform(X)
        form, robust = form_of(X), self._robust
        if form is not None:
            return None, channel_features(X, form, self._sides(form, None), robust=robust), X
        if not isinstance(X, np.ndarray):
            return self._prepared_table(X)
        features = Features.fit(X, self._sides(None, None), robust=robust)
        warn_of_columns("columns without a single value tell nothing", features.empty, self._names())
        return None, features, X

    def _prepared_table(self, table: Any) -> tuple[Columns, Features, np.ndarray]:
        from addml.inputs.table import DriftCounter

        columns = fitted_columns(table)
        sides = self._sides(None, columns)
        columns = columns.facing(sides)
        drift = DriftCounter(columns)
        numbers = columns.transform(table, drift)
        self._texts = drift.texts
        warn_of_texts(drift.texts)
        return columns, columns.rescaled(Features.fit(numbers, sides, robust=self._robust)), numbers

    def _sides(self, form: Form | None, columns: Columns | None) -> np.ndarray:
        """Which side of each column or channel matters."""
        if form is not None and not form.is_series:
            return parameters.sides(self.one_sided, list(map(str, range(form.channels))))
        return parameters.sides(self.one_sided, self._names() if columns is None else columns.own_names)

    def _check_preparation(self, start: MetricModel) -> None:
        """What `refit` prepares as before must not be asked for in another way."""
        form, sides = start.form, self._sides(start.form, start.columns)
        same = {
            "scaling": self._robust == bool(start.features.knee[0]),
            "one_sided": np.array_equal(sides if form is None else sides[form.channel_of()], start.features.sides),
            "window": self.window == (form.shape[0] if form is not None and form.is_series else None),
        }
        changed = [f"{name}={getattr(self, name)!r}" for name, is_same in same.items() if not is_same]
        if changed:
            raise ValueError(f"refit prepares rows as before, not by {', '.join(changed)}: set it back, or use fit")


def _usual(series: list[Series], names: list[str]) -> np.ndarray:
    """The median of every channel, 0 where there is no value; stands for what is missing before any value is known."""
    usual, empty = np.zeros(len(names)), np.zeros(len(names), bool)
    for channel in range(len(names)):
        own = np.concatenate([one.values[:, channel] for one in series]).astype(np.float64)
        known = own[~np.isnan(own)]
        empty[channel] = not len(known)
        usual[channel] = 2 * np.median(known / 2) if len(known) else 0.0  # halves: the sum of two may overflow
    warn_of_columns("channels without a single value tell nothing", np.flatnonzero(empty), names)
    return usual
