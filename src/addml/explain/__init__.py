"""Why a row is unusual: what each column contributes to its score, and that in words."""

from addml.explain.attribution import Examples, Nearest, attributions, baseline_row
from addml.explain.contributions import columns_of, feature_origins
from addml.explain.phrases import ColumnProfile, column_words
from addml.explain.reasons import Reason, Reasons, groups, reasons

__all__ = [
    "ColumnProfile",
    "Examples",
    "Nearest",
    "Reason",
    "Reasons",
    "attributions",
    "baseline_row",
    "column_words",
    "columns_of",
    "feature_origins",
    "groups",
    "reasons",
]
