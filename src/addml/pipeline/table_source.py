"""Tables: training in memory or from disk, scoring in batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from addml.checkpoint import Storage
from addml.decisions.check import Fitted, check
from addml.errors import AddmlError, DroppedColumnsWarning, TextCellsWarning
from addml.findings import Findings
from addml.inputs.disk import Source, draw, open_source
from addml.model import Model
from addml.pipeline import ranking, sources
from addml.pipeline.batches import BATCH_ROWS, score_all
from addml.pipeline.evaluation import evaluate
from addml.pipeline.labels import NORMAL, KnownRows, TrainingLabels, read_label, row_numbers
from addml.pipeline.options import MEMORY, Options
from addml.pipeline.run import fit_model, one_sided
from addml.preprocessing.profile import EPOCH, DriftCounter, TextCells, drift_warning
from addml.progress import Progress, advance_per_epoch, stages_to
from addml.text import TABLE, counted, listed


class TableSource:
    """A table to train on and then rank, or to rank with a saved model."""

    kind = TABLE

    def __init__(self, options: Options) -> None:
        self.options = options
        self.fit: Callable[..., Model] = fit_model  # replaced on a cluster
        self.sampled: np.ndarray | None = None  # indices of the training rows; None: all rows
        self.rows = 0  # of the file; 0 before training
        self.notes: tuple[str, ...] = ()
        self.table: pa.Table | None = None  # the training rows; None if on disk
        self.texts = TextCells()  # text in numeric columns of the training rows
        self.data: sources.Input
        self.roles: sources.Roles
        use_threads(options.jobs)

    def train(self, progress: Progress) -> Model:
        source = sources.on_disk_source(self.options)
        model = self._train_in_memory(progress) if source is None else self._train_on_disk(source, progress)
        assert model.columns is not None
        self.notes = (*self.notes, *model.columns.notes)
        return replace(model, ids=self.roles.ids)

    def training_findings(self, model: Model) -> Findings:
        _warn_of_texts(self.texts.placed(self.sampled), self.options)
        return ranking.training_findings(model, self.data.source, self.notes, rows=self.rows, **self._trained(model))

    def _train_in_memory(self, progress: Progress) -> Model:
        options, labels = self.options, TrainingLabels.of(self.options)
        with progress.stage(f"Reading {options.source}", None):
            self.data = data = sources.open_input(options)
        self.roles = roles = sources.choose(data.names, options, data.source)
        if data.table is not None and options.label is not None:
            read_label(data.table[options.label], options.anomaly_value, options.label)  # fails before training
        with progress.stage("Choosing training rows", None):
            labels = labels.in_table(data.names, roles.ids, data.source)
            batches = data.batches(list(dict.fromkeys([*roles.features, *labels.columns])), BATCH_ROWS)
            most = None if options.all_rows else options.sample
            table, sampled, self.rows = draw(batches, most, options.seed, labels.is_known if labels.options else None)
        if self.rows == 1:
            others = "".join(f" ({note}; --sheet names another)" for note in data.notes if "not read: " in note)
            raise AddmlError(f"{data.source}: holds a single row{others}; training needs at least two.")
        notes = list(data.notes)
        if len(sampled) < self.rows:
            notes.append(f"trained on {len(sampled):,} of {self.rows:,} rows, drawn at random (--all-rows uses all)")
        y = labels.of_rows(table, sampled, self.rows)
        if y is not None:
            notes.append(labels.note(y))
        self.notes, self.sampled, self.table = tuple(notes), sampled, table.select(roles.features)
        with (
            progress.stage("Training", options.epochs, len(sampled) * options.members) as advance,
            advance_per_epoch(advance),
        ):
            return self._fit(self.table, self.table.column_names, y)

    def _train_on_disk(self, source: Source, progress: Progress) -> Model:
        options, labels = self.options, TrainingLabels.of(self.options)
        if options.by:
            raise AddmlError("--by needs the rows in memory; raise --memory, or train on a sample without --all-rows.")
        memory = options.memory or MEMORY
        if labels.options:
            message = f"{labels.options}: a table larger than --memory {memory} cannot be trained with labels"
            raise AddmlError(f"{message}; raise --memory, or train on a sample without --all-rows.")
        self.roles = sources.choose(source.names, options, source.name)
        self.data = sources.Input(options, source.names, source.notes, None)
        features = open_source(options.file, self.roles.features)
        self.rows, self.notes = len(features), tuple(source.notes)
        how = f"more than fit into {memory}: trained on from disk" if options.engine is None else "on a cluster"
        progress.note(f"{features.name}: {self.rows:,} rows, {how}")
        with stages_to(progress):
            return self._fit(features, features.names)

    def _fit(self, X: pa.Table | Source, names: Sequence[str], labels: np.ndarray | None = None) -> Model:
        """Fit the training rows and collect text in numeric columns; with --strict, text is an error."""
        sides = one_sided(self.options.one_sided, names)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore", DroppedColumnsWarning)  # listed in the findings
            warnings.simplefilter("error" if self.options.strict else "always", TextCellsWarning)
            try:
                model = self.fit(self.options, X, labels, one_sided=sides, by=self.roles.by or None)
            except TextCellsWarning as warning:
                sources.check_text(self.options, warning.cells.placed(self.sampled))
                raise
        for record in caught:
            if isinstance(record.message, TextCellsWarning):
                self.texts.join(record.message.cells, 0)
            else:
                warnings.warn_explicit(record.message, record.category, record.filename, record.lineno)
        return model

    def _check(self, model: Model) -> tuple[dict[str, Any], ...]:
        """Plant faults in held-out training rows and report which kinds a model of the rest finds."""
        if self.table is None:
            raise AddmlError("--check needs the rows in memory; remove --all-rows.", option="check")
        options = replace(self.options, checkpoint=None)

        def fit(table: pa.Table) -> Fitted:
            sides = one_sided(options.one_sided, table.column_names)
            other = fit_model(options, table, one_sided=sides, by=self.roles.by or None)
            return (
                lambda rows: other.scores(other.vectorizer.read(rows), "cpu", 1),
                other.training.values,
                other.threshold,
            )

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            faults = check(self.table.select([*model.used, *model.by]), fit, options.seed)
        return tuple(fault._asdict() for fault in faults)

    def _trained(self, model: Model) -> dict[str, Any]:
        """Findings of training: the number of rows, and the dropped columns in table order."""
        assert model.columns is not None
        dropped = dict([*self.roles.left_out, *model.columns.left_out])
        left_out = tuple((name, dropped[name]) for name in self.data.names if name in dropped)
        return {"left_out": left_out, "trained_rows": self.rows if self.sampled is None else len(self.sampled)}

    def rank(self, model: Model, progress: Progress) -> ranking.Result:
        return self._rank_trained(model, progress) if self.rows else self._rank_new(model, progress)

    def _rank_trained(self, model: Model, progress: Progress) -> ranking.Result:
        names = self.data.names
        kept = sources.kept_columns(self.options, names)
        ids = list(dict.fromkeys([*model.by, *sources.identifiers(model, names), *kept]))
        carried = self._carried(model, ids)
        known = KnownRows.of((text for text in self.options.known_normal if not row_numbers(text)), NORMAL)
        for name, entry in known.columns:
            sources.find(name, names, entry, self.data.source)
        columns = dict.fromkeys([*model.used, *carried, *(name for name, _ in known.columns)])
        batches = self.data.batches(list(columns), BATCH_ROWS)
        folder = str(Storage(scratch=self.options.scratch).folder)
        with progress.stage("Scoring", self.rows) as advance:
            known = known.with_ids(ids, model.by)
            scored, drift = score_all(model, self.options, batches, carried, known, advance, folder)
        _warn_of_texts(drift.texts, self.options)
        result = self._result(model, scored, ids, known, self.notes)
        faults = self._check(model) if self.options.check else ()
        return replace(result, findings=replace(result.findings, check=faults, **self._trained(model)))

    def _rank_new(self, model: Model, progress: Progress) -> ranking.Result:
        known = KnownRows.of(self.options.known_normal, NORMAL)
        with sources.on_disk(self.options.file) as file:
            options = replace(self.options, file=file)
            data, ids = sources.open_for_model(options, model, BATCH_ROWS, known.columns)
            known = known.with_ids(ids, model.by)
            carried, rows = self._carried(model, ids), sources.expected_rows(file, data.rows)
            with progress.stage(f"Scoring {self.options.source}", rows) as advance:
                scored, drift = score_all(model, options, data, carried, known, advance)
        summary = tuple(drift.summary())
        _warn_of_drift(drift, summary, self.options)
        result = self._result(model, scored, ids, known, data.notes)
        return replace(result, findings=replace(result.findings, drift=summary))

    def _carried(self, model: Model, ids: Sequence[str]) -> list[str]:
        """Columns to pass through: ids, the label, and the date column of --per-day."""
        others = (self.options.label, _date_column(model) if self.options.per_day is not None else None)
        return list(dict.fromkeys([*ids, *(name for name in others if name is not None)]))

    def _result(
        self, model: Model, scored: ranking.Scored, ids: Sequence[str], known: KnownRows, notes: Sequence[str]
    ) -> ranking.Result:
        options, are_new = self.options, not self.rows
        scores = scored.column(ranking.SCORE)
        days = 0 if options.per_day is None else _days(model, scored)
        codes = scored.column(ranking.KNOWN) if known.entries else None
        model = ranking.with_batch_threshold(model, scores if codes is None else scores[codes < 0], options, days)
        hidden = () if codes is None else known.hidden(codes, scores, model.threshold)
        findings = ranking.ranked_findings(
            model, scored.listed, scores, ids, options.top, options.source, notes, are_new=are_new, hidden=hidden
        )
        if options.label is not None:
            column = pa.chunked_array([piece[options.label] for piece in scored])
            labels = read_label(column, options.anomaly_value, options.label)
            evaluation = evaluate(findings.scores, labels, findings.threshold, options.label)
            findings = replace(findings, evaluation=evaluation)
        entries = [entry.words for entry in known.entries]
        tables = ranking.scored_tables(scored, scores, model, ids, options.top, entries, are_new=are_new)
        return ranking.Result(findings, tables, model)


def _date_column(model: Model) -> str:
    dates = [one.column for one in model.profiles if one.earliest is not None and one.earliest.year > EPOCH.year]
    if not dates:
        raise AddmlError("--per-day needs a date column among the training columns; use --flag.", option="per_day")
    return dates[0]


def _days(model: Model, scored: ranking.Scored) -> int:
    name = _date_column(model)
    assert model.columns is not None
    column = next(column for column in model.columns.fitted if column.name == name)
    days = [np.unique(np.floor(column.read(piece[name]))) for piece in scored]
    return int(np.isfinite(np.unique(np.concatenate(days))).sum())


def use_threads(jobs: int | None) -> None:
    """Limit Arrow's threads."""
    if jobs is not None:
        pa.set_cpu_count(jobs)


def _warn_of_texts(cells: TextCells, options: Options) -> None:
    for sentence in cells.words(hidden=options.redact):
        warnings.warn(sentence, stacklevel=3)


def _warn_of_drift(drift: DriftCounter, summary: Sequence[dict[str, Any]], options: Options) -> None:
    sentences = [*drift.texts.words(hidden=options.redact)]
    if drift.outside:
        columns = [f"{name} {count:,}" for name, count in sorted(drift.outside.items(), key=lambda item: -item[1])]
        total = counted(sum(drift.outside.values()), "value")
        sentences.append(f"{total} far outside the training range or unseen in training: {listed(columns)}")
    shifted = drift_warning(summary, hidden=options.redact)
    for sentence in (*sentences, *drift.new_gaps, *drift.unseen_words, *filter(None, [shifted])):
        warnings.warn(sentence, stacklevel=3)
