"""A file with a column of times as one series per entity; its events are ranked."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

from addml.decisions.decision import EVENTS, Decision
from addml.decisions.events import Event, event_figures
from addml.errors import AddmlError
from addml.explain import contributions_of
from addml.explain.attribution import channel_distances, expected_bands
from addml.findings import EventPicture, Finding, Findings, Reason, Track
from addml.inputs import Window
from addml.inputs.series import Series, choose_window, entity_codes, forward_filled, split
from addml.inputs.series_vectorizer import WindowRows
from addml.inputs.times import Ordered, check_times, column_times, order_notes
from addml.model import Model
from addml.pipeline import sources
from addml.pipeline.batches import scoring_device
from addml.pipeline.evaluation import evaluate
from addml.pipeline.labels import UNKNOWN, read_label
from addml.pipeline.options import Options
from addml.pipeline.ranking import LISTED, Result, highest, training_findings
from addml.pipeline.run import fit_model, one_sided
from addml.preprocessing.numbers import refuse_infinity
from addml.preprocessing.profile import BETWEEN
from addml.progress import Progress, advance_per_epoch
from addml.text import SERIES, counted, figure, listed

MOST_REPEATED = 0.33  # share of rows that repeat a time; more of them mean several entities
CLOSEST = 5  # events listed if none is flagged
STEPS_EXPLAINED = 200  # per event, those with the highest scores
DRAWN = 4  # channels, those that events name most
PICTURED = 30  # events with their own picture in a report
PICTURED_CHANNELS = 3  # per event
MARGIN = 2  # windows before and after an event in its picture


class SeriesSource:
    """The series of a file. After `train`, `rank` uses the training scores; otherwise it scores with a saved model."""

    kind = SERIES

    def __init__(self, options: Options) -> None:
        self.options = options
        self.is_trained = False
        self.data: SeriesTable  # the training steps

    def train(self, progress: Progress) -> Model:
        options = self.options
        self.data = data = read_series(options, progress)
        window = options.window
        if window is None:
            window, reason = choose_window(max(data.series, key=lambda series: len(series.values)))
            data.notes.append(f"windows of {window} steps: {reason} (set --window to change it)")
        windows = Window(window, causal=options.causal)
        sides = one_sided(options.one_sided, data.channels)
        with progress.stage("Training", options.epochs) as advance, advance_per_epoch(advance):
            model = fit_model(options, data.series, window=windows, one_sided=sides, by=data.roles.by or None)
        if model.vectorizer.groups is not None:
            data.notes.append(re.sub(r"\brows\b", "steps", model.vectorizer.groups.note))
        self.is_trained = True
        return replace(model, ids=data.roles.ids)

    def training_findings(self, model: Model) -> Findings:
        """The findings of `addml fit`: events are not ranked."""
        data, scores = self.data, model.training.values
        return _findings(model, data, scores, track=_track(data, scores, (), events=()), trained_rows=len(data.steps))

    def rank(self, model: Model, progress: Progress) -> Result:
        """The events, most anomalous first."""
        options = self.options
        if self.is_trained:
            data, scores = self.data, model.training.values
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # training gave these warnings
                rows = cast(WindowRows, model.vectorizer.read(data.series))
        else:
            data, rows, scores = self.score(model, progress)
        window = rows.windows.window
        short = [_entity_name(series.key) for series in data.series if len(series.values) < window]
        if short:
            data.notes.append(f"shorter than a window ({window} steps), so their scores are rough: {listed(short)}")
        tau, flagged = model.events(scores, rows.sampling, options.events, options.min_steps)
        if options.events is not None:
            model = replace(model, decision=Decision(tau, EVENTS, options.events))
        events = flagged
        if not flagged and np.ptp(scores):
            _, events = model.events(scores, rows.sampling, CLOSEST, options.min_steps)
        scored = _Scored(options, model, data, rows, scores, flagged)
        evaluation = None
        if data.labels is not None:
            evaluation = evaluate(scores, data.labels, model.threshold, str(options.label), steps=True)
            evaluation["events"] = event_figures(flagged, data.labels, data.starts[:-1].tolist())
        ranked = _ranked(scored, events)
        pictures = tuple(_picture(scored, *pair) for pair in zip(flagged[:PICTURED], ranked, strict=False))
        spans = tuple((event.start, event.stop) for event in flagged)
        track = _track(data, scores, ranked, events=spans, pictures=pictures)
        findings = _findings(model, data, scores, ranked=ranked, track=track, evaluation=evaluation)
        too_short = (scores > model.threshold) & (scored.ranks == 0)
        findings = replace(findings, too_short=int(too_short[data.steps].sum()))
        if self.is_trained:
            findings = replace(findings, trained_rows=len(data.steps))
        return Result(findings, [_scored_table(scored)], model)

    def score(self, model: Model, progress: Progress) -> tuple[SeriesTable, WindowRows, np.ndarray]:
        """The steps of the file and their scores from a saved model."""
        sources.check_unseen(self.options.label, list(map(str, model.vectorizer.labels)), self.options.model)
        data, groups = read_series(self.options, progress, model), model.vectorizer.groups
        keys = [] if groups is None else [str(series.key) for series in data.series if groups.code(series.key) < 0]
        if keys:
            names = listed([_entity_name(key) for key in keys])
            data.notes.append(f"not in training, so compared with all of {listed(model.by)}: {names}")
        with progress.stage("Scoring", None):
            rows = cast(WindowRows, model.vectorizer.read(data.series))
            return data, rows, model.scores(rows, *scoring_device(self.options, model))


@dataclass(frozen=True)
class _Scored:
    options: Options
    model: Model
    data: SeriesTable
    rows: WindowRows
    scores: np.ndarray  # (steps,)
    events: list[Event]  # flagged, most anomalous first

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of the event of each step, (steps,); 0 without one."""
        ranks = np.zeros(len(self.scores), np.int64)
        for rank, event in enumerate(self.events, start=1):
            ranks[event.start : event.stop] = rank
        return ranks


def _findings(model: Model, data: SeriesTable, scores: np.ndarray, **more: Any) -> Findings:
    return training_findings(
        model,
        data.source,
        data.notes,
        rows=len(data.steps),
        columns=tuple(data.channels),
        left_out=data.left_out,
        scores=scores[data.steps],
        noun="step",
        **({} if model.vectorizer.groups is None else {"usual": ()}),
        **more,
    )


def _entity_name(key: str | None, default: str = "the series") -> str:
    return default if key is None else key.replace(BETWEEN, ", ")


def _ranked(scored: _Scored, events: list[Event]) -> tuple[Finding, ...]:
    data, scores = scored.data, scored.scores
    p_values, probabilities = scored.model.training.rarity(scores[[event.peak for event in events]])
    reasons = _reasons(scored, events[: max(LISTED, scored.options.top)])
    return tuple(
        Finding(
            row=int(data.rows[event.peak]) + 1,
            rank=i + 1,
            score=float(scores[event.peak]),
            is_anomaly=bool(scored.events),
            ids=data.event_ids(event),
            values=dict(zip(data.channels, data.values[event.peak].tolist(), strict=True)),
            reasons=reasons[i] if i < len(reasons) else (),
            p_value=float(p_values[i]),
            probability=float(probabilities[i]),
        )
        for i, event in enumerate(events)
    )


def _reasons(scored: _Scored, events: list[Event]) -> list[tuple[Reason, ...]]:
    """The channels of each event, the one farthest from its expected values first."""
    model, rows, options = scored.model, scored.rows, scored.options
    if not events or not options.reasons:
        return []
    chosen = [event.start + highest(scored.scores[event.start : event.stop], STEPS_EXPLAINED) for event in events]
    steps = np.concatenate(chosen)
    result = channel_distances(model, rows, steps)
    if result is None:  # no training windows: contributions to the score are worse, see benchmarks/channels.py
        contributions = contributions_of(model, rows, steps, *scoring_device(options, model))
        result = np.maximum(contributions, 0), np.full(contributions.shape, np.nan)
    ends = np.cumsum([len(part) for part in chosen])[:-1]
    distances, expected = (np.split(values, ends) for values in result)
    return [tuple(_explained(scored, *part)) for part in zip(chosen, distances, expected, strict=True)]


def _explained(scored: _Scored, steps: np.ndarray, distances: np.ndarray, expected: np.ndarray) -> Iterator[Reason]:
    """The channels of one event, each with its value farthest from the expected one; `distances` is (k, channels)."""
    data, total = scored.data, distances.mean(axis=0)
    shares = total / max(total.sum(), np.finfo(float).tiny)
    order = np.argsort(-shares, kind="stable")[: scored.options.reasons]
    for channel in order[shares[order] != 0].tolist():
        farthest = int(distances[:, channel].argmax())
        step, usual = int(steps[farthest]), float(expected[farthest, channel])
        name, value = data.channels[channel], float(data.values[step, channel])
        contrast = f"expected {figure(usual, 4)}"
        if np.isnan(usual):
            contrast = f"{scored.rows.windows.steps[step, channel]:+.1f} deviations"
        words = "missing" if np.isnan(value) else f"{figure(value, 4)} ({contrast})"
        yield Reason(name, float(shares[channel]), f"{name} {words}")


def _scored_table(scored: _Scored) -> pa.Table:
    """The rows with their scores, the rank of their event and, with --bands, the expected range of every channel."""
    data, options, steps = scored.data, scored.options, scored.data.steps
    scores, ranks = scored.scores[steps], scored.ranks[steps]
    columns: dict[str, Any] = {
        "score": scores,
        "is_anomaly": (scores > scored.model.threshold) & (ranks > 0),
        "event": pa.array(ranks, mask=ranks == 0),
    }
    bands = expected_bands(scored.model, scored.rows) if options.bands else None
    if bands is not None:
        for channel, name in enumerate(data.channels):
            ends = zip(("low", "expected", "high"), bands[:, steps, channel], strict=True)
            columns |= {f"{name}_{end}": values for end, values in ends}
    ids = data.table.select(list(dict.fromkeys([str(options.time), *data.roles.by, *data.roles.ids])))
    return pa.table(dict(zip(sources.unclashing_names(ids.column_names, columns), ids.columns, strict=True)) | columns)


def _track(data: SeriesTable, scores: np.ndarray, ranked: Sequence[Finding], **more: Any) -> Track:
    """What is drawn: the scores, and the channels that events name most, forward-filled."""
    counts = Counter(reason.column for finding in ranked for reason in finding.reasons[:1])
    drawn = sorted(data.channels, key=lambda name: -counts[name])[:DRAWN]
    values = data.values[:, [data.channels.index(name) for name in drawn]]
    filled, _ = forward_filled(values, np.full(len(drawn), np.nan))
    entities = [_entity_name(series.key, "") for series in data.series]
    return Track(
        times=(data.time_text(int(data.times.argmin())), data.time_text(int(data.times.argmax()))),
        scores=scores,
        channels=tuple(zip(drawn, filled.T, strict=True)),
        when=data.times,
        entities=tuple(zip(entities, data.starts[:-1].tolist(), data.starts[1:].tolist(), strict=True)),
        **more,
    )


def _picture(scored: _Scored, event: Event, finding: Finding) -> EventPicture:
    """An event with the steps around it, the channels responsible and their expected ranges."""
    data, entity = scored.data, scored.data.entity(event.peak)
    margin = max(MARGIN * scored.rows.windows.window, event.stop - event.start)
    start = max(int(data.starts[entity]), event.start - margin)
    stop = min(int(data.starts[entity + 1]), event.stop + margin)
    bands = expected_bands(scored.model, scored.rows, np.arange(start, stop))
    channels = []
    for name in ([reason.column for reason in finding.reasons] or data.channels)[:PICTURED_CHANNELS]:
        channel = data.channels.index(name)
        band = None if bands is None else bands[:, :, channel]
        channels.append((name, data.values[start:stop, channel], band))
    span = (event.start - start, event.stop - start)
    return EventPicture(finding.rank, data.times[start:stop], span, tuple(channels))


@dataclass(frozen=True)
class SeriesTable:
    """A file as one series per entity: steps sorted by entity and time, the rows they come from, and labels."""

    series: list[Series]
    channels: list[str]
    values: np.ndarray  # (steps, channels)
    times: np.ndarray  # (steps,)
    steps: np.ndarray  # (rows,) the step of each row
    labels: np.ndarray | None  # (steps,)
    table: pa.Table
    source: str
    notes: list[str]
    roles: sources.Roles
    left_out: tuple[tuple[str, str], ...]

    @cached_property
    def starts(self) -> np.ndarray:
        """The first step of each series, then the number of steps."""
        return np.cumsum([0, *(len(series.values) for series in self.series)])

    @cached_property
    def rows(self) -> np.ndarray:
        """The first row of each step, (steps,)."""
        return np.unique(self.steps, return_index=True)[1]

    def entity(self, step: int) -> int:
        return int(np.searchsorted(self.starts, step, side="right")) - 1

    def event_ids(self, event: Event) -> dict[str, Any]:
        """The entity, the times and the length of an event."""
        start, end, peak = map(self.time_text, (event.start, event.stop - 1, event.peak))
        times = {"start": start, "end": end, "peak": peak, "steps": event.stop - event.start}
        key = self.series[self.entity(event.peak)].key
        names = sources.unclashing_names(self.roles.by, times)
        return times if key is None else dict(zip(names, key.split(BETWEEN), strict=True)) | times

    def time_text(self, step: int) -> str:
        """The time of a step for people to read, in UTC."""
        time = self.times[step]
        if isinstance(time, np.datetime64):
            return str(time).replace("T", " ").rstrip("0").rstrip(".")  # drop trailing zeros of the nanoseconds
        return str(time) if isinstance(time, np.integer) else np.format_float_positional(time, trim="-")


def read_series(options: Options, progress: Progress, model: Model | None = None) -> SeriesTable:
    """The series of a file; its channels are those of the model, or all numeric columns that are not dropped."""
    ids = () if model is None else model.ids
    options = options if model is None or not model.by else replace(options, by=tuple(model.by))
    with progress.stage(f"Reading {options.source}", None):
        data = sources.open_input(options, ids)
    table, label = data.table, options.label
    if table is None:
        raise AddmlError(f"{data.source}: a series must fit in memory; split the file by time.")
    time = str(sources.find(options.time, data.names, "--time", data.source))
    for option in ("columns", "ignore", "id", "by", "label"):
        value = getattr(options, option) or ()
        if time in sources.possible_names((value,) if isinstance(value, str) else value):
            raise AddmlError(f"{time!r} holds the times of the steps (--time); remove it from --{option}.")
    names = [name for name in data.names if name != time]
    model_ids = tuple(name for name in ids if name in names and name != label)
    roles = sources.choose(names, options if options.id else replace(options, id=model_ids), data.source)
    channels, left_out = _channels(table, names, roles, data.source, model)
    values = np.column_stack([table[name].cast("float64").to_numpy() for name in channels])
    for channel, name in zip(values.T, channels, strict=True):
        refuse_infinity(channel, name)
    keys, codes = entity_codes(table, roles.by)
    ordered = _in_order(data, table[time], values, codes)
    assert ordered.times is not None
    labels = None
    if label is not None:
        labels = np.full(len(ordered.times), UNKNOWN)
        np.maximum.at(labels, ordered.steps, read_label(table[label], options.anomaly_value, label))
    steps = (ordered.values, ordered.times, ordered.steps, labels)
    series = split(ordered, keys, channels)
    return SeriesTable(series, channels, *steps, table, data.source, data.notes, roles, tuple(left_out))


def _channels(
    table: pa.Table, names: list[str], roles: sources.Roles, source: str, model: Model | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """The channels (those of the model must all be present), and the dropped columns with reasons."""
    if model is None:
        causes = {name: sources.why_not_numeric(table[name]) for name in roles.features if name not in roles.by}
        channels = [name for name, why in causes.items() if why is None]
        others = [(name, why) for name, why in causes.items() if why is not None]
        if not channels:
            columns = listed([f"{name} has {why}" for name, why in others])
            raise AddmlError(f"{source}: no column except the time holds numbers: {columns}.")
        return channels, [*roles.left_out, *others]
    channels, reasons = [str(name) for name in model.vectorizer.labels], dict(roles.left_out)
    for name in channels:
        sources.find(name, table.column_names, "a channel of the model", source)
        why = sources.why_not_numeric(table[name])
        if why is not None and not pa.types.is_null(table[name].type):  # null: the column is empty
            raise AddmlError(f"{source}: the channel {name!r} holds {why}; leave cells without a number empty.")
    dropped = [name for name in names if name not in (*channels, *roles.by)]
    return channels, [(name, reasons.get(name, "not a channel of the model")) for name in dropped]


def _in_order(data: sources.Input, column: pa.ChunkedArray, values: np.ndarray, codes: np.ndarray) -> Ordered:
    """The steps of each entity sorted by the times in a column; notes are added to `data`."""
    where = f"{data.source}: the column {data.options.time!r} (--time)"
    times, note = column_times(column, where)
    check_times(times, where, first=1)
    ordered = Ordered.of(values, times, codes)
    if ordered.repeated > MOST_REPEATED * len(times) and not data.options.by:
        repeated = f"{ordered.repeated:,} of {counted(len(times), 'row')} repeat a time"
        remedy = "if the file has several machines, add --by COLUMN, else give every row its own time"
        raise AddmlError(f"{where}: {repeated}; {remedy}.", column=data.options.time)
    data.notes.extend([*([note] if note else []), *order_notes(ordered.unsorted, ordered.repeated)])
    return ordered
