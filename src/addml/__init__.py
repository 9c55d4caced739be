"""ADDML: unsupervised anomaly detection by deep metric learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from addml.detector import ADDML, load
    from addml.io.image_folder import read_images
    from addml.onnx import to_onnx

__all__ = ["ADDML", "__version__", "load", "read_images", "to_onnx"]

_WHERE = {
    "ADDML": "addml.detector",
    "load": "addml.detector",
    "read_images": "addml.io.image_folder",
    "to_onnx": "addml.onnx",
}


def __getattr__(name: str) -> Any:
    """Import a public name on its first use, so that `import addml` itself stays light."""
    if name == "__version__":
        return _version()
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'addml' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("addml")
    except PackageNotFoundError:  # run from its source, not installed
        return "0+source"


def __dir__() -> list[str]:
    return sorted(__all__)
