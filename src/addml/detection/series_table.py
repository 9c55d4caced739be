"""A table read as a series: one column of times, the others channels, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from addml.data.preparation.numbers import refuse_infinity
from addml.data.series import Series, check_times, utc_times
from addml.detection import evaluation
from addml.detection.errors import UserError
from addml.detection.inputs import Input, open_input, shown
from addml.detection.progress import Progress
from addml.detection.selection import Chosen, choose, find
from addml.detection.settings import Naming, Settings
from addml.wording import listed

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SeriesTable:
    """A file as a series: its channels, times as they were written, labels if any, and what was left out."""

    series: Series
    table: pa.Table
    data: Input
    chosen: Chosen
    left_out: tuple[tuple[str, str], ...]
    marks: np.ndarray | None


def read_series_table(
    settings: Settings, progress: Progress, channels: list[str] | None = None, ids: Sequence[str] = ()
) -> SeriesTable:
    """The series of a file; its channels are those of a model, or all columns of numbers that are not left out.

    Where no ids are given, those that the model remembers are taken.
    """
    with progress.stage(f"Reading {shown(settings.file)}", None):
        data = open_input(settings, ids)
    if data.table is None:
        raise UserError(
            f"{data.source}: is too large to be held in memory, which a series has to be; give a part of it."
        )
    time = find(settings.timing.time, data.names, "--time", data.source)
    names = [name for name in data.names if name != time]
    label = settings.labelling.label
    _check_time(str(time), settings)
    known = Naming(tuple(name for name in ids if name in names and name != label))
    naming = settings.naming if settings.naming.id else known
    chosen = choose(names, settings.selection, naming, label, data.source)
    if channels is None:
        wanted, strange = _numbers(data.table, chosen.features, data.source)
    else:
        wanted, strange = _there(channels, data.table, data.source), []
    marks = None if label is None else evaluation.read_label(data.table[label], settings.labelling.anomalous, label)
    times = _times(data.table[time], f"{data.source}: the column {time!r} (--time)")
    values = np.column_stack([_channel(data.table[name], name) for name in wanted])
    left_out = [*chosen.left_out, *((name, _no_numbers(data.table[name])) for name in strange)]
    if channels is not None:
        why = dict(chosen.left_out)
        left_out = [(name, why.get(name, "not a channel of the model")) for name in names if name not in channels]
    series = Series(values, wanted, times)
    return SeriesTable(series, data.table, data, chosen, tuple(left_out), marks)


def _check_time(time: str, settings: Settings) -> None:
    """The column of times is that alone."""
    selection, label = settings.selection, settings.labelling.label
    told = {"--columns": selection.columns, "--ignore": selection.ignore, "--id": settings.naming.id}
    for option, given in {**told, "--label": () if label is None else (label,)}.items():
        if any(time in (text, *map(str.strip, text.split(","))) for text in given):
            raise UserError(f"{time!r} holds the times of the steps (--time); leave it out of {option}.")


def _there(channels: list[str], table: pa.Table, source: str) -> list[str]:
    """The channels of a model, which must be in a file that it scores; one that is silent all the time may be."""
    import pyarrow.types as kinds

    for name in channels:
        if name not in table.column_names:
            raise UserError(f"{source}: has no column {name!r}, a channel that the model was trained on.")
        kind = table[name].type
        if not _is_number(kind) and not kinds.is_null(kind):
            raise UserError(
                f"{source}: the column {name!r}, a channel that the model was trained on, holds {kind} and "
                f"{_no_numbers(table[name], 1)}; leave a cell empty where there is none."
            )
    return channels


def _no_numbers(column: pa.ChunkedArray, first: int = 2) -> str:
    """That a column is none of numbers, and in which row, from the first one that is worth it, it stops being one."""
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            float(value or 0)
        except (TypeError, ValueError):
            return f"no numbers ({value!r} in row {row:,})" if row >= first else "no numbers"
    return "no numbers"


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return any(test(kind) for test in (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal))


def _channel(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """The numbers of a column, NaN for gaps."""
    values = np.asarray(column.cast("float64").to_numpy(), np.float64)
    refuse_infinity(values, name)
    return values


def _numbers(table: pa.Table, names: tuple[str, ...], source: str) -> tuple[list[str], list[str]]:
    """The columns that hold numbers, and those that do not."""
    good = [name for name in names if _is_number(table[name].type)]
    if not good:
        said = listed([f"{name} has {_no_numbers(table[name], 1)}" for name in names])
        raise UserError(f"{source}: no column beside the time holds numbers: {said}.")
    return good, [name for name in names if name not in good]


def _times(column: pa.ChunkedArray, what: str) -> np.ndarray:
    import pyarrow.types as kinds

    known = kinds.is_timestamp(column.type) or kinds.is_integer(column.type) or kinds.is_floating(column.type)
    times = utc_times(column.to_numpy() if known else np.array(column.to_pylist(), object), what, first=1)
    check_times(times, what, first=1)
    return times
