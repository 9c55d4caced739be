"""Networks that map rows into the metric space, for all members at once. Level 2."""

from typing import Any

import numpy as np

from addml.encoders.conv import Conv
from addml.encoders.design import Design, Encoder, Kind
from addml.encoders.mlp import ACTIVATIONS, MLP, weight_count
from addml.encoders.module import ModuleEncoder
from addml.encoders.recurrent import Recurrent

ENCODERS: dict[str, type[Kind]] = {MLP.name: MLP, Conv.name: Conv, Recurrent.name: Recurrent}


def from_plain(document: dict[str, Any], weights: np.ndarray, module: Any = None) -> Encoder:
    """The encoder of a saved model, of the user's own module perhaps; raises an error where it is none."""
    if (document["name"] == ModuleEncoder.name) != (module is not None):
        own = "an encoder of the user's own: give it again, load(path, encoder=...)"
        raise ValueError(f"the model has {own if module is None else 'no encoder of its own; leave encoder out'}")
    if module is not None:
        return ModuleEncoder.from_plain(document, weights, module)
    return ENCODERS[document["name"]].from_plain(document, weights)


__all__ = [
    "ACTIVATIONS",
    "ENCODERS",
    "MLP",
    "Conv",
    "Design",
    "Encoder",
    "ModuleEncoder",
    "Recurrent",
    "from_plain",
    "weight_count",
]
