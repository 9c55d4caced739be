"""Which files a run writes: checked before the work, written whole or not at all after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addml.detection.errors import UserError
from addml.detection.record import Run, record
from addml.detection.settings import Reporting, Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.findings import Findings

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
    record: bool = True,
) -> Files:
    """The files that the settings ask for, and those called after `name` that the command writes anyway."""
    writing, reporting = settings.writing, settings.reporting
    ending = "md" if reporting.format == "md" else "html"
    table = writing.output or (f"{name}.scored.csv" if scored else None)
    page = reporting.report or (f"{name}.report.{ending}" if report else None)
    files = Files(_path(table), _path(None if reporting.no_report else page), _path(reporting.figures), _path(model))
    files = replace(files, record=_record_beside(files, name) if record else None)
    _check(settings.file, files)
    return files


def _record_beside(files: Files, name: str) -> Path | None:
    """transactions.run.toml beside transactions.scored.csv, or beside what else is written."""
    first = files.scored or files.model or files.report
    if first is None or is_special(first):
        return None if first is None else Path(f"{name}.run.toml")
    stem = first.name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending) or stem
    return first.parent / f"{stem}.run.toml"


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()


def _check(file: str, files: Files) -> None:
    """Find out before a long run what would fail after it."""
    seen = {Path(file).expanduser().resolve(): "input, which is never overwritten"}
    for what, text in files.named().items():
        path = Path(text)
        if is_special(path):
            continue
        if path.resolve() in seen:
            raise UserError(f"{path}: is also the {seen[path.resolve()]}; give the {what} another name.")
        seen[path.resolve()] = what
        is_folder = what in ("figures", "model")
        if path.exists() and path.is_dir() != is_folder:
            raise UserError(f"{path}: is a {'file' if is_folder else 'folder'}; give the {what} another name.")
        if what == "scored" and _is_part(path, file):
            raise UserError(f"{path}: is or would be a part of the input, which is never overwritten; write elsewhere.")
        if what == "scored" and not set(path.suffixes[-2:]) & set(TABLES):
            raise UserError(f"{path}: the name of the scored table must end in .csv, .parquet or .jsonl.")
        _check_writable(path)


def _is_part(path: Path, file: str) -> bool:
    from addml.data.datasets import is_part  # when it is known that there is something to do

    return is_part(path, file)


def _check_writable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"{path}: cannot be written: the folder {folder} does not exist. Make it, or write elsewhere.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}. Write elsewhere.") from error


def is_special(path: Path) -> bool:
    """A device or a pipe, which is written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_scored(files: Files, pieces: Iterable[pa.Table]) -> list[str]:
    """The scored table, piece by piece, where it is asked for; gives back what is to be said."""
    from addml.data.writers import write_pieces

    return [] if files.scored is None else write_pieces(pieces, files.scored)


def write_reports(files: Files, findings: Findings, reporting: Reporting) -> None:
    """The report and the figures, where they are asked for."""
    if files.report is not None:
        from addml.report import write_report

        write_report(findings, files.report, format=reporting.format, redact=reporting.redact)  # type: ignore[arg-type]
    if files.figures is not None:
        from addml.report import write_figures

        write_figures(findings, files.figures)


def write_record(files: Files, run: Run, outcome: dict[str, Any]) -> None:
    """The settings and versions of the run, where anything else is written."""
    if files.record is not None:
        from addml.report.writing import write_whole

        write_whole(files.record, record(run, outcome).encode("utf-8", "surrogateescape"))
