"""Scorers: from embeddings and features to anomaly scores."""

from typing import Any

from addml.scoring.guidance import Guided
from addml.scoring.patches import PatchMemory
from addml.scoring.scorer import KNN, Center, Dissimilarity, Scorer
from addml.scoring.views import Views
from addml.scoring.windows import WindowViews

SCORERS: dict[str, type[Scorer]] = {
    scorer.name: scorer for scorer in (Views, WindowViews, Center, Dissimilarity, KNN, PatchMemory)
}


def scorer_from_plain(document: dict[str, Any]) -> Scorer:
    settings = dict(document)
    name = settings.pop("name")
    if name == Guided.name:
        return Guided(scorer_from_plain(settings["inner"]))
    scorer = SCORERS[name](**settings)
    scorer.check()
    return scorer


__all__ = ["KNN", "SCORERS", "Center", "Dissimilarity", "Guided", "PatchMemory", "Scorer", "Views", "WindowViews"]
__all__ += ["scorer_from_plain"]
