"""A table read as a series: one column of times, the others channels, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from addml import model_file
from addml.errors import UserError
from addml.explain import ColumnProfile
from addml.findings import Finding, Findings, Reason, Track
from addml.inputs.series import Series, carried, check_times, utc_times
from addml.pipeline import evaluation, usual
from addml.pipeline.batches import LISTED
from addml.pipeline.options import Naming, Settings, versions
from addml.pipeline.sources import Chosen, Input, beside, choose, find, open_input, shown, unseen
from addml.pipeline.training import decided, new_detector, one_sided
from addml.preprocessing.numbers import refuse_infinity
from addml.progress import Progress, epochs_to
from addml.text import listed

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from addml.detector import ADDML


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


# Series from a file: which periods stand out, and which channels made them.


STEPS_EXPLAINED = 5  # of each event, those that score highest
DRAWN = 4  # channels, those that events name most


@dataclass(frozen=True)
class Event:
    """Consecutive flagged steps: the first one, the one behind the last, and the one that scores highest."""

    start: int
    stop: int
    peak: int


@dataclass(frozen=True)
class SeriesOutcome:
    """What a run found, the scored steps, the detector, and what is usual in each channel of its training steps."""

    findings: Findings
    scored: list[pa.Table]  # in pieces
    detector: ADDML
    usual: Sequence[ColumnProfile]

    def save(self, folder: Path) -> None:
        """Write the model, and beside it what is usual."""
        self.detector.save(folder)
        usual.save(folder, self.usual)


def fit(settings: Settings, progress: Progress) -> SeriesOutcome:
    """Train on the series of a file."""
    read = read_series_table(settings, progress)
    detector = _trained(read, settings, progress)
    known = _usual(detector, read)
    return SeriesOutcome(_findings(detector, read, detector.anomaly_scores_, settings, known), [], detector, known)


def detect(settings: Settings, progress: Progress) -> SeriesOutcome:
    """Train on the series of a file, and rank its own periods."""
    read = read_series_table(settings, progress)
    detector = _trained(read, settings, progress)
    return _outcome(detector, read, detector.anomaly_scores_, settings, _usual(detector, read))


def score(settings: Settings, progress: Progress) -> SeriesOutcome:
    """Rank the periods of a file by a model that was trained before."""
    detector, read, scores = scored(settings, progress)
    folder = str(settings.using.model)
    return _outcome(detector, read, scores, settings, usual.load(folder, model_file.load(folder)[0]["weights"]))


def scored(settings: Settings, progress: Progress) -> tuple[ADDML, SeriesTable, np.ndarray]:
    """A model that was trained before, the steps of a file, and their scores."""
    from addml.detector import load

    detector = load(str(settings.using.model), device=settings.computing.device)
    detector.set_params(n_jobs=settings.computing.jobs)
    if detector.model_.form is None or not detector.model_.form.is_series:
        raise UserError(f"{settings.using.model}: was trained on rows, not on a series; leave --time out.")
    deciding = settings.deciding
    if deciding.tau is not None:
        detector.set_threshold(tau=deciding.tau)
    elif deciding.threshold is not None or deciding.contamination is not None:
        detector.set_threshold(method=deciding.threshold, contamination=deciding.contamination)
    channels = [str(name) for name in detector.model_.vectorizer.labels]
    unseen(settings.labelling.label, channels, settings.using.model)
    read = read_series_table(settings, progress, channels, detector._ids)
    with progress.stage("Scoring", None):
        return detector, read, detector.anomaly_score(read.series)


def _trained(read: SeriesTable, settings: Settings, progress: Progress) -> ADDML:
    training, windowing = settings.training, settings.windowing
    detector = new_detector(
        training,
        settings.deciding,
        settings.computing,
        encoder="recurrent",
        window=windowing.window,
        causal=windowing.causal,
        cell=windowing.cell,
        one_sided=one_sided(training.one_sided, read.series.names or []),
    )
    with progress.stage("Training", training.epochs) as advance, epochs_to(advance):
        detector.fit(read.series, checkpoint=settings.streaming.checkpoint)
    detector._ids = read.chosen.ids
    return decided(detector, settings.deciding)


def events(scores: np.ndarray, threshold: float, begins: Sequence[int] = ()) -> list[Event]:
    """Runs of steps that score above the threshold, the one with the highest peak first; none goes over a beginning."""
    flagged = np.concatenate([[False], scores > threshold, [False]])
    joined = flagged[1:] & flagged[:-1]  # each step to the one before it
    joined[list(begins)] = False
    starts, stops = np.flatnonzero(flagged[1:] & ~joined), np.flatnonzero(flagged[:-1] & ~joined)
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    found = [Event(start, stop, start + int(scores[start:stop].argmax())) for start, stop in spans]
    return sorted(found, key=lambda event: -scores[event.peak])


def _outcome(
    detector: ADDML, read: SeriesTable, scores: np.ndarray, settings: Settings, known: Sequence[ColumnProfile]
) -> SeriesOutcome:
    found = events(scores, detector.threshold_, detector.sampling_.begins)
    ranked = _ranked(detector, read, scores, found, settings)
    findings = _findings(detector, read, scores, settings, known, ranked, found)
    if read.marks is not None:
        label = str(settings.labelling.label)
        found_out = evaluation.evaluate(scores, read.marks, detector.threshold_, label, steps=True)
        findings = replace(findings, evaluation=found_out)
    return SeriesOutcome(findings, [_scored(read, settings, scores, found, detector.threshold_)], detector, known)


def _findings(
    detector: ADDML,
    read: SeriesTable,
    scores: np.ndarray,
    settings: Settings,
    known: Sequence[ColumnProfile],
    ranked: tuple[Finding, ...] = (),
    found: Sequence[Event] = (),
) -> Findings:
    names = tuple(map(str, read.series.names or ()))
    return Findings(
        source=read.data.source,
        rows=len(scores),
        columns=names,
        left_out=read.left_out,
        notes=tuple(read.data.notes),
        scores=scores,
        threshold=detector.threshold_,
        decided_by=detector.decision_.words,
        ranked=ranked,
        usual=tuple(map(usual.described, known)),
        history=tuple(detector.history_),
        versions=versions(),
        trained_rows=len(detector.anomaly_scores_) if settings.using.model is None else 0,
        track=_track(read, scores, ranked, found),
        noun="step",
    )


def _usual(detector: ADDML, read: SeriesTable) -> list[ColumnProfile]:
    """What is usual in each channel of the training steps that do not stand out, where anything is known of them."""
    kept = detector.anomaly_scores_ <= detector.threshold_
    parts = zip(read.series.names or (), read.series.values[kept].T, strict=True)
    known = ((name, values[~np.isnan(values)]) for name, values in parts)
    return [usual.usual_number(name, values) for name, values in known if len(values)]


def _ranked(
    detector: ADDML, read: SeriesTable, scores: np.ndarray, found: list[Event], settings: Settings
) -> tuple[Finding, ...]:
    """One finding an event, the strangest first: where it begins, ends and peaks, and the channels responsible."""
    peaks = scores[[event.peak for event in found]]
    likely, sure = detector.training_.probability(peaks), detector._stability(peaks)
    explained = found[: max(LISTED, settings.explaining.top)]
    shares = _responsible(detector, read, scores, explained, settings.explaining.reasons)
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
    result = []
    for part in parts:
        total = part.sum(axis=0)
        share = total / max(total.sum(), np.finfo(float).tiny)
        result.append(
            [(int(channel), float(share[channel])) for channel in np.argsort(-share)[:most] if share[channel]]
        )
    return result


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


def _scored(
    read: SeriesTable, settings: Settings, scores: np.ndarray, found: list[Event], threshold: float
) -> pa.Table:
    """The steps with their scores and the event, counted by rank, that each belongs to."""
    import pyarrow as pa

    event = np.zeros(len(scores), np.int64)
    for rank, one in enumerate(found, start=1):
        event[one.start : one.stop] = rank
    own = {"score": scores, "is_anomaly": scores > threshold, "event": pa.array(event, mask=event == 0)}
    ids = read.table.select([str(settings.timing.time), *read.chosen.ids])
    return pa.table(dict(zip(beside(ids.column_names, own), ids.columns, strict=True)) | own)


def _track(read: SeriesTable, scores: np.ndarray, ranked: tuple[Finding, ...], found: Sequence[Event]) -> Track:
    """What is drawn: the scores, and the channels that events name most (the first ones where none does).

    Missing values take the one before, as the detector has it: of a channel that is known at every other step alone
    there would be no line.
    """
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
