"""Why a row stands out: columns whose usual value would bring its score down, and that in words. Level 4."""

from addml.explain.attribution import attributions
from addml.explain.examples import Examples, Nearest
from addml.explain.naming import groups, reasons
from addml.explain.phrases import Reason, Reasons
from addml.explain.prepared import behind_features, columns_of
from addml.explain.replacement import column_contributions, feature_origins, usual_row
from addml.explain.words import UsualColumn, column_words

__all__ = [
    "Examples",
    "Nearest",
    "Reason",
    "Reasons",
    "UsualColumn",
    "attributions",
    "behind_features",
    "column_contributions",
    "column_words",
    "columns_of",
    "feature_origins",
    "groups",
    "reasons",
    "usual_row",
]
