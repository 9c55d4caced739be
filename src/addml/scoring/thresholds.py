"""Where a score becomes a decision: an anomaly is a row whose score is above the threshold."""

from __future__ import annotations

import numpy as np


def quantile_threshold(scores: np.ndarray, contamination: float) -> float:
    """tau, above which the given share of the scores lies (exactly, unless scores tie at it)."""
    return float(np.quantile(scores, 1 - contamination))
