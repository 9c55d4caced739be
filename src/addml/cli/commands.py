"""What each command does after its options are read: call one function of `detection`, write, print."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from addml.cli import outputs, screen, series
from addml.cli.bars import bars
from addml.cli.outputs import Files
from addml.cli.screen import Screen
from addml.detection.inputs import shown
from addml.detection.progress import Progress
from addml.detection.record import Run
from addml.detection.settings import (
    Labelling,
    Naming,
    Picturing,
    Selection,
    Settings,
    Streaming,
    Training,
    Windowing,
)

if TYPE_CHECKING:
    from addml.detection.detecting import Outcome
    from addml.detection.series import SeriesOutcome
    from addml.findings import Findings

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
    out = Screen(settings.showing)
    plain = more | settings.plain()
    run = Run.begin(command, [shown(word) for word in sys.argv[1:]], plain | {"file": shown(settings.file)})
    with out.warned():
        yield Session(run, settings, files, out, bars(out))


def checked(settings: Settings) -> Settings:
    """The settings with what they leave open, or a usage error where they contradict each other."""
    deciding = settings.deciding
    if deciding.tau is not None and deciding.contamination is not None:
        raise typer.BadParameter("give --contamination or --tau, not both.")
    if deciding.tau is not None and deciding.threshold is not None:
        raise typer.BadParameter("give --threshold or --tau, not both.")
    if deciding.tau is not None and not math.isfinite(deciding.tau):
        raise typer.BadParameter(f"--tau {deciding.tau} is no score; give a finite number.")
    if deciding.threshold not in (None, "tail") and deciding.contamination is not None:
        raise typer.BadParameter(f"--threshold {deciding.threshold} finds the share itself; leave out --contamination.")
    if settings.timing.time is None and settings.windowing != Windowing():
        raise typer.BadParameter("--window, --cell and --causal are about series; give --time NAME with them.")
    if settings.using.model is not None and settings.windowing != Windowing():
        raise typer.BadParameter("--window, --cell and --causal are about training; leave them out with --model.")
    if settings.using.model is not None and settings.training != Training():
        raise typer.BadParameter("the options of training are of no use with --model; leave them out.")
    if settings.timing.time is not None:
        _check_series(settings)
    for words in _idle(settings):
        raise typer.BadParameter(words)
    return settings.complete()


def _check_series(settings: Settings) -> None:
    """Settings that say nothing of series must not be given with one."""
    training = settings.training
    if training.all_rows or training.sample != Training().sample:
        raise typer.BadParameter("--sample and --all-rows are about rows; a series is learned from whole.")
    if settings.learning.learn_from is not None:
        raise typer.BadParameter("--learn-from is about rows; leave it out with --time.")
    if settings.picturing != Picturing():
        raise typer.BadParameter("--size and --skip-broken are about images; leave them out with --time.")
    if replace(settings.streaming, checkpoint=None) != Streaming():
        raise typer.BadParameter("--memory, --cache-dir and --no-cache are about rows; a series is held in memory.")


def _idle(settings: Settings) -> Iterator[str]:
    """Options that would do nothing beside the others, or without them, in words."""
    labelling, reporting = settings.labelling, settings.reporting
    if settings.deciding.contamination == 0:
        yield "--contamination 0 calls no row an anomaly; give a share above 0."
    if settings.using.model is not None and settings.selection != Selection():
        yield "--columns and --ignore are about training; leave them out with --model."
    if labelling.anomalous is not None and labelling.label is None and settings.learning.learn_from is None:
        yield "--anomalous is a value of a label column; name that by --label or --learn-from."
    if reporting.no_report and (reporting.report is not None or reporting.format is not None):
        yield "--no-report leaves nothing for --report and --format to do; leave them out."


def detect(settings: Settings, folder: Path = Path()) -> None:
    """`addml detect`."""
    from addml.detection import detecting

    settings = checked(settings)
    name = str(folder / detecting.name_of(settings.file))
    files = outputs.planned(settings, name, scored=True, report=True, model=settings.saving.model)
    if settings.timing.time is not None:
        return series.detect(settings, files)
    settings = _with_checkpoint(settings, settings.saving.model or name)
    with session("detect", settings, files) as one:
        outcome = detecting.detect(settings, one.progress, files.shows_map)
        outputs.save_model(files, outcome.fitted.save)
        finish(one, outcome)


def fit(settings: Settings) -> None:
    """`addml fit`."""
    from addml.detection import detecting

    settings = checked(settings)
    name = detecting.name_of(settings.file)
    files = outputs.planned(settings, name, model=settings.saving.model or f"{name}.model")
    if settings.timing.time is not None:
        return series.fit(settings, files)
    settings = _with_checkpoint(settings, str(files.model))
    with session("fit", settings, files) as one:
        trained = detecting.fit(settings, one.progress)
        outputs.save_model(files, trained.fitted.save)
        findings = trained.findings()
        outputs.write_record(files, one.run, {"rows": trained.rows, "threshold": findings.threshold})
        screen.show_reading(one.screen, findings)
        screen.show_training(one.screen, findings)
        screen.show_files(one.screen, files.named())
        one.screen.document(screen.summary(findings, 0, files.named()))


def _with_checkpoint(settings: Settings, name: str) -> Settings:
    """The settings with a checkpoint where a table is larger than memory and none is named."""
    from addml.detection.inputs import on_disk_source

    streaming = settings.streaming
    if streaming.checkpoint is not None or on_disk_source(settings) is None:
        return settings
    return replace(settings, streaming=replace(streaming, checkpoint=f"{name}.checkpoint"))


def score(settings: Settings) -> None:
    """`addml score`."""
    from addml.detection import detecting

    settings = checked(settings)
    if settings.using.model is None:
        raise typer.BadParameter("score needs a model: --model FOLDER, as addml fit wrote it.")
    files = outputs.planned(settings, detecting.name_of(settings.file), scored=True)
    if settings.timing.time is not None:
        return series.score(settings, files)
    with session("score", settings, files) as one:
        finish(one, detecting.score(settings, one.progress, files.shows_map))


def evaluate(settings: Settings) -> None:
    """`addml evaluate`."""
    from addml.detection import detecting

    settings = checked(settings)
    if settings.labelling.label is None:
        raise typer.BadParameter("evaluate needs a label column: --label NAME.")
    files = outputs.planned(settings, detecting.name_of(settings.file))
    if settings.timing.time is not None:
        return series.evaluate(settings, files)
    with session("evaluate", settings, files) as one:
        run = detecting.detect if settings.using.model is None else detecting.score
        finish(one, run(settings, one.progress, files.shows_map))


def diff(before: str, after: str, settings: Settings) -> None:
    """`addml diff`."""
    from addml.detection.diff import compare_models

    settings = checked(settings)
    files, top = outputs.planned(settings, "diff"), settings.listing.top
    with session("diff", settings, files, before=before, after=after) as one:
        moved = compare_models(before, after, settings, one.progress)
        outputs.write_scored(files, [moved.table])
        outputs.write_record(files, one.run, {"rows": len(moved.before)})
        screen.show_diff(one.screen, moved, top)
        screen.show_files(one.screen, files.named())
        one.screen.document(moved.summary(top) | {"files": files.named()})


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
        print(f"{findings.anomalies:,} anomalies, more than {limit:,} (--fail-above)", file=sys.stderr)
        raise typer.Exit(MORE_ANOMALIES)


def _show(one: Session, findings: Findings) -> None:
    if one.settings.reporting.redact:
        from addml.report.redaction import redacted

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


def info(model: str, settings: Settings) -> None:
    """`addml info`."""
    from addml.detection.about import about_model

    about = about_model(model)
    out = Screen(settings.showing)
    out.document(about)
    screen.show_model(out, about)


def demo(folder: str, settings: Settings) -> None:
    """`addml demo`."""
    from addml.detection.example import write_example

    target = Path(folder)
    file = write_example(target)
    groups = ("naming", "labelling", "deciding", *settings.groups)
    label = Labelling("diagnosis", "malignant")
    detect(replace(settings, file=str(file), groups=groups, naming=Naming(("patient",)), labelling=label), target)
