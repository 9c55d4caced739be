"""A series, or those of several entities, in a table with a column of times; their events are ranked."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from addml.decisions.decision import EVENT_RATE, EVENTS, Decision
from addml.decisions.events import FALSE_RATE, Event, budget_threshold, event_figures, events, peaks, tail_threshold
from addml.explain import contributions_of
from addml.explain.attribution import channel_distances, expected_bands
from addml.findings import EventPicture, Finding, Findings, Reason, Track
from addml.inputs import Window
from addml.inputs.series import carried, choose_window
from addml.inputs.series_vectorizer import WindowRows
from addml.model import Model
from addml.pipeline.batches import scoring_place
from addml.pipeline.evaluation import evaluate
from addml.pipeline.options import SERIES, Options, decisions_given
from addml.pipeline.ranking import LISTED, Result, training_findings
from addml.pipeline.run import fit_model, one_sided
from addml.pipeline.series_table import SeriesTable, read_series
from addml.pipeline.sources import check_unseen, names_beside
from addml.preprocessing.profile import BETWEEN
from addml.progress import Progress, epochs_to
from addml.text import figure, listed

CLOSEST = 5  # events listed where none is flagged
STEPS_EXPLAINED = 200  # of each event, those with the highest scores
DRAWN = 4  # channels of a series, those that events name most
PICTURED = 30  # events that a report draws by themselves
PICTURED_CHANNELS = 3
AROUND = 2  # windows before and behind an event in its picture


class SeriesSource:
    """A series in a file; once it was trained on, `rank` scores its own steps, else new ones by a saved model."""

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
            read.data.notes.append(f"windows of {window} steps: {reason} (--window sets another length)")
        sides, by = one_sided(options.one_sided, read.names), read.chosen.by or None
        with progress.stage("Training", options.epochs) as advance, epochs_to(advance):
            model = fit_model(
                options, read.series, window=Window(window, causal=options.causal), one_sided=sides, by=by
            )
        if model.vectorizer.groups is not None:
            read.data.notes.append(re.sub(r"\brows\b", "steps", model.vectorizer.groups.note))
        if not decisions_given(options):
            ordered = peaks(model.training.values, window, model.sampling.begins if model.sampling else ())
            model = replace(model, decision=Decision(tail_threshold(ordered), EVENT_RATE, FALSE_RATE))
        return replace(model, ids=read.chosen.ids)

    def training_findings(self, model: Model) -> Findings:
        """What training found; the events are not ranked."""
        assert self.read is not None
        return _findings(_Scored(model, self.read, None, model.training.values, []), trained_rows=len(self.read.steps))

    def rank(self, model: Model, progress: Progress) -> Result:
        """The events, the most anomalous first."""
        options, own = self.options, self.read
        if own is None:
            read, rows, scores = self.score(model, progress)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # training gave these warnings
                read, rows, scores = own, cast(WindowRows, model.vectorizer.read(own.series)), model.training.values
        assert model.form is not None
        how = (() if rows.sampling is None else rows.sampling.begins, model.form.shape[0], options.min_steps)
        if options.events is not None:
            tau = budget_threshold(scores, options.events, *how)
            model = replace(model, decision=Decision(tau, EVENTS, options.events))
        scored = _Scored(model, read, rows, scores, events(scores, model.threshold, *how))
        closest = [] if scored.found else events(scores, budget_threshold(scores, CLOSEST, *how), *how)
        ranked, pictures = _ranked(scored, closest, options)
        findings = _findings(scored, ranked, pictures, trained_rows=0 if own is None else len(read.steps))
        if read.marks is not None:
            found = evaluate(scores, read.marks, model.threshold, str(options.label), steps=True)
            found["events"] = event_figures(scored.found, read.marks, read.starts[:-1].tolist())
            findings = replace(findings, evaluation=found)
        return Result(findings, [_scored_table(scored, options)], model)

    def score(self, model: Model, progress: Progress) -> tuple[SeriesTable, WindowRows, np.ndarray]:
        """The steps of the file, and their scores by a saved model."""
        check_unseen(self.options.label, list(map(str, model.vectorizer.labels)), self.options.model)
        read, groups = read_series(self.options, progress, model), model.vectorizer.groups
        new = [str(one.key) for one in read.series if groups is not None and groups.code(one.key) < 0]
        if new:
            unseen = listed([key.replace(BETWEEN, ", ") for key in new])
            read.data.notes.append(f"not in training, so judged against all of {listed(model.by)}: {unseen}")
        with progress.stage("Scoring", None):
            rows = cast(WindowRows, model.vectorizer.read(read.series))
            return read, rows, model.scores(rows, *scoring_place(self.options, model))


@dataclass(frozen=True)
class _Scored:
    model: Model
    read: SeriesTable
    rows: WindowRows | None  # of the steps, unless events are not looked at
    scores: np.ndarray
    found: list[Event]


def _findings(
    scored: _Scored, ranked: tuple[Finding, ...] = (), pictures: tuple[EventPicture, ...] = (), **more: Any
) -> Findings:
    model, read = scored.model, scored.read
    if model.vectorizer.groups is not None:
        more["usual"] = ()
    return training_findings(
        model,
        read.data.source,
        read.data.notes,
        rows=len(read.steps),
        columns=tuple(read.names),
        left_out=read.left_out,
        scores=scored.scores[read.steps],
        ranked=ranked,
        track=_track(scored, ranked, pictures),
        noun="step",
        **more,
    )


# Events -----------------------------------------------------------------------------------------------------


class Blame(NamedTuple):
    """A channel of an event: its share of the distance from what was expected, the step where that is farthest."""

    channel: int
    share: float
    step: int
    expected: float


def _ranked(
    scored: _Scored, closest: list[Event], options: Options
) -> tuple[tuple[Finding, ...], tuple[EventPicture, ...]]:
    """One finding an event, the strangest first: where it begins, ends and peaks, and the channels responsible.

    Where no event is flagged, those that come closest are listed.
    """
    read, scores, found = scored.read, scored.scores, scored.found or closest
    p_values, likely = scored.model.training.rarity(scores[[event.peak for event in found]])
    blames = _responsible(scored, found[: max(LISTED, options.top)], options)
    by = names_beside(read.chosen.by, ("start", "end", "peak", "steps"))
    ranked = []
    for place, event in enumerate(found):
        key = read.series[read.entity(event.peak)].key
        ids = {} if key is None else dict(zip(by, key.split(BETWEEN), strict=True))
        times = {"start": read.when(event.start), "end": read.when(event.stop - 1), "peak": read.when(event.peak)}
        ranked.append(
            Finding(
                row=int(read.rows[event.peak]) + 1,
                rank=place + 1,
                score=float(scores[event.peak]),
                is_anomaly=bool(scored.found),
                ids={**ids, **times, "steps": event.stop - event.start},
                values=dict(zip(read.names, read.values[event.peak].tolist(), strict=True)),
                reasons=tuple(_reason(scored, one) for one in blames[place]) if place < len(blames) else (),
                p_value=float(p_values[place]),
                probability=float(likely[place]),
            )
        )
    return tuple(ranked), _pictures(scored, blames)


def _responsible(scored: _Scored, found: list[Event], options: Options) -> list[list[Blame]]:
    """The channels of each event by how far they are from what was expected, the farthest first.

    `python -m benchmarks.channels` compares this with contributions to the score, which are taken where the model keeps
    no training windows.
    """
    if not found or not options.reasons or scored.rows is None:
        return []
    order = (np.argsort(-scored.scores[one.start : one.stop], kind="stable")[:STEPS_EXPLAINED] for one in found)
    chosen = [one.start + own for one, own in zip(found, order, strict=True)]  # the steps with the highest scores
    steps = np.concatenate(chosen)
    known = channel_distances(scored.model, scored.rows, steps)
    if known is None:
        given = contributions_of(scored.model, scored.rows, steps, *scoring_place(options, scored.model))
        known = np.maximum(given, 0), np.full(given.shape, np.nan)
    ends = np.cumsum([len(own) for own in chosen])[:-1]
    blames = []
    for own, away, expected in zip(chosen, np.split(known[0], ends), np.split(known[1], ends), strict=True):
        total, farthest = away.mean(axis=0), away.argmax(axis=0)
        shares = total / max(total.sum(), np.finfo(float).tiny)
        first = [int(at) for at in np.argsort(-shares, kind="stable")[: options.reasons] if shares[at]]
        strangest = own[farthest], expected[farthest, np.arange(len(farthest))]
        blames.append([Blame(at, float(shares[at]), *(one[at].item() for one in strangest)) for at in first])
    return blames


def _reason(scored: _Scored, one: Blame) -> Reason:
    """The channel in words, by its value that lies farthest from what was expected."""
    assert scored.rows is not None
    name, value = scored.read.names[one.channel], scored.read.values[one.step, one.channel]
    if np.isnan(value):
        return Reason(name, one.share, f"{name} missing")
    away = float(scored.rows.windows.steps[one.step, one.channel])
    told = f"{away:+.1f} deviations" if np.isnan(one.expected) else f"expected {figure(one.expected, 4)}"
    return Reason(name, one.share, f"{name} {figure(float(value), 4)} ({told})")


# What is written and drawn ----------------------------------------------------------------------------------


def _scored_table(scored: _Scored, options: Options) -> pa.Table:
    """The rows with their scores, the event, counted by rank, that each belongs to, and with --bands what is usual."""
    read, scores, steps = scored.read, scored.scores, scored.read.steps
    event = np.zeros(len(scores), np.int64)
    for rank, one in enumerate(scored.found, start=1):
        event[one.start : one.stop] = rank
    flagged = (scores > scored.model.threshold) & (event > 0)
    own: dict[str, Any] = {
        "score": scores[steps],
        "is_anomaly": flagged[steps],
        "event": pa.array(event[steps], mask=event[steps] == 0),
    }
    bands = expected_bands(scored.model, scored.rows) if options.bands and scored.rows is not None else None
    for place, name in enumerate(read.names if bands is not None else ()):
        ends = zip(("low", "expected", "high"), bands[:, steps, place], strict=True)  # type: ignore[index]
        own |= {f"{name}_{end}": values for end, values in ends}
    ids = read.table.select(list(dict.fromkeys([str(options.time), *read.chosen.by, *read.chosen.ids])))
    return pa.table(dict(zip(names_beside(ids.column_names, own), ids.columns, strict=True)) | own)


def _track(scored: _Scored, ranked: tuple[Finding, ...], pictures: tuple[EventPicture, ...]) -> Track:
    """What is drawn: the scores, and the channels that events name most; missing values take the one before."""
    read, names = scored.read, scored.read.names
    named = [reason.column for finding in ranked for reason in finding.reasons[:1]]
    drawn = sorted(names, key=lambda name: (-named.count(name), names.index(name)))[:DRAWN]
    values, _ = carried(read.values[:, [names.index(name) for name in drawn]], np.full(len(drawn), np.nan))
    keys = [(one.key or "").replace(BETWEEN, ", ") for one in read.series]
    return Track(
        times=(read.when(int(read.times.argmin())), read.when(int(read.times.argmax()))),
        scores=scored.scores,
        channels=tuple(zip(drawn, values.T, strict=True)),
        events=tuple((event.start, event.stop) for event in scored.found),
        when=read.times,
        entities=tuple(zip(keys, read.starts[:-1].tolist(), read.starts[1:].tolist(), strict=True)),
        pictures=pictures,
    )


def _pictures(scored: _Scored, blames: Sequence[list[Blame]]) -> tuple[EventPicture, ...]:
    """The first events with the steps around them, the channels responsible and what was expected of these."""
    model, read, rows, pictures = scored.model, scored.read, scored.rows, list[EventPicture]()
    assert model.form is not None
    assert rows is not None
    for rank, event in enumerate(scored.found[:PICTURED], start=1):
        around, entity = max(AROUND * model.form.shape[0], event.stop - event.start), read.entity(event.peak)
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
    return tuple(pictures)
