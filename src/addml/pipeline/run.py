"""Fit, detect, score and evaluate: each takes options and returns findings, scored rows and a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from addml import model_file
from addml.checkpoint import Storage
from addml.config import Config
from addml.errors import AddmlError
from addml.findings import Findings
from addml.fit import fit as fit_rows
from addml.io.image_folder import is_image_folder
from addml.model import Model
from addml.pipeline.options import KIND_WORDS, MEMORY, Options, check_applies
from addml.pipeline.ranking import Result
from addml.progress import Progress
from addml.text import IMAGE, SERIES, TABLE, did_you_mean

SIDES = ("high", "low")


class Source(Protocol):
    """The rows of a table, a folder of images or a series."""

    kind: str

    def train(self, progress: Progress) -> Model: ...

    def training_findings(self, model: Model) -> Findings: ...

    def rank(self, model: Model, progress: Progress) -> Result:
        """Score and rank the training rows after `train`, otherwise new rows."""
        ...


def fit(options: Options, progress: Progress) -> Result:
    source = open_source(options)
    model = source.train(progress)
    return Result(source.training_findings(model), (), model)


def detect(options: Options, progress: Progress) -> Result:
    """Train on a file and rank its own rows."""
    source = open_source(options)
    Storage(scratch=options.scratch).folder  # fails early if it does not exist  # noqa: B018
    return source.rank(source.train(progress), progress)


def score(options: Options, progress: Progress) -> Result:
    """Rank the rows of a file with a saved model."""
    source = open_source(options)
    return source.rank(load_model(options, source.kind), progress)


def evaluate(options: Options, progress: Progress) -> Result:
    """Compare the scores of a saved model, or of one trained on the file itself, with labels."""
    if kind_of(options) == IMAGE:
        return _evaluate_images(options, progress)
    return (detect if options.model is None else score)(options, progress)


def _evaluate_images(options: Options, progress: Progress) -> Result:
    """Compare scores and maps of the images in `test` with folders and masks; without a model, train on `train`."""
    from addml.pipeline.evaluation import Layout
    from addml.pipeline.image_source import ImageSource

    check_applies(options, IMAGE)
    layout, notes = Layout.of(options.file, trains=options.model is None), tuple[str, ...]()
    if options.model is None:
        normal = ImageSource(replace(options, file=str(layout.root / "train"), clean=True))
        model = normal.train(progress)
        notes = tuple(f"train: {note}" for note in normal.notes)
    else:
        model = load_model(options, IMAGE)
    source = ImageSource(replace(options, file=str(layout.root / "test"), size=None))
    result = source.rank(model, progress)
    maps = source.maps_of(model, progress) if model.scorer.on_patches else None
    findings = result.findings
    figures, note = layout.evaluate(source.pictures, findings.scores, findings.threshold, maps)
    notes = (*findings.notes, *notes, *filter(None, [note]))
    return replace(result, findings=replace(findings, evaluation=figures, notes=notes))


def open_source(options: Options) -> Source:
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
    if is_image_folder(options.file):
        return IMAGE
    return TABLE if options.time is None else SERIES


def fit_model(options: Options, X: Any, labels: np.ndarray | None = None, **settings: Any) -> Model:
    """Fit X with the options and these settings, and set the threshold."""
    config = Config.resolve(settings_of(options) | settings)
    return with_threshold(fit_rows(config, X, labels, storage=storage_of(options)), options)


def storage_of(options: Options) -> Storage:
    return Storage(options.checkpoint, options.scratch, options.memory or MEMORY)


def settings_of(options: Options) -> dict[str, Any]:
    return {
        "members": options.members,
        "contamination": options.contamination,
        "epochs": options.epochs,
        "scorer": options.scorer,
        "random_state": options.seed,
        "device": options.device,
        "n_jobs": options.jobs,
        **({"normal_ratio": 1.0} if options.clean else {}),
    }


def load_model(options: Options, kind: str) -> Model:
    """Load `--model` for rows of this kind and set the threshold."""
    folder = str(options.model)
    model = model_file.load(folder)
    if model.kind != kind:
        raise AddmlError(f"{folder}: was fitted to {KIND_WORDS[model.kind]}, not to {KIND_WORDS[kind]}.")
    if kind == TABLE and model.columns is None:
        raise AddmlError(f"{folder}: was fitted in Python to numbers only; fit the table with addml fit.")
    return with_threshold(model, options, saved=True)


def with_threshold(model: Model, options: Options, *, saved: bool = False) -> Model:
    """Apply the options that set a threshold; without any, the model keeps its own."""
    contamination, alarm_rate = (options.contamination if saved else None), options.alarm_rate
    if saved and alarm_rate is None:  # an upper bound: --max-false-alarms flags only rows above this alarm rate
        alarm_rate = options.max_false_alarms
    try:
        if options.tau is not None or alarm_rate is not None:
            return model.decided(tau=options.tau, alarm_rate=alarm_rate)
        if options.threshold is not None or contamination is not None:
            return model.decided(options.threshold, contamination)
    except ValueError as error:
        raise AddmlError(f"--{error}.".replace("_", "-")) from None
    return model


def one_sided(texts: Sequence[str], names: Sequence[str]) -> dict[str, str] | None:
    """Parse amount:high as {"amount": "high"}; None without texts."""
    sides: dict[str, str] = {}
    for text in texts:
        name, _, side = text.rpartition(":")
        if side not in SIDES or not name:
            raise AddmlError(f"--one-sided {text}: must name a side, such as amount:high or amount:low.")
        if name not in names:
            raise AddmlError(f"--one-sided {text}: {name!r} is not a training column.{did_you_mean(name, names)}")
        if sides.setdefault(name, side) != side:
            raise AddmlError(f"--one-sided {text}: {name!r} is already set to {sides[name]}; remove both.")
    return sides or None


def info(folder: str) -> dict[str, Any]:
    """The content of `addml info`."""
    model, path = model_file.load(folder), Path(os.path.expanduser(folder))
    columns, scores, decision = model.columns, model.training.values, model.decision
    return {
        "model": folder,
        "columns": dict.fromkeys(model.vectorizer.names or (), "number") if columns is None else columns.kinds,
        "left_out": [{"column": name, "why": why} for name, why in (columns.left_out if columns is not None else ())],
        "ids": list(model.ids),
        "weights": int(model.encoder.weights.size),
        "noun": model.vectorizer.noun,
        "trained_rows": len(scores),
        "epochs": len(model.history),
        "seconds": sum(float(entry.get("seconds", 0)) for entry in model.history),
        "threshold": model.threshold,
        "decided_by": decision.words_for(model.vectorizer.noun),
        "anomalies_in_training": int((scores > model.threshold).sum()),
        "settings": model.settings,
        "addml": model.version,
        "format": model_file.FORMAT,
        "bytes": sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
    }
