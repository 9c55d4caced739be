"""The commands on series: periods are ranked, not rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from addml.cli import outputs, screen
from addml.cli.outputs import Files
from addml.detection.settings import Settings

if TYPE_CHECKING:
    from addml.detection.series import SeriesOutcome


def detect(settings: Settings, files: Files) -> None:
    """`addml detect --time`."""
    from addml.cli.commands import finish, session
    from addml.detection import series

    with session("detect", settings, files) as one:
        outcome: SeriesOutcome = series.detect(settings, one.progress)
        outputs.save_model(files, outcome.detector.save)
        finish(one, outcome)


def fit(settings: Settings, files: Files) -> None:
    """`addml fit --time`."""
    from addml.cli.commands import session
    from addml.detection import series

    with session("fit", settings, files) as one:
        detector, findings = series.fit(settings, one.progress)
        outputs.save_model(files, detector.save)
        outputs.write_record(files, one.run, {"rows": findings.rows, "threshold": findings.threshold})
        screen.show_reading(one.screen, findings)
        screen.show_training(one.screen, findings)
        screen.show_files(one.screen, files.named())
        one.screen.document(screen.summary(findings, 0, files.named()))


def score(settings: Settings, files: Files) -> None:
    """`addml score --time`."""
    from addml.cli.commands import finish, session
    from addml.detection import series

    with session("score", settings, files) as one:
        finish(one, series.score(settings, one.progress))


def evaluate(settings: Settings, files: Files) -> None:
    """`addml evaluate --time`."""
    from addml.cli.commands import finish, session
    from addml.detection import series

    with session("evaluate", settings, files) as one:
        run = series.detect if settings.using.model is None else series.score
        finish(one, run(settings, one.progress))
