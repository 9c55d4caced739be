"""Beyond one machine: a scorer for every engine, and fits and scores on a Ray cluster (see docs/cluster.md)."""

from addml.cluster.scorer import BatchScorer

__all__ = ["BatchScorer"]
