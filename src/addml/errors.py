"""What a user can mend: said in one sentence, without a traceback."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from addml.text import listed

if TYPE_CHECKING:
    import numpy as np


class UserError(ValueError):
    """A setting or a table that does not fit; the message says what to do."""


# Warnings ---------------------------------------------------------------------------------------------------


class DroppedColumnsWarning(UserWarning):
    """Columns that are not learned from, and values that cannot be read, which the commands report themselves."""


class TextCellsWarning(DroppedColumnsWarning):
    """Texts in columns of numbers, which are missing values and make their rows strange."""

    def __init__(self, cells: Any) -> None:
        """The cells in question."""
        super().__init__("; ".join(cells.words()))
        self.cells = cells


def warn(message: str | Warning, kind: type[UserWarning] = UserWarning) -> None:
    """Warn at the line that called into this package, however deep the warning arose, or through scikit-learn."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("addml.", "sklearn.")):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, kind, stacklevel=depth)


def warn_of_columns(message: str, columns: Sequence[int] | np.ndarray, names: Sequence[str]) -> None:
    """Warn of some columns, if there are any."""
    if len(columns):
        warn(f"{message}: {listed([repr(names[column]) for column in columns])}")


def warn_of_texts(cells: Any) -> None:
    """Warn of the cells of columns of numbers that are text, if there are any."""
    if cells:
        warn(TextCellsWarning(cells))
