"""Training times on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import addml
from benchmarks.many import seconds_of
from benchmarks.tables import SHAPES, table
from benchmarks.timing import markdown, seconds


def _fit(name: str, members: int) -> Callable[[], Any]:
    X, _ = table(name)
    settings: dict[str, Any] = {"members": members, "patience": 50, "random_state": 0, "device": "cuda"}
    return lambda: addml.ADDML.paper(**settings).fit(X)


def gpu() -> str:
    """The table of training times."""
    took = seconds({"one": _fit("letter", 1), "ten": _fit("letter", 10), "shuttle": _fit("shuttle", 1)})
    seconds_of("glass", "cuda")
    many = sum(seconds_of(name, "cuda") for name in SHAPES)
    facts = [
        ["Letter, 50 epochs, one member, s", f"{took['one']:.3f}"],
        ["Letter, 50 epochs, ten members, s", f"{took['ten']:.3f}"],
        ["ratio", f"{took['ten'] / took['one']:.2f}"],
        ["Shuttle, 50 epochs, one member, s", f"{took['shuttle']:.2f}"],
        ["the 216 fits of the paper's table, s", f"{many:.1f}"],
    ]
    return markdown([torch.cuda.get_device_name(), "measured"], facts)
