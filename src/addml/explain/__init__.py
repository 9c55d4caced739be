"""Why a row is unusual: the contribution of each column to its score, and reasons in words."""

from addml.explain.attribution import Nearest, attributions, baseline_row, contributions_of, nearest
from addml.explain.contributions import columns_of
from addml.explain.reasons import Reason, Reasons, groups, reason_texts, reasons

__all__ = ["Nearest", "attributions", "baseline_row", "columns_of", "contributions_of", "nearest"]
__all__ += ["Reason", "Reasons", "groups", "reason_texts", "reasons"]
