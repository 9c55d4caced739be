"""The columns of a table as features: fitted to the training table, applied by name."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from addml.errors import rows_before
from addml.inputs.frame import as_table, check_names, is_frame
from addml.preprocessing.categories import BooleanColumn, CategoryColumn
from addml.preprocessing.column_types import AMONG_NUMBERS, UNREAD, Kept, code_copies, fit_column, number_copies
from addml.preprocessing.groups import Groups
from addml.preprocessing.numbers import CellError, Column, DateColumn, NumberColumn, flag_distance
from addml.preprocessing.profile import DriftCounter
from addml.preprocessing.scaling import Features
from addml.text import did_you_mean, listed

__all__ = ["CellError", "Columns", "DriftCounter", "Standardised", "as_table", "is_frame"]

READ_AT_ONCE = 131_072  # rows
WRITTEN_AT_ONCE = 2048  # rows: what is written column by column must stay in the cache until all columns are
AT_ONCE = 4160  # rows: their numbers stay in the cache, whose places columns of 4096 would fight for
COLUMN_TYPES: dict[str, type[NumberColumn | BooleanColumn | DateColumn | CategoryColumn]] = {
    one.kind: one for one in (NumberColumn, BooleanColumn, DateColumn, CategoryColumn)
}

Runs = list[tuple[slice, slice]]  # features beside each other: where they go, where they come from


@dataclass(frozen=True)
class Columns:
    """How the columns of a table become a matrix of numbers, NaN for missing values."""

    fitted: tuple[Column, ...]
    left_out: list[tuple[str, str]]  # (column, reason in words)
    notes: list[str]
    rows: int  # of training
    groups: Groups | None = None  # within which rows are judged
    starts: tuple[int, ...] = field(init=False, repr=False)  # of each column's features, and their number

    def __post_init__(self) -> None:
        widths = [len(column.features) for column in self.fitted]
        object.__setattr__(self, "starts", tuple(int(start) for start in np.cumsum([0, *widths])))

    # Fit ----------------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, table: pa.Table) -> Columns:
        """Decide the kind of every column, what is left out and why."""
        check_names(table.column_names)
        if not table.num_rows:
            raise ValueError("the table has no rows; at least one is needed to learn from")
        decisions = {name: fit_column(name, table[name]) for name in table.column_names}
        kept = {name: one for name, one in decisions.items() if isinstance(one, Kept)}
        copies = _copies(table, kept)
        reasons = {name: one for name, one in decisions.items() if isinstance(one, str)}
        reasons |= {name: f"copy of column {original!r}" for name, original in copies.items()}
        left_out = [(name, reasons[name]) for name in table.column_names if name in reasons]
        used = [one for name, one in kept.items() if name not in copies]
        if not used:
            why = listed([f"{name!r} ({reason})" for name, reason in left_out], between="; ")
            raise ValueError(f"no column is left to learn from: {why}")
        notes = [note for one in used for note in one.notes]
        return cls(tuple(one.column for one in used), left_out, notes, table.num_rows)

    def facing(self, sides: np.ndarray) -> Columns:
        """The columns in which a text counts as a low number where only low ones matter: the sides of features are -1.

        A high one would count as usual there.
        """
        own = zip(self.fitted, sides[list(self.starts[:-1])].tolist(), strict=True)
        facing = [replace(one, below=True) if side < 0 and isinstance(one, NumberColumn) else one for one, side in own]
        return replace(self, fitted=tuple(facing))

    def within_groups(self, table: pa.Table, by: Sequence[str]) -> Columns:
        """The columns whose numbers are measured within the groups that these columns of the table name."""
        if not by:
            return self
        names = [one.name for one in self.fitted if isinstance(one, NumberColumn)]
        values = [np.concatenate(parts) for parts in zip(*self.read(table), strict=True)]
        numbers = {name: values[self.used.index(name)].astype(np.float64) for name in names}
        groups = Groups.fit(table, by, numbers)
        left_out = [*self.left_out, *((name, "names the group (--by)") for name in by)]
        return replace(self, groups=groups, left_out=left_out, notes=[*self.notes, groups.note])

    # What there is ------------------------------------------------------------------------------------------

    @property
    def unread(self) -> list[str]:
        """The notes of values that could not be read, and so became gaps, or made text of numbers."""
        return [note for note in self.notes if note.endswith((UNREAD, AMONG_NUMBERS))]

    @cached_property
    def names(self) -> list[str]:
        return [name for column in self.fitted for name in column.features]

    @property
    def own_names(self) -> list[str | None]:
        """For each feature the column that it is, None where it is a part of one: an hour, a level of a category."""
        return [name if name == column.name else None for column in self.fitted for name in column.features]

    @cached_property
    def origins(self) -> list[int]:
        """For each feature the position in `used` of the column that it comes from."""
        return [position for position, column in enumerate(self.fitted) for _ in column.features]

    @cached_property
    def used(self) -> list[str]:
        """The original columns that are learned from, in the order of the training table."""
        return [column.name for column in self.fitted]

    @property
    def kinds(self) -> dict[str, str]:
        """Used column -> "number", "boolean", "date" or "category"."""
        return {column.name: column.kind for column in self.fitted}

    @property
    def scales(self) -> np.ndarray:
        """What to divide each feature by, NaN for its deviation in training."""
        return np.array([scale for column in self.fitted for _, scale, _ in column.specs])

    @property
    def usual(self) -> np.ndarray:
        """The features of a row with the most ordinary value in every column."""
        return np.array([value for column in self.fitted for _, _, value in column.specs])

    def rescaled(self, features: Features) -> Features:
        """The features with the scales that categories, truth values and gaps ask for in place of their deviations.

        A deviation would blow up what is rare until it hides every strange number: see preprocessing/categories.py.
        A gap lies as far from a value as false from true, and farther where either is rare.
        """
        gaps = features.mean[len(self.scales) :]  # their shares
        scale = np.concatenate([self.scales, 1 / flag_distance(np.minimum(gaps, 1 - gaps))])
        return features.with_scales(scale, ~np.isnan(scale))

    # Apply --------------------------------------------------------------------------------------------------

    def transform(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """The matrix (n, features), float64, NaN for missing values.

        Columns go by name, in any order and with others among them. What cannot be read is a CellError with the
        column, the value and its row in this table. `drift` counts the rows in passing.
        """
        out = np.empty((table.num_rows, self.starts[-1]))
        self.into(out, table, self._write, drift)
        return out

    def into(
        self,
        out: np.ndarray,
        table: pa.Table | pa.RecordBatch,
        write: Callable[[list[np.ndarray], np.ndarray], None],
        drift: DriftCounter | None = None,
    ) -> None:
        """Let `write` make rows of `out` of the values of the columns, some at a time."""
        done = 0
        for values in self.read(table, drift):
            rows = len(values[0])
            if self.groups is not None:
                codes = self.groups.codes(table.slice(done, rows))
                pairs = zip(self.fitted, values, strict=True)
                values = [self.groups.apply(column.name, part, codes) for column, part in pairs]
            write(values, out[done : done + rows])
            done += rows

    def _write(self, values: list[np.ndarray], out: np.ndarray) -> None:
        parts = list(zip(self.fitted, values, self.starts, self.starts[1:], strict=False))
        for start in range(0, len(out), WRITTEN_AT_ONCE):
            rows = slice(start, start + WRITTEN_AT_ONCE)
            for column, column_values, left, right in parts:
                column.fill(column_values[rows], out[rows, left:right])

    def read(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> Iterator[list[np.ndarray]]:
        """The values of the used columns in NumPy, some rows at a time: numbers, days since 1970, codes of levels."""
        self._check_present(table.schema.names)
        chosen = table.select(self.used)
        for start in range(0, table.num_rows, READ_AT_ONCE):
            arrays = [_whole(column) for column in chosen.slice(start, READ_AT_ONCE).columns]
            with rows_before(start):
                values = [column.read(array) for column, array in zip(self.fitted, arrays, strict=True)]
            if drift is not None:
                drift.count(values, arrays)
            yield values
        if drift is not None and self.groups is not None:
            drift.unseen.update(self.groups.unseen(table))

    def _check_present(self, names: Sequence[str]) -> None:
        present = set(names)
        if len(present) < len(names) and any(names.count(name) > 1 for name in self.used):
            check_names(names)
        if missing := [name for name in self.used if name not in present]:
            hint = did_you_mean(missing[0], names) if len(missing) == 1 else ""
            raise ValueError(f"columns of training that are missing here: {listed(list(map(repr, missing)))}.{hint}")

    def counted(self, table: pa.Table) -> DriftCounter:
        drift = DriftCounter(self)
        for _ in self.read(table, drift):
            pass
        return drift

    # Plain values -------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """The preparation as a JSON document."""
        return {
            "columns": [{"name": one.name, "kind": one.kind, **dataclasses.asdict(one)} for one in self.fitted],  # type: ignore[call-overload]
            "left_out": [list(pair) for pair in self.left_out],
            "notes": list(self.notes),
            "rows": self.rows,
            "groups": None if self.groups is None else self.groups.to_json(),
        }

    @classmethod
    def from_plain(cls, document: Mapping[str, Any]) -> Columns:
        """The columns of a document, the type of every value checked."""
        listed, left_out, notes = (document.get(key) for key in ("columns", "left_out", "notes"))
        if not isinstance(listed, list) or not listed:
            raise DocumentError("the model has no list of 'columns'; fit and save again")
        pairs: list[Any] = left_out if isinstance(left_out, list) else [None]
        if any(not isinstance(pair, list | tuple) or list(map(type, pair)) != [str, str] for pair in pairs):
            raise DocumentError("'left_out' is no list of columns and reasons; fit and save again")
        if not isinstance(notes, list) or type(document.get("rows")) is not int:
            raise DocumentError("'notes' is no list, or 'rows' no whole number; fit and save again")
        kinds = [one.get("kind") if isinstance(one, Mapping) else None for one in listed]
        if wrong := [one for one, kind in zip(listed, kinds, strict=True) if kind not in COLUMN_TYPES]:
            raise DocumentError(f"{wrong[0]!r:.60} is no fitted column; fit and save again")
        fitted = tuple(from_document(COLUMN_TYPES[str(kind)], one) for kind, one in zip(kinds, listed, strict=True))
        check_names([column.name for column in fitted])
        return cls(fitted, [(name, reason) for name, reason in pairs], notes, document["rows"])


def _copies(table: pa.Table, kept: Mapping[str, Kept]) -> dict[str, str]:
    """Copy -> original; of a date and its number, the date is the original, of codes and words the words."""
    codes = {name: one.mark for name, one in kept.items() if isinstance(one.mark, bytes)}
    words_first = sorted(codes, key=lambda name: -_letters(kept[name].column))
    numbers = {name: one.mark for name, one in kept.items() if isinstance(one.mark, float)}
    dates_first = sorted(numbers, key=lambda name: kept[name].column.kind != "date")

    def read(name: str) -> np.ndarray:
        return np.concatenate([kept[name].column.read(chunk) for chunk in table[name].chunks])

    found = number_copies({name: numbers[name] for name in dates_first}, read)
    return found | code_copies({name: codes[name] for name in words_first})


def _letters(column: Column) -> float:
    """Letters of a level on average."""
    levels = column.levels if isinstance(column, CategoryColumn) else ()
    return sum(sum(map(str.isalpha, level)) for level in levels) / max(1, len(levels))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one chunk: many small ones cost more calls than joining them costs copies."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.unify_dictionaries().combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


class Standardised:
    """Columns and features in one: `features.transform(columns.transform(table))`, to the last bit.

    A category has few codes: the features of each are standardised once and then looked up. The other columns are
    written one after another, so that each is one stretch of memory, and standardised together.
    """

    def __init__(self, columns: Columns, features: Features) -> None:
        """Features must have been fitted to what the columns give."""
        self.columns, self.width = columns, features.width
        spans = [
            (column, np.arange(*ends)) for column, ends in zip(columns.fitted, pairwise(columns.starts), strict=True)
        ]
        self._coded: list[tuple[int, np.ndarray, Runs]] = []  # the column, the features of its codes, their places
        for position, (column, span) in enumerate(spans):
            if column.table is not None:
                own, places = features.of(span)
                self._coded.append((position, own.transform(column.table), _runs(places)))
        plain = [position for position, (column, _) in enumerate(spans) if column.table is None]
        ends = np.cumsum([0, *(len(spans[position][1]) for position in plain)])
        self._plain = [(position, slice(*ends[at : at + 2])) for at, position in enumerate(plain)]
        self._features, places = features.of(np.concatenate([np.empty(0, int), *(spans[at][1] for at in plain)]))
        self._runs = _runs(places)

    def transform(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """The features (n, width), float32; errors and `drift` are as in `Columns.transform`."""
        out = np.empty((table.num_rows, self.width), np.float32)
        self.columns.into(out, table, self._write, drift)
        return out

    def _write(self, values: list[np.ndarray], out: np.ndarray) -> None:
        for start in range(0, len(out), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            for position, table, runs in self._coded:
                _copy(table.take(values[position][rows], axis=0, mode="clip"), out[rows], runs)
            if self._plain:
                numbers = np.empty((len(out[rows]), len(self._features.median)), order="F")
                for position, place in self._plain:
                    self.columns.fitted[position].fill(values[position][rows], numbers[:, place])
                _copy(self._features.transform(numbers), out[rows], self._runs)


def _copy(features: np.ndarray, out: np.ndarray, runs: Runs) -> None:
    for there, here in runs:
        out[:, there] = features[:, here]


def _runs(places: np.ndarray) -> Runs:
    """Places, ascending, as stretches without holes."""
    ends = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    stretches = [(left, right) for left, right in pairwise(ends) if left < right]
    return [(slice(int(places[left]), int(places[right - 1]) + 1), slice(left, right)) for left, right in stretches]


# Fitted columns as JSON objects ------------------------------------------------------------------------------


Dataclass = TypeVar("Dataclass")

TYPES = {str: "a text", bool: "true or false", int: "a whole number, zero or more", float: "a finite number"}


class DocumentError(ValueError):
    """A document that is not what was written."""


def from_document(cls: type[Dataclass], document: Any, place: str = "a fitted column") -> Dataclass:
    """The dataclass back from a JSON object, the type of each value checked; other keys are ignored."""
    if not isinstance(document, Mapping):
        raise DocumentError(f"{place} is {document!r:.60}, expected an object; fit and save again")
    place = f"fitted column {document['name']!r}" if "name" in document else place
    kinds, values = typing.get_type_hints(cls), dict[str, Any]()
    for one in dataclasses.fields(cls):  # type: ignore[arg-type]
        if one.name in document:
            values[one.name] = _value(kinds[one.name], document[one.name], f"{place}: {one.name!r}")
        elif one.default is dataclasses.MISSING:
            raise DocumentError(f"{place} has no {one.name!r}; fit and save again")
    return cls(**values)


def _value(kind: Any, value: Any, place: str) -> Any:
    if isinstance(kind, types.UnionType):  # with None
        return None if value is None else _value(kind.__args__[0], value, place)
    if dataclasses.is_dataclass(kind):
        return from_document(typing.cast(type, kind), value, place)
    if typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_value(kind.__args__[0], one, place) for one in value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if kind is not float and type(value) is kind and (kind is not int or value >= 0):
        return value
    expected = TYPES.get(kind, "a list")
    raise DocumentError(f"{place} is {value!r:.60}, expected {expected}; fit and save again")
