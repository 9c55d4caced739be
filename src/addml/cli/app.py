"""The typer application: the commands, their arguments and their help."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated, Any

import typer

from addml.cli.arguments import with_settings
from addml.cli.compare import compare
from addml.cli.serve import serve
from addml.pipeline.options import Settings

File = Annotated[
    str,
    typer.Argument(
        help="A CSV, Parquet, Arrow, JSON lines, Excel, NumPy or MATLAB file, a folder of Parquet files "
        "or of images, a database address with --query, or - for standard input.",
        metavar="FILE",
        show_default=False,
    ),
]
ModelFolder = Annotated[
    str, typer.Argument(help="The folder that addml fit wrote.", metavar="MODEL", show_default=False)
]
BeforeFolder = Annotated[
    str, typer.Argument(help="The folder of the first model.", metavar="MODEL_A", show_default=False)
]
AfterFolder = Annotated[
    str, typer.Argument(help="The folder of the second model.", metavar="MODEL_B", show_default=False)
]
DemoFolder = Annotated[str, typer.Argument(help="Where to write the table and what is found in it.", metavar="FOLDER")]
OnnxFile = Annotated[
    str | None,
    typer.Option("--output", help="The ONNX file; named after the model if not told.", metavar="FILE"),
]

app = typer.Typer(
    name="addml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done; 1 the input, a model or the disk is not as needed; 2 wrong usage; "
    "3 more anomalies than --fail-above; 130 interrupted. ADDML_DEBUG=1 shows where an error arose.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from addml import __version__

        print(f"addml {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version, metavar=""),
    ] = False,
) -> None:
    """Find the anomalies in a table, without labels."""


LONGEST = 1000  # characters of a line of an error, in which a cell of the table may stand
LEARNED_BY = ("selection", "naming", "labelling", "learning", "timing", "windowing", "training", "deciding")


@app.command()
@with_settings(
    *LEARNED_BY,
    "explaining",
    "writing",
    "reporting",
    "saving",
    "reading",
    "strictness",
    "picturing",
    "computing",
    "streaming",
    "ending",
    "showing",
)
def detect(file: File, settings: Settings) -> None:
    """Train on a table, rank its rows, say why the top ones stand out; write the scored table and a report."""
    from addml.cli import commands

    commands.detect(settings)


@app.command()
@with_settings(
    *LEARNED_BY,
    "saving",
    "reading",
    "strictness",
    "picturing",
    "computing",
    "streaming",
    "showing",
)
def fit(file: File, settings: Settings) -> None:
    """Train on a table and save the model, for addml score to use every day."""
    from addml.cli import commands

    commands.fit(settings)


@app.command()
@with_settings(
    "using",
    "naming",
    "timing",
    "deciding",
    "explaining",
    "writing",
    "reporting",
    "reading",
    "strictness",
    "picturing",
    "computing",
    "ending",
    "showing",
)
def score(file: File, settings: Settings) -> None:
    """Score a table by a saved model, a part of it at a time, and say how it differs from the training rows."""
    from addml.cli import commands

    commands.score(settings)


@app.command()
@with_settings(
    "labelling",
    "using",
    "selection",
    "naming",
    "timing",
    "windowing",
    "training",
    "deciding",
    "explaining",
    "writing",
    "reporting",
    "reading",
    "strictness",
    "computing",
    "showing",
)
def evaluate(file: File, settings: Settings) -> None:
    """Compare scores with a label column: ROC-AUC, average precision, precision at k, the curves; VUS of a series."""
    from addml.cli import commands

    commands.evaluate(settings)


@app.command()
@with_settings("showing")
def info(model: ModelFolder, settings: Settings) -> None:
    """Say what a saved model is: its columns, settings, training, threshold, versions and size."""
    from addml.cli import commands

    commands.info(model, settings)


@app.command()
@with_settings("naming", "timing", "listing", "writing", "reading", "strictness", "computing", "showing")
def diff(before: BeforeFolder, after: AfterFolder, file: File, settings: Settings) -> None:
    """Score a table by two saved models and say which rows moved in rank and which decisions changed."""
    from addml.cli import commands

    commands.diff(before, after, settings)


@app.command()
@with_settings("showing")
def export(model: ModelFolder, settings: Settings, output: OnnxFile = None) -> None:
    """Write a saved model of a table of numbers as an ONNX file, for programs without Python to score by."""
    from addml.cli import commands

    commands.export(model, output, settings)


@app.command()
@with_settings("training", "explaining", "computing", "showing")
def demo(settings: Settings, folder: DemoFolder = "addml-demo") -> None:
    """Detect anomalies in a small medical table that comes with scikit-learn."""
    from addml.cli import commands

    commands.demo(folder, settings)


app.command()(compare)
app.command()(serve)


def run(app: typer.Typer = app, name: str = "addml") -> None:
    """Run the command that the arguments name; what a user can mend is said in one line, with exit code 1."""
    _heed_signals()
    _open_streams()
    try:
        app(sys.argv[1:], prog_name=name)  # given, they are not expanded on Windows: ~, $NAME and * may be columns
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("ADDML_DEBUG"):
            raise
        from addml.text import visible

        message = str(error) or "not enough memory; --sample trains on fewer rows"
        print("Error: " + "\n".join(visible(_brief(line)) for line in message.splitlines()), file=sys.stderr)
        sys.exit(1)


def _brief(line: str) -> str:
    """A line without its middle where that is long, so that the place before it and the remedy behind it are seen."""
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def _heed_signals() -> None:
    """End as after an interrupt when killed, or when the terminal goes, unless the run is to outlive it (nohup)."""
    signal.signal(signal.SIGTERM, _terminate)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _terminate)


def _open_streams() -> None:
    """Let streams that are closed lead nowhere, and write letters that the output does not know as escapes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(number: int, frame: Any) -> None:
    sys.exit(128 + number)  # as an exception, so that unfinished files are removed
