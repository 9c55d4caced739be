"""Options that contradict each other, do nothing, or do not apply to a kind of row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from addml.errors import USAGE, AddmlError
from addml.pipeline.options import CONTAMINATION, KIND_WORDS, TRAINING_ROWS, Options, decisions_given, flag, options_set


def check(options: Options, command: str) -> Options:
    """The options with the default contamination; an error where they contradict each other or do nothing."""
    for words in _contradictions(options, command):
        raise AddmlError(words, USAGE)
    normal_images = (options.clean or command == "evaluate") and _names_images(options.file)
    other = options.time is not None or normal_images  # which have a rule of their own, see SeriesSource
    if decisions_given(options) or command == "diff" or _reads_model(options, command) or other:
        return options
    return replace(options, contamination=CONTAMINATION)


def check_applies(options: Options, kind: str) -> None:
    """Every option that was set must apply to this kind of row."""
    for one in options_set(options):
        kinds = one.metadata["kinds"]
        if kind not in kinds:
            only = " or ".join(KIND_WORDS[other] for other in kinds)
            raise AddmlError(
                f"{flag(one.name)} does not apply to {KIND_WORDS[kind]}, only to {only}; leave it out.",
                USAGE,
                option=one.name,
            )


def _reads_model(options: Options, command: str) -> bool:
    return command in ("score", "evaluate") and options.model is not None


def _names_images(file: str) -> bool:
    from addml.io.image_folder import is_image_folder  # NumPy, which --help does without

    return is_image_folder(file)


def _contradictions(options: Options, command: str) -> Iterator[str]:
    if command == "score" and options.model is None:
        yield "score needs a model: --model FOLDER, as addml fit wrote it."
    if command == "evaluate" and options.label is None and not _names_images(options.file):
        yield "evaluate needs a label column: --label NAME."
    yield from _wrong_threshold(options)
    yield from _wrong_engine(options, command)
    for one in options_set(options) if _reads_model(options, command) else ():
        if one.metadata["training"]:
            yield f"{flag(one.name)} is an option of training; leave it out with --model."
    if options.anomaly_value is not None and options.label is None and options.train_labels is None:
        yield "--anomaly-value is a value of a label column; name that column with --label or --train-labels."
    if options.all_rows and options.sample != TRAINING_ROWS:
        yield f"--all-rows leaves nothing for --sample {options.sample} to do; give one of them."
    if options.no_report and (options.report is not None or options.format is not None):
        yield "--no-report leaves nothing for --report and --format to do; leave them out."


NEED_ALL_ROWS = ("report", "figures", "top", "flag", "per_day", "max_false_alarms", "fail_above", "fail_on_drift")


def _wrong_engine(options: Options, command: str) -> Iterator[str]:
    given = {one.name for one in options_set(options)}
    if options.engine is None:
        for name in given & {"address", "workers", "sync"}:
            yield f"{flag(name)} is about a cluster; give --engine ray, or leave it out."
    elif command == "fit" and not options.all_rows:
        yield "--engine ray trains on all rows; give --all-rows, or leave it out and train on a sample."
    elif command == "score":
        for name in sorted(given & set(NEED_ALL_ROWS)):
            yield f"{flag(name)} needs the scores of all rows in one place; leave it out with --engine ray."


def _wrong_threshold(options: Options) -> Iterator[str]:
    threshold, given = options.threshold, decisions_given(options)
    for name in given:
        if getattr(options, name) == 0:
            yield f"{flag(name)} 0 flags no row; give a number above 0."
    if len(given) > 1:
        yield f"{' and '.join(map(flag, given))} decide in different ways; give one of them."
    if threshold is not None and options.tau is None and threshold != "auto":
        yield f"--threshold {threshold}: give a score, or auto."
    if options.tau is not None and not math.isfinite(options.tau):
        yield f"--threshold {threshold} is not a score; give a finite number."
    if options.max_false_alarms is not None and options.model is None:
        yield "--max-false-alarms is about new rows: train with addml fit, then use addml score --model FOLDER."
