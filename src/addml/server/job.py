"""A job in a process of its own: a JSON request on standard input, JSON lines on standard output.

Request: {"command": "detect", "options": {"file": ..., ...}, "labels": {path: what people call it}}. Lines:
{"progress": "Training"} for each stage, then {"result": ...}, as `addml --json` prints, or {"error": ...}.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from addml.errors import AddmlError
from addml.pipeline.options import Options, check, parse
from addml.progress import Advance, Silent
from addml.text import json_value

SCORED, REPORT, MODEL = "scored.csv", "report.html", "result.model"  # in the folder that the process runs in


class Lines(Silent):
    """Writes JSON lines, one for each stage of the work."""

    def __init__(self, out: TextIO) -> None:
        """Where the lines go."""
        self.out, self.labels = out, dict[str, str]()

    def write(self, **line: Any) -> None:
        """One line, in which files have the names that people know."""
        print(json.dumps(json_value(_relabelled(line, self.labels)), allow_nan=False), file=self.out, flush=True)

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        """A stage of the work."""
        self.write(progress=words)
        return super().stage(words, total, rows_each)


def main() -> None:
    """Do what the request asks; every error becomes a line."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that unfinished files are removed
    lines = Lines(sys.stdout)
    try:
        request = json.load(sys.stdin)
        lines.labels = request["labels"]
        with redirect_stdout(sys.stderr):
            result = run_job(request, lines)
        lines.write(result=result)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        lines.write(error=_as_data(error))
    except Exception as error:  # ours: its paths are for the server's terminal alone
        traceback.print_exc()
        message = f"it failed ({type(error).__name__}); the server's terminal says more"
        lines.write(error=AddmlError(message, "internal").to_json())


def run_job(request: Mapping[str, Any], progress: Lines) -> dict[str, Any]:
    """Write the scored table, the report and, after training, the model; give the findings as `--json` has them."""
    from addml.io.write import write_pieces
    from addml.pipeline import run
    from addml.report import write_report

    command, labels = request["command"], request["labels"]
    options = check(Options(**{name: parse(name, value) for name, value in request["options"].items()}), command)
    with warnings.catch_warnings(record=True) as warned:
        result = {"detect": run.detect, "score": run.score}[command](options, progress)
        if command == "detect":
            result.model.save(Path(MODEL))
    notes = write_pieces(result.scored, Path(SCORED))
    findings = replace(
        result.findings,
        source=labels.get(result.findings.source, result.findings.source),
        notes=tuple(_relabelled([*result.findings.notes, *(str(one.message) for one in warned), *notes], labels)),
        settings=_relabelled(options.of(command), labels),
    )
    write_report(findings, Path(REPORT), redact=options.redact)
    if options.redact:
        from addml.report.redact import redacted

        findings = redacted(findings)
    return findings.to_json(options.top)


def _as_data(error: Exception) -> dict[str, Any]:
    if isinstance(error, AddmlError):
        return error.to_json()
    return AddmlError(str(error) or "not enough memory; sample trains on fewer rows").to_json()


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
