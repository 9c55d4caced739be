"""What the commands, web jobs and Python call: options in, findings, scored rows and a model out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from addml.checkpoint import Storage
from addml.errors import AddmlError
from addml.io.image_folder import is_image_folder
from addml.pipeline.options import IMAGE, SERIES, TABLE, Options, check_applies
from addml.pipeline.ranking import Result
from addml.progress import Progress

if TYPE_CHECKING:
    from addml.findings import Findings
    from addml.model import Model
    from addml.pipeline.day_diff import DayDiff
    from addml.pipeline.model_diff import ModelDiff

WRONG_KIND = {
    TABLE: "a table; leave --time out, and score a table.",
    SERIES: "a series, which addml score, evaluate and diff take with --time NAME.",
    IMAGE: "a folder of images; score such a folder.",
}


class Source(Protocol):
    """Rows of one kind."""

    kind: str

    def train(self, progress: Progress) -> Model:
        """A model of the rows."""
        ...

    def training_findings(self, model: Model) -> Findings:
        """What training found."""
        ...

    def rank(self, model: Model, progress: Progress, mapped: bool = True) -> Result:
        """The rows, scored and ranked: those that were trained on, or new ones by a saved model."""
        ...


def fit(options: Options, progress: Progress) -> Result:
    """Train on a file."""
    source = open_source(options)
    model = source.train(progress)
    return Result(source.training_findings(model), (), model)


def detect(options: Options, progress: Progress, mapped: bool = True) -> Result:
    """Train on a file and rank its own rows; `mapped` for the map of the metric space, which only a report shows."""
    source = open_source(options)
    Storage(scratch=options.scratch).folder  # must exist before the work  # noqa: B018
    return source.rank(source.train(progress), progress, mapped)


def score(options: Options, progress: Progress, mapped: bool = True) -> Result:
    """Rank the rows of a file by a saved model."""
    source = open_source(options)
    return source.rank(load_model(options, source.kind), progress, mapped)


def evaluate(options: Options, progress: Progress, mapped: bool = True) -> Result:
    """Compare scores with a label column: those of a saved model, or of one trained on the file itself."""
    if kind_of(options) == IMAGE:
        return _evaluate_images(options, progress, mapped)
    run = detect if options.model is None else score
    return run(options, progress, mapped)


def _evaluate_images(options: Options, progress: Progress, mapped: bool) -> Result:
    """Compare scores and maps of test images with their folders and masks; without a model, train on those of train."""
    from addml.pipeline.image_evaluation import Layout
    from addml.pipeline.image_source import ImageSource

    check_applies(options, IMAGE)
    layout, notes = Layout.of(options.file, trains=options.model is None), tuple[str, ...]()
    if options.model is None:
        normal = ImageSource(replace(options, file=str(layout.train), clean=True))
        model = normal.train(progress)
        notes = tuple(f"train: {note}" for note in normal.notes)
    else:
        model = load_model(options, IMAGE)
    source = ImageSource(replace(options, file=str(layout.test), size=None))
    result = source.rank(model, progress, mapped)
    places = source.places_of(model, progress) if model.scorer.on_patches else None
    assert source.pictures is not None
    findings = result.findings
    figures = layout.evaluate(source.pictures, findings.scores, findings.threshold, places)
    notes = (*findings.notes, *notes, *layout.notes(source.pictures.names, has_maps=places is not None))
    return replace(result, findings=replace(findings, evaluation=figures, notes=notes))


def model_diff(before: str, after: str, options: Options, progress: Progress) -> ModelDiff:
    """Compare the ranks and decisions of two saved models on one file."""
    from addml.pipeline.model_diff import compare_series, compare_tables

    check_applies(options, kind_of(options))
    if kind_of(options) == IMAGE:
        raise AddmlError(f"{options.source}: is a folder of images; addml diff compares models of tables and series.")
    compare = compare_tables if options.time is None else compare_series
    return compare(before, after, options, progress)


def day_diff(model: str, before: str, options: Options, progress: Progress) -> DayDiff:
    """Compare the kinds of anomaly of two files by one saved model."""
    from addml.pipeline.day_diff import compare_days

    check_applies(options, kind_of(options))
    if kind_of(options) != TABLE:
        raise AddmlError(f"{options.source}: addml diff compares days of tables; leave --time out.")
    return compare_days(model, before, options, progress)


def is_model(path: str) -> bool:
    """Whether a path is the folder of a saved model."""
    return (Path(os.path.expanduser(path)) / "model.json").exists()


def open_source(options: Options) -> Source:
    """The rows that the options name: a table, a folder of images or a series."""
    kind = kind_of(options)
    check_applies(options, kind)
    if kind == IMAGE:
        from addml.pipeline.image_source import ImageSource

        return ImageSource(options)
    if kind == SERIES:
        from addml.pipeline.series_source import SeriesSource

        return SeriesSource(options)
    from addml.pipeline.table_source import TableSource

    return TableSource(options)


def kind_of(options: Options) -> str:
    """The kind of row that the options name."""
    if is_image_folder(options.file):
        return IMAGE
    return TABLE if options.time is None else SERIES


def load_model(options: Options, kind: str) -> Model:
    """The saved model of `--model` for rows of this kind, with the threshold that the options ask for."""
    from addml import model_file
    from addml.pipeline.training import decided

    folder = str(options.model)
    model = model_file.load(folder)
    form = TABLE if model.form is None else SERIES if model.form.is_series else IMAGE
    if form != kind:
        raise AddmlError(f"{folder}: was fitted to {WRONG_KIND[form]}")
    if form == TABLE and model.columns is None:
        raise AddmlError(f"{folder}: was fitted to an array without named columns; fit it to a table: addml fit.")
    return decided(model, options, saved=True)


def info(folder: str) -> dict[str, Any]:
    """Columns, settings, training, threshold, versions and size of a saved model."""
    from addml import model_file

    model, path = model_file.load(folder), Path(os.path.expanduser(folder))
    columns, scores, decision = model.columns, model.training.values, model.decision
    return {
        "model": folder,
        "columns": dict.fromkeys(model.vectorizer.names or (), "number") if columns is None else columns.kinds,
        "left_out": [{"column": name, "why": why} for name, why in (columns.left_out if columns is not None else ())],
        "ids": list(model.ids),
        "layers": _layers(model),
        "weights": int(model.encoder.weights.size),
        "noun": model.vectorizer.noun,
        "trained_rows": len(scores),
        "epochs": len(model.history),
        "seconds": sum(float(entry.get("seconds", 0)) for entry in model.history),
        "threshold": model.threshold,
        "decided_by": decision.words,
        "anomalies_in_training": int((scores > model.threshold).sum()),
        "settings": model.settings,
        "addml": model.version,
        "format": model_file.FORMAT,
        "bytes": sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
    }


def _layers(model: Model) -> list[Any]:
    """Numbers of a row, widths or channels of the hidden layers, dimensions of the metric space."""
    encoder, window = model.encoder.to_plain(), None
    if model.form is not None and model.form.is_series:
        window = f"{model.form.shape[0]} steps x {model.form.channels}"
    if "widths" in encoder:
        return [window or encoder["widths"][0], *encoder["widths"][1:]]
    if "window" in encoder:
        return [window, *encoder["hidden"], encoder["metric_dim"]]
    if "channels" in encoder:
        return ["x".join(map(str, encoder["shape"])), *encoder["channels"], encoder["outputs"]]
    return [encoder["name"]]
