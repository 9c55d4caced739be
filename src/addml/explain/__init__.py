"""Why a row stands out: columns whose usual value would bring its score down, and that in words. Level 3."""

from addml.explain.naming import Reason, groups, reasons
from addml.explain.replacement import column_contributions, feature_origins, usual_row
from addml.explain.words import UsualColumn, column_words

__all__ = [
    "Reason",
    "UsualColumn",
    "column_contributions",
    "column_words",
    "feature_origins",
    "groups",
    "reasons",
    "usual_row",
]
