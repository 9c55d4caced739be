"""What each command does, from a file to findings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from addml.checkpoint import Storage
from addml.errors import UserError
from addml.inputs.census import draw
from addml.inputs.disk import Source, open_source
from addml.io.image_folder import is_image_folder
from addml.pipeline import assembling, evaluation, image_source
from addml.pipeline.batches import BATCH_ROWS, Scored, ScoredRows, score_all
from addml.pipeline.fitted import Fitted
from addml.pipeline.labels import Answers
from addml.pipeline.options import Computing, Labelling, Picturing, Settings
from addml.pipeline.sources import (
    Chosen,
    Input,
    choose,
    expected_rows,
    on_disk,
    on_disk_source,
    open_for_model,
    open_input,
    refuse_text,
    shown,
)
from addml.pipeline.training import train, train_streamed
from addml.pipeline.workers import keep_freed_memory
from addml.progress import Advance, Progress
from addml.text import counted

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from addml.findings import Findings
    from addml.pipeline.image_source import TrainedPictures
    from addml.preprocessing.text_values import TextCells


@dataclass(frozen=True)
class Trained:
    """A fitted detector, and what it was trained on."""

    fitted: Fitted
    data: Input
    chosen: Chosen
    places: np.ndarray | None  # of the training rows among all; None for all of them
    rows: int
    notes: tuple[str, ...]

    @property
    def trained_rows(self) -> int:
        """How many rows were trained on."""
        return self.rows if self.places is None else len(self.places)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Columns that are not trained on, in the order of the table, each with the reason."""
        return assembling.in_order([*self.chosen.left_out, *self.fitted.left_out], self.data.names)

    def findings(self) -> Findings:
        """What training itself found: the training rows, if all of them, are not ranked."""
        return replace(
            assembling.without_rows(self.fitted, self.data.source, self.notes),
            rows=self.rows,
            left_out=self.left_out,
            trained_rows=self.trained_rows,
        )


@dataclass(frozen=True)
class Outcome:
    """What a run found, the scored table, and the detector."""

    findings: Findings
    scored: ScoredRows
    fitted: Fitted


def fit(settings: Settings, progress: Progress) -> Trained | TrainedPictures:
    """Train on the rows of a file, on the images of a folder, or on a sample of them."""
    if is_image_folder(settings.file):
        return image_source.fit(settings, progress)
    trained = _fit(settings, progress)
    assert trained.fitted.detector is not None
    _warn_of_texts(trained.fitted.detector._texts.placed(trained.places), settings)
    return trained


def _fit(settings: Settings, progress: Progress) -> Trained:
    _no_pictures(settings)
    use_threads(settings.computing)
    source = on_disk_source(settings)
    if source is not None:
        return _fit_streamed(settings, source, progress)
    with progress.stage(f"Reading {shown(settings.file)}", None):
        data = open_input(settings)
    label, answers = settings.labelling.label, Answers.of(settings)
    chosen = choose(data.names, settings.selection, settings.naming, label, data.source, answers.column)
    if data.table is not None and label is not None:  # a label that says nothing is found before training
        evaluation.read_label(data.table[label], settings.labelling.anomalous, label)
    training = settings.training
    most = None if training.all_rows else training.sample
    with progress.stage("Choosing training rows", None) as advance:
        wanted = [*chosen.features, *([answers.column] if answers.column else [])]
        batches = _counted(data.batches(wanted, BATCH_ROWS), advance)
        table, places, rows = draw(batches, most, training.seed, answers.known if answers.names else None)
    if rows == 1:
        others = "".join(f" ({note}; --part names another)" for note in data.notes if "not read: " in note)
        raise UserError(f"{data.source}: holds a single row{others}; to tell what is normal takes at least two.")
    sampled = f"trained on {len(places):,} of {rows:,} rows, drawn at random (--all-rows takes all)"
    notes = [*data.notes, sampled] if len(places) < rows else data.notes
    marks = answers.marks(table, places, rows)
    if marks is not None:
        table, notes = table.select(chosen.features), [*notes, answers.words(marks)]
    checkpoint, strict = settings.streaming.checkpoint, settings.strictness.strict
    with _refused_texts(settings, places):
        detector = train(
            table, training, settings.deciding, settings.computing, progress, marks, checkpoint, strict=strict
        )
    detector._ids = chosen.ids
    fitted = Fitted.of(detector, table)
    return Trained(fitted, data, chosen, places, rows, (*notes, *fitted.columns.notes))


def _fit_streamed(settings: Settings, source: Source, progress: Progress) -> Trained:
    """Train on all rows of files that memory need not hold."""
    label, answers = settings.labelling.label, Answers.of(settings)
    if answers.names:
        raise UserError(
            f"{answers.names}: labels are not learned from where a table is larger than --memory "
            f"{settings.streaming.most}; train on a sample (without --all-rows), or allow more memory."
        )
    chosen = choose(source.names, settings.selection, settings.naming, label, source.name)
    data = Input(settings.file, settings.reading, source.names, source.notes, None)
    own = open_source(settings.file, chosen.features)
    told = (settings.training, settings.deciding, settings.computing, settings.streaming)
    with _refused_texts(settings, None):
        detector = train_streamed(own, *told, progress, strict=settings.strictness.strict)
    detector._ids = chosen.ids
    fitted = Fitted.of(detector, None)
    return Trained(fitted, data, chosen, None, len(own), (*source.notes, *fitted.columns.notes))


@contextmanager
def _refused_texts(settings: Settings, places: np.ndarray | None) -> Iterator[None]:
    """Texts in columns of numbers, by which training was stopped, as an error with their place in the file."""
    from addml.detector import TextCellsWarning

    try:
        yield
    except TextCellsWarning as found:
        refuse_text(settings, found.cells.placed(places))
        raise


def detect(settings: Settings, progress: Progress, mapped: bool = True) -> Outcome:
    """Train on a file and rank its own rows; `mapped` for the map of the metric space, which only a report shows."""
    if is_image_folder(settings.file):
        return image_source.detect(settings, progress, mapped)
    folder = str(Storage(scratch=settings.streaming.cache_dir).folder)  # which must be there before the work
    trained = _fit(settings, progress)
    fitted, label = trained.fitted, trained.chosen.label
    ids = fitted.identifiers(trained.data.names)
    carried = [*ids, *([label] if label else [])]
    batches, drift = trained.data.batches(list(dict.fromkeys([*fitted.used, *carried])), BATCH_ROWS), fitted.drift()
    check = partial(refuse_text, settings)
    with progress.stage("Scoring", trained.rows) as advance:
        known: dict[str, Any] = {"rows": trained.rows, "mapped": mapped, "folder": folder}
        scored = score_all(fitted, batches, carried, settings.explaining, advance, drift, check, **known)
    _warn_of_texts(drift.texts, settings)
    outcome = _outcome(fitted, scored, ids, settings, trained.data.source, trained.notes)
    findings = replace(
        outcome.findings,
        left_out=trained.left_out,
        dropped=assembling.dropped(fitted, trained.places, outcome.findings.ranked),
        trained_rows=trained.trained_rows,
    )
    return replace(outcome, findings=findings)


def score(settings: Settings, progress: Progress, mapped: bool = True) -> Outcome:
    """Rank the rows of a file by a model that was trained before, a part of the file at a time."""
    if is_image_folder(settings.file):
        return image_source.score(settings, progress, mapped)
    _no_pictures(settings)
    use_threads(settings.computing)
    keep_freed_memory()
    fitted = Fitted.load(str(settings.using.model), settings.computing, settings.deciding)
    source, label, drift = shown(settings.file), settings.labelling.label, fitted.drift()
    with on_disk(settings.file) as file:
        own = replace(settings, file=file)
        data, ids = open_for_model(own, fitted, BATCH_ROWS)
        carried, check = [*ids, *([label] if label else [])], partial(refuse_text, own)
        rows = expected_rows(file, data.rows)
        with progress.stage(f"Scoring {source}", rows) as advance:
            known: dict[str, Any] = {"rows": rows, "mapped": mapped}
            scored = score_all(fitted, data, carried, settings.explaining, advance, drift, check, **known)
    _warn_of_texts(drift.texts, settings)
    _warn_of_outside(drift.outside)
    for sentence in drift.new_gaps:
        warnings.warn(sentence, stacklevel=2)
    outcome = _outcome(fitted, scored, ids, settings, source, data.notes)
    return replace(outcome, findings=replace(outcome.findings, drift=tuple(drift.summary())))


def _no_pictures(settings: Settings) -> None:
    """Settings that are about images must not be given with a table."""
    for name, value in vars(settings.picturing).items():
        if value != getattr(Picturing(), name):
            raise UserError(f"--{name.replace('_', '-')} is about folders of images; {shown(settings.file)} is none.")


def _warn_of_texts(cells: TextCells, settings: Settings) -> None:
    """Texts in columns of numbers are listed, since a slip in them can be mended."""
    for sentence in cells.words(hidden=settings.reporting.redact):
        warnings.warn(sentence, stacklevel=3)


def _warn_of_outside(counts: dict[str, int]) -> None:
    """Values far outside the training range are counted, since they may be the anomalies."""
    if not counts:
        return
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{name} {count:,}" for name, count in ordered[:5])
    more = f" and {counted(len(counts) - 5, 'more column')}" if len(counts) > 5 else ""
    total = counted(sum(counts.values()), "value")
    warnings.warn(f"{total} far outside the training range or unseen in training: {listed}{more}", stacklevel=3)


def use_threads(computing: Computing) -> None:
    """Let Arrow use no more threads than allowed."""
    import pyarrow as pa

    if computing.jobs is not None:
        pa.set_cpu_count(computing.jobs)


def _counted(batches: Iterable[pa.RecordBatch], advance: Advance) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows)


def _outcome(
    fitted: Fitted, scored: Scored, ids: Sequence[str], settings: Settings, source: str, notes: Sequence[str]
) -> Outcome:
    findings = assembling.findings(fitted, scored, ids, settings.explaining, source, notes)
    findings = replace(findings, evaluation=_evaluation(scored, findings, settings.labelling))
    rows = ScoredRows(scored, findings.scores, fitted, ids, settings.explaining.top)
    return Outcome(findings, rows, fitted)


def _evaluation(scored: Scored, findings: Findings, labelling: Labelling) -> dict[str, Any] | None:
    if labelling.label is None:
        return None
    import pyarrow as pa

    column = pa.chunked_array([piece[labelling.label] for piece in scored.pieces])
    marks = evaluation.read_label(column, labelling.anomalous, labelling.label)
    return evaluation.evaluate(findings.scores, marks, findings.threshold, labelling.label)
