"""Training times on a CUDA device, and those of the default relative to the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import addml
from benchmarks.many import seconds_of
from benchmarks.streaming import waves
from benchmarks.tables import SHAPES, table
from benchmarks.timing import markdown, seconds


def _fit(name: str, members: int) -> Callable[[], Any]:
    X, _ = table(name)
    settings: dict[str, Any] = {"members": members, "patience": 50, "random_state": 0, "device": "cuda"}
    return lambda: addml.ADDML.paper(**settings).fit(X)


def _default(X: np.ndarray, device: str, window: str | None) -> Callable[[], Any]:
    return lambda: addml.ADDML(window=window, random_state=0, device=device).fit(X)


def _defaults() -> list[list[str]]:
    """The default's time on the device, and how many times as long the CPU takes."""
    images = np.random.default_rng(0).integers(0, 255, (3000, 28, 28), np.uint8)
    cases: dict[str, tuple[np.ndarray, str | None]] = {
        name: (table(name)[0], None) for name in ("letter", "mnist", "shuttle")
    }
    cases |= {"a series of 24,000 x 38": (waves(), "auto"), "3,000 images of 28 x 28": (images, None)}
    rows = []
    for name, (X, window) in cases.items():
        took = seconds({device: _default(X, device, window) for device in ("cuda", "cpu")})
        rows.append([f"`ADDML()`, {name}, s", f"{took['cuda']:.2f} (CPU: {took['cpu'] / took['cuda']:.1f}x)"])
    return rows


def gpu() -> str:
    """The table of training times."""
    took = seconds({"one": _fit("letter", 1), "ten": _fit("letter", 10), "shuttle": _fit("shuttle", 1)})
    seconds_of("glass", "cuda")
    many = sum(seconds_of(name, "cuda") for name in SHAPES)
    facts = [
        ["`ADDML.paper()`, letter, 50 epochs, one member, s", f"{took['one']:.2f}"],
        ["the same, ten members, s", f"{took['ten']:.2f}"],
        ["`ADDML.paper()`, shuttle, 50 epochs, one member, s", f"{took['shuttle']:.2f}"],
        ["the 216 fits of the paper's table, s", f"{many:.1f}"],
        *_defaults(),
    ]
    return markdown([torch.cuda.get_device_name(), "measured"], facts)
