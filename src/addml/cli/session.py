"""One run of a command, from its settings to what it writes and says at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from addml.cli import outputs, screen
from addml.cli.outputs import Files
from addml.cli.screen import Screen, bars
from addml.pipeline.options import Run, Settings
from addml.pipeline.sources import shown
from addml.progress import Progress
from addml.text import counted

if TYPE_CHECKING:
    from addml.findings import Findings
    from addml.pipeline.run import Outcome
    from addml.pipeline.series_source import SeriesOutcome

MORE_ANOMALIES = 3  # exit code


@dataclass(frozen=True)
class Session:
    """One run of a command: its settings, its files, and where it speaks."""

    run: Run
    settings: Settings
    files: Files
    screen: Screen
    progress: Progress


@contextmanager
def session(command: str, settings: Settings, files: Files, **more: str) -> Iterator[Session]:
    """A run whose warnings are said in one line each; `more` are arguments that are no settings."""
    out = Screen(settings.showing, aside=bool(files.to_stdout))
    plain = more | settings.plain()
    run = Run.begin(command, [shown(word) for word in sys.argv[1:]], plain | {"file": shown(settings.file)})
    with out.warned():
        yield Session(run, settings, files, out, bars(out))


def finish(one: Session, outcome: Outcome | SeriesOutcome) -> None:
    """Write the files, then say what was found and where it is."""
    settings, findings = one.settings, outcome.findings
    findings = replace(
        findings, notes=(*findings.notes, *one.screen.warnings), settings=settings.plain() | {"file": findings.source}
    )
    notes = outputs.write_scored(one.files, outcome.scored)
    findings = replace(findings, notes=(*findings.notes, *notes))
    outputs.write_reports(one.files, findings, settings.reporting)
    outputs.write_record(one.files, one.run, {"rows": findings.rows, "anomalies": findings.anomalies})
    _show(one, findings)
    limit = settings.ending.fail_above
    if limit is not None and findings.anomalies > limit:
        count = counted(findings.anomalies, "anomaly", "anomalies")
        print(f"{count}, more than {limit:,} (--fail-above)", file=sys.stderr)
        raise typer.Exit(MORE_ANOMALIES)


def _show(one: Session, findings: Findings) -> None:
    if one.settings.reporting.redact:
        from addml.report.redact import redacted

        findings = redacted(findings)
    top, files = one.settings.explaining.top, one.files.named()
    screen.show_reading(one.screen, findings)
    screen.show_training(one.screen, findings)
    screen.show_ranking(one.screen, findings, top)
    screen.show_groups(one.screen, findings)
    screen.show_evaluation(one.screen, findings)
    screen.show_drift(one.screen, findings)
    screen.show_files(one.screen, files)
    one.screen.document(screen.summary(findings, top, files))


def finish_training(one: Session, findings: Findings) -> None:
    """Write the record of a training alone, then say what it was and where the model is."""
    files = one.files.named()
    outputs.write_record(one.files, one.run, {"rows": findings.rows, "threshold": findings.threshold})
    screen.show_reading(one.screen, findings)
    screen.show_training(one.screen, findings)
    screen.show_files(one.screen, files)
    one.screen.document(screen.summary(findings, 0, files))
