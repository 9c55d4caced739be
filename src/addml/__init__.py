"""ADDML: unsupervised anomaly detection by deep metric learning."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from addml.detector import ADDML
    from addml.encoders import MLP, Autoencoder, Conv, Recurrent
    from addml.inputs import Window
    from addml.io.image_folder import read_images
    from addml.learning.losses import CenterCloseness, InstanceCloseness
    from addml.onnx import to_onnx
    from addml.scoring import KNN, Center, Dissimilarity, Views

__all__ = [
    "ADDML",
    "KNN",
    "MLP",
    "Autoencoder",
    "Center",
    "CenterCloseness",
    "Conv",
    "Dissimilarity",
    "InstanceCloseness",
    "Recurrent",
    "Views",
    "Window",
    "__version__",
    "load",
    "read_images",
    "to_onnx",
]

_MODULES = {
    "ADDML": "addml.detector",
    **dict.fromkeys(("MLP", "Autoencoder", "Conv", "Recurrent"), "addml.encoders"),
    **dict.fromkeys(("InstanceCloseness", "CenterCloseness"), "addml.learning.losses"),
    **dict.fromkeys(("Views", "Center", "Dissimilarity", "KNN"), "addml.scoring"),
    "Window": "addml.inputs",
    "read_images": "addml.io.image_folder",
    "to_onnx": "addml.onnx",
}


def load(path: str | os.PathLike[str], *, device: str = "auto", encoder: Any = None) -> ADDML:
    """Load a detector that `save` wrote, ready to score on any device; nothing is unpickled.

    The files contain no code: pass a custom encoder again, in the same way as to the constructor.
    """
    from addml import model_file
    from addml.compute import resolve_device
    from addml.config import Config, settings_from_json
    from addml.detector import ADDML

    resolve_device(device)
    if encoder is not None and not callable(encoder):
        raise ValueError(f"encoder={encoder!r} is not a custom network; pass the one that was fitted, or leave it out")
    model = model_file.load(path, encoder)
    custom = {} if encoder is None else {"encoder": encoder}
    try:
        settings = {**settings_from_json(model.settings), "device": device, **custom}
        Config.resolve(settings)
        return ADDML(**settings).with_model(model)
    except (KeyError, TypeError, ValueError) as error:
        raise model_file.ModelFileError(
            f"{path}: contains invalid settings ({error!r}); save the model again"
        ) from None


def __getattr__(name: str) -> Any:
    """Import public names on first use, to keep `import addml` light."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name != "__version__":
        raise AttributeError(f"module 'addml' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("addml")
    except PackageNotFoundError:  # not installed
        return "0+source"


def __dir__() -> list[str]:
    return sorted(__all__)
