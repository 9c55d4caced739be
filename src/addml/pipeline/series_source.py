"""A file with a column of times as one series per entity; its events are ranked."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from addml.decisions.decision import EVENTS, Decision
from addml.decisions.events import Event, event_figures
from addml.errors import AddmlError
from addml.explain import contributions_of
from addml.explain.attribution import channel_distances, expected_bands
from addml.findings import EventPicture, Finding, Findings, Reason, Track
from addml.inputs import Window
from addml.inputs.series import Series, choose_window, entities_of, forward_filled, split
from addml.inputs.series_vectorizer import WindowRows
from addml.inputs.times import Ordered, check_times, column_times, order_words
from addml.model import Model
from addml.pipeline.batches import scoring_place
from addml.pipeline.evaluation import evaluate
from addml.pipeline.labels import read_label
from addml.pipeline.options import Options
from addml.pipeline.ranking import LISTED, Result, highest, training_findings
from addml.pipeline.run import fit_model, one_sided
from addml.pipeline.sources import Chosen, Input, check_unseen, choose, find, names_beside, open_input, possible_names
from addml.preprocessing.numbers import refuse_infinity
from addml.preprocessing.profile import BETWEEN
from addml.progress import Progress, epochs_to
from addml.text import SERIES, counted, figure, listed

NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
MOST_REPEATED = 0.33  # share of rows that repeat a time; more of them mean several entities
CLOSEST = 5  # events listed if none is flagged
STEPS_EXPLAINED = 200  # per event, those with the highest scores
DRAWN = 4  # channels, those that events name most
PICTURED = 30  # events with their own picture in a report
PICTURED_CHANNELS = 3
AROUND = 2  # windows before and after an event in its picture


class SeriesSource:
    """The series of a file. After `train`, `rank` uses the training scores; without, it scores with a saved model."""

    kind = SERIES

    def __init__(self, options: Options) -> None:
        self.options = options
        self.read: SeriesTable | None = None

    def train(self, progress: Progress) -> Model:
        options = self.options
        self.read = read = read_series(options, progress)
        window = options.window
        if window is None:
            window, reason = choose_window(max(read.series, key=lambda one: len(one.values)))
            read.data.notes.append(f"windows of {window} steps: {reason} (set --window to change it)")
        sides, by = one_sided(options.one_sided, read.names), read.chosen.by or None
        form = Window(window, causal=options.causal)
        with progress.stage("Training", options.epochs) as advance, epochs_to(advance):
            model = fit_model(options, read.series, window=form, one_sided=sides, by=by)
        if model.vectorizer.groups is not None:
            read.data.notes.append(re.sub(r"\brows\b", "steps", model.vectorizer.groups.note))
        return replace(model, ids=read.chosen.ids)

    def training_findings(self, model: Model) -> Findings:
        """The findings of `addml fit`: events are not ranked."""
        assert self.read is not None
        return _findings(_Scored(model, self.read, model.training.values, []), (), (), len(self.read.steps))

    def rank(self, model: Model, progress: Progress) -> Result:
        """The events, most anomalous first."""
        options, own = self.options, self.read
        if own is None:
            read, rows, scores = self.score(model, progress)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # training gave these warnings
                read, rows, scores = own, cast(WindowRows, model.vectorizer.read(own.series)), model.training.values
        window = rows.windows.window
        if short := [_named(one.key) for one in read.series if len(one.values) < window]:
            read.data.notes.append(
                f"shorter than a window ({window} steps), so their scores are rough: {listed(short)}"
            )
        tau, flagged = model.events(scores, rows.sampling, options.events, options.min_steps)
        if options.events is not None:
            model = replace(model, decision=Decision(tau, EVENTS, options.events))
        scored = _Scored(model, read, scores, flagged)
        is_ranked = not flagged and bool(np.ptp(scores))
        closest = model.events(scores, rows.sampling, CLOSEST, options.min_steps)[1] if is_ranked else []
        ranked, pictures = _ranked(scored, rows, closest, options)
        findings = _findings(scored, ranked, pictures, 0 if own is None else len(read.steps))
        short = (scores > model.threshold) & (scored.ranks == 0)
        findings = replace(findings, too_short=int(short[read.steps].sum()))
        if read.marks is not None:
            found = evaluate(scores, read.marks, model.threshold, str(options.label), steps=True)
            found["events"] = event_figures(scored.found, read.marks, read.starts[:-1].tolist())
            findings = replace(findings, evaluation=found)
        return Result(findings, [_scored_table(scored, rows, options)], model)

    def score(self, model: Model, progress: Progress) -> tuple[SeriesTable, WindowRows, np.ndarray]:
        """The steps of the file and their scores from a saved model."""
        check_unseen(self.options.label, list(map(str, model.vectorizer.labels)), self.options.model)
        read, groups = read_series(self.options, progress, model), model.vectorizer.groups
        new = [str(one.key) for one in read.series if groups is not None and groups.code(one.key) < 0]
        if new:
            unseen = f"not in training, so compared with all of {listed(model.by)}"
            read.data.notes.append(f"{unseen}: {listed(list(map(_named, new)))}")
        with progress.stage("Scoring", None):
            rows = cast(WindowRows, model.vectorizer.read(read.series))
            return read, rows, model.scores(rows, *scoring_place(self.options, model))


@dataclass(frozen=True)
class _Scored:
    model: Model
    read: SeriesTable
    scores: np.ndarray
    found: list[Event]

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of the event of each step, (steps,); 0 without one."""
        ranks = np.zeros(len(self.scores), np.int64)
        for rank, one in enumerate(self.found, start=1):
            ranks[one.start : one.stop] = rank
        return ranks


def _findings(scored: _Scored, ranked: Sequence[Finding], pictures: Sequence[EventPicture], trained: int) -> Findings:
    model, read = scored.model, scored.read
    return training_findings(
        model,
        read.data.source,
        read.data.notes,
        rows=len(read.steps),
        columns=tuple(read.names),
        left_out=read.left_out,
        scores=scored.scores[read.steps],
        ranked=tuple(ranked),
        track=_track(scored, ranked, pictures),
        noun="step",
        trained_rows=trained,
        **({} if model.vectorizer.groups is None else {"usual": ()}),
    )


def _named(key: str | None, default: str = "the series") -> str:
    return default if key is None else key.replace(BETWEEN, ", ")


class Blame(NamedTuple):
    """A channel's share of the distance from expected values in an event, and the step where it is farthest."""

    channel: int
    share: float
    step: int
    expected: float


def _ranked(
    scored: _Scored, rows: WindowRows, closest: list[Event], options: Options
) -> tuple[list[Finding], list[EventPicture]]:
    """One finding per event, most anomalous first; if none is flagged, of the `closest` events."""
    read, scores, found = scored.read, scored.scores, scored.found or closest
    p_values, likely = scored.model.training.rarity(scores[[event.peak for event in found]])
    blames = _responsible(scored, rows, found[: max(LISTED, options.top)], options)
    ranked = [
        Finding(
            row=int(read.rows[event.peak]) + 1,
            rank=place + 1,
            score=float(scores[event.peak]),
            is_anomaly=bool(scored.found),
            ids=read.names_of(event),
            values=dict(zip(read.names, read.values[event.peak].tolist(), strict=True)),
            reasons=tuple(_reason(read, rows, one) for one in blames[place]) if place < len(blames) else (),
            p_value=float(p_values[place]),
            probability=float(likely[place]),
        )
        for place, event in enumerate(found)
    ]
    return ranked, _pictures(scored, rows, blames)


def _responsible(scored: _Scored, rows: WindowRows, found: list[Event], options: Options) -> list[list[Blame]]:
    """The channels of each event, the one farthest from its expected values first.

    Models without training windows fall back on contributions to the score (worse: `python -m benchmarks.channels`).
    """
    if not found or not options.reasons:
        return []
    chosen = [one.start + highest(scored.scores[one.start : one.stop], STEPS_EXPLAINED) for one in found]
    steps = np.concatenate(chosen)
    known = channel_distances(scored.model, rows, steps)
    if known is None:
        given = contributions_of(scored.model, rows, steps, *scoring_place(options, scored.model))
        known = np.maximum(given, 0), np.full(given.shape, np.nan)
    ends = np.cumsum([len(own) for own in chosen])[:-1]
    blames = []
    for own, away, expected in zip(chosen, np.split(known[0], ends), np.split(known[1], ends), strict=True):
        total, farthest = away.mean(axis=0), away.argmax(axis=0)
        shares = total / max(total.sum(), np.finfo(float).tiny)
        first = [int(at) for at in np.argsort(-shares, kind="stable")[: options.reasons] if shares[at]]
        blames.append(
            [Blame(at, float(shares[at]), int(own[farthest[at]]), float(expected[farthest[at], at])) for at in first]
        )
    return blames


def _reason(read: SeriesTable, rows: WindowRows, one: Blame) -> Reason:
    """The channel with its value farthest from the expected one."""
    name, value = read.names[one.channel], read.values[one.step, one.channel]
    if np.isnan(value):
        return Reason(name, one.share, f"{name} missing")
    told = f"expected {figure(one.expected, 4)}"
    if np.isnan(one.expected):
        told = f"{rows.windows.steps[one.step, one.channel]:+.1f} deviations"
    return Reason(name, one.share, f"{name} {figure(float(value), 4)} ({told})")


def _scored_table(scored: _Scored, rows: WindowRows, options: Options) -> pa.Table:
    """The rows with their scores, the rank of their event and, with --bands, the expected range of every channel."""
    read, scores, steps, event = scored.read, scored.scores, scored.read.steps, scored.ranks
    flagged = (scores > scored.model.threshold) & (event > 0)
    own: dict[str, Any] = {
        "score": scores[steps],
        "is_anomaly": flagged[steps],
        "event": pa.array(event[steps], mask=event[steps] == 0),
    }
    bands = expected_bands(scored.model, rows) if options.bands else None
    for place, name in enumerate(read.names if bands is not None else ()):
        ends = zip(("low", "expected", "high"), bands[:, steps, place], strict=True)  # type: ignore[index]
        own |= {f"{name}_{end}": values for end, values in ends}
    ids = read.table.select(list(dict.fromkeys([str(options.time), *read.chosen.by, *read.chosen.ids])))
    return pa.table(dict(zip(names_beside(ids.column_names, own), ids.columns, strict=True)) | own)


def _track(scored: _Scored, ranked: Sequence[Finding], pictures: Sequence[EventPicture]) -> Track:
    """What is drawn: the scores, and the channels that events name most, forward-filled."""
    read, names = scored.read, scored.read.names
    named = [reason.column for finding in ranked for reason in finding.reasons[:1]]
    drawn = sorted(names, key=lambda name: (-named.count(name), names.index(name)))[:DRAWN]
    values, _ = forward_filled(read.values[:, [names.index(name) for name in drawn]], np.full(len(drawn), np.nan))
    keys = [_named(one.key, "") for one in read.series]
    return Track(
        times=(read.when(int(read.times.argmin())), read.when(int(read.times.argmax()))),
        scores=scored.scores,
        channels=tuple(zip(drawn, values.T, strict=True)),
        events=tuple((event.start, event.stop) for event in scored.found),
        when=read.times,
        entities=tuple(zip(keys, read.starts[:-1].tolist(), read.starts[1:].tolist(), strict=True)),
        pictures=tuple(pictures),
    )


def _pictures(scored: _Scored, rows: WindowRows, blames: Sequence[list[Blame]]) -> list[EventPicture]:
    """The first events with the steps around them, the channels responsible and their expected ranges."""
    model, read, pictures = scored.model, scored.read, list[EventPicture]()
    for rank, event in enumerate(scored.found[:PICTURED], start=1):
        around, entity = max(AROUND * rows.windows.window, event.stop - event.start), read.entity(event.peak)
        start = max(int(read.starts[entity]), event.start - around)
        stop = min(int(read.starts[entity + 1]), event.stop + around)
        bands = expected_bands(model, rows, np.arange(start, stop))
        channels = [one.channel for one in blames[rank - 1][:PICTURED_CHANNELS]] if rank <= len(blames) else []
        lines = [
            (read.names[at], read.values[start:stop, at], None if bands is None else bands[:, :, at])
            for at in channels or range(min(PICTURED_CHANNELS, len(read.names)))
        ]
        span = (event.start - start, event.stop - start)
        pictures.append(EventPicture(rank, read.times[start:stop], span, tuple(lines)))
    return pictures


@dataclass(frozen=True)
class SeriesTable:
    """A file as one series per entity: steps sorted by entity and time, the rows they come from, and labels."""

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
        """The first step of each series, then the number of steps."""
        return np.cumsum([0, *(len(one.values) for one in self.series)])

    @cached_property
    def rows(self) -> np.ndarray:
        """The first row of each step, (steps,)."""
        return np.unique(self.steps, return_index=True)[1]

    def entity(self, step: int) -> int:
        return int(np.searchsorted(self.starts, step, side="right")) - 1

    def names_of(self, event: Event) -> dict[str, Any]:
        """The entity, the times and the length of an event."""
        key = self.series[self.entity(event.peak)].key
        by = names_beside(self.chosen.by, ("start", "end", "peak", "steps"))
        own = {} if key is None else dict(zip(by, key.split(BETWEEN), strict=True))
        times = {"start": self.when(event.start), "end": self.when(event.stop - 1), "peak": self.when(event.peak)}
        return {**own, **times, "steps": event.stop - event.start}

    def when(self, step: int) -> str:
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
        data = open_input(options, ids)
    if data.table is None:
        raise AddmlError(f"{data.source}: a series must fit in memory; split the file by time.")
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
    series, marks = split(ordered, keys, channels), None
    if label is not None:
        marks = np.full(len(ordered.times), -1)
        np.maximum.at(marks, ordered.steps, read_label(data.table[label], options.anomaly_value, label))
    steps = (ordered.values, ordered.times, ordered.steps)
    return SeriesTable(series, channels, *steps, data.table, data, chosen, tuple(left_out), marks)


def _channels(
    table: pa.Table, names: list[str], chosen: Chosen, source: str, model: Model | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """The channels (those of the model must all be present), and the dropped columns with reasons."""
    if model is None:
        features = [name for name in chosen.features if name not in chosen.by]
        channels = [name for name in features if any(test(table[name].type) for test in NUMBERS)]
        others = {name: _no_numbers(table[name]) for name in features if name not in channels}
        if not channels:
            said = listed([f"{name} has {why}" for name, why in others.items()])
            raise AddmlError(f"{source}: no column except the time holds numbers: {said}.")
        return channels, [*chosen.left_out, *others.items()]
    channels, why = [str(name) for name in model.vectorizer.labels], dict(chosen.left_out)
    for name in channels:
        find(name, table.column_names, "a channel of the model", source)
        if not any(test(table[name].type) for test in (*NUMBERS, pa.types.is_null)):  # null: empty throughout
            found = f"the channel {name!r} holds {_no_numbers(table[name])}"
            raise AddmlError(f"{source}: {found}; leave cells without a number empty.")
    dropped = [name for name in names if name not in (*channels, *chosen.by)]
    return channels, [(name, why.get(name, "not a channel of the model")) for name in dropped]


def _no_numbers(column: pa.ChunkedArray) -> str:
    """Why a column is not numeric: with its first text, unless that is in row 1."""
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            float(value or 0)
        except (TypeError, ValueError):
            return f"no numbers ({value!r} in row {row:,})" if row > 1 else "no numbers"
    return "no numbers"


def _in_order(data: Input, time: str, values: np.ndarray, by: Sequence[str]) -> tuple[Sequence[str | None], Ordered]:
    """The keys of the entities, and their steps sorted by time."""
    assert data.table is not None
    what = f"{data.source}: the column {time!r} (--time)"
    times, note = column_times(data.table[time], what)
    check_times(times, what, first=1)
    keys, codes = entities_of(data.table, by)
    ordered = Ordered.of(values, times, codes)
    if ordered.repeated > MOST_REPEATED * len(times) and not by:
        repeated = f"{ordered.repeated:,} of {counted(len(times), 'row')} repeat a time"
        remedy = "if the file has several machines, add --by COLUMN, else give every row its own time"
        raise AddmlError(f"{what}: {repeated}; {remedy}.", column=time)
    data.notes.extend([*([note] if note else []), *order_words(ordered.unsorted, ordered.repeated)])
    return keys, ordered
