"""Which column each feature belongs to."""

from __future__ import annotations

from typing import Any

from addml.explain.replacement import feature_origins
from addml.inputs.image import patch_of
from addml.model import MetricModel


def columns_of(model: MetricModel) -> list[int]:
    """The column that each feature belongs to, by its place among those in use; a patch of an image, or a channel."""
    if model.form is not None:
        return model.form.channel_of().tolist() if model.form.is_series else patch_of(model.form)
    own: Any = range(len(model.features.median)) if model.columns is None else model.columns.origins
    return feature_origins(own, model.features.gaps)
