"""From a table of numbers with gaps to standardised float32 rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from addml.arrays import column_medians

NEW_GAPS = "missing values in columns that had none in training took the median"
COLUMNS_AT_ONCE = 64
ROWS_AT_ONCE = 16384
FARTHEST = 1e9  # deviations; what lies farther is as far as anything, and float32 products stay finite
ROUNDING = 1e-9  # of what a column varies by
KNEE = 5.0  # deviations from which robust features grow like a logarithm
SIGN = np.int32(-(2**31))  # the bit of it in a float32
NORMAL_QUARTILES = 1.3489795003921634  # their distance, in deviations of a normal law


@dataclass(frozen=True, eq=False)
class Features:
    """How columns become features: gaps take the training median and a flag, then all is standardised.

    Standard features are measured from the mean in deviations. Robust ones are measured from the median in distances of
    the quartiles, which strange rows do not stretch, and bend beyond the knee: in a column with a heavy tail a value a
    thousand deviations out is far, and does not make everything else look alike. Networks want columns that vary alike,
    so that what is bent is then standardised; `reach` says how far each column went before that.
    """

    median: np.ndarray  # (d,)
    gaps: np.ndarray  # columns that had gaps in training, each with a flag of its own behind the columns
    mean: np.ndarray  # (d + flags,)
    scale: np.ndarray  # (d + flags,), 1 where a column is constant
    sides: np.ndarray  # (d,): 1 where only high values matter, -1 where only low ones, else 0
    knee: np.ndarray  # (1,): where features bend, 0 where they do not
    shift: np.ndarray  # (d + flags,): the mean of a bent feature
    reach: np.ndarray  # (d + flags,): its deviation, 1 where it is constant or not bent

    @classmethod
    def fit(cls, X: np.ndarray, sides: np.ndarray | None = None, *, robust: bool = False) -> Features:
        """Learn medians, and means and deviations or what is robust in their place, from X (n, d)."""
        sides = np.zeros(X.shape[1], np.int64) if sides is None else sides
        blocks = [slice(start, start + COLUMNS_AT_ONCE) for start in range(0, X.shape[1], COLUMNS_AT_ONCE)]
        parts = [_statistics(X[:, block], sides[block], robust) for block in blocks]
        median, mean, scale, share = (np.concatenate(part) for part in zip(*parts, strict=True))
        gaps = np.flatnonzero(share > 0)
        deviation = np.sqrt(share[gaps] * (1 - share[gaps]))
        flags = np.where(deviation > 0, deviation, 1.0)
        mean, scale = np.concatenate([mean, share[gaps]]), np.concatenate([scale, flags])
        nothing = np.zeros(len(mean))
        features = cls(median, gaps, mean, scale, sides, np.array([KNEE if robust else 0.0]), nothing, nothing + 1)
        return features._standardised(X) if robust else features

    def _standardised(self, X: np.ndarray) -> Features:
        """The features whose columns vary alike over X after they were bent; flags of gaps stay as they are."""
        total, squares = np.zeros(self.width), np.zeros(self.width)
        for start in range(0, len(X), ROWS_AT_ONCE):
            bent = self.transform(X[start : start + ROWS_AT_ONCE]).astype(np.float64, order="C")  # as in _statistics
            total += bent.sum(axis=0)
            squares += (bent * bent).sum(axis=0)
        shift = total / len(X)
        reach = np.sqrt(np.maximum(squares / len(X) - shift**2, 0))
        varies = (reach > ROUNDING) & (np.arange(self.width) < len(self.median))
        return replace(self, shift=np.where(varies, shift, 0.0), reach=np.where(varies, reach, 1.0))

    def with_scales(self, scale: np.ndarray, chosen: np.ndarray) -> Features:
        """The features with these scales where they are chosen, which are then not standardised again."""
        shift, reach = np.where(chosen, 0.0, self.shift), np.where(chosen, 1.0, self.reach)
        return replace(self, scale=np.where(chosen, scale, self.scale), shift=shift, reach=reach)

    def refined(self, mean: np.ndarray, deviation: np.ndarray, gaps: np.ndarray) -> Features:
        """These features, which a sample gave, standardised anew by their means and deviations over all rows.

        `gaps` are the shares of gaps over all rows, of the columns that have some.
        """
        columns = len(self.median)
        varies = (deviation > ROUNDING) & (np.arange(self.width) < columns)
        mean, deviation = np.where(varies, mean, 0.0), np.where(varies, deviation, 1.0)
        spread = np.sqrt(gaps * (1 - gaps))
        if self.knee[0]:
            own = replace(self, shift=self.shift + self.reach * mean, reach=self.reach * deviation)
        else:
            own = replace(self, mean=self.mean + self.scale * mean, scale=self.scale * deviation)
        flags = np.concatenate([own.mean[:columns], gaps]), np.concatenate([own.scale[:columns], spread])
        return replace(own, mean=flags[0], scale=np.where(flags[1] > 0, flags[1], 1.0))

    def spread(self, column: np.ndarray) -> Features:
        """The features of rows in which each number, as those of a channel, is one of these columns: no gaps."""
        if len(self.gaps):
            raise ValueError(f"columns {self.gaps.tolist()} have missing values; fill them first")
        own = {name: getattr(self, name)[column] for name in ("median", "mean", "scale", "sides", "shift", "reach")}
        return replace(self, **own)

    @property
    def is_robust(self) -> bool:
        """Whether they are measured in distances of quartiles: such features are standardised once more."""
        return bool(self.knee[0]) and bool((self.reach != 1).any() or (self.shift != 0).any())

    width = property(lambda self: len(self.mean))

    @property
    def empty(self) -> np.ndarray:
        """Columns that had nothing but gaps in training."""
        return np.asarray(self.gaps[self.mean[len(self.median) :] == 1])

    def of(self, columns: np.ndarray) -> tuple[Features, np.ndarray]:
        """The features of some columns alone, in ascending order, and their places among all features."""
        flags = np.flatnonzero(np.isin(self.gaps, columns))
        places = np.concatenate([columns, len(self.median) + flags])
        gaps = np.searchsorted(columns, self.gaps[flags])
        wide = {name: getattr(self, name)[places] for name in ("mean", "scale", "shift", "reach")}
        return replace(self, median=self.median[columns], gaps=gaps, sides=self.sides[columns], **wide), places

    def transform(self, X: np.ndarray) -> np.ndarray:
        """X (n, d) as float32 features (n, width); a value over a billion deviations out counts as that far."""
        columns = X.shape[1]
        values = np.empty((len(X), self.width), order="F" if X.flags.f_contiguous else "C")
        with np.errstate(over="ignore", invalid="ignore"):
            values[:, :columns] = X  # a copy and then in place: faster than subtracting across types
            _fold(values[:, :columns], self.sides, self.median)
            values[:, :columns] -= self.mean[:columns]
            values[:, columns:] = -self.mean[columns:]
            values /= self.scale
            features = values.astype(np.float32)
            if not np.isfinite(features.sum()):
                self._mend(X, values)
                features = values.astype(np.float32)
        np.clip(features, -FARTHEST, FARTHEST, out=features)
        if self.knee[0]:
            bend(features, np.float32(self.knee[0]))
            features -= self.shift.astype(np.float32)
            features /= self.reach.astype(np.float32)
        return features

    def _mend(self, X: np.ndarray, values: np.ndarray) -> None:
        """Fill gaps, and divide before subtracting where a difference is beyond float64; in the columns with such."""
        columns = X.shape[1]
        mean, scale = self.mean[:columns], self.scale[:columns]
        for column in np.flatnonzero(~np.isfinite(values[:, :columns].sum(axis=0))):
            own, missing = values[:, column], np.isnan(X[:, column])
            own[missing] = (self.median[column] - mean[column]) / scale[column]
            far = np.isinf(own)
            own[far] = X[far, column] / scale[column] - mean[column] / scale[column]
        for flag, column in enumerate(self.gaps, start=columns):
            values[:, flag] = (np.isnan(X[:, column]) - self.mean[flag]) / self.scale[flag]

    def new_gaps(self, X: np.ndarray) -> np.ndarray:
        """Columns of X with gaps that had none in training."""
        with np.errstate(over="ignore", invalid="ignore"):
            if X.dtype.kind != "f" or np.isfinite(X.sum()):
                return np.empty(0, np.int64)
        return np.setdiff1d(np.flatnonzero(np.isnan(X).any(axis=0)), self.gaps)


def bend(features: np.ndarray, knee: np.float32) -> None:
    """Features f in place as sign(f) k log(1 + |f| / k): what is small stays as it is, what is large grows slowly."""
    size = np.abs(features)
    size /= knee
    np.log1p(size, out=size)
    size *= knee
    bits = features.view(np.int32)
    bits &= SIGN  # by hand, which is four times as fast as `copysign`
    bits |= size.view(np.int32)


def _fold(X: np.ndarray, sides: np.ndarray, median: np.ndarray) -> None:
    """Put the median in place of values on the side that does not matter, in place."""
    for column in np.flatnonzero(sides):
        keep = np.maximum if sides[column] > 0 else np.minimum
        keep(X[:, column], median[column], out=X[:, column])  # a gap stays a gap


def _statistics(X: np.ndarray, sides: np.ndarray, robust: bool) -> tuple[np.ndarray, ...]:
    """Median, mean, deviation and share of gaps of each column, gaps filled by the median.

    Where robust, the median stands for the mean, and the distance of the quartiles for the deviation unless it is 0.
    """
    X = np.array(X, np.float64, order="C")  # sums round alike whatever the order in memory
    missing = np.isnan(X)
    share, median = missing.mean(axis=0), 2 * column_medians(X / 2)  # halves: the sum of two may overflow
    for column in np.flatnonzero(share > 0):
        known = X[~missing[:, column], column]
        median[column] = 2 * np.median(known / 2) if len(known) else 0.0
        X[missing[:, column], column] = median[column]
    _fold(X, sides, median)
    low, high = X.min(axis=0), X.max(axis=0)
    largest = np.maximum(np.maximum(-low, high), np.finfo(float).tiny)  # values around 1e200 must not overflow
    X /= largest
    mean, scale = X.mean(axis=0), X.std(axis=0)
    constant = low == high
    if robust:
        low_tenth, first, third, high_tenth = np.quantile(X, [0.1, 0.25, 0.75, 0.9], axis=0)
        varies = third - first > ROUNDING * (high_tenth - low_tenth)  # a far value stretches the deviation, not these
        mean, scale = median / largest, np.where(varies, (third - first) / NORMAL_QUARTILES, scale)
    with np.errstate(over="ignore"):  # the quartiles of the largest numbers are farther apart than any number
        scale = np.minimum(scale * largest, np.finfo(float).max)
    mean, scale = np.where(constant, low, mean * largest), np.where(constant, 1.0, scale)
    return median, mean, np.where(scale > 0, scale, 1.0), share
