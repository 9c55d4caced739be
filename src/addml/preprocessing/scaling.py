"""Standardised float32 features from numbers with gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

NEW_GAPS = "missing values in columns that had none in training took the median"
COLUMNS_AT_ONCE = 64
ROWS_AT_ONCE = 16384
FARTHEST = 1e9  # deviations; farther values are clipped, so that float32 products stay finite
ROUNDING = 1e-9  # relative variation below which a column counts as constant
KNEE = 5.0  # deviations beyond which robust features grow logarithmically
SIGN = np.int32(-(2**31))  # the sign bit of a float32
NORMAL_QUARTILES = 1.3489795003921634  # interquartile range of a normal distribution, in deviations


@dataclass(frozen=True, eq=False)
class Features:
    """The scaling: gaps take the training median and set a flag, then every column is standardised.

    Standard features are deviations from the mean. Robust ones are distances from the median in interquartile ranges,
    which outliers do not stretch, and are bent beyond the knee: in a heavy-tailed column a value a thousand deviations
    out stays far, but does not make all other values look alike. Networks need columns of equal variance, so bent
    features are standardised once more by `bent_mean` and `bent_scale`.
    """

    median: np.ndarray  # (d,)
    gaps: np.ndarray  # columns with gaps in training; their flags follow the columns
    mean: np.ndarray  # (d + flags,)
    scale: np.ndarray  # (d + flags,), 1 for constant columns
    sides: np.ndarray  # (d,): 1 if only high values matter, -1 if only low ones, else 0
    knee: np.ndarray  # (1,): where features bend, 0 if they do not
    bent_mean: np.ndarray  # (d + flags,): mean of a bent feature
    bent_scale: np.ndarray  # (d + flags,): its deviation, 1 if it is constant or not bent

    @classmethod
    def fit(cls, X: np.ndarray, sides: np.ndarray | None = None, *, robust: bool = False) -> Features:
        """Learn from X (n, d): medians, with means and deviations or their robust counterparts."""
        sides = np.zeros(X.shape[1], np.int64) if sides is None else sides
        blocks = [slice(start, start + COLUMNS_AT_ONCE) for start in range(0, X.shape[1], COLUMNS_AT_ONCE)]
        parts = [_statistics(X[:, block], sides[block], robust) for block in blocks]
        median, mean, scale, share = (np.concatenate(part) for part in zip(*parts, strict=True))
        gaps = np.flatnonzero(share > 0)
        deviation = np.sqrt(share[gaps] * (1 - share[gaps]))
        flags = np.where(deviation > 0, deviation, 1.0)
        mean, scale = np.concatenate([mean, share[gaps]]), np.concatenate([scale, flags])
        bent_mean, bent_scale = np.zeros(len(mean)), np.ones(len(mean))
        features = cls(median, gaps, mean, scale, sides, np.array([KNEE if robust else 0.0]), bent_mean, bent_scale)
        return features._standardised(X) if robust else features

    def _standardised(self, X: np.ndarray) -> Features:
        """The features with bent columns of equal variance over X; flags of gaps do not change."""
        total, squares = np.zeros(self.width), np.zeros(self.width)
        for start in range(0, len(X), ROWS_AT_ONCE):
            bent = self.transform(X[start : start + ROWS_AT_ONCE]).astype(np.float64, order="C")  # as in _statistics
            total += bent.sum(axis=0)
            squares += (bent * bent).sum(axis=0)
        mean, gaps = total / len(X), self.mean[len(self.median) :]
        return self.refined(mean, np.sqrt(np.maximum(squares / len(X) - mean**2, 0)), gaps)

    def with_scales(self, scale: np.ndarray, chosen: np.ndarray) -> Features:
        """The features with other scales for the chosen ones, which are not standardised again."""
        bent_mean, bent_scale = np.where(chosen, 0.0, self.bent_mean), np.where(chosen, 1.0, self.bent_scale)
        return replace(self, scale=np.where(chosen, scale, self.scale), bent_mean=bent_mean, bent_scale=bent_scale)

    def refined(self, mean: np.ndarray, deviation: np.ndarray, gaps: np.ndarray) -> Features:
        """The features standardised again by their means, deviations and, in columns with gaps, shares of gaps."""
        columns = len(self.median)
        varies = (deviation > ROUNDING) & (np.arange(self.width) < columns)
        shift, factor = np.where(varies, mean, 0.0), np.where(varies, deviation, 1.0)
        if self.knee[0]:
            bent_mean, bent_scale = self.bent_mean + self.bent_scale * shift, self.bent_scale * factor
            features = replace(self, bent_mean=bent_mean, bent_scale=bent_scale)
        else:
            features = replace(self, mean=self.mean + self.scale * shift, scale=self.scale * factor)
        mean = np.concatenate([features.mean[:columns], gaps])
        scale = np.concatenate([features.scale[:columns], np.sqrt(gaps * (1 - gaps))])
        return replace(features, mean=mean, scale=np.where(scale > 0, scale, 1.0))

    def spread(self, column: np.ndarray) -> Features:
        """The features of rows of numbers, each from one `column` of these features, which must not have gaps."""
        if len(self.gaps):
            raise ValueError(f"columns {self.gaps.tolist()} have missing values; fill them first")
        return self.select(column)[0]

    @property
    def is_robust(self) -> bool:
        """Whether the features are robust and so standardised twice."""
        return bool(self.knee[0]) and bool((self.bent_scale != 1).any() or (self.bent_mean != 0).any())

    width = property(lambda self: len(self.mean))

    @property
    def empty(self) -> np.ndarray:
        """Columns with nothing but gaps in training."""
        return np.asarray(self.gaps[self.mean[len(self.median) :] == 1])

    def select(self, columns: np.ndarray) -> tuple[Features, np.ndarray]:
        """The features of some columns, ascending, and their indices among all features."""
        flags = np.flatnonzero(np.isin(self.gaps, columns))
        indices = np.concatenate([columns, len(self.median) + flags])
        gaps = np.searchsorted(columns, self.gaps[flags])
        selected = {name: getattr(self, name)[indices] for name in ("mean", "scale", "bent_mean", "bent_scale")}
        return replace(self, median=self.median[columns], gaps=gaps, sides=self.sides[columns], **selected), indices

    def transform(self, X: np.ndarray) -> np.ndarray:
        """X (n, d) as float32 features (n, width), clipped at FARTHEST deviations."""
        columns = X.shape[1]
        values = np.empty((len(X), self.width), order="F" if X.flags.f_contiguous else "C")
        with np.errstate(over="ignore", invalid="ignore"):
            values[:, :columns] = X  # copying first is faster than subtracting across types
            _fold(values[:, :columns], self.sides, self.median)
            values[:, :columns] -= self.mean[:columns]
            values[:, columns:] = -self.mean[columns:]
            values /= self.scale
            features = values.astype(np.float32)
            if not np.isfinite(features.sum()):
                self._fix_columns(X, values)
                features = values.astype(np.float32)
        np.clip(features, -FARTHEST, FARTHEST, out=features)
        if self.knee[0]:
            bend(features, np.float32(self.knee[0]))
            features -= self.bent_mean.astype(np.float32)
            features /= self.bent_scale.astype(np.float32)
        return features

    def _fix_columns(self, X: np.ndarray, values: np.ndarray) -> None:
        """In columns that are not finite, fill gaps, and divide before subtracting where a difference overflows."""
        columns = X.shape[1]
        for column in np.flatnonzero(~np.isfinite(values[:, :columns].sum(axis=0))):
            mean, scale = self.mean[column], self.scale[column]
            values[np.isnan(X[:, column]), column] = (self.median[column] - mean) / scale
            overflows = np.isinf(values[:, column])
            values[overflows, column] = X[overflows, column] / scale - mean / scale
        for flag, column in enumerate(self.gaps, start=columns):
            values[:, flag] = (np.isnan(X[:, column]) - self.mean[flag]) / self.scale[flag]

    def new_gaps(self, X: np.ndarray) -> np.ndarray:
        """Columns of X with gaps that had none in training."""
        missing = np.isnan(X).any(axis=0)
        missing[self.gaps] = False
        return np.flatnonzero(missing)


def bend(features: np.ndarray, knee: np.float32) -> None:
    """Replace features f by sign(f) k log(1 + |f| / k): small ones hardly change, large ones grow slowly."""
    size = np.abs(features)
    size /= knee
    np.log1p(size, out=size)
    size *= knee
    bits = features.view(np.int32)
    bits &= SIGN  # four times as fast as `copysign`
    bits |= size.view(np.int32)


def _fold(X: np.ndarray, sides: np.ndarray, median: np.ndarray) -> None:
    """Replace values on the side that does not matter by the median, in place; gaps remain."""
    for column in np.flatnonzero(sides):
        clip = np.maximum if sides[column] > 0 else np.minimum
        clip(X[:, column], median[column], out=X[:, column])


def _statistics(X: np.ndarray, sides: np.ndarray, robust: bool) -> tuple[np.ndarray, ...]:
    """Median, mean, deviation and share of gaps of each column, gaps filled by the median.

    If robust, the median replaces the mean, and the interquartile range replaces the deviation unless it is 0.
    """
    X = np.array(X, np.float64, order="C")  # so that sums do not depend on the memory layout of X
    missing = np.isnan(X)
    share, median = missing.mean(axis=0), 2 * np.median(X / 2, axis=0)  # / 2: the sum of two values may overflow
    for column in np.flatnonzero(share > 0):
        present = X[~missing[:, column], column]
        median[column] = 2 * np.median(present / 2) if len(present) else 0.0
        X[missing[:, column], column] = median[column]
    _fold(X, sides, median)
    low, high = X.min(axis=0), X.max(axis=0)
    largest = np.maximum(np.maximum(-low, high), np.finfo(float).tiny)  # squares of values around 1e200 overflow
    X /= largest
    mean, scale = X.mean(axis=0), X.std(axis=0)
    constant = low == high
    if robust:
        low_tenth, first, third, high_tenth = np.quantile(X, [0.1, 0.25, 0.75, 0.9], axis=0)
        varies = third - first > ROUNDING * (high_tenth - low_tenth)  # outliers stretch the deviation, not quantiles
        mean, scale = median / largest, np.where(varies, (third - first) / NORMAL_QUARTILES, scale)
    with np.errstate(over="ignore"):  # the interquartile range of the largest numbers overflows
        scale = np.minimum(scale * largest, np.finfo(float).max)
    mean, scale = np.where(constant, low, mean * largest), np.where(constant, 1.0, scale)
    return median, mean, np.where(scale > 0, scale, 1.0), share
