"""The options of every command, each defined once: command line, help, TOML files, REST and run records use them."""

# ruff: noqa: RUF009  option() is a dataclass field
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, get_type_hints

from addml.errors import USAGE, AddmlError
from addml.text import without_password

TRAINING_ROWS = 200_000
CONTAMINATION = 0.1
MEMORY = "2GiB"
KNOWN_ENDING = ".toml"
DECISIONS = ("threshold", "contamination", "alarm_rate", "max_false_alarms", "flag", "per_day", "events")  # one only

Names = tuple[str, ...]
TABLE, IMAGE, SERIES = KINDS = ("table", "image", "series")
KIND_WORDS = {TABLE: "a table", IMAGE: "a folder of images", SERIES: "a series (--time)"}

TRAIN = ("detect", "fit", "evaluate")
SCORE = ("detect", "score", "evaluate")
FILES = ("detect", "fit", "score", "evaluate", "diff")
COMPARE = (*TRAIN, "compare")
NAMED = (*FILES, "compare")
EVERY = ()  # every command


def option(
    default: Any,
    help: str,
    commands: Sequence[str],
    kinds: Sequence[str] = KINDS,
    *,
    panel: str,
    basic: bool = False,
    metavar: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    flags: Sequence[str] = (),
    remote: bool = False,
    training: bool = False,
) -> Any:
    """A field of `Options`.

    `metavar`: by default its choices, N for a whole number, NAME for a text. `basic`: in `--help`, else only in
    `--help-all`. `remote`: a web job takes it. `training`: says nothing about a saved model.
    """
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
    """What a run is told: the file, then one field per option."""

    # fmt: off
    file: str = ""

    columns: Names = _column((), "Train only on these columns (NAME,NAME,...)", COMPARE, basic=True, training=True)
    ignore: Names = _column((), "Drop these columns", COMPARE, basic=True, training=True)
    id: Names = _column((), "Columns that identify a row; not used in training [default: auto-detected]", NAMED,
        basic=True)
    keep: Names = _column((), "Columns to show with each row, or all [default: ids and the most readable text]", SCORE,
        kinds=(TABLE,), basic=True)
    by: Names = _column((), "Judge each row within its group (store, host)", TRAIN, basic=True, training=True)
    label: str | None = _column(None, "Column with true labels, for evaluation only", COMPARE, basic=True)
    anomaly_value: str | None = _column(None,
        "Value of the label column that marks an anomaly [default: 1, true, yes, anomaly, ...]", COMPARE,
        metavar="VALUE")
    train_labels: str | None = _column(None,
        "Column with known labels to train on: 1 or 0, yes or no, empty where unknown", ("detect", "fit"),
        kinds=(TABLE,), basic=True)
    known_anomalies: Names = _column((), "Rows known to be anomalies, to train on: row numbers, ids or a TOML file",
        ("detect", "fit"), kinds=(TABLE,), metavar="ROWS")
    known_normal: Names = _column((),
        "Rows known to be normal, to train on and not to list: row numbers (detect, fit), ids or a TOML file",
        ("detect", "fit", "score", "diff"), kinds=(TABLE,), metavar="ROWS")
    time: str | None = _column(None, "Column with timestamps: rows become steps of a series, and events are ranked",
        FILES, kinds=(SERIES,), basic=True)

    window: int | None = _windows(None, "Steps per window [default: the period of a single channel, else 10]",
        minimum=1)
    causal: bool = _windows(False, "Score each step only by the steps up to it")
    min_steps: int = _windows(1, "Minimum number of steps per event", commands=SCORE, minimum=1, training=False)
    bands: bool = _windows(False, "Add the expected value and band of each channel to the scored table", commands=SCORE,
        training=False)

    epochs: int = _training(10, "Maximum number of epochs", basic=True, minimum=1)
    members: int = _training(5, "Number of networks in the ensemble", minimum=1)
    sample: int = _training(TRAINING_ROWS, "Maximum number of training rows, drawn at random", kinds=(TABLE, IMAGE),
        basic=True, minimum=2)
    all_rows: bool = _training(False, "Train on all rows", kinds=(TABLE, IMAGE))
    clean: bool = _training(False, "All training rows are known to be normal: leave none out")
    one_sided: Names = _training((),
        "Number column in which only high (or only low) values are anomalous, such as amount:high", kinds=NOT_IMAGES,
        metavar="NAME:high|low")
    scorer: str = _training("views",
        "Scorer: views finds most; center is several times faster and keeps no training rows in the model",
        choices=("views", "center"))
    seed: int = _training(0, "Random seed", basic=True, minimum=0)

    threshold: str | None = _flagging(None, "Flag rows above this score, or those that stand clear of the rest (auto)",
        (*TRAIN, "score"), metavar="auto|SCORE")
    contamination: float | None = _flagging(None, f"Share of training rows to flag [default: {CONTAMINATION}]",
        (*TRAIN, "score"), metavar="SHARE", minimum=0, maximum=0.5)
    flag: int | None = _flagging(None, "Flag this many rows, those with the highest scores", ("detect", "score"),
        kinds=(TABLE, IMAGE), minimum=1)
    events: int | None = _flagging(None, "Flag this many events of a series", SCORE, kinds=(SERIES,), minimum=1)
    per_day: int | None = _flagging(None, "Flag this many rows a day on average, by the first date column",
        ("detect", "score"), kinds=(TABLE,), minimum=1, basic=False)
    alarm_rate: float | None = _flagging(None, "Flag at most this share of new rows that resemble the training rows",
        ("fit", "score", "evaluate"), metavar="RATE", minimum=0, maximum=1)
    max_false_alarms: float | None = _flagging(None, "Maximum share of false alarms among the flagged new rows",
        ("score", "evaluate"), kinds=(TABLE, IMAGE), metavar="SHARE", minimum=0, maximum=1)
    top: int = _flagging(20, "Number of rows to list, most anomalous first", (*SCORE, "demo", "diff"), minimum=0)
    reasons: int = _flagging(3, "Number of reasons per flagged or listed row; 0 is faster", (*SCORE, "demo"), minimum=0)

    output: str | None = _output(None,
        "Scored table: .csv, .parquet, .jsonl or .xlsx (detect and score: NAME.scored.csv)", (*SCORE, "diff"),
        basic=True, metavar="FILE")
    output_sql: str | None = _output(None,
        "Table of the input database for the scored rows; its rows are replaced in one transaction", SCORE,
        kinds=NOT_IMAGES, metavar="TABLE")
    report: str | None = _output(None, "Report: .html or .md (detect: NAME.report.html)", SCORE, basic=True,
        metavar="FILE")
    no_report: bool = _output(False, "Write no report", SCORE, basic=True)
    format: str | None = _output(None, "Format of the report [default: by its name]", SCORE, choices=("html", "md"))
    figures: str | None = _output(None, "Folder for the report's charts as PNG and SVG", SCORE, metavar="FOLDER")
    maps: str | None = _output(None,
        "Folder for maps of photographs as PNG: 128 is the threshold; masks are white above it", SCORE, kinds=(IMAGE,),
        metavar="FOLDER")
    redact: bool = _output(False, "Hide the table's values in the report and on the screen", SCORE, remote=True)
    model: str | None = _output(None,
        "Model folder: detect and fit write it, score and evaluate read it (fit: NAME.model)", FILES[:4], basic=True,
        metavar="FOLDER")

    query: str | None = _reading(None, "SQL query, if FILE is a database address such as sqlite:///shop.db", basic=True,
        metavar="SQL")
    sheet: str | None = _reading(None, "Sheet of a workbook, or array of an .npz or .mat file", basic=True, remote=True)
    delimiter: str | None = _reading(None, "Field separator of a CSV", basic=True, metavar="TEXT", remote=True)
    header: bool | None = _reading(None, "Whether the first line names the columns", remote=True)
    encoding: str | None = _reading(None, "Text encoding: utf-8, latin-1, ...", remote=True)
    decimal: str | None = _reading(None, "Decimal mark of a CSV", choices=(".", ","), remote=True)
    skip_rows: int | None = _reading(None, "Lines or rows above the table of a CSV or a sheet [default: auto-detected]",
        minimum=0, remote=True)
    strict: bool = _reading(False, "Stop at text in a number column instead of counting it as a missing value",
        commands=FILES, kinds=(TABLE,), remote=True)
    encoder: str | None = _training(None,
        "Network for images: conv or pretrained [default: pretrained above 64 pixels, if installed]", kinds=(IMAGE,),
        choices=("conv", "pretrained"))
    size: str | None = _images(None, "Resize images to N x N or height x width pixels", basic=True, metavar="N|HxW")
    skip_unreadable: bool = _images(False, "Skip image files that cannot be read, and list them")

    device: str = _computing("auto", "Where to compute: auto, cpu, cuda, cuda:1 or mps", basic=True)
    jobs: int | None = _computing(None, "Maximum number of threads or processes [default: all cores]", basic=True,
        minimum=1)
    checkpoint: str | None = _storage(None,
        "Folder in which training is saved after every epoch; run the command again to resume "
        "[default: MODEL.checkpoint for tables larger than memory]", metavar="FOLDER")
    memory: str | None = _storage(None,
        f"Memory that training on all rows of Parquet files may use [default: {MEMORY}]", kinds=(TABLE,),
        metavar="SIZE")
    scratch: str | None = _storage(None, "Folder for temporary files [default: that of the checkpoint]", kinds=(TABLE,),
        metavar="FOLDER")
    engine: str | None = _computing(None,
        "Compute on a Ray cluster (needs addml[ray]): score and fit --all-rows of Parquet files, compare",
        commands=("fit", "score", "compare"), kinds=(TABLE,), choices=("ray",))
    address: str | None = _computing(None, "Address of the Ray cluster, or auto [default: start one on this machine]",
        commands=("fit", "score", "compare"), kinds=(TABLE,), metavar="ADDRESS")
    workers: int | None = _computing(None, "Number of processes of the cluster [default: one less than its cores]",
        commands=("fit", "score"), kinds=(TABLE,), minimum=1)
    sync: bool = _computing(False, "Average the gradients of the workers in every step: as one process, but slow",
        commands=("fit",), kinds=(TABLE,))
    fail_above: int | None = _computing(None, "Exit with code 3 if more rows than this are flagged",
        commands=("detect", "score"), basic=True, minimum=0)
    fail_on_drift: bool = _computing(False, "Exit with code 5 if a column has drifted", commands=("score",),
        kinds=(TABLE,), basic=True)
    check: bool = _computing(False, "Plant faults and report which would be found", commands=("detect",),
        kinds=(TABLE,), basic=True)
    quiet: bool = _computing(False, "Print only warnings and errors", commands=EVERY, basic=True, flags=("-q",))
    json: bool = _computing(False, "Print one JSON document", commands=EVERY, basic=True)
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
        """How a file is read, as `addml.io.read` takes it."""
        known = ("query", "delimiter", "header", "encoding", "decimal", "skip_rows")
        return {name: getattr(self, name) for name in known} | {"part": self.sheet}

    def of(self, command: str) -> dict[str, Any]:
        """The values that belong to a command, by their names."""
        own = {"file": self.file} if self.file else {}
        return own | {one.name: getattr(self, one.name) for one in options_of(command)}


@cache
def options_of(command: str) -> tuple[Field[Any], ...]:
    known = (one for one in fields(Options) if one.metadata)
    return tuple(one for one in known if one.metadata["commands"] in (EVERY,) or command in one.metadata["commands"])


@cache
def types() -> dict[str, Any]:
    return get_type_hints(Options)


def is_list(name: str) -> bool:
    return bool(types()[name] == tuple[str, ...])


def is_switch(name: str) -> bool:
    return types()[name] in (bool, bool | None)


def names_file(text: str) -> bool:
    """Whether a value of --known-normal or --known-anomalies names a file."""
    return text.lower().endswith(KNOWN_ENDING)


def metavar(one: Field[Any]) -> str:
    """What stands for the option's value in its help."""
    kind = "NAMES" if is_list(one.name) else "N" if types()[one.name] in (int, int | None) else "NAME"
    return one.metadata["metavar"] or "|".join(one.metadata["choices"]) or kind


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def options_set(options: Options) -> list[Field[Any]]:
    """The options that differ from their defaults."""
    return [one for one in fields(Options) if one.metadata and getattr(options, one.name) != one.default]


def decisions_given(options: Options) -> list[str]:
    return [name for name in DECISIONS if getattr(options, name) is not None]


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


# Options that contradict each other, do nothing, or do not apply --------------------------------------------

NEED_ALL_ROWS = {"report", "figures", "top", "flag", "per_day", "max_false_alarms", "fail_above", "fail_on_drift"}


def check(options: Options, command: str) -> Options:
    """The options with the default contamination; an error where they contradict each other or do nothing."""
    for words in _contradictions(options, command):
        raise AddmlError(words, USAGE)
    normal_images = (options.clean or command == "evaluate") and _names_images(options.file)
    has_own_rule = options.time is not None or normal_images or command == "diff"  # see SeriesSource, ImageSource
    reads_model = command in ("score", "evaluate") and options.model is not None
    if decisions_given(options) or has_own_rule or reads_model:
        return options
    return replace(options, contamination=CONTAMINATION)


def check_applies(options: Options, kind: str) -> None:
    """Every option that was set must apply to this kind of row."""
    for one in options_set(options):
        if kind not in one.metadata["kinds"]:
            only = " or ".join(KIND_WORDS[other] for other in one.metadata["kinds"])
            words = f"{flag(one.name)} does not apply to {KIND_WORDS[kind]}, only to {only}; leave it out."
            raise AddmlError(words, USAGE, option=one.name)


def _names_images(file: str) -> bool:
    from addml.io.image_folder import is_image_folder  # NumPy, which --help does without

    return is_image_folder(file)


def _contradictions(options: Options, command: str) -> Iterator[str]:
    given = {one.name for one in options_set(options)}
    if command == "score" and options.model is None:
        yield "score needs a model: --model FOLDER, as addml fit wrote it."
    if command == "evaluate" and options.label is None and not _names_images(options.file):
        yield "evaluate needs a label column: --label NAME."
    if command in ("score", "evaluate") and options.model is not None:
        for one in (one for one in options_set(options) if one.metadata["training"]):
            yield f"{flag(one.name)} is an option of training; leave it out with --model."
    if options.engine is None:
        for name in given & {"address", "workers", "sync"}:
            yield f"{flag(name)} is about a cluster; give --engine ray, or leave it out."
    elif command == "fit" and not options.all_rows:
        yield "--engine ray trains on all rows; give --all-rows, or leave it out and train on a sample."
    elif command == "score":
        for name in sorted(given & NEED_ALL_ROWS):
            yield f"{flag(name)} needs the scores of all rows in one place; leave it out with --engine ray."
    if options.anomaly_value is not None and options.label is None and options.train_labels is None:
        yield "--anomaly-value is a value of a label column; name that column with --label or --train-labels."
    if options.all_rows and options.sample != TRAINING_ROWS:
        yield f"--all-rows leaves nothing for --sample {options.sample} to do; give one of them."
    if options.no_report and (options.report is not None or options.format is not None):
        yield "--no-report leaves nothing for --report and --format to do; leave them out."
    decisions = decisions_given(options)
    for name in decisions:
        if getattr(options, name) == 0:
            yield f"{flag(name)} 0 flags no row; give a number above 0."
    if len(decisions) > 1:
        yield f"{' and '.join(map(flag, decisions))} decide in different ways; give one of them."
    if options.threshold not in (None, "auto") and (options.tau is None or not math.isfinite(options.tau)):
        yield f"--threshold {options.threshold}: give a score, or auto."
    if options.max_false_alarms is not None and options.model is None:
        yield "--max-false-alarms is about new rows: train with addml fit, then use addml score --model FOLDER."
