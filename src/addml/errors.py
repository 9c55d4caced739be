"""Errors that a user can fix: one sentence without a traceback, and the same as data where it crosses a process."""

from __future__ import annotations

from typing import Any

USAGE = "usage"  # the code of options that are wrong or contradict each other; any other code is about the input


class AddmlError(ValueError):
    """An option, a file or a model that does not fit; the message names it and says what to do."""

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
        """The message and the fields that are known."""
        return {"message": str(self)} | {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> AddmlError:
        """The inverse of `to_json`."""
        return cls(**document)


UserError = AddmlError  # until every module says AddmlError
