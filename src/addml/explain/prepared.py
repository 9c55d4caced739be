"""A fitted model seen from behind its preparation: rows are features already, and features belong to columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from addml.explain.replacement import feature_origins
from addml.inputs.image import patch_of
from addml.model import MetricModel


class BehindFeatures(MetricModel):
    """A model whose rows have been prepared already."""

    def prepare(self, X: np.ndarray) -> np.ndarray:
        """The rows themselves."""
        return X

    @property
    def prepares_there(self) -> bool:
        """There is nothing left to prepare."""
        return False


def behind_features(model: MetricModel) -> MetricModel:
    """The model for rows that have been prepared."""
    return BehindFeatures(**{field: getattr(model, field) for field in model.__dataclass_fields__} | {"columns": None})


def columns_of(model: MetricModel) -> list[int]:
    """The column that each feature belongs to, by its place among those in use; a patch of an image, or a channel."""
    if model.form is not None:
        return model.form.channel_of().tolist() if model.form.is_series else patch_of(model.form)
    own: Any = range(len(model.features.median)) if model.columns is None else model.columns.origins
    return feature_origins(own, model.features.gaps)
