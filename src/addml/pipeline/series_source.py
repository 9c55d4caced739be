"""A series: a table with a column of times and channels of numbers, whose events are ranked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from addml.errors import AddmlError
from addml.explain import contributions_of
from addml.findings import Finding, Findings, Reason, Track, Usual, versions
from addml.inputs.rows import WindowRows
from addml.inputs.series import Series, carried, check_times, choose_window, utc_times
from addml.inputs.vectorizer import Window
from addml.pipeline.batches import LISTED, scoring_place
from addml.pipeline.labels import evaluate, read_label
from addml.pipeline.options import SERIES, Options
from addml.pipeline.ranking import Result
from addml.pipeline.sources import Chosen, Input, check_unseen, choose, find, names_beside, open_input
from addml.pipeline.training import fit_model, one_sided
from addml.preprocessing.numbers import refuse_infinity
from addml.progress import Progress, epochs_to
from addml.text import listed

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.model import Model

STEPS_EXPLAINED = 5  # of each event, those with the highest scores
DRAWN = 4  # channels, those that events name most


class SeriesSource:
    """A series in a file; once it was trained on, `rank` scores its own steps, else new ones by a saved model."""

    kind = SERIES

    def __init__(self, options: Options) -> None:
        """Nothing is read yet."""
        self.options = options
        self.read: SeriesTable | None = None

    def train(self, progress: Progress) -> Model:
        """A model of all steps."""
        options = self.options
        self.read = read = read_series_table(options, progress)
        window = options.window
        if window is None:
            window, reason = choose_window(read.series)
            read.data.notes.append(f"windows of {window} steps: {reason} (--window sets another length)")
        settings: dict[str, Any] = {
            "window": Window(window, causal=options.causal),
            "one_sided": one_sided(options.one_sided, read.series.names or []),
        }
        with progress.stage("Training", options.epochs) as advance, epochs_to(advance):
            model = fit_model(options, read.series, **settings)
        return replace(model, ids=read.chosen.ids)

    def training_findings(self, model: Model) -> Findings:
        """What training found; the events are not ranked."""
        assert self.read is not None
        scores = model.training.values
        return _findings(model, self.read, scores, trained_rows=len(scores))

    def rank(self, model: Model, progress: Progress, mapped: bool = True) -> Result:
        """The events, the most anomalous first."""
        options, own = self.options, self.read is not None
        read, rows, scores = self._own(model) if self.read is not None else self.score(model, progress)
        found = events(scores, model.threshold, () if rows.sampling is None else rows.sampling.begins)
        ranked = _ranked(model, read, rows, scores, found, options)
        trained_rows = len(scores) if own else 0
        findings = _findings(model, read, scores, ranked, found, trained_rows=trained_rows)
        if read.marks is not None:
            label = str(options.label)
            evaluated = evaluate(scores, read.marks, model.threshold, label, steps=True)
            findings = replace(findings, evaluation=evaluated)
        return Result(findings, [_scored(read, options, scores, found, model.threshold)], model)

    def _own(self, model: Model) -> tuple[SeriesTable, WindowRows, np.ndarray]:
        """The steps that were trained on, and their scores."""
        assert self.read is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # training gave these warnings
            return self.read, cast(WindowRows, model.vectorizer.read(self.read.series)), model.training.values

    def score(self, model: Model, progress: Progress) -> tuple[SeriesTable, WindowRows, np.ndarray]:
        """The steps of the file, and their scores by a saved model."""
        channels = [str(name) for name in model.vectorizer.labels]
        check_unseen(self.options.label, channels, self.options.model)
        read = read_series_table(self.options, progress, channels, model.ids)
        with progress.stage("Scoring", None):
            rows = cast(WindowRows, model.vectorizer.read(read.series))
            return read, rows, model.scores(rows, *scoring_place(self.options, model))


# Reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeriesTable:
    """A file as a series: its channels, its times as they were written, labels if any, and the dropped columns."""

    series: Series
    table: pa.Table
    data: Input
    chosen: Chosen
    left_out: tuple[tuple[str, str], ...]
    marks: np.ndarray | None


def read_series_table(
    options: Options, progress: Progress, channels: list[str] | None = None, ids: Sequence[str] = ()
) -> SeriesTable:
    """The series of a file; its channels are those of a model, or all number columns that are not dropped.

    Without --id, the `ids` that the model remembers are taken.
    """
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
        wanted, strange = _numbers(data.table, chosen.features, data.source)
        left_out = [*chosen.left_out, *((name, _no_numbers(data.table[name])) for name in strange)]
    else:
        wanted, why = _there(channels, data.table, data.source), dict(chosen.left_out)
        left_out = [(name, why.get(name, "not a channel of the model")) for name in names if name not in channels]
    marks = None if label is None else read_label(data.table[label], options.anomaly_value, label)
    times = _times(data.table[time], f"{data.source}: the column {time!r} (--time)")
    values = np.column_stack([_channel(data.table[name], name) for name in wanted])
    return SeriesTable(Series(values, wanted, times), data.table, data, chosen, tuple(left_out), marks)


def _check_time(time: str, options: Options) -> None:
    """The column of times has no other use."""
    label = () if options.label is None else (options.label,)
    given = {"--columns": options.columns, "--ignore": options.ignore, "--id": options.id, "--label": label}
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
        raise AddmlError(f"{source}: no column beside the time holds numbers: {said}.")
    return good, [name for name in names if name not in good]


def _times(column: pa.ChunkedArray, what: str) -> np.ndarray:
    import pyarrow.types as kinds

    known = kinds.is_timestamp(column.type) or kinds.is_integer(column.type) or kinds.is_floating(column.type)
    times = utc_times(column.to_numpy() if known else np.array(column.to_pylist(), object), what, first=1)
    check_times(times, what, first=1)
    return times


# Events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """Consecutive flagged steps: the first one, the one behind the last, and the one that scores highest."""

    start: int
    stop: int
    peak: int


def events(scores: np.ndarray, threshold: float, begins: Sequence[int] = ()) -> list[Event]:
    """Runs of steps that score above the threshold, the one with the highest peak first; none goes over a beginning."""
    flagged = np.concatenate([[False], scores > threshold, [False]])
    joined = flagged[1:] & flagged[:-1]  # each step to the one before it
    joined[list(begins)] = False
    starts, stops = np.flatnonzero(flagged[1:] & ~joined), np.flatnonzero(flagged[:-1] & ~joined)
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    found = [Event(start, stop, start + int(scores[start:stop].argmax())) for start, stop in spans]
    return sorted(found, key=lambda event: -scores[event.peak])


def _findings(
    model: Model,
    read: SeriesTable,
    scores: np.ndarray,
    ranked: tuple[Finding, ...] = (),
    found: Sequence[Event] = (),
    **more: Any,
) -> Findings:
    return Findings(
        source=read.data.source,
        rows=len(scores),
        columns=tuple(map(str, read.series.names or ())),
        left_out=read.left_out,
        notes=tuple(read.data.notes),
        scores=scores,
        threshold=model.threshold,
        decided_by=model.decision.words,
        ranked=ranked,
        usual=tuple(map(Usual.of, model.profiles)),
        history=tuple(model.history),
        versions=versions(),
        track=_track(read, scores, ranked, found),
        noun="step",
        **more,
    )


def _ranked(
    model: Model, read: SeriesTable, rows: WindowRows, scores: np.ndarray, found: list[Event], options: Options
) -> tuple[Finding, ...]:
    """One finding an event, the strangest first: where it begins, ends and peaks, and the channels responsible."""
    peaks = scores[[event.peak for event in found]]
    p_values, likely = model.training.rarity(peaks)
    explained = found[: max(LISTED, options.top)]
    shares = _responsible(model, rows, scores, explained, options)
    return tuple(
        Finding(
            row=event.peak + 1,
            rank=place + 1,
            score=float(scores[event.peak]),
            is_anomaly=True,
            ids={
                "start": _when(read, event.start),
                "end": _when(read, event.stop - 1),
                "peak": _when(read, event.peak),
                "steps": event.stop - event.start,
            },
            values=dict(zip(read.series.names or (), read.series.values[event.peak].tolist(), strict=True)),
            reasons=_reasons(model, read, event, shares[place]) if place < len(shares) else (),
            p_value=float(p_values[place]),
            probability=float(likely[place]),
        )
        for place, event in enumerate(found)
    )


def _responsible(
    model: Model, rows: WindowRows, scores: np.ndarray, found: list[Event], options: Options
) -> list[list[tuple[int, float]]]:
    """The channels of each event with their shares of what raises its highest scores, the largest first."""
    most = options.reasons
    if not found or not most:
        return []
    chosen = [_telling(model, event, scores) for event in found]
    places, place = np.concatenate(chosen), scoring_place(options, model)
    contributions = np.maximum(contributions_of(model, rows, places, *place), 0)
    parts = np.split(contributions, np.cumsum([len(rows) for rows in chosen])[:-1])
    totals = [part.sum(axis=0) for part in parts]
    shares = [total / max(total.sum(), np.finfo(float).tiny) for total in totals]
    return [[(int(at), float(own[at])) for at in np.argsort(-own)[:most] if own[at]] for own in shares]


def _telling(model: Model, event: Event, scores: np.ndarray) -> np.ndarray:
    """The steps whose windows, each of which ends at its step, say why an event's highest scores are high.

    Where scores look ahead, a step's is the mean of all windows over it: that in whose middle it lies tells too.
    """
    form = model.form
    assert form is not None
    highest = event.start + np.argsort(-scores[event.start : event.stop])[:STEPS_EXPLAINED]
    if form.causal:
        return highest
    return np.unique([*highest, *np.minimum(highest + form.shape[0] // 2, len(scores) - 1)])


def _reasons(model: Model, read: SeriesTable, event: Event, shares: list[tuple[int, float]]) -> tuple[Reason, ...]:
    steps, names = model.step_features, read.series.names or []
    values = read.series.values[event.start : event.stop]

    def words(channel: int) -> str:
        away = (values[:, channel] - steps.mean[channel]) / steps.scale[channel]
        if np.isnan(away).all():
            return f"{names[channel]} missing"
        side = steps.sides[channel]  # the only one that counts, if not 0
        place = int(np.nanargmax(side * away if side else abs(away)))
        return f"{names[channel]} {values[place, channel]:.4g} ({away[place]:+.1f} deviations)"

    return tuple(Reason(names[channel], share, words(channel)) for channel, share in shares)


def _when(read: SeriesTable, step: int) -> str:
    """The time of a step as people read it, in UTC."""
    assert read.series.times is not None
    time = read.series.times[step]
    if isinstance(time, np.datetime64):
        return str(time).replace("T", " ").rstrip("0").rstrip(".")  # in nanoseconds, of which most are 0
    return str(time) if isinstance(time, np.integer) else np.format_float_positional(time, trim="-")


def _scored(read: SeriesTable, options: Options, scores: np.ndarray, found: list[Event], threshold: float) -> pa.Table:
    """The steps with their scores and the event, counted by rank, that each belongs to."""
    import pyarrow as pa

    event = np.zeros(len(scores), np.int64)
    for rank, one in enumerate(found, start=1):
        event[one.start : one.stop] = rank
    own = {"score": scores, "is_anomaly": scores > threshold, "event": pa.array(event, mask=event == 0)}
    ids = read.table.select([str(options.time), *read.chosen.ids])
    return pa.table(dict(zip(names_beside(ids.column_names, own), ids.columns, strict=True)) | own)


def _track(read: SeriesTable, scores: np.ndarray, ranked: tuple[Finding, ...], found: Sequence[Event]) -> Track:
    """What is drawn: the scores, and the channels that events name most; missing values take the one before."""
    names = list(read.series.names or [])
    named = [reason.column for finding in ranked for reason in finding.reasons[:1]]
    often = sorted(set(named), key=lambda name: (-named.count(name), names.index(name)))
    drawn = [*often, *(name for name in names if name not in often)][:DRAWN]
    own = read.series.values[:, [names.index(name) for name in drawn]]
    values, _ = carried(own, np.full(len(drawn), np.nan))
    return Track(
        times=(_when(read, 0), _when(read, len(scores) - 1)),
        scores=scores,
        channels=tuple(zip(drawn, values.T, strict=True)),
        events=tuple((event.start, event.stop) for event in found),
    )
