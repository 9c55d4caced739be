"""The options of every command, each defined once: command line, help, TOML files, REST and run records use them."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_type_hints

from addml.errors import USAGE, AddmlError
from addml.text import without_password

TRAINING_ROWS = 200_000
CONTAMINATION = 0.1
MEMORY = "2GiB"
METHODS = ("auto", "mad", "iqr", "tail", "mixture")
PACKAGES = ("addml", "numpy", "pyarrow", "scikit-learn", "scipy", "torch")


TABLE, IMAGE, SERIES = KINDS = ("table", "image", "series")
KIND_WORDS = {TABLE: "a table", IMAGE: "a folder of images", SERIES: "a series (--time)"}

TRAIN = ("detect", "fit", "evaluate")
SCORE = ("detect", "score", "evaluate")
FILES = ("detect", "fit", "score", "evaluate", "diff")
COMPARE = (*TRAIN, "compare")
EVERY = ()  # every command


def option(
    default: Any,
    help: str,
    panel: str,
    commands: Sequence[str],
    kinds: Sequence[str] = KINDS,
    *,
    basic: bool = False,
    metavar: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    flags: Sequence[str] = (),
    former: str | None = None,
    remote: bool = False,
    training: bool = False,
) -> Any:
    """A field of `Options`.

    `basic`: in `--help`, else only in `--help-all`. `former`: its name in earlier versions, which TOML files and REST
    still take. `remote`: a web job takes it. `training`: says nothing about a saved model.
    """
    return field(default=default, metadata={name: value for name, value in locals().items() if name != "default"})


COLUMNS, WINDOWS, TRAINING, FLAGGING = "Columns", "Series", "Training", "Flagging and reasons"
OUTPUT, READING, COMPUTING = "Output", "Reading (auto-detected unless set)", "Computing and screen"
NOT_IMAGES = (TABLE, SERIES)


@dataclass(frozen=True)
class Options:
    """What a run is told; `file` and `command` come first, then one field per option."""

    file: str = ""

    columns: tuple[str, ...] = option(
        (), "Train only on these columns (comma-separated or repeated)",
        COLUMNS, COMPARE, NOT_IMAGES, basic=True, metavar="NAMES", remote=True, training=True,
    )  # fmt: skip
    ignore: tuple[str, ...] = option(
        (), "Drop these columns",
        COLUMNS, COMPARE, NOT_IMAGES, basic=True, metavar="NAMES", remote=True, training=True,
    )  # fmt: skip
    id: tuple[str, ...] = option(
        (), "Columns that identify a row: copied to the output, not trained on [default: auto-detected]",
        COLUMNS, (*FILES, "compare"), NOT_IMAGES, basic=True, metavar="NAMES", remote=True,
    )  # fmt: skip

    label: str | None = option(
        None, "Column with the true labels: only for evaluation, never for training",
        COLUMNS, COMPARE, NOT_IMAGES, basic=True, metavar="NAME", remote=True,
    )  # fmt: skip
    anomaly_value: str | None = option(
        None, "Value of the label column that marks an anomaly [default: 1, true, yes, anomaly, ...]",
        COLUMNS, COMPARE, NOT_IMAGES, metavar="VALUE", former="anomalous", remote=True,
    )  # fmt: skip
    train_labels: str | None = option(
        None, "Column with known labels to train on: anomaly or normal (1 or 0, yes or no), empty where unknown",
        COLUMNS, ("detect", "fit"), (TABLE,), basic=True, metavar="NAME", former="learn_from", remote=True,
    )  # fmt: skip
    known_anomalies: tuple[str, ...] = option(
        (), "Numbers of rows known to be anomalies, to train on",
        COLUMNS, ("detect", "fit"), (TABLE,), metavar="ROWS", remote=True,
    )  # fmt: skip
    known_normal: tuple[str, ...] = option(
        (), "Numbers of rows known to be normal, to train on",
        COLUMNS, ("detect", "fit"), (TABLE,), metavar="ROWS", remote=True,
    )  # fmt: skip

    time: str | None = option(
        None, "Column with timestamps: the rows are steps of a series, and events are ranked",
        COLUMNS, FILES, (SERIES,), basic=True, metavar="NAME", remote=True,
    )  # fmt: skip
    window: int = option(
        16, "Steps per window", WINDOWS, TRAIN, (SERIES,), metavar="N", minimum=1, remote=True, training=True
    )
    cell: str = option(
        "tanh", "Recurrent cell, or tcn for dilated convolutions",
        WINDOWS, TRAIN, (SERIES,), metavar="tanh|gru|tcn", choices=("tanh", "gru", "tcn"), remote=True,
        training=True,
    )  # fmt: skip
    causal: bool = option(
        False, "Score each step only by the steps up to it", WINDOWS, TRAIN, (SERIES,), remote=True, training=True
    )

    epochs: int = option(
        10, "Maximum number of epochs",
        TRAINING, (*TRAIN, "demo"), basic=True, metavar="N", minimum=1, remote=True, training=True,
    )  # fmt: skip
    members: int = option(
        5, "Number of networks in the ensemble",
        TRAINING, (*TRAIN, "demo"), metavar="N", minimum=1, remote=True, training=True,
    )  # fmt: skip
    sample: int = option(
        TRAINING_ROWS, "Maximum number of training rows, drawn at random",
        TRAINING, (*TRAIN, "demo"), (TABLE, IMAGE), basic=True, metavar="N", minimum=2, remote=True, training=True,
    )  # fmt: skip
    all_rows: bool = option(
        False, "Train on all rows", TRAINING, (*TRAIN, "demo"), (TABLE, IMAGE), remote=True, training=True
    )
    clean: bool = option(
        False, "All rows are known to be normal: train on every one of them",
        TRAINING, (*TRAIN, "demo"), remote=True, training=True,
    )  # fmt: skip
    one_sided: tuple[str, ...] = option(
        (), "Number column in which only high (or only low) values are anomalous, such as amount:high",
        TRAINING, (*TRAIN, "demo"), NOT_IMAGES, metavar="NAME:high|low", remote=True, training=True,
    )  # fmt: skip
    scorer: str = option(
        "views", "Scorer: views finds most; center is several times faster and keeps no training rows in the model",
        TRAINING, (*TRAIN, "demo"), metavar="views|center", choices=("views", "center"), remote=True, training=True,
    )  # fmt: skip
    seed: int = option(
        0, "Random seed: the same seed gives the same result",
        TRAINING, (*TRAIN, "demo"), basic=True, metavar="N", minimum=0, remote=True, training=True,
    )  # fmt: skip

    threshold: str | None = option(
        None, f"Flag rows above this score, or by a method: {', '.join(METHODS)}",
        FLAGGING, (*TRAIN, "score"), basic=True, metavar="METHOD|SCORE", former="tau", remote=True,
    )  # fmt: skip
    contamination: float | None = option(
        None, f"Share of training rows to flag, or of false alarms for tail [default: {CONTAMINATION}]",
        FLAGGING, (*TRAIN, "score"), basic=True, metavar="SHARE", minimum=0, maximum=0.5, remote=True,
    )  # fmt: skip
    top: int = option(
        20, "Number of rows to list, most anomalous first",
        FLAGGING, (*SCORE, "demo", "diff"), basic=True, metavar="N", minimum=0, remote=True,
    )  # fmt: skip
    reasons: int = option(
        3, "Number of reasons per flagged or listed row; 0 is faster",
        FLAGGING, (*SCORE, "demo"), basic=True, metavar="N", minimum=0, remote=True,
    )  # fmt: skip

    output: str | None = option(
        None, "Scored table: .csv, .parquet or .jsonl (detect and score: NAME.scored.csv)",
        OUTPUT, (*SCORE, "diff"), basic=True, metavar="FILE",
    )  # fmt: skip
    report: str | None = option(
        None, "Report: .html or .md (detect: NAME.report.html)", OUTPUT, SCORE, basic=True, metavar="FILE"
    )
    no_report: bool = option(False, "Write no report", OUTPUT, SCORE, basic=True)
    format: str | None = option(
        None, "Format of the report [default: by its name]", OUTPUT, SCORE, metavar="html|md", choices=("html", "md")
    )
    figures: str | None = option(None, "Folder for the report's charts as PNG and SVG", OUTPUT, SCORE, metavar="FOLDER")
    redact: bool = option(
        False, "Leave the table's values out of the report and the screen", OUTPUT, SCORE, remote=True
    )
    model: str | None = option(
        None, "Model folder: detect and fit write it, score and evaluate read it (fit: NAME.model)",
        OUTPUT, FILES[:4], basic=True, metavar="FOLDER",
    )  # fmt: skip

    query: str | None = option(
        None, "SQL query, where FILE is a database address such as sqlite:///shop.db",
        READING, (*FILES, "compare"), NOT_IMAGES, basic=True, metavar="SQL",
    )  # fmt: skip
    sheet: str | None = option(
        None, "Sheet of a workbook, or array of an .npz or .mat file",
        READING, (*FILES, "compare"), NOT_IMAGES, basic=True, metavar="NAME", former="part", remote=True,
    )  # fmt: skip
    delimiter: str | None = option(
        None, "Field separator of a CSV",
        READING, (*FILES, "compare"), NOT_IMAGES, basic=True, metavar="TEXT", remote=True,
    )  # fmt: skip
    header: bool | None = option(
        None, "Whether the first line names the columns", READING, (*FILES, "compare"), NOT_IMAGES, remote=True
    )
    encoding: str | None = option(
        None,
        "Text encoding: utf-8, latin-1, ...",
        READING,
        (*FILES, "compare"),
        NOT_IMAGES,
        metavar="NAME",
        remote=True,
    )
    decimal: str | None = option(
        None, "Decimal mark of a CSV",
        READING, (*FILES, "compare"), NOT_IMAGES, metavar=".|,", choices=(".", ","), remote=True,
    )  # fmt: skip
    strict: bool = option(
        False, "Stop at text in a number column instead of counting it as a missing value",
        READING, FILES, (TABLE,), remote=True,
    )  # fmt: skip
    size: str | None = option(
        None, "Resize images to N x N or height x width pixels",
        READING, ("detect", "fit", "score"), (IMAGE,), basic=True, metavar="N|HxW",
    )  # fmt: skip
    skip_unreadable: bool = option(
        False, "Skip image files that cannot be read, and list them",
        READING, ("detect", "fit", "score"), (IMAGE,), former="skip_broken",
    )  # fmt: skip

    device: str = option(
        "auto", "Where to compute: auto, cpu, cuda, cuda:1 or mps",
        COMPUTING, (*FILES, "demo"), basic=True, metavar="NAME",
    )  # fmt: skip
    jobs: int | None = option(
        None, "Maximum number of threads or processes [default: all cores]",
        COMPUTING, (*FILES, "demo"), basic=True, metavar="N", minimum=1,
    )  # fmt: skip
    checkpoint: str | None = option(
        None, "Folder for the state of training after every epoch: the same command resumes from it "
        "[default: MODEL.checkpoint where a table is larger than memory]",
        COMPUTING, ("detect", "fit"), metavar="FOLDER",
    )  # fmt: skip
    memory: str | None = option(
        None, f"Memory that training on all rows of Parquet files may use [default: {MEMORY}]",
        COMPUTING, ("detect", "fit"), (TABLE,), metavar="SIZE",
    )  # fmt: skip
    scratch: str | None = option(
        None, "Folder for temporary files [default: that of the checkpoint]",
        COMPUTING, ("detect", "fit"), (TABLE,), metavar="FOLDER", former="cache_dir",
    )  # fmt: skip

    fail_above: int | None = option(
        None, "Exit with code 3 if more rows than this are flagged",
        COMPUTING, ("detect", "score"), basic=True, metavar="N", minimum=0,
    )  # fmt: skip
    quiet: bool = option(False, "Print only warnings and errors", COMPUTING, EVERY, basic=True, flags=("-q",))
    json: bool = option(False, "Print one JSON document", COMPUTING, EVERY, basic=True)

    @property
    def source(self) -> str:
        """The file or database address, without a password."""
        return without_password(self.file)

    @property
    def tau(self) -> float | None:
        """The threshold, where it is given as a score."""
        try:
            return None if self.threshold is None else float(self.threshold)
        except ValueError:
            return None

    @property
    def method(self) -> str | None:
        """The threshold's method, where one is given."""
        return self.threshold if self.tau is None else None

    @property
    def reading(self) -> dict[str, Any]:
        """How a file is read, as `addml.io.read` takes it."""
        known = ("query", "delimiter", "header", "encoding", "decimal")
        return {name: getattr(self, name) for name in known} | {"part": self.sheet}

    def of(self, command: str) -> dict[str, Any]:
        """The values that belong to a command, by their names."""
        own = {"file": self.file} if self.file else {}
        return own | {one.name: getattr(self, one.name) for one in options_of(command)}


@cache
def options_of(command: str) -> tuple[Field[Any], ...]:
    """The options of a command."""
    known = (one for one in fields(Options) if one.metadata)
    return tuple(one for one in known if one.metadata["commands"] in (EVERY,) or command in one.metadata["commands"])


@cache
def types() -> dict[str, Any]:
    """The type of every option."""
    return get_type_hints(Options)


def is_list(name: str) -> bool:
    """Whether an option may be given several times."""
    return bool(types()[name] == tuple[str, ...])


def is_switch(name: str) -> bool:
    """Whether an option is given without a value."""
    return types()[name] in (bool, bool | None)


def current_name(name: str) -> str:
    """The name of an option with underscores; one of an earlier version becomes today's."""
    name = name.replace("-", "_")
    return next((one.name for one in fields(Options) if one.metadata.get("former") == name), name)


def flag(name: str) -> str:
    """How an option is written on the command line."""
    return "--" + name.replace("_", "-")


# Checks -----------------------------------------------------------------------------------------------------


def check(options: Options, command: str) -> Options:
    """The options with the default contamination; an error where they contradict each other or do nothing."""
    for words in _contradictions(options, command):
        raise AddmlError(words, USAGE)
    decided = options.contamination is not None or options.threshold is not None
    if decided or command == "diff" or reads_model(options, command):
        return options
    return replace(options, contamination=CONTAMINATION)


def check_applies(options: Options, kind: str) -> None:
    """Every option that was set must apply to this kind of row."""
    for one in _set(options):
        kinds = one.metadata["kinds"]
        if kind not in kinds:
            only = " or ".join(KIND_WORDS[other] for other in kinds)
            raise AddmlError(
                f"{flag(one.name)} does not apply to {KIND_WORDS[kind]}, only to {only}; leave it out.",
                USAGE,
                option=one.name,
            )


def reads_model(options: Options, command: str) -> bool:
    """Whether `--model` is read, not written."""
    return command in ("score", "evaluate") and options.model is not None


def _set(options: Options) -> Iterator[Field[Any]]:
    return (one for one in fields(Options) if one.metadata and getattr(options, one.name) != one.default)


def _contradictions(options: Options, command: str) -> Iterator[str]:
    """What is wrong with the options, whatever the input."""
    if command == "score" and options.model is None:
        yield "score needs a model: --model FOLDER, as addml fit wrote it."
    if command == "evaluate" and options.label is None:
        yield "evaluate needs a label column: --label NAME."
    yield from _wrong_threshold(options)
    for one in _set(options):
        if reads_model(options, command) and one.metadata["training"]:
            yield f"{flag(one.name)} is an option of training; leave it out with --model."
    if options.anomaly_value is not None and options.label is None and options.train_labels is None:
        yield "--anomaly-value is a value of a label column; name that column with --label or --train-labels."
    if options.all_rows and options.sample != TRAINING_ROWS:
        yield f"--all-rows leaves nothing for --sample {options.sample} to do; give one of them."
    if options.no_report and (options.report is not None or options.format is not None):
        yield "--no-report leaves nothing for --report and --format to do; leave them out."


def _wrong_threshold(options: Options) -> Iterator[str]:
    threshold, share = options.threshold, options.contamination
    if share == 0:
        yield "--contamination 0 flags no row; give a share above 0."
    if threshold is None:
        return
    if options.tau is None and threshold not in METHODS:
        yield f"--threshold {threshold}: give a score, or one of {', '.join(METHODS)}."
    if options.tau is not None and not math.isfinite(options.tau):
        yield f"--threshold {threshold} is not a score; give a finite number."
    if share is not None and options.tau is not None:
        yield "give --contamination or a score as --threshold, not both."
    if share is not None and threshold != "tail":
        yield f"--threshold {threshold} finds the share itself; leave out --contamination."


# Options from texts: command line, TOML, REST ---------------------------------------------------------------


def parse(name: str, value: Any) -> Any:
    """A text (texts for an option that may be repeated) in the option's type; an error names its range or choices."""
    if value is None or name == "file":
        return () if name != "file" and is_list(name) else value
    if is_list(name):
        return (value,) if isinstance(value, str) else tuple(value)
    if is_switch(name):
        if str(value).lower() not in ("true", "false"):
            raise _wrong(name, value, "true or false")
        return str(value).lower() == "true"
    about = Options.__dataclass_fields__[name].metadata
    kind = next(one for one in (int, float, str) if types()[name] in (one, one | None))
    try:
        found = kind(value)
    except ValueError:
        raise _wrong(name, value, "a whole number" if kind is int else "a number") from None
    if about["choices"] and found not in about["choices"]:
        raise _wrong(name, value, f"one of {', '.join(about['choices'])}")
    low, high = about["minimum"], about["maximum"]
    if (low is not None and not found >= low) or (high is not None and not found <= high):
        raise _wrong(name, value, f"a number of {low} or more" if high is None else f"a number from {low} to {high}")
    return found


def _wrong(name: str, value: Any, takes: str) -> AddmlError:
    return AddmlError(f"{flag(name)} {value}: give {takes}.", USAGE, option=name)


def versions(*more: str) -> dict[str, str]:
    """The versions that a result may depend on, and those of further packages."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
