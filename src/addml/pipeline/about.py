"""What a saved model is, read from its files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

NOUNS = {"rows": "row", "images": "image", "series": "step"}  # what was trained on, by the form of it


def about_model(folder: str) -> dict[str, Any]:
    """Columns, settings, training, threshold, versions and size of a saved model."""
    from addml import model_file

    document, arrays = model_file.load(folder)
    with model_file.told(folder, document):
        return {"model": folder, **_about(document, arrays), "bytes": _size(Path(os.path.expanduser(folder)))}


def _about(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    from addml.decisions.decision import Decision
    from addml.plain import ids_from_plain

    columns = document.get("columns") or {}
    kinds = {column["name"]: column["kind"] for column in columns.get("columns", [])}
    history, scores = document.get("history", []), arrays["anomaly_scores"]
    return {
        "columns": kinds or dict.fromkeys(document.get("names") or [], "number"),
        "left_out": [{"column": name, "why": why} for name, why in columns.get("left_out", [])],
        "ids": list(ids_from_plain(document)),
        "layers": _layers(document["encoder"]),
        "weights": int(arrays["encoder.weights"].size),
        "noun": NOUNS[(document.get("form") or {"kind": "rows"})["kind"]],
        "trained_rows": len(scores),
        "epochs": len(history),
        "seconds": sum(float(entry.get("seconds", 0)) for entry in history),
        "threshold": document["threshold"],
        "decided_by": Decision.from_plain(document).words,
        "anomalies_in_training": int((scores > document["threshold"]).sum()),
        "settings": document["parameters"],
        "addml": document["addml"],
        "format": document["format"],
    }


def _size(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _layers(encoder: dict[str, Any]) -> list[Any]:
    """Numbers of a row, widths or channels of the hidden layers, dimensions of the metric space."""
    if "widths" in encoder:
        return list(encoder["widths"])
    if "window" in encoder:
        return [f"{encoder['window']} steps x {encoder['channels']}", *encoder["hidden"], encoder["metric_dim"]]
    if "channels" in encoder:
        return ["x".join(map(str, encoder["shape"])), *encoder["channels"], encoder["outputs"]]
    return [encoder["name"]]
