"""Distributed computing: a batch scorer for any engine, and fits and scores on Ray clusters (docs/cluster.md)."""

from addml.cluster.scorer import BatchScorer

__all__ = ["BatchScorer"]
