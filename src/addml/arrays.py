"""One way to write the mathematics for NumPy arrays (the CPU) and torch tensors (an accelerator); arrays in files.

On the CPU the networks of this method are small: an operation costs more to call than to compute, and NumPy
calls cost about half of torch's. It also spares every CPU user the import of torch. NumPy 2 and torch agree on
most of what the method needs (`@`, `.mT`, `sum(axis=..., keepdims=...)`, in-place operators); the rest is here.
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
    """The module, numpy or torch, whose functions take x."""
    if isinstance(x, np.ndarray):
        return np
    import torch

    return torch


def as_like(values: Any, like: Array) -> Array:
    """Numbers as an array of the kind, dtype and device of `like`."""
    if isinstance(like, np.ndarray):
        return np.asarray(values, like.dtype)
    return namespace(like).as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def index_like(ids: np.ndarray, like: Array) -> Array:
    """Ids or flags as an index into arrays of the kind of `like`."""
    return ids if isinstance(like, np.ndarray) else namespace(like).as_tensor(ids, device=like.device)


def to_numpy(x: Array) -> np.ndarray:
    """The array in main memory."""
    return x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()


def convert(x: Array, like: Array) -> Array:
    """X in the dtype of `like`: ones and zeros from flags."""
    return x.astype(like.dtype) if isinstance(x, np.ndarray) else x.to(like.dtype)


def from_cutoff(x: Array, cutoff: Array) -> Array:
    """One where x is at or above the cut-off and zero elsewhere, as numbers of the dtype of x."""
    if isinstance(x, np.ndarray):
        return (x >= cutoff).astype(x.dtype)
    return namespace(x).ge(x, cutoff, out=namespace(x).empty_like(x))  # one launch, no flags in between


def take(x: Array, ids: Array) -> Array:
    """The rows of x (n, ...) with these ids, of shape (*ids.shape, ...)."""
    if isinstance(x, np.ndarray):
        return x.take(ids, axis=0)
    return x.index_select(0, ids.reshape(-1)).reshape(*ids.shape, *x.shape[1:])


def copy(x: Array) -> Array:
    """A copy in the same place."""
    return x.copy() if isinstance(x, np.ndarray) else x.clone()


def row_product(x: Array, y: Array) -> Array:
    """The product x @ y, in which a row of x gives the same bits wherever it stands among others.

    For some processors OpenBLAS adds up float32 numbers in an order that depends on the place of the row. There
    products are taken in float64 and rounded, which leaves no trace of it.
    """
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or _is_steady():
        return x @ y
    return np.matmul(x, y, dtype=np.float64).astype(np.float32)


@lru_cache(maxsize=1)
def _is_steady() -> bool:
    """Whether equal rows have equal products here, wherever they stand."""
    random = np.random.default_rng(0)
    for inputs, outputs in ((8, 64), (33, 32), (161, 256)):
        row, matrix = (random.normal(size=shape).astype(np.float32) for shape in ((1, inputs), (inputs, outputs)))
        product = np.repeat(row, 256, axis=0) @ matrix
        if (product != product[0]).any():
            return False
    return True


def row_sums(x: Array) -> Array:
    """The sums of x (..., n) over its last axis, kept as (..., 1): as a product, which is faster than a reduction."""
    if not isinstance(x, np.ndarray):
        return x.sum(-1, keepdim=True)
    return x @ _ones(x.shape[-1], x.dtype)


def column_sums(x: Array, out: Array | None = None) -> Array:
    """The sums of x (E, b, w) over its rows, kept as (E, 1, w)."""
    if not isinstance(x, np.ndarray):
        return namespace(x).sum(x, -2, keepdim=True, out=out)
    return np.matmul(_ones(x.shape[-2], x.dtype).T, x, out=out)


def pair_sums(x: Array) -> Array:
    """The sums of every two of x (E, b): (E, b, b)."""
    if not isinstance(x, np.ndarray):
        return x[:, :, None] + x[:, None, :]
    sides = np.ones((x.shape[0], 3, x.shape[1]), x.dtype)
    sides[:, 1] = x
    return sides[:, :2].mT @ sides[:, 1:]  # as a product, which takes half the time of NumPy's sum


def plus_gram(x: Array, z: Array, factor: float) -> Array:
    """X (E, b, b), which is used up, and z @ z.mT times a factor below 0: symmetric to the last bit if x is."""
    if isinstance(x, np.ndarray):
        x -= gram(z if factor == -1 else z * math.sqrt(-factor))
        return x
    x.baddbmm_(z, z.mT, alpha=factor)
    return x if x.is_cuda else (x + x.mT) / 2  # CUDA adds up both halves in one order, others do not


def gram(z: np.ndarray) -> np.ndarray:
    """The products z @ z.mT (E, b, b) of every two rows of z (E, b, w), of which NumPy copies one half to the other.

    Their rows lie a little further apart than b numbers. Where they lie a power of two apart, the numbers of a column
    share few places of the cache: that copy then takes four times as long.
    """
    room = np.empty((*z.shape[:-1], z.shape[-2] + 8), z.dtype)
    return np.matmul(z, z.mT, out=room[..., :-8])


def lowest(x: Array) -> Array:
    """The least of x (n, ...) over its first axis, which goes away."""
    if isinstance(x, np.ndarray):
        return np.minimum.reduce(x, 0)  # NumPy's own `amin` costs more than the work on a few
    return namespace(x).amin(x, 0)


def column_medians(x: np.ndarray) -> np.ndarray:
    """The medians (d,) of the columns of x (n, d), each brought into one piece first."""
    return np.asarray(np.median(np.array(x.T, order="C"), axis=1, overwrite_input=True))


def dots(x: Array, y: Array) -> Array:
    """The products of x and y (..., n) summed over their last axis, which goes away."""
    return np.vecdot(x, y) if isinstance(x, np.ndarray) else namespace(x).linalg.vecdot(x, y)


@lru_cache(maxsize=64)
def _ones(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    return np.ones((size, 1), dtype)


def at_least_one(x: Array) -> Array:
    """X, or 1 where that is more: what may be divided by."""
    return np.maximum(x, 1) if isinstance(x, np.ndarray) else x.clip(1)  # NumPy's own clip costs more than its work


def no_grad(like: Array) -> AbstractContextManager[Any]:
    """A context in which torch records nothing."""
    return nullcontext() if isinstance(like, np.ndarray) else namespace(like).no_grad()


def present(counts: Sequence[int], size: int, like: Array) -> Array:
    """Which of `size` columns are within each member's count: flags (E, size)."""
    if isinstance(like, np.ndarray):
        return np.arange(size) < np.asarray(counts)[:, None]
    return namespace(like).arange(size, device=like.device) < index_like(np.asarray(counts), like)[:, None]


# A few of many rows, at even steps: each stands for as many around it.


def even_steps(rows: int, count: int) -> np.ndarray:
    """The places of `count` of so many rows, in the middle of as many equal parts."""
    return np.floor((np.arange(count) + 0.5) * rows / count).astype(np.int64)


def evenly_spaced(ids: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the ids, at even steps."""
    return ids if len(ids) <= most else np.asarray(ids[even_steps(len(ids), most)])


def evenly_spaced_with_ends(ids: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the ids, at even steps from the first to the last."""
    places = np.linspace(0, len(ids) - 1, min(len(ids), most)).round().astype(np.int64)
    return np.asarray(ids[places])


def evenly_spaced_by(values: np.ndarray, count: int) -> np.ndarray:
    """Places of `count` values at even steps through all of them in order, in an order that is random but fixed."""
    steps = np.random.default_rng(0).permutation(even_steps(len(values), min(count, len(values))))
    return np.asarray(np.argsort(values, kind="stable")[steps])


# Arrays in files instead of memory, for what grows with the rows of a table on disk.


class ScratchError(OSError):
    """A folder that takes no files, or has too little space; the message says what to do."""


def mapped(folder: str | os.PathLike[str], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of zeros in a nameless file of the folder, mapped into memory; an empty array needs no file.

    The system frees the file when the array goes, even after a kill. Its bytes are reserved at once, so that a full
    disk is an error here and not a broken mapping later.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    except OSError as error:
        raise ScratchError(
            f"{folder}: no file can be made there ({error.strerror}); name another folder (scratch=..., --scratch)"
        ) from None
    with file:
        _reserve(file.fileno(), size, folder)
        array = np.memmap(file, dtype, "r+", shape=shape)
    vars(array)["filename"] = os.path.join(folder, "nameless")  # views of it remember this too
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
            f"{folder}: {size / 1e9:,.2f} GB are needed for prepared rows and {free / 1e9:,.2f} GB are free{reason}; "
            "free some space, or name a folder on another disk (scratch=..., --scratch)"
        ) from None


def room(shape: tuple[int, ...], dtype: Any, beside: np.ndarray) -> np.ndarray:
    """An array for results: in a file where `beside`, from which they come, lies in one, else in memory."""
    folder = folder_of(beside)
    return np.empty(shape, dtype) if folder is None else mapped(folder, shape, dtype)


def folder_of(array: Any) -> Path | None:
    """The folder of the file that an array lies in; None for an array in memory."""
    named = getattr(array, "filename", None) if isinstance(array, np.memmap) else None
    return None if named is None else Path(named).parent
