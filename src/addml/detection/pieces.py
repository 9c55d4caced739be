"""What scoring gives for every row, batch by batch: in memory while that is little, then in files without a name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.scratch import folder_of, mapped, room

if TYPE_CHECKING:
    import pyarrow as pa

IN_MEMORY = 256 << 20  # bytes
AT_ONCE = 1 << 20  # rows


class Pieces:
    """Record batches of one schema that are written once and read as often as wanted."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder` is for what memory should not hold."""
        self.folder = folder
        self._writer: Any = None
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=folder)  # noqa: SIM115

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep another batch."""
        from pyarrow import PythonFile, ipc

        if self._writer is None:
            self._writer = ipc.new_stream(PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from pyarrow import PythonFile, ipc

        if self._writer is not None:
            self._writer.close()
        self._file.seek(0)
        yield from ipc.open_stream(PythonFile(self._file, "r"))


def joined(pieces: Pieces, name: str, rows: int) -> np.ndarray:
    """One column of all pieces, numbers without gaps, as an array; on disk where it is large."""
    folder = pieces.folder or tempfile.gettempdir()
    large = rows * 8 > IN_MEMORY
    whole, done = mapped(folder, (rows,), np.float64) if large else np.empty(rows), 0
    for batch in pieces:
        whole[done : done + batch.num_rows] = batch[name].to_numpy()
        done += batch.num_rows
    return whole


def ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of every score: 1 is the highest, of equal ones the first."""
    found = room(scores.shape, np.int64, scores)
    if folder_of(scores) is None:
        found[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
        return found
    keys = room(scores.shape, np.complex128, scores)  # sorted by the score and then by the place, where they lie
    for start in range(0, len(scores), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        keys.real[part], keys.imag[part] = -scores[part], np.arange(start, start + len(scores[part]))
    keys.sort()
    for start in range(0, len(scores), AT_ONCE):
        places = keys.imag[start : start + AT_ONCE].astype(np.int64)
        found[places] = np.arange(start + 1, start + len(places) + 1)
    return found
