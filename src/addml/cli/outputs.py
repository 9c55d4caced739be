"""The files a run writes: checked before the work, written whole or not at all after it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addml import __version__
from addml.errors import USAGE, AddmlError
from addml.findings import Findings, versions
from addml.io.source import PACKED_NAMES, STANDARD_INPUT, STREAMS, is_special
from addml.pipeline.options import Options
from addml.text import without_password

if TYPE_CHECKING:
    from addml.model import Model
    from addml.pipeline.ranking import Result

STDOUT = 1  # the number of the stream
FOLDERS = ("figures", "maps", "model")
TABLES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson", ".xlsx")
ENDINGS = (".gz", ".zst", ".bz2", ".lz4", *TABLES, ".html", ".htm", ".md", ".scored", ".report", ".model")


@dataclass(frozen=True)
class Files:
    """Where the parts of a result go; None for what is not written."""

    scored: Path | None = None
    report: Path | None = None
    figures: Path | None = None
    maps: Path | None = None
    model: Path | None = None
    record: Path | None = None

    @property
    def to_stdout(self) -> list[str]:
        return [_spoken(what) for what, path in self.named().items() if STREAMS.get(path) == STDOUT]

    def named(self) -> dict[str, str]:
        """The paths that there are, by what they are."""
        paths = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: str(path) for name, path in paths.items() if path is not None}


def _spoken(what: str) -> str:
    return {"scored": "scored table", "record": "record of this run"}.get(what, what)


def name_of(file: str) -> str:
    """The name of the files of a run: transactions for data/transactions.csv.gz."""
    if file == STANDARD_INPUT:
        return "stdin"
    if "://" in file:
        return Path(re.sub(r"[?#].*", "", file).rpartition("/")[2]).stem or file.partition("://")[0]
    path = Path(os.path.abspath(os.path.expanduser(file)))
    stem = path.stem if path.suffix.lower() in PACKED_NAMES else path.name
    return path.name if path.is_dir() else Path(stem).stem


def planned(
    options: Options, name: str, *, scored: bool = False, report: bool = False, model: str | None = None
) -> Files:
    """The files that the options ask for, and those named after `name` that the command writes by default."""
    if options.output_sql is not None:
        from addml.io.documents import is_address
        from addml.io.write import check_target

        if not is_address(options.file):
            remedy = "write a file with --output, or read from a database address such as sqlite:///shop.db"
            raise AddmlError(f"--output-sql: {options.source} is no database; {remedy}.", USAGE, option="output_sql")
        check_target(options.file, options.output_sql)
    ending = "xlsx" if options.file.lower().endswith(".xlsx") else "csv"
    table = options.output or (f"{name}.scored.{ending}" if scored and options.output_sql is None else None)
    page = options.report or (f"{name}.report.{options.format or 'html'}" if report else None)
    if options.format is not None and page is None:
        raise AddmlError("--format is that of a report; name one: --report FILE.", USAGE, option="format")
    named = (table, None if options.no_report else page, options.figures, options.maps, model)
    files = Files(*(None if text is None else Path(os.path.expanduser(text)) for text in named))
    files = replace(files, record=_record_beside(files))
    _check(options, files)
    there = [*files.to_stdout, *(["JSON document (--json)"] if options.json else [])]
    if len(there) > 1:
        raise AddmlError(f"the {' and the '.join(there)} cannot both go to standard output; give one a file.", USAGE)
    return files


def _record_beside(files: Files) -> Path | None:
    """transactions.run.toml beside transactions.scored.csv, or beside what else is written."""
    kept = [path for path in (files.scored, files.model, files.report) if path is not None and not is_special(path)]
    if not kept:  # what goes into a pipe leaves nothing
        return None
    stem = kept[0].name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending) or stem
    return kept[0].parent / f"{stem}.run.toml"


def _check(options: Options, files: Files) -> None:
    """Find out before a long run what would fail after it."""
    from addml.inputs.disk import is_part
    from addml.io.write import table_format
    from addml.report import FORMATS

    source = Path(os.path.expanduser(options.file)).resolve()
    seen = {source: "input, which is never overwritten"}
    for what, text in files.named().items():
        path, spoken, is_folder = Path(text), _spoken(what), what in FOLDERS
        if text == STANDARD_INPUT:
            pipe = "" if is_folder else " (/dev/stdout sends it into a pipe)"
            raise AddmlError(f"'-' is not a file name; name the {spoken}{pipe}.")
        if is_special(path):
            continue
        if other := seen.get(path.resolve()):
            named, given = (other, spoken) if what == "record" else (spoken, other)
            raise AddmlError(f"{path}: is also the {given}; give the {named} another name.")
        seen[path.resolve()] = spoken
        if is_part(path, options.file) or (what in ("figures", "maps") and source in path.resolve().parents):
            raise AddmlError(f"{path}: lies in the input, which would read it next time; write the {spoken} elsewhere.")
        if path.exists() and path.is_dir() != is_folder:
            raise AddmlError(f"{path}: is a {'file' if is_folder else 'folder'}; give the {spoken} another name.")
        check_writable(path)
        if what == "scored":
            table_format(path)
        if what == "report" and options.format is None and path.suffix and path.suffix.lower() not in FORMATS:
            endings = f"end its name in {', '.join(FORMATS)}, or give --format"
            raise AddmlError(f"{path}: a report is HTML or Markdown; {endings}.")


def check_writable(path: Path) -> None:
    """Refuse a path in a folder that is missing or read-only."""
    folder = path.parent
    if not folder.is_dir():
        raise AddmlError(f"{path}: cannot be written: the folder {folder} does not exist. Make it, or write elsewhere.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise AddmlError(f"{path}: cannot be written: {error.strerror}. Write elsewhere.") from error


def save_model(files: Files, model: Model) -> None:
    """The model, where it is asked for."""
    from addml import model_file
    from addml.io.write import naming

    if files.model is not None:
        with naming(files.model):
            model_file.save(model, files.model)


def write_result(files: Files, result: Result, findings: Findings, options: Options) -> Findings:
    """Write model, scored table, maps of images, report and figures; the findings get the notes on writing."""
    from addml.io.write import naming, stored, write_pieces, write_whole
    from addml.report import redacted, write_report

    save_model(files, result.model)
    notes, pieces = list[str](), result.scored
    if options.output_sql is not None:
        pieces = stored(pieces, options.file, options.output_sql)
        if files.scored is None:
            rows = sum(piece.num_rows for piece in pieces)
            notes = [f"database: {rows:,} rows written to the table {options.output_sql}"]
    if files.scored is not None:
        notes = write_pieces(pieces, files.scored)
    findings = replace(findings, notes=(*findings.notes, *notes))
    for name, content in result.maps if files.maps is not None else ():
        path = Path(files.named()["maps"], name)
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    reported = replace(findings, notes=(*findings.notes, *(one.words for one in findings.hidden)))
    if files.report is not None:
        write_report(reported, files.report, format=options.format, redact=options.redact)  # type: ignore[arg-type]
    if files.figures is not None:
        from addml.report.notebook import write_figures

        write_figures(redacted(reported) if options.redact else reported, files.figures)
    return findings


def write_example(folder: Path) -> Path:
    """scikit-learn's breast-cancer table: all 357 benign rows and the first 20 malignant ones, in their order."""
    import numpy as np
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer

    from addml.io.write import naming, write_table

    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    bundle, path = load_breast_cancer(), folder / "breast-cancer.csv"
    kinds = bundle.target_names[bundle.target]
    kept = np.sort(np.concatenate([np.flatnonzero(kinds == "benign"), np.flatnonzero(kinds == "malignant")[:20]]))
    columns = {name: bundle.data[kept, place] for place, name in enumerate(map(str, bundle.feature_names))}
    table = {"patient": [f"patient {row + 1}" for row in kept], **columns, "diagnosis": kinds[kept]}
    write_table(pa.table(table), path)
    return path


def record(command: str, options: Mapping[str, Any], started: datetime, outcome: Mapping[str, Any]) -> str:
    """The options first, then a table `run`, which `--config` ignores."""
    about = {
        "command": shlex.join(["addml", *map(without_password, sys.argv[1:])]),
        "folder": os.getcwd(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
    }
    tables = {"run": about, "run.outcome": outcome, "run.versions": versions()}
    path = Path(os.path.expanduser(options.get("file") or os.devnull))
    if path.is_file():
        stat = path.stat()
        changed = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds")
        tables["run.input"] = {"path": str(path.resolve()), "bytes": stat.st_size, "changed": changed}
    repeat = f"addml {command} --config THIS_FILE"
    lines = [f"# Options of a run of addml {__version__}. Repeat it with: {repeat}", *_lines(options)]
    for title, table in tables.items():
        lines += ["", f"[{title}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    pairs = {name.replace("_", "-"): value for name, value in values.items() if value is not None}
    is_bare = re.compile("[A-Za-z0-9-]+").fullmatch
    return [f"{name if is_bare(name) else _toml(name)} = {_toml(value)}" for name, value in pairs.items()]


def _toml(value: Any) -> str:
    """A value in TOML, whose strings, numbers, booleans and lists are written as in JSON."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
