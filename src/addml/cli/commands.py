"""The commands: their arguments, what they call, and what they write and print at the end."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli import outputs, screen
from addml.cli.arguments import with_options
from addml.cli.compare import compare
from addml.cli.outputs import Files
from addml.cli.screen import Screen, bars
from addml.errors import USAGE, AddmlError
from addml.io.source import STANDARD_INPUT, NoRowsError, is_special
from addml.pipeline.options import Options, check
from addml.progress import Progress
from addml.text import counted, visible

if TYPE_CHECKING:
    from addml.findings import Findings
    from addml.pipeline.ranking import Result

LONGEST_LINE = 1000  # characters of a line of an error, which may hold a cell of the table
MORE_ANOMALIES, NO_ROWS, DRIFTED = 3, 4, 5  # exit codes

File = Annotated[
    str,
    typer.Argument(
        help="CSV, Parquet, Arrow, JSON lines, Excel, NumPy or MATLAB file, folder of Parquet files or images, "
        "database address, or - for standard input.",
        metavar="FILE",
        show_default=False,
    ),
]
Model = Annotated[str, typer.Argument(help="Model folder.", metavar="MODEL", show_default=False)]
After = Annotated[
    str, typer.Argument(help="File of an earlier day, or a second model folder.", metavar="BEFORE", show_default=False)
]
DemoFolder = Annotated[str, typer.Argument(help="Folder for the table and the results.", metavar="FOLDER")]
OnnxFile = Annotated[
    str | None, typer.Option("--output", help="ONNX file; named after the model by default.", metavar="FILE")
]
Models = Annotated[
    list[str] | None,
    typer.Argument(help="Model folders that addml fit wrote; each is served under its name.", metavar="[MODEL]..."),
]
Host = Annotated[
    str,
    typer.Option(
        "--host", help="Address to listen on; the default is reachable from this machine only.", metavar="ADDRESS"
    ),
]
Port = Annotated[int, typer.Option("--port", help="Port; 0 picks a free one.", min=0, max=65535, metavar="N")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Token that clients must send; generated and printed by default. Prefer the environment "
        "variable ADDML_TOKEN, which process lists do not show.",
        metavar="TEXT",
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="Change a limit, such as upload=500MB, memory=8GB, seconds=3600 or queue=50; may be repeated. "
        "docs/serving.md lists them.",
        metavar="NAME=VALUE",
    ),
]
RootPath = Annotated[str, typer.Option("--root-path", help="Path prefix that a proxy strips.", metavar="/PATH")]
AccessLog = Annotated[
    str | None,
    typer.Option("--access-log", help="Log file, one line per request; - for standard error.", metavar="FILE"),
]
ServeDevice = Annotated[str, typer.Option("--device", help="Where to compute: auto, cpu, cuda, ...", metavar="NAME")]

app = typer.Typer(
    name="addml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 success; 1 bad input, model or disk; 2 wrong usage; 3 more rows flagged than --fail-above; "
    "4 no rows in the input; 5 drift with --fail-on-drift; 130 interrupted. ADDML_DEBUG=1 shows the traceback.",
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
    """Find anomalies in tables, images and time series, without labels."""


@app.command()
@with_options("detect")
def detect(file: File, options: Options) -> None:
    """Train on a table, rank its rows and explain the top ones; write the scored table and a report."""
    _detect(options)


def _detect(options: Options, folder: Path = Path()) -> None:
    from addml.pipeline import run

    options = check(options, "detect")
    name = str(folder / outputs.name_of(options.file))
    files = outputs.planned(options, name, scored=True, report=True, model=options.model)
    options = _with_checkpoint(options, options.model or name, "detect")
    with _session("detect", options, files) as session:
        result = run.detect(options, session.progress, files.shows_map)
        outputs.save_model(files, result.model)
        session.finish(result)


@app.command()
@with_options("fit")
def fit(file: File, options: Options) -> None:
    """Train on a table and save the model for addml score."""
    from addml.pipeline import run

    options = check(options, "fit")
    name = outputs.name_of(options.file)
    files = outputs.planned(options, name, model=options.model or f"{name}.model")
    options = _with_checkpoint(options, str(files.model), "fit")
    with _session("fit", options, files) as session:
        if options.engine is None:
            result = run.fit(options, session.progress)
        else:
            from addml.cluster.ray_fit import fit_as_told

            result = fit_as_told(options, str(files.model), session.progress)
        outputs.save_model(files, result.model)
        session.finish_training(result.findings)


def _with_checkpoint(options: Options, name: str, command: str) -> Options:
    """The options with a checkpoint where a table is larger than memory and none is named."""
    from addml.pipeline.sources import on_disk_source

    if options.time is not None or on_disk_source(options, command) is None or options.checkpoint is not None:
        return options
    return replace(options, checkpoint=f"{name}.checkpoint")


@app.command()
@with_options("score")
def score(file: File, options: Options) -> None:
    """Score a table with a saved model, in batches, and show how it differs from the training rows."""
    from addml.pipeline import run

    options = check(options, "score")
    if options.engine is not None:
        return _score_in_parts(options)
    files = outputs.planned(options, outputs.name_of(options.file), scored=True)
    with _session("score", options, files) as session:
        session.finish(run.score(options, session.progress, files.shows_map))


def _score_in_parts(options: Options) -> None:
    from addml.cluster.parts import score_as_told

    output = options.output or f"{outputs.name_of(options.file)}.scored"
    with _session("score", options, Files()) as session:
        told = score_as_told(options, output, session.progress)
        parts = counted(told["parts"], "part")
        session.screen.say(f"{options.source}: {told['rows']:,} rows in {parts}, {told['scored']} of them scored now")
        screen.show_files(session.screen, {"scored": output})
        session.screen.document({**told, "files": {"scored": output}})


@app.command()
@with_options("evaluate")
def evaluate(file: File, options: Options) -> None:
    """Compare scores with a label column: ROC-AUC, average precision, precision at k; VUS for a series."""
    from addml.pipeline import run

    options = check(options, "evaluate")
    files = outputs.planned(options, outputs.name_of(options.file))
    with _session("evaluate", options, files) as session:
        session.finish(run.evaluate(options, session.progress, files.shows_map))


@app.command()
@with_options("info")
def info(model: Model, options: Options) -> None:
    """Describe a saved model: columns, settings, training, threshold, versions and size."""
    from addml.pipeline import run

    about = run.info(model)
    out = Screen(options)
    out.document(about)
    screen.show_model(out, about)


@app.command()
@with_options("diff")
def diff(before: Model, after: After, file: File, options: Options) -> None:
    """Compare two days under one model (MODEL YESTERDAY TODAY), or two models on one table (MODEL MODEL FILE)."""
    from addml.pipeline import diffs

    options = check(options, "diff")
    files = outputs.planned(options, "diff")
    with _session("diff", options, files, before=before, after=after) as session:
        moved = diffs.compare(before, after, options, session.progress)
        outputs.write_scored(files, [moved.table])
        session.write_record({"rows": moved.to_json(0)["rows"]})
        screen.show_diff(session.screen, moved, options.top)
        screen.show_files(session.screen, files.named())
        session.screen.document(moved.to_json(options.top) | {"files": files.named()})


@app.command()
@with_options("export")
def export(model: Model, options: Options, output: OnnxFile = None) -> None:
    """Export a saved model of a numeric table or of photographs as an ONNX file, to score without Python."""
    from addml import load
    from addml.onnx import to_onnx

    file = output or f"{Path(os.path.abspath(os.path.expanduser(model))).name.removesuffix('.model')}.onnx"
    to_pipe = is_special(Path(file))
    if file == STANDARD_INPUT or (to_pipe and options.json):
        raise AddmlError(
            f"--output {file}: give the ONNX file a name; without --json it may be /dev/stdout.", USAGE, option="output"
        )
    to_onnx(load(model, device="cpu"), file)
    out = Screen(options, aside=to_pipe)
    out.document({"model": model, "files": {"onnx": file}})
    out.say(f"ONNX file: {file}", whole=True)


@app.command()
@with_options("demo")
def demo(options: Options, folder: DemoFolder = "addml-demo") -> None:
    """Detect anomalies in a small medical table that comes with scikit-learn."""
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
    device: ServeDevice = "auto",
) -> None:
    """Serve models over REST and in a browser: score rows, upload files, read reports, label rows."""
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


# One run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """One run of a command: its options and files, and where it prints."""

    command: str
    options: Options
    files: Files
    screen: Screen
    progress: Progress
    started: datetime
    arguments: dict[str, str]  # that are no options

    def finish(self, result: Result) -> None:
        """Write the files, then show what was found and where it is."""
        options, findings = self.options, result.findings
        findings = replace(
            findings,
            notes=(*findings.notes, *self.screen.warnings),
            settings=options.of(self.command) | {"file": findings.source},
        )
        notes = outputs.write_scored(self.files, result.scored, options)
        findings = replace(findings, notes=(*findings.notes, *notes))
        outputs.write_maps(self.files, result.maps)
        reported = replace(findings, notes=(*findings.notes, *map(screen.hidden_words, findings.hidden)))
        outputs.write_reports(self.files, reported, options)
        self.write_record({"rows": findings.rows, "anomalies": findings.anomalies})
        if options.redact:
            from addml.report import redacted

            findings = redacted(findings)
        screen.show_findings(self.screen, findings, options.top)
        screen.show_files(self.screen, self.files.named())
        self.screen.document(findings.to_json(options.top) | {"files": self.files.named()})
        if options.fail_on_drift and any(entry["drifted"] for entry in result.findings.drift):
            raise typer.Exit(DRIFTED)
        if options.fail_above is not None and findings.anomalies > options.fail_above:
            flagged = counted(findings.anomalies, findings.noun)
            print(f"{flagged} flagged, more than {options.fail_above:,} (--fail-above)", file=sys.stderr)
            raise typer.Exit(MORE_ANOMALIES)

    def finish_training(self, findings: Findings) -> None:
        """Write the record of a training alone, then show it."""
        self.write_record({"rows": findings.rows, "threshold": findings.threshold})
        screen.show_reading(self.screen, findings)
        screen.show_training(self.screen, findings)
        screen.show_files(self.screen, self.files.named())
        self.screen.document(findings.to_json(0) | {"files": self.files.named()})

    def write_record(self, outcome: dict[str, Any]) -> None:
        """Write options, versions and outcome beside the output."""
        from addml.io.write import write_whole

        options = self.arguments | self.options.of(self.command) | {"file": self.options.source}
        if self.files.record is not None:
            text = outputs.record(self.command, options, self.started, outcome)
            write_whole(self.files.record, text.encode("utf-8", "surrogateescape"))


@contextmanager
def _session(command: str, options: Options, files: Files, **arguments: str) -> Iterator[Session]:
    """A run whose warnings are printed in one line each."""
    out = Screen(options, aside=bool(files.to_stdout))
    with out.warned():
        yield Session(command, options, files, out, bars(out), datetime.now(UTC), arguments)


def run(app: typer.Typer = app, name: str = "addml") -> None:
    """Run the command that the arguments name; an error that the user can fix is one line, and exit code 1 or 2."""
    _handle_signals()
    _open_streams()
    try:
        app(sys.argv[1:], prog_name=name)  # passed on, typer does not expand them on Windows: ~, $NAME and *
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("ADDML_DEBUG"):
            raise
        message = str(error) or "not enough memory; --sample trains on fewer rows"
        print("Error: " + "\n".join(visible(_shortened(line)) for line in message.splitlines()), file=sys.stderr)
        if isinstance(error, NoRowsError):
            sys.exit(NO_ROWS)
        sys.exit(2 if isinstance(error, AddmlError) and error.code == USAGE else 1)


def _shortened(line: str) -> str:
    """A long line without its middle: the place at its start and the remedy at its end remain."""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"


def _handle_signals() -> None:
    """Exit as after an interrupt when killed, or when the terminal closes, unless the run is to outlive it (nohup)."""
    signal.signal(signal.SIGTERM, _terminate)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _terminate)


def _open_streams() -> None:
    """Replace closed streams by the null device, and write characters that the output lacks as escapes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(number: int, frame: Any) -> None:
    sys.exit(128 + number)  # as an exception, so that unfinished files are removed
