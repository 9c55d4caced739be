"""What a run can be told. Each setting stands here once: the command line, a TOML file and a run's record use it."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from addml import __version__

TRAINING_ROWS = 200_000
CONTAMINATION = 0.1
MEMORY = "2GiB"


def setting(
    default: Any,
    words: str,
    *,
    short: tuple[str, ...] = (),
    shown: str | None = None,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field with its words for `--help`, other names, what stands for its value, and its range or choices."""
    about = {"words": words, "short": short, "shown": shown, "least": least, "most": most, "choices": choices}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Selection:
    """Columns."""

    columns: tuple[str, ...] = setting(
        (), "train on these columns only; with commas between them, or given again and again", shown="NAMES"
    )
    ignore: tuple[str, ...] = setting((), "columns to leave out", shown="NAMES")


@dataclass(frozen=True)
class Naming:
    """Columns."""

    id: tuple[str, ...] = setting(
        (), "columns that name a row: not trained on, copied to the output (found if not given)", shown="NAMES"
    )


@dataclass(frozen=True)
class Labelling:
    """Columns."""

    label: str | None = setting(
        None, "column that tells the true anomalies: for evaluation only, never seen by training", shown="NAME"
    )
    anomalous: str | None = setting(
        None, "value of the label column that marks an anomaly (1, true, yes, anomaly, ... are known)", shown="VALUE"
    )


@dataclass(frozen=True)
class Learning:
    """Columns."""

    learn_from: str | None = setting(
        None,
        "column with the labels that people gave, to learn from: anomaly or normal (1 or 0, yes or no, ...), "
        "empty where nobody knows",
        shown="NAME",
    )
    known_anomalies: tuple[str, ...] = setting(
        (), "rows that are known to be anomalies, to learn from, by the numbers that the list gives them", shown="ROWS"
    )
    known_normal: tuple[str, ...] = setting((), "rows that are known to be normal, to learn from", shown="ROWS")


@dataclass(frozen=True)
class Timing:
    """Series."""

    time: str | None = setting(
        None,
        "column with the times of the rows, which makes them steps of a series: periods are ranked, not rows",
        shown="NAME",
    )


@dataclass(frozen=True)
class Windowing:
    """Series."""

    window: int = setting(16, "steps of a series that are looked at together", shown="N", least=1)
    cell: str = setting(
        "tanh",
        "the recurrence over a window, or dilated convolutions",
        shown="tanh|gru|tcn",
        choices=("tanh", "gru", "tcn"),
    )
    causal: bool = setting(False, "score each step of a series by the steps up to it alone")


@dataclass(frozen=True)
class Training:
    """Training."""

    one_sided: tuple[str, ...] = setting(
        (), "a number column of which only one side is anomalous, such as amount:high", shown="NAME:high|low"
    )
    clean: bool = setting(False, "the rows are known to be normal, so that all of them are learned from")
    members: int = setting(5, "networks trained together and averaged", shown="N", least=1)
    epochs: int = setting(10, "rounds of training at the most", shown="N", least=1)
    scorer: str = setting(
        "views",
        "how far from normal: by the nearest of some training rows, which finds most, or by the center, which is "
        "several times as fast and keeps no training rows in the model",
        shown="NAME",
        choices=("views", "center"),
    )
    seed: int = setting(0, "for everything drawn at random: the same seed gives the same result", shown="N", least=0)
    sample: int = setting(TRAINING_ROWS, "train on at most so many rows, drawn at random", shown="N", least=2)
    all_rows: bool = setting(False, "train on all rows, however many")


@dataclass(frozen=True)
class Deciding:
    """Decision."""

    threshold: str | None = setting(
        None,
        "find the threshold from the scores of the training rows: auto, by their median absolute deviation, quartiles, "
        "tail (--contamination then being the share of false alarms), or by a mixture of two laws",
        shown="METHOD",
        choices=("auto", "mad", "iqr", "tail", "mixture"),
    )
    contamination: float | None = setting(
        None, "share of the training rows to call anomalies; 0.1 if nothing is said", shown="SHARE", least=0, most=0.5
    )
    tau: float | None = setting(None, "call rows with a score above this anomalies", shown="SCORE")


@dataclass(frozen=True)
class Listing:
    """Reasons."""

    top: int = setting(20, "rows to list, most anomalous first", shown="N", least=0)


@dataclass(frozen=True)
class Explaining(Listing):
    """Reasons."""

    reasons: int = setting(
        3, "reasons to give for each flagged and each listed row; 0 for none, which is faster", shown="N", least=0
    )


@dataclass(frozen=True)
class Writing:
    """Output."""

    output: str | None = setting(
        None,
        "the scored table: .csv, .parquet or .jsonl; detect and score write NAME.scored.csv if not told",
        shown="FILE",
    )


@dataclass(frozen=True)
class Reporting:
    """Output."""

    report: str | None = setting(None, "the report; detect writes NAME.report.html if not told", shown="FILE")
    no_report: bool = setting(False, "write no report")
    format: str | None = setting(
        None, "format of the report; by its name if not given", shown="html|md", choices=("html", "md")
    )
    figures: str | None = setting(None, "folder for the charts of the report as PNG and SVG", shown="FOLDER")
    redact: bool = setting(False, "leave the values of the table out of the report and of what is printed")


@dataclass(frozen=True)
class Saving:
    """Output."""

    model: str | None = setting(
        None, "folder to save the trained model in, for addml score; fit writes NAME.model if not told", shown="FOLDER"
    )


@dataclass(frozen=True)
class Using:
    """Model."""

    model: str | None = setting(None, "folder with the model that addml fit wrote", shown="FOLDER")


@dataclass(frozen=True)
class Reading:
    """Reading: what is not given is found out and said."""

    query: str | None = setting(
        None, "SQL to run where FILE is a database address, such as sqlite:///shop.db", shown="SQL"
    )
    part: str | None = setting(
        None, "sheet of a workbook, or array of an .npz or .mat file", short=("--sheet",), shown="NAME"
    )
    delimiter: str | None = setting(None, "what separates the fields of a CSV", shown="TEXT")
    header: bool | None = setting(None, "whether the first line of a CSV or a sheet names the columns")
    encoding: str | None = setting(None, "how the text of a CSV is encoded: utf-8, latin-1, and so on", shown="NAME")
    decimal: str | None = setting(None, "decimal mark of a CSV", shown=".|,", choices=(".", ","))


@dataclass(frozen=True)
class Strictness:
    """Reading: what is not given is found out and said."""

    strict: bool = setting(
        False, "stop at a text in a column of numbers; else it counts as missing, makes its row strange, and is listed"
    )


@dataclass(frozen=True)
class Picturing:
    """Reading: folders of images."""

    size: str | None = setting(
        None, "resize the images of a folder to so many pixels: 32, or 48x64 for height and width", shown="N|HxW"
    )
    skip_broken: bool = setting(False, "leave out the image files that cannot be read, and say which")


@dataclass(frozen=True)
class Computing:
    """Computing."""

    device: str = setting("auto", "where to compute: auto, cpu, cuda, cuda:1 or mps", shown="NAME")
    jobs: int | None = setting(
        None,
        "threads at the most, or processes where a large table is scored; all cores if not given",
        shown="N",
        least=1,
    )


@dataclass(frozen=True)
class Streaming:
    """Larger than memory: Parquet files, with --all-rows."""

    memory: str | None = setting(
        None,
        f"what training may hold, {MEMORY} if not given; a table that needs more is gone through again and again",
        shown="SIZE",
    )
    no_cache: bool = setting(False, "read the files in every pass; else their prepared rows are written to disk once")
    cache_dir: str | None = setting(
        None, "folder for these rows, which are gone at the end; where the checkpoint is if not given", shown="FOLDER"
    )
    checkpoint: str | None = setting(
        None,
        "folder that keeps the state of training after every epoch, so that the same command goes on after a kill; "
        "MODEL.checkpoint or NAME.checkpoint if not given, where a table is larger than memory",
        shown="FOLDER",
    )

    @property
    def most(self) -> str:
        """What training may hold."""
        return self.memory or MEMORY


@dataclass(frozen=True)
class Ending:
    """Screen and exit code."""

    fail_above: int | None = setting(None, "end with exit code 3 if more rows are anomalies", shown="N", least=0)


@dataclass(frozen=True)
class Showing:
    """Screen and exit code."""

    quiet: bool = setting(False, "print nothing but warnings and errors", short=("-q",))
    json: bool = setting(False, "print one JSON document, for machines")


@dataclass(frozen=True)
class Settings:
    """All that a run was told; `groups` are the ones that its command takes."""

    file: str = ""
    groups: tuple[str, ...] = ()
    selection: Selection = Selection()
    naming: Naming = Naming()
    labelling: Labelling = Labelling()
    learning: Learning = Learning()
    timing: Timing = Timing()
    windowing: Windowing = Windowing()
    training: Training = Training()
    deciding: Deciding = Deciding()
    listing: Listing = Listing()
    explaining: Explaining = Explaining()
    writing: Writing = Writing()
    reporting: Reporting = Reporting()
    saving: Saving = Saving()
    using: Using = Using()
    reading: Reading = Reading()
    strictness: Strictness = Strictness()
    picturing: Picturing = Picturing()
    computing: Computing = Computing()
    streaming: Streaming = Streaming()
    ending: Ending = Ending()
    showing: Showing = Showing()

    def complete(self) -> Settings:
        """With a contamination where training needs one and nothing is said; a saved model has its own decision."""
        said = self.deciding != Deciding() or "training" not in self.groups or self.using.model is not None
        return self if said else replace(self, deciding=Deciding(contamination=CONTAMINATION))

    def plain(self) -> dict[str, Any]:
        """The settings of this run's command by their names."""
        flat: dict[str, Any] = {"file": self.file} if self.file else {}
        for group in self.groups:
            flat |= asdict(getattr(self, group))
        return flat


# The record of a run, beside its output: settings and versions, in TOML that `--config` reads back.


PACKAGES = ("addml", "numpy", "pyarrow", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True)
class Run:
    """What was asked: the command, its arguments as given, and every setting with its value."""

    command: str
    arguments: Sequence[str]
    settings: Mapping[str, Any]
    started: datetime

    @classmethod
    def begin(cls, command: str, arguments: Sequence[str], settings: Mapping[str, Any]) -> Run:
        """A run that starts now."""
        return cls(command, arguments, settings, datetime.now(UTC))


def versions(*more: str) -> dict[str, str]:
    """The versions that a result may depend on, and those of further packages."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def record(run: Run, outcome: Mapping[str, Any]) -> str:
    """The run as TOML: its settings first, then what it was and what came out, which `--config` passes over."""
    name = f"addml {run.command} --config THIS_FILE"
    lines = [f"# Settings of a run of addml {__version__}. Repeat it with: {name}", *_lines(run.settings)]
    about = {
        "command": _shell(["addml", *run.arguments]),
        "folder": os.getcwd(),
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - run.started).total_seconds(), 3),
    }
    lines += ["", "[run]", *_lines(about)]
    for title, table in {
        "input": _input(str(run.settings.get("file", ""))),
        "outcome": outcome,
        "versions": versions(),
    }.items():
        lines += ["", f"[run.{title}]", *_lines(table)] if table else []
    return "\n".join(lines) + "\n"


def _input(file: str) -> dict[str, Any]:
    """What tells whether the file is still the same one."""
    path = Path(os.path.expanduser(file))
    if not file or not path.is_file():
        return {}
    about = path.stat()
    changed = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
    return {"path": str(path.resolve()), "bytes": about.st_size, "changed": changed}


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items() if value is not None]


def _key(name: str) -> str:
    plain = name.replace("_", "-")
    return plain if plain.replace("-", "").isalnum() and plain.isascii() else _value(name)


def _value(value: Any) -> str:
    """A value in TOML, whose strings, numbers, truths and lists are written as in JSON."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _shell(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)
