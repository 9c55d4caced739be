"""Features of photographs from EfficientNet-Lite0, trained on ImageNet; frozen and shipped with the package."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from addml.arrays import Array, as_like, to_numpy
from addml.compute import blas_threads, in_threads
from addml.encoders.encoder import Encoder
from addml.text import IMAGE

FILE = Path(__file__).with_name("efficientnet_lite0.onnx")  # made by benchmarks/convert_weights.py
SHA256 = "db6bf56f013b78e5a944c658bcbb77a3a45a0adcb62bae8f742d78d06aecd447"
LEVELS = ("fine", "coarse")  # outputs of that file: the features of two blocks
CHANNELS, STRIDES = (40, 112), (8, 16)
SIDE = 256  # pixels; smaller images are enlarged to about this size
TILE, CONTEXT = 512, 96  # pixels of a large image's tile, and around it what its features depend on
MISSING = "encoder='pretrained' needs onnxruntime and pillow: pip install 'addml[pretrained]'"


def is_installed() -> bool:
    """Whether the packages of the extra `pretrained` are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnxruntime", "PIL"))


class Pretrained(Encoder):
    """EfficientNet-Lite0, not trained further, for images of one or three channels."""

    name: ClassVar[str] = "pretrained"
    kind: ClassVar[str | None] = IMAGE
    frozen: ClassVar[bool] = True

    def __init__(self) -> None:
        """There are no parameters."""

    def check(self) -> None:
        if not is_installed():
            raise ImportError(MISSING)

    def build(self, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> PretrainedNetwork:
        return PretrainedNetwork(shape, np.zeros((len(rngs), 0)))


class PretrainedNetwork:
    """Maps images to the mean features of two blocks; `patches` returns the features of every patch."""

    name: ClassVar[str] = "pretrained"
    operations = property(lambda self: 10_000 * self.size[0] * self.size[1])  # approximately

    def __init__(self, shape: Sequence[int], weights: Array) -> None:
        """Takes the shape (channels, height, width) of images; weights are (E, 0), because nothing is learned."""
        if shape[0] not in (1, 3):
            raise ValueError(f"images have {shape[0]} channels; encoder='pretrained' takes 1 (grey) or 3 (RGB)")
        self.shape, self.weights = tuple(shape), weights
        self.inputs, self.outputs = math.prod(shape), sum(CHANNELS)
        zoom = max(1.0, SIDE / math.sqrt(shape[1] * shape[2]))
        self.size = tuple(max(64, 16 * round(side * zoom / 16)) for side in shape[1:])

    @property
    def levels(self) -> tuple[tuple[int, int, int], ...]:
        """The channels, height and width of each block's features."""
        height, width = self.size
        return tuple((c, height // s, width // s) for c, s in zip(CHANNELS, STRIDES, strict=True))

    @property
    def is_tiled(self) -> bool:
        """Whether images are so large that the network takes them tile by tile."""
        return self.size == self.shape[1:] and max(self.size) > 2 * TILE

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray) -> PretrainedNetwork:
        if document["sha256"] != SHA256:
            raise ValueError("the model was fitted with other pretrained weights; fit it again")
        return cls(document["shape"], weights)

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "sha256": SHA256}

    def with_weights(self, weights: Array) -> PretrainedNetwork:
        return PretrainedNetwork(self.shape, weights)

    def is_matrix(self) -> Array:
        return self.weights[0]

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return self.embed(x), lambda grad: self.weights * 0

    def embed(self, x: Array) -> Array:
        patches = self.patches(x)
        ends = np.cumsum([math.prod(level) for level in self.levels])
        blocks = zip(np.split(patches, ends[:-1], axis=-1), self.levels, strict=True)
        means = [block.reshape(*block.shape[:-1], level[0], -1).mean(axis=-1) for block, level in blocks]
        z = np.concatenate(means, axis=-1)
        return as_like(np.repeat(z, len(self.weights) // z.shape[-3], axis=-3), x)

    def patches(self, x: Array) -> np.ndarray:
        """The features (..., sum of levels) of flat images (..., d); an image's bits do not depend on other images."""
        images = to_numpy(x).reshape(-1, *self.shape)
        features = np.empty((len(images), sum(math.prod(level) for level in self.levels)), np.float32)

        def work(index: int) -> None:
            features[index] = np.concatenate([block.ravel() for block in self._features(images[index])])

        in_threads(work, len(images), blas_threads.allowed)
        return features.reshape(*x.shape[:-1], features.shape[1])

    def _features(self, image: np.ndarray) -> list[np.ndarray]:
        """The features of both blocks of one image; a large image is taken in tiles with the pixels around them."""
        if not self.is_tiled:
            return _run(image, self.size)
        result = [np.empty(level, np.float32) for level in self.levels]
        _, height, width = image.shape
        for top, left in product(range(0, height, TILE), range(0, width, TILE)):
            bottom, right = min(top + TILE, height), min(left + TILE, width)
            y, x = max(0, top - CONTEXT), max(0, left - CONTEXT)
            part = image[:, y : bottom + CONTEXT, x : right + CONTEXT]
            for target, features, s in zip(result, _run(part, part.shape[1:]), STRIDES, strict=True):
                tile = features[:, (top - y) // s : (bottom - y) // s, (left - x) // s : (right - x) // s]
                target[:, top // s : bottom // s, left // s : right // s] = tile
        return result


def _run(image: np.ndarray, size: tuple[int, ...]) -> list[np.ndarray]:
    target = np.array([1, len(image), *size], np.int64)
    return [part[0] for part in _session().run(LEVELS, {"images": image[None], "size": target})]


def shipped_network() -> bytes:
    """The bytes of the ONNX file, checked against its hash."""
    document = FILE.read_bytes()
    if hashlib.sha256(document).hexdigest() != SHA256:
        raise ValueError(f"{FILE} is damaged (its SHA-256 is not {SHA256[:12]}...); install addml again")
    return document


@lru_cache(maxsize=1)
def _session() -> Any:
    if not is_installed():
        raise ImportError(MISSING)
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # our own threads take different images
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(shipped_network(), options, providers=["CPUExecutionProvider"])
