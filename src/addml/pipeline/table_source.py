"""Rows of a table: trained on in memory or from disk, scored in batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from addml.checkpoint import Storage
from addml.errors import AddmlError
from addml.inputs.census import draw
from addml.inputs.disk import Source, open_source
from addml.pipeline import evaluation
from addml.pipeline.batches import BATCH_ROWS, Scored, ScoredRows, score_all
from addml.pipeline.fitted import Fitted
from addml.pipeline.labels import KnownLabels, read_label
from addml.pipeline.options import MEMORY, TABLE, Options
from addml.pipeline.ranking import Result, left_out_epochs, ranked_findings, training_findings
from addml.pipeline.sources import (
    Chosen,
    Input,
    check_text,
    choose,
    expected_rows,
    on_disk,
    on_disk_source,
    open_for_model,
    open_input,
)
from addml.pipeline.training import train, train_on_disk
from addml.pipeline.workers import keep_freed_memory
from addml.progress import Advance, Progress
from addml.text import counted

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from addml.findings import Findings
    from addml.preprocessing.text_values import TextCells


class TableSource:
    """A table; once it was trained on, `rank` scores its own rows, else those of a new table by a saved model."""

    kind = TABLE

    def __init__(self, options: Options) -> None:
        """Nothing is read yet."""
        self.options = options
        self.places: np.ndarray | None = None  # of the training rows among all; None for all of them
        self.rows = 0  # 0 until it was trained on
        self.notes: tuple[str, ...] = ()
        self.data: Input
        self.chosen: Chosen
        use_threads(options.jobs)

    # Training -----------------------------------------------------------------------------------------------

    def train(self, progress: Progress) -> Fitted:
        """A model of all rows or of a sample of them."""
        source = on_disk_source(self.options)
        fitted = self._train_in_memory(progress) if source is None else self._train_on_disk(source, progress)
        self.notes = (*self.notes, *fitted.columns.notes)
        return fitted

    def training_findings(self, fitted: Fitted) -> Findings:
        """What training found; the rows are not ranked."""
        assert fitted.detector is not None
        _warn_of_texts(fitted.detector._texts.placed(self.places), self.options)
        return training_findings(fitted, self.data.source, self.notes, rows=self.rows, **self._trained(fitted))

    def _train_in_memory(self, progress: Progress) -> Fitted:
        options, labels = self.options, KnownLabels.of(self.options)
        with progress.stage(f"Reading {options.source}", None):
            self.data = data = open_input(options)
        self.chosen = chosen = choose(data.names, options, data.source)
        if data.table is not None and options.label is not None:  # a useless label is refused before training
            read_label(data.table[options.label], options.anomaly_value, options.label)
        with progress.stage("Choosing training rows", None) as advance:
            wanted = [*chosen.features, *([labels.column] if labels.column else [])]
            batches = _counted(data.batches(wanted, BATCH_ROWS), advance)
            most = None if options.all_rows else options.sample
            table, places, self.rows = draw(batches, most, options.seed, labels.is_known if labels.names else None)
        if self.rows == 1:
            others = "".join(f" ({note}; --sheet names another)" for note in data.notes if "not read: " in note)
            raise AddmlError(f"{data.source}: holds a single row{others}; training needs at least two.")
        self.notes = tuple(data.notes)
        if len(places) < self.rows:
            drawn = f"trained on {len(places):,} of {self.rows:,} rows, drawn at random (--all-rows takes all)"
            self.notes = (*self.notes, drawn)
        marks = labels.marks(table, places, self.rows)
        if marks is not None:
            table, self.notes = table.select(chosen.features), (*self.notes, labels.words(marks))
        self.places = places
        with self._checked_texts():
            detector = train(table, options, progress, marks)
        detector._ids = chosen.ids
        return Fitted.of(detector, table)

    def _train_on_disk(self, source: Source, progress: Progress) -> Fitted:
        options, labels = self.options, KnownLabels.of(self.options)
        if labels.names:
            raise AddmlError(
                f"{labels.names}: labels are not learned from where a table is larger than --memory "
                f"{options.memory or MEMORY}; train on a sample (without --all-rows), or allow more memory."
            )
        self.chosen = choose(source.names, options, source.name)
        self.data = Input(options, source.names, source.notes, None)
        own = open_source(options.file, self.chosen.features)
        self.rows, self.notes = len(own), tuple(source.notes)
        with self._checked_texts():
            detector = train_on_disk(own, options, progress)
        detector._ids = self.chosen.ids
        return Fitted.of(detector, None)

    @contextmanager
    def _checked_texts(self) -> Iterator[None]:
        """With --strict, text in a number column is an error that names its place in the file."""
        from addml.detector import TextCellsWarning

        try:
            yield
        except TextCellsWarning as found:
            check_text(self.options, found.cells.placed(self.places))
            raise

    def _trained(self, fitted: Fitted) -> dict[str, Any]:
        """Findings of training: how many rows, and the dropped columns in the order of the table."""
        place = {name: number for number, name in enumerate(self.data.names)}
        dropped = [*self.chosen.left_out, *fitted.left_out]
        left_out = tuple(sorted(dropped, key=lambda one: place.get(one[0], len(place))))
        return {"left_out": left_out, "trained_rows": self.rows if self.places is None else len(self.places)}

    # Scoring ------------------------------------------------------------------------------------------------

    def rank(self, fitted: Fitted, progress: Progress, mapped: bool = True) -> Result:
        """Score and rank the rows; `mapped` for the map of the metric space, which only a report shows."""
        return self._rank_own(fitted, progress, mapped) if self.rows else self._rank_new(fitted, progress, mapped)

    def _rank_own(self, fitted: Fitted, progress: Progress, mapped: bool) -> Result:
        ids = fitted.identifiers(self.data.names)
        carried = [*ids, *([self.chosen.label] if self.chosen.label else [])]
        batches = self.data.batches(list(dict.fromkeys([*fitted.used, *carried])), BATCH_ROWS)
        folder = str(Storage(scratch=self.options.scratch).folder)
        with progress.stage("Scoring", self.rows) as advance:
            scored, drift = self._score(fitted, batches, carried, advance, self.rows, mapped, folder)
        _warn_of_texts(drift.texts, self.options)
        result = self._result(fitted, scored, ids, self.data.source, self.notes)
        dropped = left_out_epochs(fitted, self.places, result.findings.ranked)
        return replace(result, findings=replace(result.findings, dropped=dropped, **self._trained(fitted)))

    def _rank_new(self, fitted: Fitted, progress: Progress, mapped: bool) -> Result:
        keep_freed_memory()
        source, label = self.options.source, self.options.label
        with on_disk(self.options.file) as file:
            self.options = replace(self.options, file=file)
            data, ids = open_for_model(self.options, fitted, BATCH_ROWS)
            carried, rows = [*ids, *([label] if label else [])], expected_rows(file, data.rows)
            with progress.stage(f"Scoring {source}", rows) as advance:
                scored, drift = self._score(fitted, data, carried, advance, rows, mapped)
        _warn_of_texts(drift.texts, self.options)
        _warn_of_outside(drift.outside)
        for sentence in drift.new_gaps:
            warnings.warn(sentence, stacklevel=2)
        result = self._result(fitted, scored, ids, source, data.notes)
        return replace(result, findings=replace(result.findings, drift=tuple(drift.summary())))

    def _score(
        self,
        fitted: Fitted,
        batches: Iterable[pa.RecordBatch],
        carried: Sequence[str],
        advance: Advance,
        rows: int | None,
        mapped: bool,
        folder: str | None = None,
    ) -> tuple[Scored, Any]:
        """Scored rows, and how they differ from training."""
        drift, options, check = fitted.drift(), self.options, partial(check_text, self.options)
        known: dict[str, Any] = {"rows": rows, "mapped": mapped, "folder": folder}
        scored = score_all(fitted, batches, carried, options.top, options.reasons, advance, drift, check, **known)
        return scored, drift

    def _result(self, fitted: Fitted, scored: Scored, ids: Sequence[str], source: str, notes: Sequence[str]) -> Result:
        options = self.options
        findings = ranked_findings(fitted, scored, ids, options.top, source, notes)
        if options.label is not None:
            import pyarrow as pa

            column = pa.chunked_array([piece[options.label] for piece in scored.pieces])
            marks = read_label(column, options.anomaly_value, options.label)
            evaluated = evaluation.evaluate(findings.scores, marks, findings.threshold, options.label)
            findings = replace(findings, evaluation=evaluated)
        return Result(findings, ScoredRows(scored, findings.scores, fitted, ids, options.top), fitted)


def use_threads(jobs: int | None) -> None:
    """Let Arrow use no more threads than this."""
    import pyarrow as pa

    if jobs is not None:
        pa.set_cpu_count(jobs)


def _warn_of_texts(cells: TextCells, options: Options) -> None:
    """List text in number columns: a slip in it can be corrected."""
    for sentence in cells.words(hidden=options.redact):
        warnings.warn(sentence, stacklevel=3)


def _warn_of_outside(counts: dict[str, int]) -> None:
    """Count values far outside the training range: they may be the anomalies."""
    if not counts:
        return
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{name} {count:,}" for name, count in ordered[:5])
    more = f" and {counted(len(counts) - 5, 'more column')}" if len(counts) > 5 else ""
    total = counted(sum(counts.values()), "value")
    warnings.warn(f"{total} far outside the training range or unseen in training: {listed}{more}", stacklevel=3)


def _counted(batches: Iterable[pa.RecordBatch], advance: Advance) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows)
