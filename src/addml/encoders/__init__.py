"""Networks that map rows into the metric space, for all members at once. Level 1."""

from addml.encoders.mlp import ACTIVATIONS, MLP, weight_count

__all__ = ["ACTIVATIONS", "MLP", "weight_count"]
