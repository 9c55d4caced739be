"""Encoders that take a series step by step as it arrives, in constant time, and carry what they need of the past.

A recurrent network starts anew for every window. The windows over the next step are all under way at once, each in its
place of a few tiles, and one product of a fixed shape takes them one step on. A convolution sees each step once.
What comes out for a window is, to the last bit, what the encoder makes of it in a block of thousands.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from addml.encoders.cells import Cells
from addml.encoders.convolutions import KERNEL, Convolutions, mean_of_steps, reach
from addml.encoders.design import Encoder
from addml.encoders.products import TILE, tile_of
from addml.encoders.recurrent import Recurrent


class UnderWay(Protocol):
    """What takes prepared steps (channels,) and gives the embeddings (E, w) of the window that ends with each."""

    def push(self, step: np.ndarray) -> np.ndarray: ...


def under_way(encoder: Encoder, window: int, channels: int, block: int) -> UnderWay:
    """A new series for this encoder; one that is not made for steps takes blocks of `block` windows."""
    if not isinstance(encoder, Recurrent):
        return _Blocks(encoder, window, channels, block)
    return _Windows(encoder) if isinstance(encoder.body, Cells) else _Convolved(encoder)


class _Blocks:
    """Any encoder: the window that ends now, in a block of the shape that it takes."""

    def __init__(self, encoder: Encoder, window: int, channels: int, block: int) -> None:
        self.encoder, self.steps = encoder, np.zeros((window, channels), np.float32)
        self.rows = np.zeros((1, 1, block, window * channels), np.float32)

    def push(self, step: np.ndarray) -> np.ndarray:
        self.steps[:-1] = self.steps[1:].copy()
        self.steps[-1] = step
        self.rows[0, 0, 0] = self.steps.ravel()
        return np.asarray(self.encoder.embed(self.rows)[0, :, 0])


class _Windows:
    """A recurrent network: the states of all windows under way, (E, tiles of windows, states) a layer."""

    def __init__(self, encoder: Recurrent) -> None:
        assert isinstance(encoder.body, Cells)
        self.encoder, self.body, self.now = encoder, encoder.body, 0
        window = encoder.layout.window
        self.states = self.body.begin(-(-window // TILE) * TILE, encoder.parts)
        self.totals = np.zeros_like(self.states[-1]) if self.body.mean else None
        self.tile = np.zeros((1, TILE, encoder.layout.channels), encoder.weights.dtype)

    def push(self, step: np.ndarray) -> np.ndarray:
        window, place = self.encoder.layout.window, self.now
        for states in self.states:
            states[:, place] = 0  # of the window that begins with this step
        self.tile[0, 0] = step
        self._advance()
        self.now = (place + 1) % window  # the window there ends with this step, and gives way to the next one
        pooled = self.states[-1][:, self.now]
        if self.totals is not None:
            self.totals[:, place] = 0
            self.totals += self.states[-1]
            pooled = self.totals[:, self.now] / window
        return np.asarray(self.encoder.finish(tile_of(pooled))[:, 0])

    def _advance(self) -> None:
        """All layers one step on: the first one sees the same step in every window, and it is multiplied once."""
        cell, layers = self.body.cell, self.encoder.parts
        seen = cell.seen(self.tile, layers[0])[:, :1]
        for place, parts in enumerate(layers):
            self.states[place] = cell.next(seen, self.states[place], parts)[0]
            if place + 1 < len(layers):
                seen = cell.seen(self.states[place], layers[place + 1])


class _Convolved:
    """Convolutions: the last outputs of each layer, as far back as the next one sees."""

    def __init__(self, encoder: Recurrent) -> None:
        assert isinstance(encoder.body, Convolutions)
        self.encoder, self.body = encoder, encoder.body
        members, dtype = len(encoder.weights), encoder.weights.dtype
        widths = self.body.widths
        spans = [(KERNEL - 1) * 2**layer + 1 for layer in range(len(widths) - 1)]
        self.past = [
            np.zeros((1 if layer == 0 else members, span, width), dtype)
            for layer, (span, width) in enumerate(zip(spans, widths, strict=False))
        ]
        outputs = encoder.layout.window - reach(len(spans)) + 1 if self.body.mean else 1
        self.out = np.zeros((members, outputs, 1, widths[-1]), dtype)

    def push(self, step: np.ndarray) -> np.ndarray:
        newest = step[None]
        for layer, parts in enumerate(self.encoder.parts):
            past = self.past[layer]
            past[:, :-1] = past[:, 1:].copy()
            past[:, -1] = newest
            seen = past[:, :: 2**layer].reshape(len(past), -1)
            newest = self.body.convolve(tile_of(seen), parts)[:, 0]
        self.out[:, :-1] = self.out[:, 1:].copy()
        self.out[:, -1, 0] = newest
        pooled = mean_of_steps(self.out)[:, 0] if self.body.mean else newest
        return np.asarray(self.encoder.finish(tile_of(pooled))[:, 0])
