"""A job in a process of its own: a JSON request on standard input, JSON lines on standard output.

Request, on one line: {"command": "detect", "options": {"file": ..., ...}, "labels": {path: what people call it},
"unpacked": bytes}. Lines: {"progress": "Training"} for each stage, then {"result": ...}, as `addml --json` prints,
or {"error": ...}. The process ends when its standard input does: the server is gone.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from addml import model_file
from addml.errors import AddmlError
from addml.io.documents import SHEET_ROWS
from addml.io.image_folder import is_image_folder
from addml.io.source import find_origin
from addml.io.write import write_pieces
from addml.pipeline import run
from addml.pipeline.options import Options, check, parse
from addml.progress import Advance, Progress
from addml.report import redacted, write_report
from addml.server import NO_ROOM
from addml.text import json_value

SCORED, REPORT, MODEL = "scored.csv", "report.html", "result.model"  # in the folder that the process runs in
PIECE = 1 << 20  # bytes that are unpacked at a time
GRACE = 10  # seconds to remove unfinished files


class Lines(Progress):
    """Writes JSON lines, one for each stage of the work."""

    def __init__(self, out: TextIO) -> None:
        self.out, self.labels = out, dict[str, str]()

    def write(self, **line: Any) -> None:
        """One line, in which files have the names that people know."""
        print(json.dumps(json_value(_relabelled(line, self.labels)), allow_nan=False), file=self.out, flush=True)

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        self.write(progress=words)
        return super().stage(words, total, rows_each)


def main() -> None:
    """Do what the request asks; every error becomes a line."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that unfinished files are removed
    lines = Lines(sys.stdout)
    try:
        request = json.loads(sys.stdin.readline())
        threading.Thread(target=_end_with_server, daemon=True).start()
        lines.labels = request["labels"]
        with redirect_stdout(sys.stderr):
            result = run_job(request, lines)
        lines.write(result=result)
    except AddmlError as error:
        lines.write(error=error.to_json())
    except (ValueError, OSError, ImportError, MemoryError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)  # without the path of a file of the server
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        known = AddmlError(words or "not enough memory; sample trains on fewer rows")
        lines.write(error=(AddmlError(NO_ROOM, "disk_full") if is_full else known).to_json())
    except Exception as error:  # ours: its paths are for the server's terminal alone
        traceback.print_exc()
        message = f"it failed ({type(error).__name__}); the server's terminal says more"
        lines.write(error=AddmlError(message, "internal").to_json())


def _end_with_server() -> None:
    """Wait for the end of standard input, which the server never writes to again."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)  # whatever still computes


def check_unpacked(path: Path, most: int) -> None:
    """A small file may unpack to more than memory and disk hold: it is refused before it is read."""
    origin, size = None if is_image_folder(path) else find_origin(path), 0
    if origin is not None and origin.compression is not None:
        with origin.open() as stream:
            while size <= most and (piece := stream.read(PIECE)):
                size += len(piece)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(one.file_size for one in archive.infolist())  # of which no more is read
            sheets = [one for one in archive.namelist() if one.startswith("xl/worksheets/")] if size <= most else []
            for name in sheets:
                with archive.open(name) as sheet:
                    rows = sum(piece.count(b"<row") for piece in iter(lambda: sheet.read(PIECE), b""))
                if rows > SHEET_ROWS:
                    message = f"{path}: a sheet has more than {SHEET_ROWS:,} rows. Send CSV or Parquet."
                    raise AddmlError(message, "too_large")
    if size > most:
        message = f"{path}: unpacks to more than {most / 1e6:,.0f} MB; the server allows more by --limit unpacked=SIZE"
        raise AddmlError(message, "too_large")


def run_job(request: Mapping[str, Any], progress: Lines) -> dict[str, Any]:
    """Write the scored table, the report and, after training, the model; give the findings as `--json` has them."""
    command, labels = request["command"], request["labels"]
    options = check(Options(**{name: parse(name, value) for name, value in request["options"].items()}), command)
    check_unpacked(Path(options.file), request["unpacked"])
    model = Path(options.model or MODEL)
    with warnings.catch_warnings(record=True) as warned:
        if command == "detect":
            result = run.detect(options, progress)
            model_file.save(result.model, model)
        else:
            before = model_file.digest(model)
            result = run.score(options, progress)
            if before != model_file.digest(model):
                raise AddmlError(f"{model}: was written anew meanwhile; upload the file again", "model_changed")
    notes = [*result.findings.notes, *(str(one.message) for one in warned), *write_pieces(result.scored, Path(SCORED))]
    findings = replace(
        result.findings,
        source=_relabelled(result.findings.source, labels),
        notes=tuple(_relabelled(notes, labels)),
        settings=_relabelled(options.of(command), labels),
    )
    write_report(findings, Path(REPORT), redact=options.redact)
    shown = redacted(findings) if options.redact else findings
    return shown.to_json(options.top) | {"model_hash": model_file.digest(model)}


def _relabelled(value: Any, labels: Mapping[str, str]) -> Any:
    """Texts with what people call a file in place of its path."""
    if isinstance(value, str):
        for path, label in labels.items():
            value = value.replace(path, label)
        return value
    if isinstance(value, Mapping):
        return {name: _relabelled(one, labels) for name, one in value.items()}
    return [_relabelled(one, labels) for one in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
