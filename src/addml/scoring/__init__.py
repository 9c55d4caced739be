"""From embeddings to one anomaly score a row, and from scores to a decision. Level 2."""

from addml.scoring.local import Local
from addml.scoring.scorers import SCORERS, Center, Dissimilarity, Neighbors

__all__ = ["SCORERS", "Center", "Dissimilarity", "Local", "Neighbors"]
