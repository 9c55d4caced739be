"""Settings that contradict each other, or would do nothing: said before anything is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import typer

from addml.pipeline.options import Picturing, Selection, Settings, Streaming, Training, Windowing


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
    for name, value in vars(settings.learning).items():
        if value:
            raise typer.BadParameter(f"--{name.replace('_', '-')} is about rows; leave it out with --time.")
    if settings.strictness.strict:
        raise typer.BadParameter("--strict is about rows; a column of a series that holds text is left out, and said.")
    if settings.picturing != Picturing():
        raise typer.BadParameter("--size and --skip-broken are about images; leave them out with --time.")
    if replace(settings.streaming, checkpoint=None) != Streaming():
        raise typer.BadParameter("--memory, --cache-dir and --no-cache are about rows; a series is held in memory.")


def _idle(settings: Settings) -> Iterator[str]:
    """Options that would do nothing beside the others, or without them, in words."""
    labelling, reporting, training = settings.labelling, settings.reporting, settings.training
    if settings.deciding.contamination == 0:
        yield "--contamination 0 calls no row an anomaly; give a share above 0."
    if settings.using.model is not None and settings.selection != Selection():
        yield "--columns and --ignore are about training; leave them out with --model."
    if labelling.anomalous is not None and labelling.label is None and settings.learning.learn_from is None:
        yield "--anomalous is a value of a label column; name that by --label or --learn-from."
    if training.all_rows and training.sample != Training().sample:
        yield f"--all-rows leaves nothing for --sample {training.sample} to do; give one of them."
    if reporting.no_report and (reporting.report is not None or reporting.format is not None):
        yield "--no-report leaves nothing for --report and --format to do; leave them out."
