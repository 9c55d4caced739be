"""Why a row stands out: columns whose usual value would bring its score down, and that in words."""

from addml.explain.attribution import Examples, Nearest, attributions
from addml.explain.phrases import Reason, Reasons, UsualColumn, column_words
from addml.explain.prepared import columns_of
from addml.explain.reasons import groups, reasons
from addml.explain.replacement import column_contributions, feature_origins, usual_row

__all__ = [
    "Examples",
    "Nearest",
    "Reason",
    "Reasons",
    "UsualColumn",
    "attributions",
    "column_contributions",
    "column_words",
    "columns_of",
    "feature_origins",
    "groups",
    "reasons",
    "usual_row",
]
