"""Thresholds, p-values, events and planted faults."""
