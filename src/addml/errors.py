"""Errors that a user can fix, reported in one sentence without a traceback or sent as JSON; and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from addml.text import listed

USAGE = "usage"  # code of errors about options; any other code is about the input


class AddmlError(ValueError):
    """An invalid option, file or model; the message names it and the remedy."""

    def __init__(
        self,
        message: str,
        code: str = "input",
        file: str | None = None,
        row: int | None = None,
        column: str | None = None,
        option: str | None = None,
    ) -> None:
        """`row` is counted from 1."""
        super().__init__(message)
        self.code, self.file, self.row, self.column, self.option = code, file, row, column, option

    def to_json(self) -> dict[str, Any]:
        """The message, and the other fields unless None."""
        return {"message": str(self)} | {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> AddmlError:
        return cls(**document)


class DroppedColumnsWarning(UserWarning):
    """Dropped columns and unreadable values; the commands report these in notes of their own."""


class TextCellsWarning(DroppedColumnsWarning):
    """Texts in number columns: they count as missing values and make their rows more anomalous."""

    def __init__(self, cells: Any) -> None:
        super().__init__("; ".join(cells.words()))
        self.cells = cells


def warn(message: str | Warning, kind: type[UserWarning] = UserWarning) -> None:
    """Warn with the line of the first caller outside of this package and scikit-learn."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("addml.", "sklearn.")):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, kind, stacklevel=depth)


def warn_of_columns(message: str, columns: Iterable[int], names: Sequence[str]) -> None:
    """Warn of columns, given by index, if there are any."""
    quoted = [repr(names[column]) for column in columns]
    if quoted:
        warn(f"{message}: {listed(quoted)}")


def warn_of_texts(cells: Any) -> None:
    """Warn of texts in number columns, if there are any."""
    if cells:
        warn(TextCellsWarning(cells))


@contextmanager
def rows_before(rows: int) -> Iterator[None]:
    """Add `rows` to the row number of an error that was raised by code that reads a later part of the table."""
    try:
        yield
    except ValueError as error:
        if isinstance(getattr(error, "row", None), int):
            error.row += rows  # type: ignore[attr-defined]
        raise
