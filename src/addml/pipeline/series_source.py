"""A series: a table with a column of times and channels of numbers, whose events are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from addml import model_file
from addml.errors import AddmlError
from addml.explain import ColumnProfile
from addml.findings import Finding, Findings, Reason, Track
from addml.inputs.series import Series, carried, check_times, utc_times
from addml.pipeline import evaluation, usual
from addml.pipeline.batches import LISTED
from addml.pipeline.labels import read_label
from addml.pipeline.options import SERIES, Options, versions
from addml.pipeline.ranking import Result
from addml.pipeline.sources import Chosen, Input, check_unseen, choose, find, names_beside, open_input
from addml.pipeline.training import decided, new_detector, one_sided
from addml.preprocessing.numbers import refuse_infinity
from addml.progress import Progress, epochs_to
from addml.text import listed

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from addml.detector import ADDML

STEPS_EXPLAINED = 5  # of each event, those with the highest scores
DRAWN = 4  # channels, those that events name most


@dataclass(frozen=True)
class SeriesModel:
    """A detector of series, and the profile of each channel of its training steps."""

    detector: ADDML
    profiles: Sequence[ColumnProfile]

    @classmethod
    def load(cls, options: Options) -> SeriesModel:
        """A saved model, with the threshold that the options ask for."""
        from addml.detector import load

        folder = str(options.model)
        detector = load(folder, device=options.device)
        detector.set_params(n_jobs=options.jobs)
        if detector.model_.form is None or not detector.model_.form.is_series:
            raise AddmlError(f"{folder}: was trained on rows, not on a series; leave --time out.")
        if options.tau is not None:
            detector.set_threshold(tau=options.tau)
        elif options.threshold is not None or options.contamination is not None:
            detector.set_threshold(method=options.threshold, contamination=options.contamination)
        return cls(detector, usual.load(folder, model_file.load(folder)[0]["weights"]))

    @classmethod
    def of(cls, detector: ADDML, series: Series) -> SeriesModel:
        """A detector that was just trained on a series: the profiles are those of its steps that are not flagged."""
        kept = detector.anomaly_scores_ <= detector.threshold_
        parts = zip(series.names or (), series.values[kept].T, strict=True)
        known = ((name, values[~np.isnan(values)]) for name, values in parts)
        return cls(detector, [usual.usual_number(name, values) for name, values in known if len(values)])

    def save(self, folder: Path) -> None:
        """Write the model and its profiles."""
        self.detector.save(folder)
        usual.save(folder, self.profiles)


class SeriesSource:
    """A series in a file; once it was trained on, `rank` scores its own steps, else new ones by a saved model."""

    kind = SERIES

    def __init__(self, options: Options) -> None:
        """Nothing is read yet."""
        self.options = options
        self.read: SeriesTable | None = None

    def train(self, progress: Progress) -> SeriesModel:
        """A model of all steps."""
        options = self.options
        self.read = read = read_series_table(options, progress)
        detector = new_detector(
            options,
            encoder="recurrent",
            window=options.window,
            causal=options.causal,
            cell=options.cell,
            one_sided=one_sided(options.one_sided, read.series.names or []),
        )
        with progress.stage("Training", options.epochs) as advance, epochs_to(advance):
            detector.fit(read.series, checkpoint=options.checkpoint)
        detector._ids = read.chosen.ids
        return SeriesModel.of(decided(detector, options), read.series)

    def training_findings(self, model: SeriesModel) -> Findings:
        """What training found; the events are not ranked."""
        assert self.read is not None
        scores = model.detector.anomaly_scores_
        return _findings(model, self.read, scores, trained_rows=len(scores))

    def rank(self, model: SeriesModel, progress: Progress, mapped: bool = True) -> Result:
        """The events, the most anomalous first."""
        detector, options, own = model.detector, self.options, self.read is not None
        read, scores = (self.read, detector.anomaly_scores_) if self.read else self.score(model, progress)
        found = events(scores, detector.threshold_, detector.sampling_.begins)
        ranked = _ranked(detector, read, scores, found, options)
        trained_rows = len(detector.anomaly_scores_) if own else 0
        findings = _findings(model, read, scores, ranked, found, trained_rows=trained_rows)
        if read.marks is not None:
            label = str(options.label)
            evaluated = evaluation.evaluate(scores, read.marks, detector.threshold_, label, steps=True)
            findings = replace(findings, evaluation=evaluated)
        return Result(findings, [_scored(read, options, scores, found, detector.threshold_)], model)

    def score(self, model: SeriesModel, progress: Progress) -> tuple[SeriesTable, np.ndarray]:
        """The steps of the file, and their scores by a saved model."""
        detector = model.detector
        channels = [str(name) for name in detector.model_.vectorizer.labels]
        check_unseen(self.options.label, channels, self.options.model)
        read = read_series_table(self.options, progress, channels, detector._ids)
        with progress.stage("Scoring", None):
            return read, detector.anomaly_score(read.series)


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
    model: SeriesModel,
    read: SeriesTable,
    scores: np.ndarray,
    ranked: tuple[Finding, ...] = (),
    found: Sequence[Event] = (),
    **more: Any,
) -> Findings:
    detector = model.detector
    return Findings(
        source=read.data.source,
        rows=len(scores),
        columns=tuple(map(str, read.series.names or ())),
        left_out=read.left_out,
        notes=tuple(read.data.notes),
        scores=scores,
        threshold=detector.threshold_,
        decided_by=detector.decision_.words,
        ranked=ranked,
        usual=tuple(map(usual.described, model.profiles)),
        history=tuple(detector.history_),
        versions=versions(),
        track=_track(read, scores, ranked, found),
        noun="step",
        **more,
    )


def _ranked(
    detector: ADDML, read: SeriesTable, scores: np.ndarray, found: list[Event], options: Options
) -> tuple[Finding, ...]:
    """One finding an event, the strangest first: where it begins, ends and peaks, and the channels responsible."""
    peaks = scores[[event.peak for event in found]]
    likely, sure = detector.training_.probability(peaks), detector._stability(peaks)
    explained = found[: max(LISTED, options.top)]
    shares = _responsible(detector, read, scores, explained, options.reasons)
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
            reasons=_reasons(detector, read, event, shares[place]) if place < len(shares) else (),
            probability=float(likely[place]),
            confidence=float(sure[place]),
        )
        for place, event in enumerate(found)
    )


def _responsible(
    detector: ADDML, read: SeriesTable, scores: np.ndarray, found: list[Event], most: int
) -> list[list[tuple[int, float]]]:
    """The channels of each event with their shares of what raises its highest scores, the largest first."""
    if not found or not most:
        return []
    chosen = [_telling(detector, event, scores) for event in found]
    contributions = np.maximum(detector.explain(read.series, rows=np.concatenate(chosen)), 0)
    parts = np.split(contributions, np.cumsum([len(rows) for rows in chosen])[:-1])
    totals = [part.sum(axis=0) for part in parts]
    shares = [total / max(total.sum(), np.finfo(float).tiny) for total in totals]
    return [[(int(at), float(own[at])) for at in np.argsort(-own)[:most] if own[at]] for own in shares]


def _telling(detector: ADDML, event: Event, scores: np.ndarray) -> np.ndarray:
    """The steps whose windows, each of which ends at its step, say why an event's highest scores are high.

    Where scores look ahead, a step's is the mean of all windows over it: that in whose middle it lies tells too.
    """
    form = detector.model_.form
    assert form is not None
    highest = event.start + np.argsort(-scores[event.start : event.stop])[:STEPS_EXPLAINED]
    if form.causal:
        return highest
    return np.unique([*highest, *np.minimum(highest + form.shape[0] // 2, len(scores) - 1)])


def _reasons(detector: ADDML, read: SeriesTable, event: Event, shares: list[tuple[int, float]]) -> tuple[Reason, ...]:
    steps, names = detector.model_.step_features, read.series.names or []
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
