"""The commands on series: periods are ranked, not rows."""

from __future__ import annotations

from addml.cli import outputs
from addml.cli.outputs import Files
from addml.cli.session import finish, finish_training, session
from addml.pipeline.options import Settings


def detect(settings: Settings, files: Files) -> None:
    """`addml detect --time`."""
    from addml.pipeline import series_source

    with session("detect", settings, files) as one:
        outcome = series_source.detect(settings, one.progress)
        outputs.save_model(files, outcome.save)
        finish(one, outcome)


def fit(settings: Settings, files: Files) -> None:
    """`addml fit --time`."""
    from addml.pipeline import series_source

    with session("fit", settings, files) as one:
        outcome = series_source.fit(settings, one.progress)
        outputs.save_model(files, outcome.save)
        finish_training(one, outcome.findings)


def score(settings: Settings, files: Files) -> None:
    """`addml score --time`."""
    from addml.pipeline import series_source

    with session("score", settings, files) as one:
        finish(one, series_source.score(settings, one.progress))


def evaluate(settings: Settings, files: Files) -> None:
    """`addml evaluate --time`."""
    from addml.pipeline import series_source

    with session("evaluate", settings, files) as one:
        run = series_source.detect if settings.using.model is None else series_source.score
        finish(one, run(settings, one.progress))
