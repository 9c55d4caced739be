"""From rows into the metric space. An encoder is a kind of network; a network has the weights of all members."""

from typing import Any

import numpy as np

from addml.encoders.autoencoder import Autoencoder, AutoencoderNetwork
from addml.encoders.base import ACTIVATIONS, Encoder, Network
from addml.encoders.conv import Conv, ConvNetwork
from addml.encoders.mlp import MLP, MLPNetwork
from addml.encoders.module import ModuleNetwork
from addml.encoders.pretrained import Pretrained, PretrainedNetwork
from addml.encoders.recurrent import Recurrent, RecurrentNetwork

ENCODERS: dict[str, type[Encoder]] = {one.name: one for one in (MLP, Conv, Autoencoder, Recurrent, Pretrained)}
NETWORKS: dict[str, Any] = {
    one.name: one for one in (MLPNetwork, ConvNetwork, AutoencoderNetwork, RecurrentNetwork, PretrainedNetwork)
}


class WrongModuleError(ValueError):
    """A saved model needs a module that was not given, or another one; the message says what to give."""


def from_plain(document: dict[str, Any], weights: np.ndarray, module: Any = None) -> Network:
    """The network of a saved model; a user's own module is passed again. Raises an error where it does not fit."""
    if (document["name"] == ModuleNetwork.name) != (module is not None):
        own = "an encoder of your own, which no file holds: give it again in Python, load(path, encoder=...)"
        raise WrongModuleError(f"the model has {own if module is None else 'no encoder of its own; leave encoder out'}")
    if module is not None:
        try:
            return ModuleNetwork.from_plain(document, weights, module)
        except (TypeError, ValueError) as error:
            raise WrongModuleError(
                f"encoder={module!r} is not the one that was saved: {error}; give that one"
            ) from None
    network: Network = NETWORKS[document["name"]].from_plain(document, weights)
    return network


__all__ = ["ACTIVATIONS", "MLP", "Autoencoder", "AutoencoderNetwork", "Conv", "Encoder", "MLPNetwork", "ModuleNetwork"]
__all__ += ["ENCODERS", "Network", "Pretrained", "Recurrent", "RecurrentNetwork", "WrongModuleError", "from_plain"]
