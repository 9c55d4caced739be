"""From embeddings to one anomaly score a row, and from scores to a decision."""

from addml.scoring.scorers import SCORERS, Center, Dissimilarity, Neighbors
from addml.scoring.views import Views

__all__ = ["SCORERS", "Center", "Dissimilarity", "Neighbors", "Views"]
