"""A file as one series or as several, those of the entities that a column names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from addml.errors import AddmlError
from addml.inputs.series import Series
from addml.inputs.times import Ordered, check_times, column_times
from addml.pipeline.labels import read_label
from addml.pipeline.options import Options
from addml.pipeline.sources import Chosen, Input, choose, find, names_beside, open_input
from addml.preprocessing.groups import keys_of
from addml.preprocessing.numbers import refuse_infinity
from addml.preprocessing.profile import BETWEEN
from addml.progress import Progress
from addml.text import counted, listed

if TYPE_CHECKING:
    import pyarrow as pa

MOST_REPEATED = 0.5  # of the rows may repeat a time; more are several entities


@dataclass(frozen=True)
class SeriesTable:
    """A file as series, one for each entity: steps by entity and time, the rows that they come from, and labels."""

    series: list[Series]
    steps: np.ndarray  # (rows,) the step of each row
    table: pa.Table
    data: Input
    chosen: Chosen
    left_out: tuple[tuple[str, str], ...]
    marks: np.ndarray | None  # (steps,)

    @cached_property
    def values(self) -> np.ndarray:
        return np.concatenate([one.values for one in self.series])

    @cached_property
    def times(self) -> np.ndarray:
        return np.concatenate([np.asarray(one.times) for one in self.series])

    @property
    def names(self) -> list[str]:
        return list(self.series[0].names or ())

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each series begins among all steps, and their number."""
        return np.cumsum([0, *(len(one.values) for one in self.series)])

    @cached_property
    def rows(self) -> np.ndarray:
        """The first row of each step, (steps,)."""
        found = np.empty(self.starts[-1], np.int64)
        found[self.steps[::-1]] = np.arange(len(self.steps))[::-1]
        return found

    def entity_ids(self, step: int) -> dict[str, str]:
        """The entity that a step belongs to, by the columns that name it; empty without entities."""
        key = self.series[int(np.searchsorted(self.starts, step, side="right")) - 1].key
        names = names_beside(self.chosen.by, ("start", "end", "peak", "steps"))
        return {} if key is None else dict(zip(names, key.split(BETWEEN), strict=True))

    def entity(self, step: int) -> str:
        return ", ".join(self.entity_ids(step).values())

    def when(self, step: int) -> str:
        """The time of a step as people read it, in UTC."""
        time = self.times[step]
        if isinstance(time, np.datetime64):
            return str(time).replace("T", " ").rstrip("0").rstrip(".")  # in nanoseconds, of which most are 0
        return str(time) if isinstance(time, np.integer) else np.format_float_positional(time, trim="-")


def read_series_table(
    options: Options,
    progress: Progress,
    channels: list[str] | None = None,
    ids: Sequence[str] = (),
    by: Sequence[str] = (),
) -> SeriesTable:
    """The series of a file; its channels are those of a model, or all number columns that are not dropped.

    Without --id, the `ids` that the model remembers are taken; `by` names its entities.
    """
    options = options if not by else replace(options, by=tuple(by))
    with progress.stage(f"Reading {options.source}", None):
        data = open_input(options, ids)
    if data.table is None:
        raise AddmlError(f"{data.source}: is too large to be held in memory, as a series has to be; give a part of it.")
    time, label = find(options.time, data.names, "--time", data.source), options.label
    names = [name for name in data.names if name != time]
    _check_time(str(time), options)
    remembered = tuple(name for name in ids if name in names and name != label)
    chosen = choose(names, options if options.id else replace(options, id=remembered), data.source)
    if channels is None:
        features = tuple(name for name in chosen.features if name not in chosen.by)
        wanted = _numbers(data.table, features, data.source)
        strange = [(name, _no_numbers(data.table[name])) for name in features if name not in wanted]
        left_out = [*chosen.left_out, *strange]
    else:
        wanted, why = _there(channels, data.table, data.source), dict(chosen.left_out)
        others = [name for name in names if name not in (*channels, *chosen.by)]
        left_out = [(name, why.get(name, "not a channel of the model")) for name in others]
    marks = None if label is None else read_label(data.table[label], options.anomaly_value, label)
    values = np.column_stack([data.table[name].cast("float64").to_numpy() for name in wanted])
    for channel, name in zip(values.T, wanted, strict=True):
        refuse_infinity(channel, name)
    series, steps = _series(data, str(time), values, wanted, chosen.by)
    if marks is not None:
        own = np.full(sum(len(one.values) for one in series), -1)
        np.maximum.at(own, steps, marks)
        marks = own
    return SeriesTable(series, steps, data.table, data, chosen, tuple(left_out), marks)


def _series(
    data: Input, time: str, values: np.ndarray, names: list[str], by: Sequence[str]
) -> tuple[list[Series], np.ndarray]:
    """The series of all entities in the order of their times, and the step of each row."""
    assert data.table is not None
    what = f"{data.source}: the column {time!r} (--time)"
    times, note = column_times(data.table[time], what)
    data.notes.extend([note] if note else [])
    check_times(times, what, first=1)
    keys, codes = list[str | None]([None]), np.zeros(len(times), np.int64)
    if by:
        names_found, codes = np.unique(keys_of(data.table, by).to_numpy(zero_copy_only=False), return_inverse=True)
        keys = names_found.tolist()
    ordered = Ordered.of(values, times, codes)
    if ordered.repeated > MOST_REPEATED * len(times) and not by:
        raise AddmlError(
            f"{what}: {ordered.repeated:,} of {counted(len(times), 'row')} repeat a time; if the file holds several "
            "machines, name the column that tells them apart with --by NAME.",
            file=data.source,
            column=time,
        )
    data.notes.extend(ordered.words)
    assert ordered.times is not None
    edges = np.flatnonzero(np.diff(ordered.codes)) + 1
    parts = zip(np.split(ordered.values, edges), np.split(ordered.times, edges), keys, strict=True)
    return [Series(own, names, when, key) for own, when, key in parts], ordered.steps


def _check_time(time: str, options: Options) -> None:
    """The column of times has no other use."""
    label = () if options.label is None else (options.label,)
    given = {"--columns": options.columns, "--ignore": options.ignore, "--id": options.id, "--label": label}
    given["--by"] = options.by
    for option, texts in given.items():
        if any(time in (text, *map(str.strip, text.split(","))) for text in texts):
            raise AddmlError(f"{time!r} holds the times of the steps (--time); remove it from {option}.")


def _there(channels: list[str], table: pa.Table, source: str) -> list[str]:
    """The channels of a model, which must be in a file that it scores; one that is silent all the time may be."""
    import pyarrow.types as kinds

    for name in channels:
        if name not in table.column_names:
            raise AddmlError(f"{source}: has no column {name!r}, a channel that the model was trained on.")
        kind = table[name].type
        if not _is_number(kind) and not kinds.is_null(kind):
            raise AddmlError(
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


def _numbers(table: pa.Table, names: tuple[str, ...], source: str) -> list[str]:
    """The columns that hold numbers."""
    good = [name for name in names if _is_number(table[name].type)]
    if not good:
        said = listed([f"{name} has {_no_numbers(table[name], 1)}" for name in names])
        raise AddmlError(f"{source}: no column beside the time holds numbers: {said}.")
    return good
