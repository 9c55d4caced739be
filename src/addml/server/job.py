"""The process of one job: a JSON request on standard input, JSON lines on standard output.

Request, on one line: {"command": "detect", "options": {"file": ..., ...}, "labels": {path: the client's name for it},
"unpacked": bytes}. Output: {"progress": "Training"} per stage, then {"result": ...} as in `addml --json`, or
{"error": ...}. The process exits when its standard input closes, as that means that the server is gone.
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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from addml import model_file
from addml.errors import AddmlError
from addml.io.documents import SHEET_ROWS
from addml.io.image_folder import is_image_folder
from addml.io.source import DAMAGE, find_origin
from addml.io.write import write_pieces
from addml.pipeline import run
from addml.pipeline.options import Options, check, parse
from addml.progress import Advance, Progress
from addml.report import redacted, write_report
from addml.server import DISK_FULL
from addml.text import json_value

SCORED, REPORT, MODEL = "scored.csv", "report.html", "result.model"  # in the working folder
PIECE = 1 << 20  # bytes unpacked at a time
GRACE = 10  # seconds to remove unfinished files


class JsonLines(Progress):
    """Reports progress as JSON lines."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.labels: dict[str, str] = {}

    def write(self, **line: Any) -> None:
        """Write one line, with the client's names in place of paths."""
        print(json.dumps(json_value(_relabel(line, self.labels)), allow_nan=False), file=self.out, flush=True)

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        self.write(progress=words)
        return super().stage(words, total, rows_each)


def main() -> None:
    """Run the request on standard input; errors become a line of output."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # exit handlers remove unfinished files
    lines = JsonLines(sys.stdout)
    try:
        request = json.loads(sys.stdin.readline())
        threading.Thread(target=_exit_with_server, daemon=True).start()
        lines.labels = request["labels"]
        with redirect_stdout(sys.stderr):
            result = run_job(request, lines)
        lines.write(result=result)
    except Exception as error:
        lines.write(error=_error_for_client(error).to_json())


def _error_for_client(error: Exception) -> AddmlError:
    """The error without the server's paths; the traceback of an unexpected one goes to the server's terminal."""
    if isinstance(error, AddmlError):
        return error
    if isinstance(error, OSError):
        is_full = error.errno == errno.ENOSPC
        return AddmlError(DISK_FULL, "disk_full") if is_full else AddmlError(error.strerror or str(error))
    if isinstance(error, ValueError | ImportError | MemoryError):
        return AddmlError(str(error) or "not enough memory; sample trains on fewer rows")
    traceback.print_exception(error)
    return AddmlError(f"the job failed ({type(error).__name__}); see the server's terminal for details", "internal")


def _exit_with_server() -> None:
    """Terminate this process when standard input closes; the server writes nothing after the request."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


def check_unpacked(path: Path, limit: int) -> None:
    """Refuse compressed files that unpack to more than `limit` bytes, and huge sheets, before they are read."""
    if _unpacked_size(path, limit) > limit:
        message = f"{path}: unpacks to more than {limit / 1e6:,.0f} MB; raise the server's --limit unpacked=SIZE"
        raise AddmlError(message, "too_large")
    if zipfile.is_zipfile(path) and any(rows > SHEET_ROWS for rows in _sheet_rows(path)):
        raise AddmlError(f"{path}: a sheet has more than {SHEET_ROWS:,} rows; send CSV or Parquet", "too_large")


def _unpacked_size(path: Path, limit: int) -> int:
    """Bytes after decompression, counted to a little over `limit`; 0 if the file is not compressed."""
    size = 0
    origin = None if is_image_folder(path) else find_origin(path)
    if origin is not None and origin.compression is not None:
        try:
            with origin.open() as stream:
                while size <= limit and (piece := stream.read(PIECE)):
                    size += len(piece)
        except DAMAGE as error:
            raise origin.unreadable(error) from error
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())  # zipfile reads no more than that
    return size


def _sheet_rows(path: Path) -> Iterator[int]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/"):
                with archive.open(name) as sheet:
                    yield sum(piece.count(b"<row") for piece in iter(lambda: sheet.read(PIECE), b""))


def run_job(request: Mapping[str, Any], progress: JsonLines) -> dict[str, Any]:
    """Write the scored table, the report and, after training, the model; return the document of `--json`."""
    command, labels = request["command"], request["labels"]
    options = check(Options(**{name: parse(name, value) for name, value in request["options"].items()}), command)
    check_unpacked(Path(options.file), request["unpacked"])
    model = Path(options.model or MODEL)
    with warnings.catch_warnings(record=True) as caught:
        if command == "detect":
            result = run.detect(options, progress)
            model_file.save(result.model, model)
        else:
            digest = model_file.digest(model)
            result = run.score(options, progress)
            if digest != model_file.digest(model):
                raise AddmlError(f"{model}: changed during the job; upload the file again", "model_changed")
    messages = [str(warning.message) for warning in caught]
    notes = [*result.findings.notes, *messages, *write_pieces(result.scored, Path(SCORED))]
    findings = replace(
        result.findings,
        source=_relabel(result.findings.source, labels),
        notes=tuple(_relabel(notes, labels)),
        settings=_relabel(options.of(command), labels),
    )
    write_report(findings, Path(REPORT), redact=options.redact)
    findings = redacted(findings) if options.redact else findings
    return findings.to_json(options.top) | {"model_hash": model_file.digest(model)}


def _relabel(value: Any, labels: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for path, label in labels.items():
            value = value.replace(path, label)
        return value
    if isinstance(value, Mapping):
        return {key: _relabel(item, labels) for key, item in value.items()}
    return [_relabel(item, labels) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
