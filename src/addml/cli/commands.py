"""The commands of the command line."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli import outputs, screen
from addml.cli.arguments import Device, argument, option, with_options
from addml.cli.compare import compare
from addml.cli.outputs import Files
from addml.cli.screen import Screen
from addml.errors import USAGE, AddmlError
from addml.io.source import STANDARD_INPUT, NoRowsError, is_special
from addml.pipeline.options import Options, check
from addml.progress import Progress
from addml.text import counted, visible

if TYPE_CHECKING:
    from addml.pipeline.ranking import Result

MAX_LINE = 1000  # characters per line of an error message, which may quote a table cell
TOO_MANY_FLAGGED, NO_ROWS, DRIFTED = 3, 4, 5  # exit codes
INPUTS = (
    "CSV, Parquet, Arrow, JSON Lines, Excel, NumPy or MATLAB file; folder of Parquet files or images; "
    "database address; or - for standard input."
)
LIMITS = "upload=500MB, memory=8GB, seconds=3600 or queue=50; repeatable. docs/serving.md lists all limits."

File = Annotated[str, argument("FILE", INPUTS)]
Model = Annotated[str, argument("MODEL", "Model folder.")]
Before = Annotated[str, argument("BEFORE", "Earlier file, or a second model folder.")]
DemoFolder = Annotated[str, argument("FOLDER", "Folder for the table and the results.", show_default=True)]
OnnxFile = Annotated[str | None, option("--output", "FILE", "ONNX file (default: NAME.onnx for NAME.model).")]
Models = Annotated[
    list[str] | None, argument("MODEL", "Model folders written by addml fit, each served under its folder name.")
]
Host = Annotated[str, option("--host", "ADDRESS", "Address to listen on; 0.0.0.0 allows other machines.")]
Port = Annotated[int, option("--port", "N", "Port; 0 picks a free one.", min=0, max=65535)]
Token = Annotated[
    str | None, option("--token", "TEXT", "Client token, better set as ADDML_TOKEN (default: generated).")
]
Limit = Annotated[list[str] | None, option("--limit", "NAME=VALUE", f"Change a limit, such as {LIMITS}")]
RootPath = Annotated[str, option("--root-path", "/PATH", "Path prefix that a proxy strips.")]
AccessLog = Annotated[
    str | None, option("--access-log", "FILE", "Log file, one line per request; - for standard error.")
]

app = typer.Typer(
    name="addml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 success; 1 bad input, model or disk; 2 wrong usage; 3 more rows flagged than --fail-above; "
    "4 no rows in the input; 5 drift with --fail-on-drift; 130 interrupted. ADDML_DEBUG=1 shows tracebacks.",
)


def _version(value: bool) -> None:
    if value:
        from addml import __version__

        print(f"addml {__version__}")
        raise typer.Exit


Version = Annotated[bool, option("--version", "", "Print the version and exit.", is_eager=True, callback=_version)]


@app.callback()
def root(version: Version = False) -> None:
    """Find anomalies in tables, images and time series, without labels."""


@app.command()
@with_options("detect")
def detect(file: File, options: Options) -> None:
    """Find anomalies in a table: train on it, rank and explain its rows, write a scored table and a report."""
    _detect(options)


def _detect(options: Options, folder: Path = Path()) -> None:
    from addml.pipeline import run

    options = check(options, "detect")
    name = str(folder / outputs.stem_of(options.file))
    files = outputs.plan_files(options, name, scored=True, report=True, model=options.model)
    options = _with_checkpoint(options, options.model or name, "detect")
    Session("detect", options, files).run(run.detect)


@app.command()
@with_options("fit")
def fit(file: File, options: Options) -> None:
    """Train on a table and save a model for addml score."""
    from addml.pipeline import run

    options = check(options, "fit")
    name = outputs.stem_of(options.file)
    files = outputs.plan_files(options, name, model=options.model or f"{name}.model")
    options = _with_checkpoint(options, str(files.model), "fit")
    session = Session("fit", options, files)
    with session.screen.show_warnings():
        if options.engine is None:
            result = run.fit(options, session.progress)
        else:
            from addml.cluster.ray_fit import fit_table

            result = fit_table(options, str(files.model), session.progress)
        session.finish_training(result)


def _with_checkpoint(options: Options, name: str, command: str) -> Options:
    from addml.pipeline.sources import on_disk_source

    if options.time is not None or on_disk_source(options, command) is None or options.checkpoint is not None:
        return options
    return replace(options, checkpoint=f"{name}.checkpoint")


@app.command()
@with_options("score")
def score(file: File, options: Options) -> None:
    """Score a table with a saved model and report drift from the training rows."""
    from addml.pipeline import run

    options = check(options, "score")
    name = outputs.stem_of(options.file)
    if options.engine is None:
        return Session("score", options, outputs.plan_files(options, name, scored=True)).run(run.score)
    from addml.cluster.parts import score_table

    output = options.output or f"{name}.scored"
    session = Session("score", options, Files())
    with session.screen.show_warnings():
        summary = score_table(options, output, session.progress)
        rows, parts = counted(summary["rows"], "row"), counted(summary["parts"], "part")
        session.screen.say(f"{options.source}: {rows} in {parts}, {summary['scored']} scored in this run")
        session.screen.show_result(summary, {"scored": output})


@app.command()
@with_options("evaluate")
def evaluate(file: File, options: Options) -> None:
    """Compare scores with labels: ROC-AUC, average precision and precision at k; VUS for a series."""
    from addml.pipeline import run

    options = check(options, "evaluate")
    Session("evaluate", options, outputs.plan_files(options, outputs.stem_of(options.file))).run(run.evaluate)


@app.command()
@with_options("info")
def info(model: Model, options: Options) -> None:
    """Show a saved model's columns, settings, training, threshold, version and size."""
    from addml.pipeline import run

    metadata, out = run.info(model), Screen(options)
    out.document(metadata)
    screen.show_model(out, metadata)


@app.command()
@with_options("diff")
def diff(before: Model, after: Before, file: File, options: Options) -> None:
    """Compare two days under one model (MODEL YESTERDAY TODAY) or two models on one table (MODEL MODEL FILE)."""
    from addml.io.write import write_table
    from addml.pipeline import diffs

    options = check(options, "diff")
    files = outputs.plan_files(options, "diff")
    session = Session("diff", options, files, before=before, after=after)
    with session.screen.show_warnings():
        diff = diffs.compare(before, after, options, session.progress)
        if files.scored is not None:
            write_table(diff.table, files.scored)
        session.write_record({"rows": diff.to_json(0)["rows"]})
        screen.show_diff(session.screen, diff, options.top)
        session.screen.show_result(diff.to_json(options.top), files.by_name())


@app.command()
@with_options("export")
def export(model: Model, options: Options, output: OnnxFile = None) -> None:
    """Export a model of a numeric table or of photographs to ONNX, for scoring without Python."""
    from addml import load
    from addml.onnx import to_onnx

    file = output or f"{Path(os.path.abspath(os.path.expanduser(model))).name.removesuffix('.model')}.onnx"
    to_pipe = is_special(Path(file))
    if file == STANDARD_INPUT or (to_pipe and options.json):
        remedy = "write the ONNX file to a named file, or without --json to /dev/stdout"
        raise AddmlError(f"--output {file}: {remedy}.", USAGE, option="output")
    to_onnx(load(model, device="cpu"), file)
    out = Screen(options, to_stderr=to_pipe)
    out.document({"model": model, "files": {"onnx": file}})
    out.say(f"ONNX file: {file}", wrap=False)


@app.command()
@with_options("demo")
def demo(options: Options, folder: DemoFolder = "addml-demo") -> None:
    """Try addml detect on a small medical table that comes with scikit-learn."""
    target = Path(os.path.expanduser(folder))
    file = str(outputs.write_example(target))
    _detect(replace(options, file=file, id=("patient",), label="diagnosis", anomaly_value="malignant"), target)


app.command()(compare)


@app.command()
def serve(
    models: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Token = None,
    limit: Limit = None,
    root_path: RootPath = "",
    access_log: AccessLog = None,
    device: Device = "auto",
) -> None:
    """Serve models over REST and in the browser: score rows, upload files, read reports, label rows."""
    from addml.server import Limits, serve

    serve(
        models or [],
        Limits.parse(limit or []),
        host=host,
        port=port,
        token=token or os.environ.get("ADDML_TOKEN") or None,
        root_path=root_path,
        access_log=access_log,
        device=device,
    )


class Session:
    """One run of a command: options, files, screen and start time."""

    def __init__(self, command: str, options: Options, files: Files, **arguments: str) -> None:
        """`arguments`: the positional arguments for the run record, besides FILE."""
        self.command, self.options, self.files, self.arguments = command, options, files, arguments
        self.screen = Screen(options, to_stderr=bool(files.to_stdout))
        self.progress = self.screen.progress()
        self.started = datetime.now(UTC)

    def run(self, work: Callable[[Options, Progress], Result]) -> None:
        """Do the work, then finish; warnings are printed and kept."""
        with self.screen.show_warnings():
            self.finish(work(self.options, self.progress))

    def finish(self, result: Result) -> None:
        """Write the files, show the findings and set the exit code."""
        options, findings = self.options, result.findings
        settings = options.of(self.command) | {"file": findings.source}
        findings = replace(findings, notes=(*findings.notes, *self.screen.warnings), settings=settings)
        findings = outputs.write_result(self.files, result, findings, options)
        self.write_record({"rows": findings.rows, "anomalies": findings.anomalies})
        if options.redact:
            from addml.report import redacted

            findings = redacted(findings)
        screen.show_findings(self.screen, findings, options.top)
        self.screen.show_result(findings.to_json(options.top), self.files.by_name())
        if options.fail_on_drift and any(entry["drifted"] for entry in findings.drift):
            raise typer.Exit(DRIFTED)
        if options.fail_above is not None and findings.anomalies > options.fail_above:
            flagged = counted(findings.anomalies, findings.noun)
            print(f"{flagged} flagged: more than --fail-above {options.fail_above:,}", file=sys.stderr)
            raise typer.Exit(TOO_MANY_FLAGGED)

    def finish_training(self, result: Result) -> None:
        """Write the model and the run record, then show the training."""
        findings = result.findings
        outputs.save_model(self.files, result.model)
        self.write_record({"rows": findings.rows, "threshold": findings.threshold})
        screen.show_reading(self.screen, findings)
        screen.show_training(self.screen, findings)
        self.screen.show_result(findings.to_json(0), self.files.by_name())

    def write_record(self, outcome: dict[str, Any]) -> None:
        """Write options, versions and outcome next to the output."""
        from addml.io.write import write_whole

        if self.files.record is not None:
            options = self.arguments | self.options.of(self.command) | {"file": self.options.source}
            text = outputs.record(self.command, options, self.started, outcome)
            write_whole(self.files.record, text.encode("utf-8", "surrogateescape"))


def run(app: typer.Typer = app, name: str = "addml") -> None:
    """Run a command; report an error that the user can fix in one line and exit with its code."""
    _handle_signals()
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed
            setattr(sys, stream, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters outside its encoding
    try:
        app(sys.argv[1:], prog_name=name)  # explicit arguments, as typer would expand ~, $NAME and * on Windows
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("ADDML_DEBUG"):
            raise
        message = str(error) or "out of memory; free some, or train on fewer rows with --sample"
        print("Error: " + "\n".join(visible(_shortened(line)) for line in message.splitlines()), file=sys.stderr)
        if isinstance(error, NoRowsError):
            sys.exit(NO_ROWS)
        sys.exit(2 if isinstance(error, AddmlError) and error.code == USAGE else 1)


def _shortened(line: str) -> str:
    """Cut the middle of a long line; the location at its start and the remedy at its end remain."""
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE // 2]} … {line[-MAX_LINE // 2 :]}"


def _handle_signals() -> None:
    """Clean up and exit on SIGTERM and, unless started with nohup, on SIGHUP."""

    def terminate(number: int, frame: Any) -> None:
        sys.exit(128 + number)  # an exception, so that unfinished files are removed

    signal.signal(signal.SIGTERM, terminate)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, terminate)
