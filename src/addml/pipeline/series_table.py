"""A file as one series or as several, those of the entities that a column names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from addml.errors import AddmlError
from addml.inputs.series import Series
from addml.inputs.times import Ordered, check_times, column_times
from addml.model import Model
from addml.pipeline.labels import read_label
from addml.pipeline.options import Options
from addml.pipeline.sources import Chosen, Input, choose, find, open_input, possible_names
from addml.preprocessing.groups import keys_of
from addml.preprocessing.numbers import refuse_infinity
from addml.progress import Progress
from addml.text import counted, listed

MOST_REPEATED = 0.5  # of the rows may repeat a time; more are several entities


@dataclass(frozen=True)
class SeriesTable:
    """A file as series, one for each entity: steps by entity and time, the rows that they come from, and labels."""

    series: list[Series]
    names: list[str]  # of the channels
    values: np.ndarray  # (steps, channels)
    times: np.ndarray  # (steps,)
    steps: np.ndarray  # (rows,) the step of each row
    table: pa.Table
    data: Input
    chosen: Chosen
    left_out: tuple[tuple[str, str], ...]
    marks: np.ndarray | None  # (steps,)

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

    def entity(self, step: int) -> int:
        """The series that a step belongs to."""
        return int(np.searchsorted(self.starts, step, side="right")) - 1

    def when(self, step: int) -> str:
        """The time of a step as people read it, in UTC."""
        time = self.times[step]
        if isinstance(time, np.datetime64):
            return str(time).replace("T", " ").rstrip("0").rstrip(".")  # in nanoseconds, of which most are 0
        return str(time) if isinstance(time, np.integer) else np.format_float_positional(time, trim="-")


def read_series(options: Options, progress: Progress, model: Model | None = None) -> SeriesTable:
    """The series of a file; its channels are those of a model, or all number columns that are not dropped.

    Without --id, the ids that the model remembers are taken.
    """
    ids = () if model is None else model.ids
    options = options if model is None or not model.by else replace(options, by=tuple(model.by))
    with progress.stage(f"Reading {options.source}", None):
        data = open_input(options, ids)
    if data.table is None:
        raise AddmlError(f"{data.source}: is too large to be held in memory, as a series has to be; give a part of it.")
    time, label = str(find(options.time, data.names, "--time", data.source)), options.label
    for option in ("columns", "ignore", "id", "by", "label"):
        given = getattr(options, option) or ()
        if time in possible_names((given,) if isinstance(given, str) else given):
            raise AddmlError(f"{time!r} holds the times of the steps (--time); remove it from --{option}.")
    names = [name for name in data.names if name != time]
    remembered = tuple(name for name in ids if name in names and name != label)
    chosen = choose(names, options if options.id else replace(options, id=remembered), data.source)
    channels, left_out = _channels(data.table, names, chosen, data.source, model)
    values = np.column_stack([data.table[name].cast("float64").to_numpy() for name in channels])
    for channel, name in zip(values.T, channels, strict=True):
        refuse_infinity(channel, name)
    keys, ordered = _in_order(data, time, values, chosen.by)
    assert ordered.times is not None
    edges, marks = np.flatnonzero(np.diff(ordered.codes)) + 1, None
    parts = zip(np.split(ordered.values, edges), np.split(ordered.times, edges), keys, strict=True)
    series = [Series(own, channels, when, key) for own, when, key in parts]
    if label is not None:
        marks = np.full(len(ordered.times), -1)
        np.maximum.at(marks, ordered.steps, read_label(data.table[label], options.anomaly_value, label))
    steps = (ordered.values, ordered.times, ordered.steps)
    return SeriesTable(series, channels, *steps, data.table, data, chosen, tuple(left_out), marks)


def _channels(
    table: pa.Table, names: list[str], chosen: Chosen, source: str, model: Model | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """The channels, which must be there if a model needs them, and the dropped columns with the reasons."""
    if model is None:
        features = [name for name in chosen.features if name not in chosen.by]
        channels = [name for name in features if _is_number(table[name].type)]
        others = {name: _no_numbers(table[name]) for name in features if name not in channels}
        if not channels:
            said = listed([f"{name} has {why}" for name, why in others.items()])
            raise AddmlError(f"{source}: no column beside the time holds numbers: {said}.")
        return channels, [*chosen.left_out, *others.items()]
    channels, why = [str(name) for name in model.vectorizer.labels], dict(chosen.left_out)
    for name in channels:
        if name not in table.column_names:
            raise AddmlError(f"{source}: has no column {name!r}, a channel that the model was trained on.")
        kind = table[name].type
        if not _is_number(kind) and not pa.types.is_null(kind):  # one that is silent all the time is null
            raise AddmlError(
                f"{source}: the column {name!r}, a channel that the model was trained on, holds {kind} and "
                f"{_no_numbers(table[name])}; leave a cell empty where there is none."
            )
    dropped = [name for name in names if name not in (*channels, *chosen.by)]
    return channels, [(name, why.get(name, "not a channel of the model")) for name in dropped]


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _no_numbers(column: pa.ChunkedArray) -> str:
    """That a column holds no numbers, and in which row it stops holding them."""
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            float(value or 0)
        except (TypeError, ValueError):
            return f"no numbers ({value!r} in row {row:,})" if row > 1 else "no numbers"
    return "no numbers"


def _in_order(data: Input, time: str, values: np.ndarray, by: Sequence[str]) -> tuple[Sequence[str | None], Ordered]:
    """The names of all entities, and their steps in the order of their times."""
    assert data.table is not None
    what = f"{data.source}: the column {time!r} (--time)"
    times, note = column_times(data.table[time], what)
    check_times(times, what, first=1)
    keys, codes = np.array([None]), np.zeros(len(times), np.int64)
    if by:
        keys, codes = np.unique(keys_of(data.table, by).to_numpy(zero_copy_only=False), return_inverse=True)
    ordered = Ordered.of(values, times, codes)
    if ordered.repeated > MOST_REPEATED * len(times) and not by:
        raise AddmlError(
            f"{what}: {ordered.repeated:,} of {counted(len(times), 'row')} repeat a time; if the file holds several "
            "machines, name the column that tells them apart with --by NAME.",
            file=data.source,
            column=time,
        )
    data.notes.extend([*([note] if note else []), *ordered.words])
    return keys.tolist(), ordered
