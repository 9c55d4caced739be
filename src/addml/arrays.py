"""One spelling of the mathematics for NumPy arrays (CPU) and torch tensors (accelerators); arrays in files.

In networks this small a NumPy call takes half the time of a torch call. Both mostly agree (`@`, `.mT`, `sum(axis=...,
keepdims=...)`, in-place operators); the functions here bridge the rest.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # np.ndarray or torch.Tensor


def namespace(x: Array) -> ModuleType:
    """The module, numpy or torch, that x belongs to."""
    if isinstance(x, np.ndarray):
        return np
    import torch

    return torch


def as_like(values: Any, like: Array) -> Array:
    """Numbers as an array of the kind, dtype and device of `like`."""
    if isinstance(like, np.ndarray):
        return np.asarray(values, like.dtype)
    return namespace(like).as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def zeros(shape: Sequence[int], like: Array) -> Array:
    """Zeros of the kind, dtype and device of `like`."""
    return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(tuple(shape))


def index_like(ids: np.ndarray, like: Array) -> Array:
    """Ids or flags as an index for arrays like `like`."""
    return ids if isinstance(like, np.ndarray) else namespace(like).as_tensor(ids, device=like.device)


def to_numpy(x: Array) -> np.ndarray:
    """The values as a NumPy array in main memory."""
    return x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()


def convert(x: Array, like: Array) -> Array:
    """X in the dtype of `like`; flags become 0 and 1."""
    return x.astype(like.dtype) if isinstance(x, np.ndarray) else x.to(like.dtype)


def take(x: Array, ids: Array) -> Array:
    """The rows of x (n, ...) with these ids: (*ids.shape, ...)."""
    if isinstance(x, np.ndarray):
        return x.take(ids, axis=0)
    return x.index_select(0, ids.reshape(-1)).reshape(*ids.shape, *x.shape[1:])


def copy(x: Array) -> Array:
    return x.copy() if isinstance(x, np.ndarray) else x.clone()


def contiguous(x: Array) -> Array:
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()


def row_product(x: Array, y: Array) -> Array:
    """The product x @ y, in which the bits of a row do not depend on its position.

    On some processors OpenBLAS adds up float32 numbers in an order that depends on the row's position. There the
    product is computed in float64 and rounded, which hides the order.
    """
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or _products_ignore_position():
        return x @ y
    return np.matmul(x, y, dtype=np.float64).astype(np.float32)


@lru_cache(maxsize=1)
def _products_ignore_position() -> bool:
    """Whether equal rows have equal float32 products on this machine."""
    random = np.random.default_rng(0)
    for inputs, outputs in ((8, 64), (33, 32), (161, 256)):
        row, matrix = (random.normal(size=shape).astype(np.float32) for shape in ((1, inputs), (inputs, outputs)))
        product = np.repeat(row, 256, axis=0) @ matrix
        if (product != product[0]).any():
            return False
    return True


def row_sums(x: Array) -> Array:
    """The sums of x (..., n) over its last axis: (..., 1)."""
    if not isinstance(x, np.ndarray):
        return x.sum(-1, keepdim=True)
    return x @ _ones(x.shape[-1], x.dtype)  # faster than a reduction


def column_sums(x: Array, out: Array | None = None) -> Array:
    """The sums of x (E, b, w) over its rows: (E, 1, w)."""
    if not isinstance(x, np.ndarray):
        return namespace(x).sum(x, -2, keepdim=True, out=out)
    return np.matmul(_ones(x.shape[-2], x.dtype).T, x, out=out)


def plus_gram(x: Array, z: Array, factor: float) -> Array:
    """x + factor * (z @ z.mT) for a negative factor, (E, b, b), symmetric to the last bit if x is; overwrites x."""
    if isinstance(x, np.ndarray):
        x -= gram(z if factor == -1 else z * math.sqrt(-factor))
        return x
    x.baddbmm_(z, z.mT, alpha=factor)
    return x if x.is_cuda else (x + x.mT) / 2  # only CUDA adds up both halves in the same order


def gram(z: np.ndarray) -> np.ndarray:
    """The products z @ z.mT (E, b, b), symmetric to the last bit because NumPy computes one half and copies it.

    The rows are padded by 8 numbers. Rows a power of two apart would share few cache lines and make that copy four
    times as slow.
    """
    padded = np.empty((*z.shape[:-1], z.shape[-2] + 8), z.dtype)
    return np.matmul(z, z.mT, out=padded[..., :-8])


def dots(x: Array, y: Array) -> Array:
    """The dot products (...) of x and y (..., n)."""
    return np.vecdot(x, y) if isinstance(x, np.ndarray) else namespace(x).linalg.vecdot(x, y)


@lru_cache(maxsize=64)
def _ones(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    return np.ones((size, 1), dtype)


def no_grad(like: Array) -> AbstractContextManager[Any]:
    """A context in which torch records nothing."""
    return nullcontext() if isinstance(like, np.ndarray) else namespace(like).no_grad()


def count_mask(counts: Sequence[int], size: int, like: Array) -> Array:
    """Which of `size` columns are within each member's count: flags (E, size)."""
    return index_like(np.arange(size) < np.asarray(counts)[:, None], like)


def even_steps(rows: int, count: int) -> np.ndarray:
    """The row in the middle of each of `count` equal parts of the rows."""
    return np.floor((np.arange(count) + 0.5) * rows / count).astype(np.int64)


def evenly_spaced(ids: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the ids, at even steps."""
    return ids if len(ids) <= most else np.asarray(ids[even_steps(len(ids), most)])


def evenly_spaced_with_ends(ids: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the ids, at even steps from the first to the last."""
    steps = np.linspace(0, len(ids) - 1, min(len(ids), most)).round().astype(np.int64)
    return np.asarray(ids[steps])


def evenly_spaced_by(values: np.ndarray, count: int) -> np.ndarray:
    """The indices of `count` values at even ranks, in a fixed random order."""
    steps = np.random.default_rng(0).permutation(even_steps(len(values), min(count, len(values))))
    return np.asarray(np.argsort(values, kind="stable")[steps])


class ScratchError(OSError):
    """The scratch folder is not writable or too small; the message says what to do."""


def mapped(folder: str | os.PathLike[str], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros in an unnamed file of the folder, mapped into memory; an empty array needs no file.

    The system frees the file with the array, even after a kill. The space is reserved at once, so that a full disk
    raises an error here instead of breaking the mapping later.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    except OSError as error:
        raise ScratchError(
            f"{folder}: cannot create a file in it ({error.strerror}); choose another folder (scratch=..., --scratch)"
        ) from None
    with file:
        _reserve(file.fileno(), size, folder)
        array = np.memmap(file, dtype, "r+", shape=shape)
    vars(array)["filename"] = os.path.join(folder, "nameless")  # views inherit it
    return array


def _reserve(file: int, size: int, folder: str | os.PathLike[str]) -> None:
    free = shutil.disk_usage(folder).free
    try:
        if size > free:
            raise OSError
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        else:
            os.truncate(file, size)
    except OSError as error:
        reason = f" ({error.strerror})" if error.strerror else ""
        raise ScratchError(
            f"{folder}: prepared rows need {size / 1e9:,.2f} GB, but only {free / 1e9:,.2f} GB are free{reason}; "
            "free some space, or choose a folder on another disk (scratch=..., --scratch)"
        ) from None


def empty_beside(shape: tuple[int, ...], dtype: Any, beside: np.ndarray) -> np.ndarray:
    """An uninitialised array: in a file next to the file of `beside`, or in memory if `beside` is in memory."""
    folder = folder_of(beside)
    return np.empty(shape, dtype) if folder is None else mapped(folder, shape, dtype)


def folder_of(array: Any) -> Path | None:
    """The folder of an array's file; None for an array in memory."""
    file = getattr(array, "filename", None) if isinstance(array, np.memmap) else None
    return None if file is None else Path(file).parent
