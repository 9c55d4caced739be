"""Tables as CSV that a spreadsheet may open."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from addml.data.files.json_lines import as_json

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 32_768  # that become text together
FORMULA = r"^[=+\-@\t\r\n]"  # what a spreadsheet may run when it opens the file
NUMBER = r"^-\d+([.,]\d+)?([eE][+\-]?\d+)?$"  # but not this, as ids that are copied may be


class CsvSink:
    """CSV in which no text cell begins like a spreadsheet formula, on as many threads as Arrow may use."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema, target: Path) -> None:
        """Write the header."""
        import pyarrow as pa

        self.changed = {"text cells that began like a formula, now with an apostrophe before": 0}
        self._stream, self._delimiter = stream, "\t" if ".tsv" in target.suffixes else ","
        self.schema = _guarded(schema.empty_table())[0].schema
        self._threads, self._waiting = pa.cpu_count(), deque[Future[tuple[pa.Buffer, int]]]()
        self._pool = ThreadPoolExecutor(self._threads)
        self._stream.write(self._text(self.schema.empty_table(), header=True))

    def write(self, table: pa.Table) -> None:
        """Write these rows behind those before, which may still be on their way to text."""
        for start in range(0, table.num_rows, ROWS):
            self._waiting.append(self._pool.submit(self._rows, table.slice(start, ROWS)))
            if len(self._waiting) > self._threads:
                self._write_first()

    def close(self) -> None:
        """Write what remains."""
        try:
            while self._waiting:
                self._write_first()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _write_first(self) -> None:
        text, count = self._waiting.popleft().result()
        self._stream.write(text)
        self.changed[next(iter(self.changed))] += count

    def _rows(self, table: pa.Table) -> tuple[pa.Buffer, int]:
        """The rows as text, and how many cells were changed."""
        table, count = _guarded(table)
        return self._text(table.cast(self.schema), header=False), count

    def _text(self, table: pa.Table, *, header: bool) -> pa.Buffer:
        import pyarrow as pa
        from pyarrow import csv

        stream = pa.BufferOutputStream()
        options = csv.WriteOptions(include_header=header, delimiter=self._delimiter, batch_size=ROWS)
        csv.write_csv(table, stream, options)
        return stream.getvalue()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that CSV can hold: text for nested values."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        texts = [None if value is None else as_json(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column


def _guarded(table: pa.Table) -> tuple[pa.Table, int]:
    """The table in types that CSV can hold, its text and names neutralised, and how many cells that changed."""
    import pyarrow as pa

    arrays, changed = [_plain(column) for column in table.columns], 0
    for position, array in enumerate(arrays):
        if pa.types.is_string(array.type):
            arrays[position], count = _neutralised(array)
            changed += count
    names = pa.array(table.column_names, pa.string())
    return pa.table(arrays, names=_neutralised(names)[0].to_pylist()), changed


def _neutralised(text: pa.Array | pa.ChunkedArray) -> tuple[pa.Array | pa.ChunkedArray, int]:
    """The text with an apostrophe before what a spreadsheet would take for a formula, and how often."""
    import pyarrow.compute as pc

    found = pc.fill_null(pc.match_substring_regex(text, FORMULA), False)
    if pc.any(found).as_py():
        found = pc.and_not(found, pc.fill_null(pc.match_substring_regex(text, NUMBER), False))
    count = int(pc.sum(found).as_py() or 0)
    if not count:
        return text, 0
    return pc.if_else(found, pc.binary_join_element_wise("'", text, ""), text), count
