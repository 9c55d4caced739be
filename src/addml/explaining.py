"""What a fitted detector tells of rows beside their scores: the columns behind them, rows like them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from addml import parameters
from addml.arrays import evenly_spaced
from addml.compute import max_threads, resolve_device
from addml.explain.attribution import Examples, Nearest, attributions, baseline_of, kept_by_most
from addml.explain.contributions import SeriesContext, views_of
from addml.inputs.image import heat_map
from addml.inputs.rows import WindowRows
from addml.inputs.series import Windows
from addml.reading import Reads
from addml.saving import Saves
from addml.scoring.base import MetricSpace

KEPT_FOR_MEDIANS = 20_000  # kept rows, at even steps, that the usual row is found from


class Explains(Reads, Saves):
    """What is remembered of the training rows, and how rows compare with it."""

    def _remember(self, space: MetricSpace, scores: np.ndarray) -> None:
        """The usual row, and examples of normal rows where they are asked for."""
        kept = kept_by_most(space.kept, space.train, len(scores))
        low = kept[scores[kept] <= np.quantile(scores, float(self.normal_ratio))]  # the scorer sees more
        kept = low if len(low) else kept
        some = evenly_spaced(kept, KEPT_FOR_MEDIANS)
        self.baseline_ = baseline_of(self.model_, space.prepared(some), scores[some], float(np.median(scores)))
        examples = evenly_spaced(kept, self.examples) if self.examples else kept[:0]
        self._examples = Examples(examples, space.prepared(examples))

    def explain(self, X: Any, rows: Any = None) -> np.ndarray:
        """How much each column adds to each row's score, (n, n_features_in_): above 0 makes it stranger.

        Of images it is a map (n, height, width): how much each place adds.

        A row of it adds up to the row's score, and is made of the view that finds the row strangest; a score below 0,
        where nothing is strange, has only parts below 0. With other scorers (center, dissimilarity, knn) a row adds up
        to its score less that of the usual row, `baseline_`. Columns that the detector does not use add nothing. In a
        series a column is a channel, and a step's score is shared as in the window that ends there; with `causal=True`
        networks judge no window that is not whole yet. `rows` are the places of the rows to explain, where not all are
        wanted.
        """
        check_is_fitted(self, "threshold_")
        X = self._read(X)
        asked, incomplete = parameters.places("rows", rows, len(X)), self.model_.incomplete(X)
        device, threads, series = resolve_device(self.device), max_threads(self.n_jobs), None
        if isinstance(X, Windows) and views_of(self.model_) is not None:
            series = SeriesContext.of(self.model_, X, asked, device, threads)
        used = attributions(
            self.model_,
            self._features(X, asked),
            self.baseline_,
            device,
            threads,
            None if incomplete is None else incomplete[asked],
            series,
        )
        if self.model_.form is not None and self.model_.form.kind == "images":
            return heat_map(used, self.model_.form)
        if self.model_.columns is None:
            return used
        places = {name: place for place, name in enumerate(self.feature_names_in_)}
        result = np.zeros((len(used), self.n_features_in_))
        result[:, [places[name] for name in self.model_.columns.used]] = used
        return result

    def nearest_normal(self, X: Any, k: int = 5) -> Nearest:
        """The kept training rows most like each row of X, among `examples` of them: their places and distances."""
        check_is_fitted(self, "threshold_")
        parameters.whole("k", k)
        if not len(self._examples.rows):
            raise ValueError("no training rows were remembered; fit with examples=1000, for example")
        X = self._read(X)
        return self._examples.nearest(self.model_, self._features(X, np.arange(len(X))), k)

    def _features(self, X: Any, places: np.ndarray) -> np.ndarray:
        """The prepared rows at some places of what was read."""
        if isinstance(X, Windows):
            return WindowRows(X.prepared(self.model_.step_features.transform)).take(places)
        return np.asarray(self.model_.prepare(X)[places])
