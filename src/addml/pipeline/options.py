"""The options of every command, each defined once for the command line, its help, TOML files, REST and run records."""

# ruff: noqa: RUF009  option() is a dataclass field
from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from addml.errors import USAGE, AddmlError
from addml.text import IMAGE, KINDS, SERIES, TABLE, without_password

CONTAMINATION = 0.1
TRAINING_ROWS = 200_000
MEMORY = "2GiB"
KNOWN_ENDING = ".toml"
DECISIONS = ("threshold", "contamination", "alarm_rate", "max_false_alarms", "flag", "per_day", "events")  # exclusive

Names = tuple[str, ...]
KIND_WORDS = {TABLE: "a table", IMAGE: "a folder of images", SERIES: "a series (--time)"}

TRAIN = ("detect", "fit", "evaluate")
SCORE = ("detect", "score", "evaluate")
FILES = ("detect", "fit", "score", "evaluate", "diff")
COMPARE = (*TRAIN, "compare")
NAMED = (*FILES, "compare")
EVERY = ()


def option(
    default: Any,
    help: str,
    commands: Sequence[str],
    kinds: Sequence[str] = KINDS,
    *,
    panel: str,
    basic: bool = False,  # shown by --help, not only by --help-all
    metavar: str | None = None,  # default: the choices, N for an integer, NAME for text
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    flags: Sequence[str] = (),
    remote: bool = False,  # accepted by a web job
    training: bool = False,  # has no meaning for a saved model
) -> Any:
    """A field of `Options`."""
    return field(default=default, metadata={name: value for name, value in locals().items() if name != "default"})


COMPUTING, OUTPUT = "Computing and screen", "Output"
NOT_IMAGES = (TABLE, SERIES)
_column = partial(option, panel="Columns", kinds=NOT_IMAGES, remote=True)
_windows = partial(option, panel="Series", commands=TRAIN, kinds=(SERIES,), remote=True, training=True)
_training = partial(option, panel="Training", commands=(*TRAIN, "demo"), remote=True, training=True)
_flagging = partial(option, panel="Flagging and reasons", basic=True, remote=True)
_reading = partial(option, panel="Reading (auto-detected unless set)", commands=NAMED, kinds=NOT_IMAGES)
_images = partial(_reading, commands=FILES[:4], kinds=(IMAGE,))
_computing = partial(option, panel=COMPUTING, commands=(*FILES, "demo"))
_output = partial(option, panel=OUTPUT)
_storage = partial(option, panel=COMPUTING, commands=("detect", "fit"))


@dataclass(frozen=True)
class Options:
    """The input file, then one field per option."""

    # fmt: off
    file: str = ""

    columns: Names = _column((), "Train only on these columns (NAME,NAME,...)", COMPARE, basic=True, training=True)
    ignore: Names = _column((), "Drop these columns", COMPARE, basic=True, training=True)
    id: Names = _column((), "Columns that identify a row; not used in training [default: auto-detected]", NAMED,
        basic=True)
    keep: Names = _column((), "Columns to show with each row, or all [default: ids and one free-text column]", SCORE,
        kinds=(TABLE,), basic=True)
    by: Names = _column((), "Score each row within its group (store, host)", TRAIN, basic=True, training=True)
    label: str | None = _column(None, "Column with true labels, for evaluation only", COMPARE, basic=True)
    anomaly_value: str | None = _column(None,
        "Value in the label column that marks an anomaly [default: 1, true, yes, anomaly, ...]", COMPARE,
        metavar="VALUE")
    train_labels: str | None = _column(None,
        "Column with known labels to train on: 1 or 0, yes or no, empty where unknown", ("detect", "fit"),
        kinds=(TABLE,), basic=True)
    known_anomalies: Names = _column((), "Known anomalies to train on: row numbers, ids or a TOML file",
        ("detect", "fit"), kinds=(TABLE,), metavar="ROWS")
    known_normal: Names = _column((),
        "Known normal rows, to train on and never list: row numbers (detect, fit), ids or a TOML file",
        ("detect", "fit", "score", "diff"), kinds=(TABLE,), metavar="ROWS")
    time: str | None = _column(None, "Timestamp column: treat the rows as steps of a time series and rank events",
        FILES, kinds=(SERIES,), basic=True)

    window: int | None = _windows(None, "Steps per window [default: the period of a single channel, else 10]",
        minimum=1)
    causal: bool = _windows(False, "Score each step without looking at later ones")
    min_steps: int = _windows(1, "Minimum number of steps per event", commands=SCORE, minimum=1, training=False)
    bands: bool = _windows(False, "Add each channel's expected value and band to the scored table", commands=SCORE,
        training=False)

    epochs: int = _training(10, "Maximum number of epochs", basic=True, minimum=1)
    members: int = _training(5, "Number of networks in the ensemble", minimum=1)
    sample: int = _training(TRAINING_ROWS, "Maximum number of training rows, drawn at random", kinds=(TABLE, IMAGE),
        basic=True, minimum=2)
    all_rows: bool = _training(False, "Train on all rows", kinds=(TABLE, IMAGE))
    clean: bool = _training(False, "Treat all training rows as normal and learn from every one")
    one_sided: Names = _training((),
        "Numeric column where only high (or only low) values are anomalous, such as amount:high", kinds=NOT_IMAGES,
        metavar="NAME:high|low")
    scorer: str = _training("views",
        "Scorer: views finds the most; center is several times faster and stores no training rows in the model",
        choices=("views", "center"))
    seed: int = _training(0, "Random seed", basic=True, minimum=0)

    threshold: str | None = _flagging(None, "Flag rows above this score; auto: rows that stand clear of the rest",
        (*TRAIN, "score"), metavar="auto|SCORE")
    contamination: float | None = _flagging(None, f"Share of training rows to flag [default: {CONTAMINATION}]",
        (*TRAIN, "score"), metavar="SHARE", minimum=0, maximum=0.5)
    flag: int | None = _flagging(None, "Flag the N rows with the highest scores", ("detect", "score"),
        kinds=(TABLE, IMAGE), minimum=1)
    events: int | None = _flagging(None, "Flag the N most anomalous events", SCORE, kinds=(SERIES,), minimum=1)
    per_day: int | None = _flagging(None, "Flag N rows per day on average, using the first date column",
        ("detect", "score"), kinds=(TABLE,), minimum=1, basic=False)
    alarm_rate: float | None = _flagging(None, "Maximum share of ordinary new rows to flag",
        ("fit", "score", "evaluate"), metavar="RATE", minimum=0, maximum=1)
    max_false_alarms: float | None = _flagging(None, "Maximum share of false alarms among the flagged new rows",
        ("score", "evaluate"), kinds=(TABLE, IMAGE), metavar="SHARE", minimum=0, maximum=1)
    top: int = _flagging(20, "Number of rows to list, most anomalous first", (*SCORE, "demo", "diff"), minimum=0)
    reasons: int = _flagging(3, "Number of reasons per flagged or listed row; 0 is faster", (*SCORE, "demo"), minimum=0)

    output: str | None = _output(None,
        "Scored table: .csv, .parquet, .jsonl or .xlsx [default: NAME.scored.csv for detect and score]",
        (*SCORE, "diff"), basic=True, metavar="FILE")
    output_sql: str | None = _output(None,
        "Write the scored rows to this table of the input database, replacing its rows in one transaction", SCORE,
        kinds=NOT_IMAGES, metavar="TABLE")
    report: str | None = _output(None, "Report: .html or .md [default: NAME.report.html for detect]", SCORE, basic=True,
        metavar="FILE")
    no_report: bool = _output(False, "Do not write a report", SCORE, basic=True)
    format: str | None = _output(None, "Report format [default: from the file name]", SCORE, choices=("html", "md"))
    figures: str | None = _output(None, "Folder for the report's charts as PNG and SVG", SCORE, metavar="FOLDER")
    maps: str | None = _output(None,
        "Folder for PNG anomaly maps of photographs (128 is the threshold) and masks (white above it)", SCORE,
        kinds=(IMAGE,), metavar="FOLDER")
    redact: bool = _output(False, "Hide cell values in the report and on screen", SCORE, remote=True)
    model: str | None = _output(None,
        "Model folder, written by detect and fit, read by score and evaluate [default: NAME.model for fit]", FILES[:4],
        basic=True, metavar="FOLDER")

    query: str | None = _reading(None, "SQL query, if FILE is a database address such as sqlite:///shop.db", basic=True,
        metavar="SQL")
    sheet: str | None = _reading(None, "Sheet of a workbook, or array in an .npz or .mat file", basic=True, remote=True)
    delimiter: str | None = _reading(None, "CSV field separator", basic=True, metavar="TEXT", remote=True)
    header: bool | None = _reading(None, "Whether the first line holds the column names", remote=True)
    encoding: str | None = _reading(None, "Text encoding, such as utf-8 or latin-1", remote=True)
    decimal: str | None = _reading(None, "CSV decimal mark", choices=(".", ","), remote=True)
    skip_rows: int | None = _reading(None, "Number of lines above the table in a CSV file or sheet", minimum=0,
        remote=True)
    strict: bool = _reading(False, "Fail on text in a numeric column instead of treating it as missing",
        commands=FILES, kinds=(TABLE,), remote=True)
    encoder: str | None = _training(None,
        "Network for images [default: pretrained above 64 pixels if installed, else conv]", kinds=(IMAGE,),
        choices=("conv", "pretrained"))
    size: str | None = _images(None, "Resize images to N x N or height x width pixels", basic=True, metavar="N|HxW")
    skip_unreadable: bool = _images(False, "Skip unreadable image files and list them")

    device: str = _computing("auto", "Device: auto, cpu, cuda, cuda:1 or mps", basic=True)
    jobs: int | None = _computing(None, "Maximum number of threads [default: all cores]", basic=True, minimum=1)
    checkpoint: str | None = _storage(None,
        "Folder for training state, saved after every epoch; resume by running the command again "
        "[default: MODEL.checkpoint for tables larger than memory]", metavar="FOLDER")
    memory: str | None = _storage(None,
        f"Memory limit for training on all rows of Parquet files [default: {MEMORY}]", kinds=(TABLE,), metavar="SIZE")
    scratch: str | None = _storage(None, "Folder for temporary files [default: next to the checkpoint]", kinds=(TABLE,),
        metavar="FOLDER")
    engine: str | None = _computing(None,
        "Run on a Ray cluster (needs addml[ray]): compare, and score and fit --all-rows with Parquet files",
        commands=("fit", "score", "compare"), kinds=(TABLE,), choices=("ray",))
    address: str | None = _computing(None, "Address of the Ray cluster, or auto [default: start one on this machine]",
        commands=("fit", "score", "compare"), kinds=(TABLE,), metavar="ADDRESS")
    workers: int | None = _computing(None, "Number of worker processes [default: one less than the cluster's cores]",
        commands=("fit", "score"), kinds=(TABLE,), minimum=1)
    sync: bool = _computing(False, "Average the workers' gradients at every step: slow, but trains like one process",
        commands=("fit",), kinds=(TABLE,))
    fail_above: int | None = _computing(None, "Exit with code 3 if more than N rows are flagged",
        commands=("detect", "score"), basic=True, minimum=0)
    fail_on_drift: bool = _computing(False, "Exit with code 5 if a column has drifted", commands=("score",),
        kinds=(TABLE,), basic=True)
    check: bool = _computing(False, "Report which planted faults are found", commands=("detect",),
        kinds=(TABLE,), basic=True)
    quiet: bool = _computing(False, "Print only warnings and errors", commands=EVERY, basic=True, flags=("-q",))
    json: bool = _computing(False, "Print the result as JSON", commands=EVERY, basic=True)
    # fmt: on

    @property
    def source(self) -> str:
        return without_password(self.file)

    @property
    def tau(self) -> float | None:
        try:
            return None if self.threshold is None else float(self.threshold)
        except ValueError:
            return None

    @property
    def reading(self) -> dict[str, Any]:
        """Keyword arguments for `addml.io.read`."""
        names = ("query", "delimiter", "header", "encoding", "decimal", "skip_rows")
        return {name: getattr(self, name) for name in names} | {"part": self.sheet}

    def of(self, command: str) -> dict[str, Any]:
        """The file and the values of a command's options by name."""
        values = {option.name: getattr(self, option.name) for option in options_of(command)}
        return {"file": self.file, **values} if self.file else values


@cache
def options_of(command: str) -> tuple[Field[Any], ...]:
    options = (option for option in fields(Options) if option.metadata)
    return tuple(option for option in options if command in (option.metadata["commands"] or (command,)))  # EVERY is ()


@cache
def types() -> dict[str, Any]:
    return get_type_hints(Options)


def is_list(name: str) -> bool:
    return bool(types()[name] == tuple[str, ...])


def is_switch(name: str) -> bool:
    return types()[name] in (bool, bool | None)


def is_known_file(text: str) -> bool:
    """Whether a value of --known-normal or --known-anomalies names a file."""
    return text.lower().endswith(KNOWN_ENDING)


def metavar(option: Field[Any]) -> str:
    """The placeholder for the option's value in its help."""
    default = "N" if types()[option.name] in (int, int | None) else "NAMES" if is_list(option.name) else "NAME"
    return option.metadata["metavar"] or "|".join(option.metadata["choices"]) or default


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def options_set(options: Options) -> list[Field[Any]]:
    """The options that differ from their defaults."""
    return [one for one in fields(Options) if one.metadata and getattr(options, one.name) != one.default]


def decisions_given(options: Options) -> list[str]:
    return [name for name in DECISIONS if getattr(options, name) is not None]


def parse(name: str, value: Any) -> Any:
    """Convert text (a list of texts for a repeatable option) to the option's type and check its range and choices."""
    if name == "file":
        return value
    if is_list(name):
        return (value,) if isinstance(value, str) else tuple(value or ())
    if value is None:
        return None
    if is_switch(name):
        if str(value).lower() not in ("true", "false"):
            raise _wrong(name, value, "true or false")
        return str(value).lower() == "true"
    metadata = Options.__dataclass_fields__[name].metadata
    kind = next(kind for kind in (int, float, str) if types()[name] in (kind, kind | None))
    try:
        result = kind(value)
    except ValueError:
        raise _wrong(name, value, "an integer" if kind is int else "a number") from None
    if metadata["choices"] and result not in metadata["choices"]:
        raise _wrong(name, value, f"one of {', '.join(metadata['choices'])}")
    low, high = metadata["minimum"], metadata["maximum"]
    if (low is not None and not result >= low) or (high is not None and not result <= high):
        raise _wrong(name, value, f"at least {low}" if high is None else f"between {low} and {high}")
    return result


def _wrong(name: str, value: Any, expected: str) -> AddmlError:
    return AddmlError(f"{flag(name)} {value}: must be {expected}.", USAGE, option=name)


def read_toml(file: str, errors: str = "strict") -> dict[str, Any]:
    try:
        return tomllib.loads(Path(os.path.expanduser(file)).read_text("utf-8-sig", errors))
    except OSError as error:
        raise AddmlError(f"{file}: cannot be read: {error.strerror}.", file=file) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AddmlError(f"{file}: is not a TOML file: {error}.", file=file) from error


NEED_ALL_ROWS = {"report", "figures", "top", "flag", "per_day", "max_false_alarms", "fail_above", "fail_on_drift"}


def check(options: Options, command: str) -> Options:
    """Refuse options that conflict or have no effect; set the default contamination unless another rule applies."""
    for message in _conflicts(options, command):
        raise AddmlError(message, USAGE)
    normal_images = (options.clean or command == "evaluate") and _names_images(options.file)
    has_own_rule = options.time is not None or normal_images or command == "diff"  # see SeriesSource, ImageSource
    reads_model = command in ("score", "evaluate") and options.model is not None
    if decisions_given(options) or has_own_rule or reads_model:
        return options
    return replace(options, contamination=CONTAMINATION)


def check_applies(options: Options, kind: str) -> None:
    """Refuse options that do not apply to this kind of row."""
    for option in options_set(options):
        if kind not in option.metadata["kinds"]:
            kinds = " or ".join(KIND_WORDS[other] for other in option.metadata["kinds"])
            message = f"{flag(option.name)} does not apply to {KIND_WORDS[kind]}, only to {kinds}; remove it."
            raise AddmlError(message, USAGE, option=option.name)


def _names_images(file: str) -> bool:
    from addml.io.image_folder import is_image_folder  # imports NumPy, which --help avoids

    return is_image_folder(file)


def _conflicts(options: Options, command: str) -> Iterator[str]:
    changed = {option.name: option.metadata for option in options_set(options)}
    if command == "score" and options.model is None:
        yield "score needs a model from addml fit: --model FOLDER."
    if command == "evaluate" and options.label is None and not _names_images(options.file):
        yield "evaluate needs a label column: --label NAME."
    if command in ("score", "evaluate") and options.model is not None:
        for name in (name for name, metadata in changed.items() if metadata["training"]):
            yield f"{flag(name)} applies to training and has no effect with --model; remove one of them."
    if options.engine is None:
        for name in changed.keys() & {"address", "workers", "sync"}:
            yield f"{flag(name)} needs a cluster; add --engine ray, or remove it."
    elif command == "fit" and not options.all_rows:
        yield "--engine ray trains on all rows; add --all-rows, or remove --engine to train on a sample."
    elif command == "score":
        for name in sorted(changed.keys() & NEED_ALL_ROWS):
            yield f"{flag(name)} needs all scores in one place; remove it, or remove --engine ray."
    if options.anomaly_value is not None and options.label is None and options.train_labels is None:
        yield "--anomaly-value needs a label column; name it with --label or --train-labels."
    if options.all_rows and options.sample != TRAINING_ROWS:
        yield f"--all-rows and --sample {options.sample} contradict each other; use one of them."
    if options.no_report and (options.report is not None or options.format is not None):
        yield "--no-report contradicts --report and --format; use one or the other."
    decisions = decisions_given(options)
    for name in decisions:
        if getattr(options, name) == 0:
            yield f"{flag(name)} 0 would flag nothing; use a number above 0."
    if len(decisions) > 1:
        yield f"{' and '.join(map(flag, decisions))} cannot be combined; use one of them."
    if options.threshold not in (None, "auto") and (options.tau is None or not math.isfinite(options.tau)):
        yield f"--threshold {options.threshold}: must be a score or auto."
    if options.max_false_alarms is not None and options.model is None:
        yield "--max-false-alarms applies to new rows: train with addml fit, then run addml score --model FOLDER."
