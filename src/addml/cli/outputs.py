"""Which files a run writes: checked before the work, written whole or not at all after it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from addml.errors import UserError
from addml.io.source import STANDARD_INPUT, STREAMS, is_special
from addml.pipeline.options import Reporting, Run, Settings, Showing, record

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.findings import Findings

STDOUT = 1  # the number of the stream
FOLDERS = ("figures", "model")
TABLES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson")
ENDINGS = (".gz", ".zst", ".bz2", ".lz4", *TABLES, ".html", ".htm", ".md", ".scored", ".report", ".model")


@dataclass(frozen=True)
class Files:
    """Where the parts of a result go; None for what is not written."""

    scored: Path | None = None
    report: Path | None = None
    figures: Path | None = None
    model: Path | None = None
    record: Path | None = None

    @property
    def shows_map(self) -> bool:
        """Whether a map of the metric space is drawn."""
        return self.report is not None or self.figures is not None

    @property
    def to_stdout(self) -> list[str]:
        """What goes to standard output."""
        return [what for what, path in self.named().items() if STREAMS.get(path) == STDOUT]

    def named(self) -> dict[str, str]:
        """The paths that there are, by what they are."""
        paths = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: str(path) for name, path in paths.items() if path is not None}


def planned(
    settings: Settings,
    name: str,
    *,
    scored: bool = False,
    report: bool = False,
    model: str | None = None,
) -> Files:
    """The files that the settings ask for, and those called after `name` that the command writes anyway."""
    writing, reporting = settings.writing, settings.reporting
    ending = "md" if reporting.format == "md" else "html"
    table = writing.output or (f"{name}.scored.csv" if scored else None)
    page = reporting.report or (f"{name}.report.{ending}" if report else None)
    if reporting.format is not None and page is None:
        raise typer.BadParameter("--format is that of a report; name one: --report FILE.")
    files = Files(_path(table), _path(None if reporting.no_report else page), _path(reporting.figures), _path(model))
    files = replace(files, record=_record_beside(files))
    _check(settings.file, files)
    _check_stdout(files, settings.showing)
    if files.report is not None and reporting.format is None:
        _check_ending(files.report)
    return files


def _check_stdout(files: Files, showing: Showing) -> None:
    """Two things in one stream are of no use to whoever reads it."""
    there = [*map(_spoken, files.to_stdout), *(["JSON document (--json)"] if showing.json else [])]
    if len(there) > 1:
        raise typer.BadParameter(f"the {' and the '.join(there)} cannot both go to standard output; give one a file.")


def _check_ending(report: Path) -> None:
    """A name that promises another format is a slip; one without an ending is HTML."""
    from addml.report import FORMATS as REPORTS

    if report.suffix and report.suffix.lower() not in REPORTS:
        raise UserError(
            f"{report}: a report is HTML or Markdown; end its name in {', '.join(REPORTS)}, or give --format."
        )


def _record_beside(files: Files) -> Path | None:
    """transactions.run.toml beside transactions.scored.csv, or beside what else is written."""
    kept = [path for path in (files.scored, files.model, files.report) if path is not None and not is_special(path)]
    if not kept:  # what goes into a pipe leaves nothing
        return None
    first = kept[0]
    stem = first.name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending) or stem
    return first.parent / f"{stem}.run.toml"


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(os.path.expanduser(text))


def _check(file: str, files: Files) -> None:
    """Find out before a long run what would fail after it."""
    from addml.inputs.disk import is_part
    from addml.io.write import table_format

    source = Path(os.path.expanduser(file)).resolve()
    seen = {source: "input, which is never overwritten"}
    for what, text in files.named().items():
        path = Path(text)
        if text == STANDARD_INPUT:
            pipe = "" if what in FOLDERS else ", or /dev/stdout to send it into a pipe"
            raise UserError(f"-: is no name; give the {_spoken(what)} one{pipe}.")
        if is_special(path):
            continue
        if path.resolve() in seen:
            other = seen[path.resolve()]
            named, given = (other, "record of this run") if what == "record" else (_spoken(what), other)
            raise UserError(f"{path}: is also the {given}; give the {named} another name.")
        seen[path.resolve()] = _spoken(what)
        if is_part(path, file) or (what == "figures" and source in path.resolve().parents):
            raise UserError(
                f"{path}: lies in the input, which would hold it the next time; write the {_spoken(what)} elsewhere."
            )
        is_folder = what in FOLDERS
        if path.exists() and path.is_dir() != is_folder:
            raise UserError(f"{path}: is a {'file' if is_folder else 'folder'}; give the {_spoken(what)} another name.")
        if what == "scored":
            table_format(path)
        check_writable(path)


def _spoken(what: str) -> str:
    return "scored table" if what == "scored" else what


def check_writable(path: Path) -> None:
    """A file of this name must be possible."""
    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"{path}: cannot be written: the folder {folder} does not exist. Make it, or write elsewhere.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}. Write elsewhere.") from error


def save_model(files: Files, save: Callable[[Path], None]) -> None:
    """The model, where it is asked for."""
    from addml.io.write import naming

    if files.model is not None:
        with naming(files.model):
            save(files.model)


def write_scored(files: Files, pieces: Iterable[pa.Table]) -> list[str]:
    """The scored table, piece by piece, where it is asked for; gives back what is to be said."""
    from addml.io.write import write_pieces

    return [] if files.scored is None else write_pieces(pieces, files.scored)


def write_reports(files: Files, findings: Findings, reporting: Reporting) -> None:
    """The report and the figures, where they are asked for; without raw values where they are to be left out."""
    if files.report is not None:
        from addml.report import write_report

        write_report(findings, files.report, format=reporting.format, redact=reporting.redact)  # type: ignore[arg-type]
    if files.figures is not None:
        from addml.report import write_figures
        from addml.report.redact import redacted

        write_figures(redacted(findings) if reporting.redact else findings, files.figures)


def write_record(files: Files, run: Run, outcome: dict[str, Any]) -> None:
    """The settings and versions of the run, where anything else is written."""
    if files.record is not None:
        from addml.io.write import write_whole

        write_whole(files.record, record(run, outcome).encode("utf-8", "surrogateescape"))
