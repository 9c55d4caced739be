"""What people know of rows, to learn from: a column of labels, or rows by the numbers that a list gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from addml.errors import UserError
from addml.pipeline.evaluation import UNKNOWN, is_labelled, read_label
from addml.pipeline.options import Settings
from addml.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

ANOMALIES, NORMAL = "--known-anomalies", "--known-normal"


@dataclass(frozen=True)
class Answers:
    """A column with labels, the value in it that marks an anomaly, and rows by their places: 1 anomaly, 0 normal."""

    column: str | None
    anomalous: str | None
    rows: Mapping[int, int]

    @classmethod
    def of(cls, settings: Settings) -> Answers:
        """Those of the settings; a row cannot be both."""
        learning, rows = settings.learning, dict[int, int]()
        for option, given, label in ((ANOMALIES, learning.known_anomalies, 1), (NORMAL, learning.known_normal, 0)):
            for number in _numbers(given, option):
                if rows.setdefault(number - 1, label) != label:
                    raise UserError(f"row {number} is among both {ANOMALIES} and {NORMAL}; leave it out of one.")
        return cls(learning.learn_from, settings.labelling.anomalous, rows)

    @property
    def names(self) -> str:
        """The options that give them, in words; nothing where there are none."""
        labels = {1: ANOMALIES, 0: NORMAL}
        options = [f"--learn-from {self.column}"] if self.column else []
        return " and ".join([*options, *(labels[label] for label in (1, 0) if label in self.rows.values())])

    def known(self, batch: pa.RecordBatch, start: int) -> np.ndarray:
        """Which rows of a batch, with so many rows before it, people know something of."""
        found = np.zeros(batch.num_rows, bool) if self.column is None else is_labelled(batch[self.column])
        own = np.array([place for place in self.rows if 0 <= place - start < batch.num_rows], np.int64)
        found[own - start] = True
        return found

    def marks(self, table: pa.Table, places: np.ndarray, rows: int) -> np.ndarray | None:
        """Labels of the rows of a table, which lie at these places of so many; None where nothing is known."""
        if not self.names:
            return None
        marks = np.full(len(places), UNKNOWN) if self.column is None else self._of_column(table)
        for place, label in self.rows.items():
            if place >= rows:
                raise UserError(f"there is no row {place + 1} ({self.names}) among {counted(rows, 'row')}.")
            at = np.searchsorted(places, place)
            if at == len(places) or places[at] != place:
                raise UserError(f"--sample {len(places)} leaves no room for row {place + 1} ({self.names}); give more.")
            marks[at] = label
        if int((marks == 1).sum()) + 2 > len(marks):
            raise UserError(f"all rows are marked as anomalies ({self.names}); there is nothing normal to learn.")
        return marks

    def _of_column(self, table: pa.Table) -> np.ndarray:
        assert self.column is not None
        if not is_labelled(table[self.column]).any():
            raise UserError(f"the column {self.column!r} (--learn-from) holds no label; leave it out, or fill some in.")
        return read_label(table[self.column], self.anomalous, self.column)

    def words(self, marks: np.ndarray) -> str:
        """How much was learned from."""
        anomalies, normal = int((marks == 1).sum()), int((marks == 0).sum())
        both = f"{counted(anomalies, 'anomaly', 'anomalies')} and {counted(normal, 'normal row')}"
        return f"learned from {'answers' if self.rows else self.column}: {both} labelled"


def _numbers(given: Sequence[str], option: str) -> list[int]:
    """Rows by their numbers, from 1 on, with commas between them or one by one."""
    texts = [part.strip() for text in given for part in text.split(",") if part.strip()]
    for text in texts or given:  # a comma alone names no row
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise UserError(f"{option} {text}: give the numbers of rows, as addml detect lists them: {option} 13,90.")
    return [int(text) for text in texts]
