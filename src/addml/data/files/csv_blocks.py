"""A delimited text in blocks of whole rows, so that several threads can parse it at once.

Arrow's reader of streams finds the end of a row, parses and converts on one thread. Where quotes stand only around
cells, the end of a row is a line end with an even number of quotes before it, which is quickly found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from addml.data.files.csv_dialect import Writing

if TYPE_CHECKING:
    import pyarrow as pa

LINE_ENDS = (ord("\n"), ord("\r"))


class UnclearRowsError(ValueError):
    """Where rows end cannot be told by counting quotes."""


def row_blocks(stream: pa.NativeFile, size: int, writing: Writing) -> Iterator[bytes]:
    """Blocks of whole rows, of about `size` bytes; UnclearRowsError where rows are longer, or quoted in another way."""
    if writing.escape is not None:
        raise UnclearRowsError
    rest = b""
    while read := stream.read(size):
        block = rest + read
        end = _rows_end(block, writing)
        if end:
            yield block[:end]
        elif len(block) > size:
            raise UnclearRowsError
        rest = block[end:]
    if rest:  # a last row without a line end
        if _rows_end(rest + b"\n", writing) <= len(rest):
            raise UnclearRowsError
        yield rest


def _rows_end(block: bytes, writing: Writing) -> int:
    """How many bytes of a block, which begins with a row, are whole rows."""
    quotes = _places(block, writing.quote)
    before, end = 0, block.rfind(b"\n")
    while end >= 0 and (before := int(np.searchsorted(quotes, end))) % 2:  # it is within the quotes of a cell
        end = block.rfind(b"\n", 0, int(quotes[before - 1]))
    if end >= 0 and not _are_around_cells(block, quotes[:before], writing):
        raise UnclearRowsError
    return end + 1


def _places(block: bytes, quote: str | None) -> np.ndarray:
    if quote is None or quote.encode() not in block:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(block, np.uint8) == ord(quote))


def _are_around_cells(block: bytes, quotes: np.ndarray, writing: Writing) -> bool:
    """Whether every first quote begins a cell and every second one ends it; in a cell a quote is doubled."""
    if not len(quotes):
        return True
    assert writing.quote is not None
    data = np.frombuffer(block, np.uint8)
    edges = np.zeros(256, bool)
    edges[[ord(writing.delimiter), ord(writing.quote), *LINE_ENDS]] = True
    opening, closing = quotes[::2], quotes[1::2]
    begun = edges[data[opening - 1]]
    begun[0] |= opening[0] == 0
    return bool(begun.all() and edges[data[closing + 1]].all())
