"""Which line of a delimited text is wrong: it is read again slowly after Arrow's reader has failed."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice

from addml.io.csv_dialect import CsvRow, Dialect, csv_rows
from addml.io.source import Origin, ReadError
from addml.text import shortened

CONVERSION = re.compile(r"CSV column #(\d+): .*?conversion error to (\w+)[^:]*: invalid value '(.*)'", re.DOTALL)
TYPE_NAMES = {"double": "a number", "timestamp": "a date", "bool": "true or false"}
SENTINEL = "a line after the last"


def line_of(origin: Origin, dialect: Dialect, row: int) -> int:
    """The line on which a row, counted from 1, begins."""
    if len(dialect.names) == 1:  # in which an empty line is a row
        return dialect.skip_lines + row
    return next(islice(_body(origin, dialect), row - 1, None)).first


def explained(origin: Origin, dialect: Dialect, error: Exception) -> ReadError:
    """The error to raise instead of Arrow's, with file, line and remedy."""
    if isinstance(error, OSError):
        return origin.unreadable(error)
    try:
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            return _undecodable(origin, dialect)
        if (unclosed := unclosed_quote(origin, dialect)) is not None:
            return unclosed
        if (conversion := CONVERSION.search(str(error))) is not None:
            return _unconvertible(origin, dialect, conversion)
        return _ragged(origin, dialect) or ReadError(f"{origin.name}: {error}")
    except OSError as damage:
        return origin.unreadable(damage)


def unclosed_quote(origin: Origin, dialect: Dialect) -> ReadError | None:
    """The error for a quote that is opened and never closed, which makes one cell of all the rest."""
    with _text(origin, dialect) as stream:
        last = deque(csv_rows(chain(stream, [SENTINEL]), dialect.writing), maxlen=1)[0]
    if last.cells == [SENTINEL]:
        return None
    return ReadError(
        f"{origin.name}, line {last.first + dialect.skip_lines}: a quote ({dialect.writing.quote}) is opened and "
        "never closed, so that all lines after it would be one cell. Close the quote, or double it if it belongs to "
        "the text."
    )


def _ragged(origin: Origin, dialect: Dialect) -> ReadError | None:
    width = len(dialect.names)
    bad = next((row for row in _body(origin, dialect) if len(row.cells) != width), None)
    if bad is None:
        return None
    amount = "too few" if len(bad.cells) < width else "too many"
    quoting = ", or quote the cell that holds the delimiter" if len(bad.cells) > width else ""
    if width == 1:
        quoting = ", or take out what stands above the table"
    return ReadError(
        f"{origin.name}, line {bad.first}: {amount} fields, {len(bad.cells)} where {width} are expected: "
        f"{shortened(dialect.writing.delimiter.join(bad.cells), 80)!r}. Correct the line{quoting}."
    )


def _unconvertible(origin: Origin, dialect: Dialect, conversion: re.Match[str]) -> ReadError:
    column, kind, value = int(conversion[1]), conversion[2], conversion[3]
    rows = (row for row in _body(origin, dialect) if column < len(row.cells))
    bad = next((row for row in rows if row.cells[column].strip() == value.strip()), None)
    place = f", line {bad.first}" if bad else ""
    return ReadError(
        f"{origin.name}{place}: column {dialect.names[column]!r} holds {value!r} where "
        f"{TYPE_NAMES.get(kind, kind)} is expected. Correct the value, or leave the cell empty if it is not known."
    )


def _undecodable(origin: Origin, dialect: Dialect) -> ReadError:
    with io.BufferedReader(origin.open()) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode(dialect.encoding)
            except UnicodeDecodeError as error:
                return ReadError(
                    f"{origin.name}, line {number}: byte {line[error.start]:#04x} is not {dialect.encoding}. "
                    "Give the encoding that the file has, such as cp1252 or latin-1."
                )
    return ReadError(f"{origin.name}: is not {dialect.encoding} throughout. Give the encoding that it has.")


def _body(origin: Origin, dialect: Dialect) -> Iterator[CsvRow]:
    with _text(origin, dialect) as stream:
        for row in csv_rows(stream, dialect.writing):
            yield row._replace(first=row.first + dialect.skip_lines)


def _text(origin: Origin, dialect: Dialect) -> io.TextIOWrapper:
    """The text below the header."""
    stream = io.TextIOWrapper(io.BufferedReader(origin.open()), encoding=dialect.encoding, errors="replace", newline="")
    for _ in range(dialect.skip_lines):
        stream.readline()
    return stream
