"""A fitted detector for tables of numbers as one ONNX graph, which scores without Python.

The graph goes the detector's own way, stage by stage: numbers -> features -> embeddings -> scores of all members ->
one score. Whatever the detector rounds on that way, the whole steps along columns among it, is rounded here too.
"""

from addml.export.writing import to_onnx

__all__ = ["to_onnx"]
