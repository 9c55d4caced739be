"""Encoders that take a series step by step as it arrives, in constant time, and carry what they need of the past.

A recurrent network starts anew for every window. The windows over the next step are all under way at once, each in its
place of a few tiles, and one product of a fixed shape takes them one step on. A convolution sees each step once.
What comes out for a window is, to the last bit, what the encoder makes of it in a block of thousands.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from addml.encoders.cells import Cells, Parts
from addml.encoders.convolutions import KERNEL, Convolutions, mean_of_steps, reach
from addml.encoders.design import Encoder
from addml.encoders.products import TILE, tile_of
from addml.encoders.recurrent import Recurrent


class UnderWay(Protocol):
    """What takes prepared steps (channels,) and gives the embeddings (E, w) of the window that ends with each.

    What it gives holds until the next step: it may be a view of what is under way.
    """

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
    """A recurrent network: the states of all windows under way, (E, tiles, TILE, states) a layer."""

    def __init__(self, encoder: Recurrent) -> None:
        assert isinstance(encoder.body, Cells)
        self.encoder, self.cell, self.window, self.now = encoder, encoder.body.cell, encoder.layout.window, 0
        self.layers = [_for_tiles(parts) for parts in encoder.parts]
        members, dtype, tiles = len(encoder.weights), encoder.weights.dtype, -(-self.window // TILE)
        self.states = [np.zeros((members, tiles, TILE, width), dtype) for width in encoder.layout.layers]
        self.totals = np.zeros_like(self.states[-1]) if encoder.body.mean else None
        self.step = np.zeros((1, 1, TILE, encoder.layout.channels), dtype)
        self.pooled = np.zeros((members, TILE, encoder.layout.layers[-1]), dtype)

    def push(self, step: np.ndarray) -> np.ndarray:
        tile, row = divmod(self.now, TILE)
        for states in self.states:
            states[:, tile, row] = 0  # of the window that begins with this step
        if self.totals is not None:
            self.totals[:, tile, row] = 0
        self._advance(step)
        self.now = (self.now + 1) % self.window  # the window there ends with this step, and gives way to the next one
        tile, row = divmod(self.now, TILE)
        if self.totals is None:
            self.pooled[:, 0] = self.states[-1][:, tile, row]
        else:
            self.totals += self.states[-1]
            np.divide(self.totals[:, tile, row], self.window, out=self.pooled[:, 0])
        return np.asarray(self.encoder.finish(self.pooled, 1)[:, 0])

    def _advance(self, step: np.ndarray) -> None:
        """All layers one step on: the first one sees the same step in every window, and it is multiplied once."""
        self.step[:] = step  # a whole tile of it, as of biases: long runs add up quicker than one row to many
        x = self.step
        for place, parts in enumerate(self.layers):
            seen = self.cell.seen(x, parts)
            self.states[place] = x = self.cell.next(seen, self.states[place], parts)[0]


def _for_tiles(parts: Parts) -> Parts:
    """The matrices of a layer for states in tiles (E, tiles, TILE, w), and its biases for every row of one."""
    matrices, biases = parts[:2], parts[2:]
    return [*(one[:, None] for one in matrices), *(np.repeat(one[:, None], TILE, axis=2) for one in biases)]


class _Convolved:
    """Convolutions: the last outputs of each layer, as far back as the next one sees."""

    def __init__(self, encoder: Recurrent) -> None:
        assert isinstance(encoder.body, Convolutions)
        self.encoder, body = encoder, encoder.body
        members, dtype, widths = len(encoder.weights), encoder.weights.dtype, body.widths
        spans = [(KERNEL - 1) * 2**layer + 1 for layer in range(len(widths) - 1)]
        self.past = [
            np.zeros((1 if layer == 0 else members, span, width), dtype)
            for layer, (span, width) in enumerate(zip(spans, widths, strict=False))
        ]
        outputs = encoder.layout.window - reach(len(spans)) + 1 if body.mean else 1
        self.out = np.zeros((outputs, members, 1, widths[-1]), dtype).swapaxes(0, 1)  # those of a step in one piece

    def push(self, step: np.ndarray) -> np.ndarray:
        body, newest = self.encoder.body, step[None]
        assert isinstance(body, Convolutions)
        for layer, parts in enumerate(self.encoder.parts):
            past = self.past[layer]
            past[:, :-1] = past[:, 1:].copy()
            past[:, -1] = newest
            seen = past[:, :: 2**layer].reshape(len(past), -1)
            newest = body.convolve(tile_of(seen), parts)[:, 0]
        self.out[:, :-1] = self.out[:, 1:].copy()
        self.out[:, -1, 0] = newest
        pooled = mean_of_steps(self.out)[:, 0] if body.mean else newest
        return np.asarray(self.encoder.finish(tile_of(pooled), 1)[:, 0])
