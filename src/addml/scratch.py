"""Arrays in files instead of memory, for what grows with the rows of a table on disk.

The file has no name: the system frees it when the array goes, even after a kill. Its bytes are reserved at once, so
that a full disk is an error here and not a broken mapping later.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np


class ScratchError(OSError):
    """A folder that takes no files, or not enough; the message says what to do."""


def mapped(folder: str | os.PathLike[str], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of zeros in a nameless file of the folder, mapped into memory; an empty array needs no file."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    with _nameless(folder) as file:
        _reserve(file.fileno(), size, folder)
        array = np.memmap(file, dtype, "r+", shape=shape)
    vars(array)["filename"] = os.path.join(folder, "nameless")  # what views of it remember too
    return array


@contextmanager
def _nameless(folder: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file without a name: from its first moment where the system has such, else from when this ends."""
    handle, name = _without_name(folder), None
    try:
        if handle is None:
            handle, name = tempfile.mkstemp(prefix="addml-", suffix=".scratch", dir=folder)
    except OSError as error:
        raise ScratchError(
            f"{folder}: no file can be made there ({error.strerror}); name another folder (scratch=..., --scratch)"
        ) from None
    try:
        with open(handle, "r+b") as file:
            yield file
    finally:
        with suppress(PermissionError):  # a system that keeps the names of open files
            if name is not None:
                os.unlink(name)


def _without_name(folder: str | os.PathLike[str]) -> int | None:
    with suppress(OSError, AttributeError):  # Linux has this, on most of its file systems
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    return None


def room(shape: tuple[int, ...], dtype: Any, beside: np.ndarray) -> np.ndarray:
    """An array for results: in a file where `beside`, from which they come, lies in one, else in memory."""
    folder = folder_of(beside)
    return np.empty(shape, dtype) if folder is None else mapped(folder, shape, dtype)


def folder_of(array: Any) -> Path | None:
    """The folder of the file in which an array lies, or None where it lies in memory."""
    named = getattr(array, "filename", None) if isinstance(array, np.memmap) else None
    return None if named is None else Path(named).parent


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
