"""The files a run writes: checked before the work starts, then written atomically."""

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
from addml.io.source import COMPRESSION_NAMES, OUTPUT_FORMATS, PACKED_NAMES, STANDARD_INPUT, STREAMS, is_special
from addml.pipeline.options import Options
from addml.text import without_password

if TYPE_CHECKING:
    from addml.model import Model
    from addml.pipeline.ranking import Result

STDOUT = 1  # file descriptor
FOLDERS = ("figures", "maps", "model")
FILE_NAMES = {"scored": "scored table", "record": "run record"}  # for people; the others keep their names
ENDINGS = (*COMPRESSION_NAMES, *OUTPUT_FORMATS, ".html", ".htm", ".md", ".scored", ".report", ".model")


@dataclass(frozen=True)
class Files:
    """The paths of a run's results; None: not written."""

    scored: Path | None = None
    report: Path | None = None
    figures: Path | None = None
    maps: Path | None = None
    model: Path | None = None
    record: Path | None = None

    @property
    def to_stdout(self) -> list[str]:
        return [FILE_NAMES.get(name, name) for name, path in self.by_name().items() if STREAMS.get(path) == STDOUT]

    def by_name(self) -> dict[str, str]:
        paths = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(path) for name, path in paths.items() if path is not None}


def stem_of(file: str) -> str:
    """The stem of a run's file names: transactions for data/transactions.csv.gz."""
    if file == STANDARD_INPUT:
        return "stdin"
    if "://" in file:
        return Path(re.sub(r"[?#].*", "", file).rpartition("/")[2]).stem or file.partition("://")[0]
    path = Path(os.path.abspath(os.path.expanduser(file)))
    stem = path.stem if path.suffix.lower() in PACKED_NAMES else path.name
    return path.name if path.is_dir() else Path(stem).stem


def plan_files(
    options: Options, name: str, *, scored: bool = False, report: bool = False, model: str | None = None
) -> Files:
    """The files that the options ask for, plus the command's defaults, named after `name`."""
    if options.output_sql is not None:
        from addml.io.documents import is_address
        from addml.io.write import check_target

        if not is_address(options.file):
            remedy = "write to a file with --output, or read from a database address such as sqlite:///shop.db"
            raise AddmlError(f"--output-sql: {options.source} is not a database; {remedy}.", USAGE, option="output_sql")
        check_target(options.file, options.output_sql)
    ending = "xlsx" if options.file.lower().endswith(".xlsx") else "csv"
    table = options.output or (f"{name}.scored.{ending}" if scored and options.output_sql is None else None)
    page = options.report or (f"{name}.report.{options.format or 'html'}" if report else None)
    if options.format is not None and page is None:
        raise AddmlError("--format needs a report; add --report FILE.", USAGE, option="format")
    texts = (table, None if options.no_report else page, options.figures, options.maps, model)
    files = Files(*(None if text is None else Path(os.path.expanduser(text)) for text in texts))
    files = replace(files, record=_record_path(files))
    _check(options, files)
    to_stdout = [*files.to_stdout, *(["JSON document (--json)"] if options.json else [])]
    if len(to_stdout) > 1:
        both = " and the ".join(to_stdout)
        raise AddmlError(f"the {both} cannot both go to standard output; write one to a file.", USAGE)
    return files


def _record_path(files: Files) -> Path | None:
    """transactions.run.toml next to transactions.scored.csv, else next to the model or report; none for a pipe."""
    paths = [path for path in (files.scored, files.model, files.report) if path is not None and not is_special(path)]
    if not paths:
        return None
    stem = paths[0].name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending) or stem
    return paths[0].parent / f"{stem}.run.toml"


def _check(options: Options, files: Files) -> None:
    """Refuse files that cannot be written before the run, not after it."""
    from addml.inputs.disk import is_part
    from addml.io.write import table_format
    from addml.report import FORMATS

    source = Path(os.path.expanduser(options.file)).resolve()
    titles = {source: "input, which is never overwritten"}  # by path
    for name, text in files.by_name().items():
        path, title, is_folder = Path(text), FILE_NAMES.get(name, name), name in FOLDERS
        if text == STANDARD_INPUT:
            pipe = "" if is_folder else ", or /dev/stdout to pipe it"
            raise AddmlError(f"'-' is not a file name; give the {title} a name{pipe}.")
        if is_special(path):
            continue
        if other := titles.get(path.resolve()):
            fixed, movable = (title, other) if name == "record" else (other, title)
            raise AddmlError(f"{path}: is also the {fixed}; give the {movable} another name.")
        titles[path.resolve()] = title
        if is_part(path, options.file) or (name in ("figures", "maps") and source in path.resolve().parents):
            raise AddmlError(f"{path}: is inside the input folder, to be read next time; write the {title} elsewhere.")
        if path.exists() and path.is_dir() != is_folder:
            raise AddmlError(f"{path}: is a {'file' if is_folder else 'folder'}; give the {title} another name.")
        check_writable(path)
        if name == "scored":
            table_format(path)
        if name == "report" and options.format is None and path.suffix and path.suffix.lower() not in FORMATS:
            remedy = f"end its name in {', '.join(FORMATS)}, or set --format"
            raise AddmlError(f"{path}: a report is HTML or Markdown; {remedy}.")


def check_writable(path: Path) -> None:
    """Refuse a path whose folder is missing or read-only."""
    folder = path.parent
    if not folder.is_dir():
        raise AddmlError(f"{path}: the folder {folder} does not exist. Create it, or write elsewhere.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise AddmlError(f"{path}: cannot be written: {error.strerror}. Write elsewhere.") from error


def save_model(files: Files, model: Model) -> None:
    from addml import model_file
    from addml.io.write import naming_file

    if files.model is not None:
        with naming_file(files.model):
            model_file.save(model, files.model)


def write_result(files: Files, result: Result, findings: Findings, options: Options) -> Findings:
    """Write model, scored table, maps, report and figures; return the findings with notes on the writing."""
    from addml.io.write import naming_file, write_pieces, write_to_database, write_whole
    from addml.report import redacted, write_report

    save_model(files, result.model)
    notes, pieces = list[str](), result.scored
    if options.output_sql is not None:
        pieces = write_to_database(pieces, options.file, options.output_sql)
        if files.scored is None:
            n_rows = sum(piece.num_rows for piece in pieces)
            notes = [f"database: {n_rows:,} rows written to the table {options.output_sql}"]
    if files.scored is not None:
        notes = write_pieces(pieces, files.scored)
    findings = replace(findings, notes=(*findings.notes, *notes))
    if files.maps is not None:
        for name, content in result.maps:
            path = files.maps / name
            with naming_file(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
    reported = replace(findings, notes=(*findings.notes, *(hidden.words for hidden in findings.hidden)))
    if files.report is not None:
        write_report(reported, files.report, format=options.format, redact=options.redact)  # type: ignore[arg-type]
    if files.figures is not None:
        from addml.report.notebook import write_figures

        write_figures(redacted(reported) if options.redact else reported, files.figures)
    return findings


def write_example(folder: Path) -> Path:
    """Write scikit-learn's breast-cancer table with all 357 benign rows and the first 20 malignant ones."""
    import numpy as np
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer

    from addml.io.write import naming_file, write_table

    with naming_file(folder):
        folder.mkdir(parents=True, exist_ok=True)
    bundle, path = load_breast_cancer(), folder / "breast-cancer.csv"
    diagnoses = bundle.target_names[bundle.target]
    benign, malignant = np.flatnonzero(diagnoses == "benign"), np.flatnonzero(diagnoses == "malignant")
    rows = np.sort(np.concatenate([benign, malignant[:20]]))
    columns = dict(zip(map(str, bundle.feature_names), bundle.data[rows].T, strict=True))
    table = {"patient": [f"patient {row + 1}" for row in rows], **columns, "diagnosis": diagnoses[rows]}
    write_table(pa.table(table), path)
    return path


def record(command: str, options: Mapping[str, Any], started: datetime, outcome: Mapping[str, Any]) -> str:
    """TOML with the options, then a table `run`, which `--config` ignores."""
    metadata = {
        "command": shlex.join(["addml", *map(without_password, sys.argv[1:])]),
        "folder": os.getcwd(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
    }
    tables = {"run": metadata, "run.outcome": outcome, "run.versions": versions()}
    path = Path(os.path.expanduser(options.get("file") or os.devnull))
    if path.is_file():
        stat = path.stat()
        changed = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds")
        tables["run.input"] = {"path": str(path.resolve()), "bytes": stat.st_size, "changed": changed}
    lines = [f"# A run of addml {__version__}. Repeat it: addml {command} --config THIS_FILE", *_lines(options)]
    for title, table in tables.items():
        lines += ["", f"[{title}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    pairs = {name.replace("_", "-"): value for name, value in values.items() if value is not None}
    is_bare = re.compile("[A-Za-z0-9-]+").fullmatch
    return [f"{name if is_bare(name) else _toml(name)} = {_toml(value)}" for name, value in pairs.items()]


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
