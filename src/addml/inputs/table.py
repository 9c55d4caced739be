"""Tables with columns of any type, which are matched by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from types import UnionType
from typing import Any, Self, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from addml.errors import DroppedColumnsWarning, rows_before, warn, warn_of_texts
from addml.inputs import LazyRows, MemoryRows, Rows, Vectorizer, sides_of
from addml.inputs.frame import as_table, check_names, is_frame
from addml.preprocessing.categories import BooleanColumn, CategoryColumn
from addml.preprocessing.column_types import UNREAD, LearnedColumn, find_copies, fit_column
from addml.preprocessing.groups import Groups
from addml.preprocessing.numbers import Column, DateColumn, NumberColumn, flag_distance, one_chunk
from addml.preprocessing.profile import ColumnProfile, DriftCounter, column_profiles
from addml.preprocessing.scaling import Features
from addml.text import counted, did_you_mean, listed

READ_AT_ONCE = 131_072  # rows
AT_ONCE = 4160  # rows: they fit into the cache, and unlike 4096 they do not make columns share its lines
COLUMN_TYPES: dict[str, type[NumberColumn | BooleanColumn | DateColumn | CategoryColumn]] = {
    column_type.kind: column_type for column_type in (NumberColumn, BooleanColumn, DateColumn, CategoryColumn)
}


@dataclass(frozen=True)
class Columns:
    """The columns of a table as a matrix of numbers, NaN for missing values."""

    fitted: tuple[Column, ...]
    left_out: list[tuple[str, str]]  # (column, reason)
    notes: list[str]
    rows: int  # of training
    groups: Groups | None = None  # within which rows are compared

    @classmethod
    def fit(cls, table: pa.Table) -> Columns:
        """Choose the type of every column, or the reason to leave it out."""
        check_names(table.column_names)
        if not table.num_rows:
            raise ValueError("the table has no rows; at least one is needed to learn from")
        decisions = {name: fit_column(name, table[name]) for name in table.column_names}
        kept = {name: decision for name, decision in decisions.items() if isinstance(decision, LearnedColumn)}
        copies = find_copies(table, kept)
        reasons = {name: decision for name, decision in decisions.items() if isinstance(decision, str)}
        reasons |= {name: f"copy of column {original!r}" for name, original in copies.items()}
        left_out = [(name, reasons[name]) for name in table.column_names if name in reasons]
        used = [decision for name, decision in kept.items() if name not in copies]
        if not used:
            why = listed([f"{name!r} ({reason})" for name, reason in left_out], between="; ")
            raise ValueError(f"no column is left to learn from: {why}")
        notes = [note for decision in used for note in decision.notes]
        return cls(tuple(decision.column for decision in used), left_out, notes, table.num_rows)

    def with_sides(self, sides: np.ndarray) -> Columns:
        """The columns with the sides of their features; where only low numbers matter, a text counts as low."""
        fitted = list(self.fitted)
        for index, column in enumerate(fitted):
            if sides[self.starts[index]] < 0 and isinstance(column, NumberColumn):
                fitted[index] = replace(column, below=True)
        return replace(self, fitted=tuple(fitted))

    def within_groups(self, table: pa.Table, by: Sequence[str]) -> Columns:
        """The columns with numbers on a common scale for the groups that the columns `by` of the table name."""
        if not by:
            return self
        numbers = {}
        for column, blocks in zip(self.fitted, zip(*self.read(table), strict=True), strict=True):
            if isinstance(column, NumberColumn):
                numbers[column.name] = np.concatenate(blocks).astype(np.float64)
        groups = Groups.fit(table, by, numbers)
        left_out = [*self.left_out, *((name, "names the group (--by)") for name in by)]
        return replace(self, groups=groups, left_out=left_out, notes=[*self.notes, groups.note])

    @cached_property
    def starts(self) -> list[int]:
        """The first feature of each column, then their number."""
        return list(accumulate((len(column.features) for column in self.fitted), initial=0))

    @cached_property
    def names(self) -> list[str]:
        return [name for column in self.fitted for name in column.features]

    @cached_property
    def origins(self) -> list[int]:
        """The position in `used` of each feature's column."""
        return [position for position, column in enumerate(self.fitted) for _ in column.features]

    @cached_property
    def used(self) -> list[str]:
        """The columns to learn from, in the order of the training table."""
        return [column.name for column in self.fitted]

    @property
    def kinds(self) -> dict[str, str]:
        """Used column -> "number", "boolean", "date" or "category"."""
        return {column.name: column.kind for column in self.fitted}

    def sides(self, one_sided: Any) -> np.ndarray:
        """The side that matters of each feature; of parts of a column, such as hours and levels, both matter."""
        names = [name if name == column.name else None for column in self.fitted for name in column.features]
        return sides_of(one_sided, names)

    @property
    def scales(self) -> np.ndarray:
        """The scale of each feature, NaN for its deviation in training."""
        return np.array([scale for column in self.fitted for _, scale, _ in column.specs])

    @property
    def typical(self) -> np.ndarray:
        """The features of a row that has the typical value in every column."""
        return np.array([value for column in self.fitted for _, _, value in column.specs])

    def rescaled(self, features: Features) -> Features:
        """The features with fixed scales for categories, booleans and gaps.

        Scaled by their deviations, rare values would hide every strange number: see preprocessing/categories.py. A gap
        lies as far from a value as false from true, and farther if gaps or values are rare.
        """
        gap_shares = features.mean[len(self.scales) :]
        scale = np.concatenate([self.scales, 1 / flag_distance(np.minimum(gap_shares, 1 - gap_shares))])
        return features.with_scales(scale, ~np.isnan(scale))

    def transform(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """The matrix (n, features), float64, NaN for missing values; the table may have more columns, in any order."""
        out = np.empty((table.num_rows, self.starts[-1]))
        for rows, blocks in self.blocks(table, drift):
            for column, values, (start, stop) in zip(self.fitted, blocks, pairwise(self.starts), strict=True):
                column.fill(values, out[rows, start:stop])
        return out

    def blocks(
        self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None
    ) -> Iterator[tuple[slice, list[np.ndarray]]]:
        """The rows of each block, and the values of its columns on the common scale of all groups."""
        start = 0
        for columns in self.read(table, drift):
            rows = slice(start, start + len(columns[0]))
            if self.groups is not None:
                codes = self.groups.codes(table[rows])
                pairs = zip(self.used, columns, strict=True)
                columns = [self.groups.apply(name, values, codes) for name, values in pairs]
            yield rows, columns
            start = rows.stop

    def read(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> Iterator[list[np.ndarray]]:
        """The values of the used columns in NumPy, block by block: numbers, days since 1970, codes of levels."""
        self._check_present(table.schema.names)
        used = table.select(self.used)
        for start in range(0, table.num_rows, READ_AT_ONCE):
            arrays = [one_chunk(column) for column in used.slice(start, READ_AT_ONCE).columns]
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
        """The counts of the rows of a table."""
        drift = DriftCounter(self)
        for _ in self.read(table, drift):
            pass
        return drift

    def to_plain(self) -> dict[str, Any]:
        return {
            "columns": [{"kind": column.kind, **asdict(column)} for column in self.fitted],  # type: ignore[call-overload]
            "left_out": [list(pair) for pair in self.left_out],
            "notes": list(self.notes),
            "rows": self.rows,
            "groups": None if self.groups is None else self.groups.to_json(),
        }

    @classmethod
    def from_plain(cls, document: Mapping[str, Any]) -> Columns:
        """The columns of a saved model; the type of every value is checked."""
        fitted = tuple(_typed(COLUMN_TYPES[plain["kind"]], plain, "a column") for plain in document["columns"])
        check_names([column.name for column in fitted])
        left_out = [(str(name), str(reason)) for name, reason in document["left_out"]]
        rows = _typed(int, document["rows"], "the number of rows")
        if not fitted:
            raise ValueError("the model has no columns")
        return cls(fitted, left_out, list(map(str, document["notes"])), rows)


def _typed(kind: Any, value: Any, path: str) -> Any:
    """A value of a document, checked to be of this type: a dataclass, a tuple, a number or a text."""
    if isinstance(kind, UnionType):  # X | None
        return None if value is None else _typed(kind.__args__[0], value, path)
    if is_dataclass(kind) and isinstance(value, Mapping):
        kinds = get_type_hints(kind)
        names = [field.name for field in fields(kind) if field.name in value]
        return kind(**{name: _typed(kinds[name], value[name], f"{path}: {name!r}") for name in names})  # type: ignore[operator]
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_typed(kind.__args__[0], item, path) for item in value)
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is not float and type(value) is kind and (kind is not int or value >= 0):
        return value
    raise ValueError(f"{path} is {value!r:.60}, expected {kind}; fit and save again")


class Standardised:
    """Equals `features.transform(columns.transform(table))` to the last bit, but is faster.

    A category has few codes, whose features are looked up; the other columns are standardised together.
    """

    def __init__(self, columns: Columns, features: Features) -> None:
        """`features` must be fitted to the numbers that `columns` return."""
        self.columns, self.width = columns, features.width
        self._coded: list[tuple[int, Any, np.ndarray]] = []  # column, target in a row, features of its codes
        self._plain: list[tuple[int, slice]] = []  # column, its slice of `plain`
        plain: list[int] = []  # features of columns without codes
        for position, (column, (start, stop)) in enumerate(zip(columns.fitted, pairwise(columns.starts), strict=True)):
            if column.table is None:
                self._plain.append((position, slice(len(plain), len(plain) + stop - start)))
                plain.extend(range(start, stop))
            else:
                code_features, indices = features.select(np.arange(start, stop))
                target = slice(start, stop) if len(indices) == stop - start else indices  # slices are copied faster
                self._coded.append((position, target, code_features.transform(column.table)))
        self._features, self._indices = features.select(np.array(plain, np.int64))

    def transform(self, table: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """The features (n, width), float32; errors and `drift` as in `Columns.transform`."""
        out = np.empty((table.num_rows, self.width), np.float32)
        for rows, columns in self.columns.blocks(table, drift):
            block = out[rows]
            for start in range(0, len(block), AT_ONCE):
                part = slice(start, start + AT_ONCE)
                self._write([values[part] for values in columns], block[part])
        return out

    def _write(self, values: list[np.ndarray], out: np.ndarray) -> None:
        for position, target, table in self._coded:
            out[:, target] = table.take(values[position], axis=0, mode="clip")
        numbers = np.empty((len(out), len(self._features.median)), order="F")
        for position, target in self._plain:
            self.columns.fitted[position].fill(values[position], numbers[:, target])
        out[:, self._indices] = self._features.transform(numbers)


@dataclass(frozen=True, kw_only=True)
class TableVectorizer(Vectorizer):
    """A frame or an Arrow table with columns of any type, which are matched by name."""

    columns: Columns

    @classmethod
    def fit(cls, X: Any, config: Any, names: tuple[str, ...] | None = None) -> tuple[Self, MemoryRows]:
        table = _read_table(X, least=2)
        for name in config.by:
            if name not in table.column_names:
                hint = did_you_mean(name, table.column_names) or f" The columns are: {listed(table.column_names, 10)}."
                raise ValueError(f"by={list(config.by)!r}: there is no column {name!r}.{hint}")
        columns = Columns.fit(table.drop_columns(list(config.by)))
        warn_of_dropped(columns)
        columns, features, numbers, drift = fit_features(columns.within_groups(table, config.by), table, config)
        warn_of_texts(drift.texts)
        vectorizer = cls.of(columns, features, table)
        return vectorizer, MemoryRows(vectorizer.features.transform(numbers), vectorizer.groups_of(table), table)

    @classmethod
    def of(cls, columns: Columns, features: Features, table: pa.Table) -> Self:
        """The vectorizer of a table with these columns; gives the features their fixed scales."""
        names = tuple(table.column_names)
        return cls(features=columns.rescaled(features), columns_in=len(names), names=names, columns=columns)

    def read(self, X: Any) -> LazyRows:
        if not is_frame(X):
            raise TypeError(f"the detector was fitted to a table with named columns; give such a table, not {type(X)}")
        table = _read_table(X, least=1)
        drift = self.columns.counted(table)
        for sentence in (*drift.new_gaps, *drift.unseen_words):
            warn(sentence)
        warn_of_texts(drift.texts)
        return LazyRows(table, self.prepare, self.groups_of(table))

    def prepare(self, values: pa.Table | pa.RecordBatch, drift: DriftCounter | None = None) -> np.ndarray:
        """The values of rows as features (n, d); `drift` counts the rows."""
        return self._standardised.transform(values, drift)

    @cached_property
    def _standardised(self) -> Standardised:
        return Standardised(self.columns, self.features)

    def profiles(self, rows: Rows | None, normal: np.ndarray) -> tuple[ColumnProfile, ...]:
        return column_profiles(self.columns, None if rows is None else rows.original.filter(normal))

    def sides(self, one_sided: Any) -> np.ndarray:
        return self.columns.sides(one_sided)


def fit_features(columns: Columns, table: pa.Table, config: Any) -> tuple[Columns, Features, np.ndarray, DriftCounter]:
    """The columns with their sides, their features, and the numbers and counts of the training table."""
    sides = columns.sides(config.one_sided)
    columns = columns.with_sides(sides)
    drift = DriftCounter(columns)
    numbers = columns.transform(table, drift)
    return columns, Features.fit(numbers, sides, robust=config.robust), numbers, drift


def _read_table(X: Any, least: int) -> pa.Table:
    table = as_table(X)
    if len(table) < least:
        samples = counted(len(table), "sample")
        raise ValueError(f"X has {samples}, while a minimum of {least} is required: give more rows")
    return table


def warn_of_dropped(columns: Columns) -> None:
    if columns.left_out:
        reasons = [f"{name!r} ({reason})" for name, reason in columns.left_out]
        warn(f"columns left out: {listed(reasons, between='; ')}", DroppedColumnsWarning)
    for note in columns.notes:
        if note.endswith(UNREAD):
            warn(note, DroppedColumnsWarning)
