"""Networks that map rows into the metric space, for all members at once."""

from typing import Any

import numpy as np

from addml.encoders.base import Design, Encoder, Kind
from addml.encoders.conv import Conv
from addml.encoders.mlp import ACTIVATIONS, MLP, weight_count
from addml.encoders.module import ModuleEncoder
from addml.encoders.recurrent import Recurrent

ENCODERS: dict[str, type[Kind]] = {MLP.name: MLP, Conv.name: Conv, Recurrent.name: Recurrent}


class WrongModuleError(ValueError):
    """A module of the user's own that a saved model needs, or does not; the message says what to give."""


def from_plain(document: dict[str, Any], weights: np.ndarray, module: Any = None) -> Encoder:
    """The encoder of a saved model, of the user's own module perhaps; raises an error where it is none."""
    if (document["name"] == ModuleEncoder.name) != (module is not None):
        own = "an encoder of your own, which no file holds: give it again in Python, load(path, encoder=...)"
        raise WrongModuleError(f"the model has {own if module is None else 'no encoder of its own; leave encoder out'}")
    if module is not None:
        try:
            return ModuleEncoder.from_plain(document, weights, module)
        except (TypeError, ValueError) as error:
            raise WrongModuleError(
                f"encoder={module!r} is not the one that was saved: {error}; give that one"
            ) from None
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
    "WrongModuleError",
    "from_plain",
    "weight_count",
]
