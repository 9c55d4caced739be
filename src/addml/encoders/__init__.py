"""Encoders: networks that map rows into the metric space."""

from typing import Any

import numpy as np

from addml.encoders.conv import Conv, ConvNetwork
from addml.encoders.encoder import ACTIVATIONS, Encoder, Network
from addml.encoders.mlp import MLP, Autoencoder, AutoencoderNetwork, MLPNetwork
from addml.encoders.module import ModuleNetwork
from addml.encoders.pretrained import Pretrained, PretrainedNetwork
from addml.encoders.recurrent import Recurrent, RecurrentNetwork

ENCODERS: dict[str, type[Encoder]] = {kind.name: kind for kind in (MLP, Conv, Autoencoder, Recurrent, Pretrained)}
NETWORKS: dict[str, Any] = {
    kind.name: kind for kind in (MLPNetwork, ConvNetwork, AutoencoderNetwork, RecurrentNetwork, PretrainedNetwork)
}


class WrongModuleError(ValueError):
    """A saved model was loaded without its own torch module, or with another one; the message says what to pass."""


def from_plain(document: dict[str, Any], weights: np.ndarray, module: Any = None) -> Network:
    """The network of a saved model; the user's own torch module must be passed again."""
    if document["name"] != ModuleNetwork.name:
        if module is not None:
            raise WrongModuleError("the model has no encoder of its own; leave encoder out")
        network: Network = NETWORKS[document["name"]].from_plain(document, weights)
        return network
    if module is None:
        raise WrongModuleError(
            "the model has an encoder of your own, whose code is not saved; pass it in Python: load(path, encoder=...)"
        )
    try:
        return ModuleNetwork.from_plain(document, weights, module)
    except (TypeError, ValueError) as error:
        raise WrongModuleError(f"encoder={module!r} is not the saved one: {error}; pass the saved one") from None


__all__ = ["ACTIVATIONS", "MLP", "Autoencoder", "AutoencoderNetwork", "Conv", "Encoder", "MLPNetwork", "ModuleNetwork"]
__all__ += ["ENCODERS", "Network", "Pretrained", "Recurrent", "RecurrentNetwork", "WrongModuleError", "from_plain"]
