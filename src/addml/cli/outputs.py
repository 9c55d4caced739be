"""The files a run writes: checked before the work, written whole or not at all after it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addml import __version__
from addml.errors import USAGE, AddmlError
from addml.findings import versions
from addml.io.source import PACKED_NAMES, STANDARD_INPUT, STREAMS, is_special
from addml.pipeline.options import Options
from addml.text import without_password

if TYPE_CHECKING:
    import pyarrow as pa

    from addml.findings import Findings
    from addml.model import Model

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
    def shows_map(self) -> bool:
        """Whether a map of the metric space is drawn."""
        return self.report is not None or self.figures is not None

    @property
    def to_stdout(self) -> list[str]:
        return [what for what, path in self.named().items() if STREAMS.get(path) == STDOUT]

    def named(self) -> dict[str, str]:
        """The paths that there are, by what they are."""
        paths = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: str(path) for name, path in paths.items() if path is not None}


def name_of(file: str) -> str:
    """The name of the files of a run: transactions for data/transactions.csv.gz."""
    if file == STANDARD_INPUT:
        return "stdin"
    if "://" in file:
        return Path(re.sub(r"[?#].*", "", file).rpartition("/")[2]).stem or file.partition("://")[0]
    path = Path(os.path.abspath(os.path.expanduser(file)))
    stem = path.stem if path.suffix.lower() in PACKED_NAMES else path.name
    return Path(stem).stem if path.is_file() or not path.is_dir() else path.name


def planned(
    options: Options, name: str, *, scored: bool = False, report: bool = False, model: str | None = None
) -> Files:
    """The files that the options ask for, and those named after `name` that the command writes by default."""
    if options.output_sql is not None:
        _check_table(options)
    ending = "xlsx" if options.file.lower().endswith(".xlsx") else "csv"
    table = options.output or (f"{name}.scored.{ending}" if scored and options.output_sql is None else None)
    page = options.report or (f"{name}.report.{options.format or 'html'}" if report else None)
    if options.format is not None and page is None:
        raise AddmlError("--format is that of a report; name one: --report FILE.", USAGE, option="format")
    page = None if options.no_report else page
    named = (table, page, options.figures, options.maps, model)
    files = Files(*(None if text is None else Path(os.path.expanduser(text)) for text in named))
    files = replace(files, record=_record_beside(files))
    _check(options.file, files)
    there = [*map(_spoken, files.to_stdout), *(["JSON document (--json)"] if options.json else [])]
    if len(there) > 1:
        raise AddmlError(f"the {' and the '.join(there)} cannot both go to standard output; give one a file.", USAGE)
    if files.report is not None and options.format is None:
        _check_ending(files.report)
    return files


def _check_table(options: Options) -> None:
    from addml.io.documents import is_address
    from addml.io.write import check_target

    if not is_address(options.file):
        remedy = "write a file with --output, or read from a database address such as sqlite:///shop.db"
        raise AddmlError(f"--output-sql: {options.source} is no database; {remedy}.", USAGE, option="output_sql")
    check_target(options.file, str(options.output_sql))


def _check_ending(report: Path) -> None:
    """A name that promises another format is a slip; one without an ending is HTML."""
    from addml.report import FORMATS as REPORTS

    if report.suffix and report.suffix.lower() not in REPORTS:
        raise AddmlError(
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
            raise AddmlError(f"-: is no name; give the {_spoken(what)} one{pipe}.")
        if is_special(path):
            continue
        if path.resolve() in seen:
            other = seen[path.resolve()]
            named, given = (other, "record of this run") if what == "record" else (_spoken(what), other)
            raise AddmlError(f"{path}: is also the {given}; give the {named} another name.")
        seen[path.resolve()] = _spoken(what)
        if is_part(path, file) or (what in ("figures", "maps") and source in path.resolve().parents):
            raise AddmlError(
                f"{path}: lies in the input, which would hold it the next time; write the {_spoken(what)} elsewhere."
            )
        is_folder = what in FOLDERS
        if path.exists() and path.is_dir() != is_folder:
            raise AddmlError(
                f"{path}: is a {'file' if is_folder else 'folder'}; give the {_spoken(what)} another name."
            )
        if what == "scored":
            table_format(path)
        check_writable(path)


def _spoken(what: str) -> str:
    return "scored table" if what == "scored" else what


def check_writable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise AddmlError(f"{path}: cannot be written: the folder {folder} does not exist. Make it, or write elsewhere.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise AddmlError(f"{path}: cannot be written: {error.strerror}. Write elsewhere.") from error


def save_model(files: Files, model: Model) -> None:
    from addml import model_file
    from addml.io.write import naming

    if files.model is not None:
        with naming(files.model):
            model_file.save(model, files.model)


def write_scored(files: Files, pieces: Iterable[pa.Table], options: Options | None = None) -> list[str]:
    """The scored table, piece by piece, into a file, a database or both; gives back what is to be said."""
    from addml.io.write import stored, write_pieces

    if options is not None and options.output_sql is not None:
        pieces = stored(pieces, options.file, options.output_sql)
        if files.scored is None:
            rows = sum(piece.num_rows for piece in pieces)
            return [f"database: {rows:,} rows written to the table {options.output_sql}"]
    return [] if files.scored is None else write_pieces(pieces, files.scored)


def write_maps(files: Files, maps: Iterable[tuple[str, bytes]]) -> None:
    """The maps and masks of images, where they are asked for, in the folders of their images."""
    from addml.io.write import naming, write_whole

    for name, content in maps if files.maps is not None else ():
        assert files.maps is not None
        path = files.maps / name
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)


def write_reports(files: Files, findings: Findings, options: Options) -> None:
    """The report and the figures, where they are asked for; with --redact without the table's values."""
    if files.report is not None:
        from addml.report import write_report

        write_report(findings, files.report, format=options.format, redact=options.redact)  # type: ignore[arg-type]
    if files.figures is not None:
        from addml.report import redacted, write_figures

        write_figures(redacted(findings) if options.redact else findings, files.figures)


def write_example(folder: Path) -> Path:
    """scikit-learn's breast-cancer table: all 357 benign rows and the first 20 malignant ones, in their order."""
    import numpy as np
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer

    from addml.io.write import naming, write_table

    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    bundle = load_breast_cancer()
    benign = bundle.target == 1
    kept = np.sort(np.concatenate([np.flatnonzero(benign), np.flatnonzero(~benign)[:20]]))
    columns = {name: bundle.data[kept, column] for column, name in enumerate(map(str, bundle.feature_names))}
    named = {"patient": [f"patient {row + 1}" for row in kept]}
    diagnosis = {"diagnosis": np.where(benign[kept], "benign", "malignant")}
    write_table(pa.table({**named, **columns, **diagnosis}), folder / "breast-cancer.csv")
    return folder / "breast-cancer.csv"


# The record of a run: TOML that `--config` reads back ------------------------------------------------------


def record(command: str, options: Mapping[str, Any], started: datetime, outcome: Mapping[str, Any]) -> str:
    """The options first, then a table `run`, which `--config` ignores."""
    about = {
        "command": shlex.join(["addml", *map(without_password, sys.argv[1:])]),
        "folder": os.getcwd(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
    }
    repeat = f"addml {command} --config THIS_FILE"
    lines = [f"# Options of a run of addml {__version__}. Repeat it with: {repeat}", *_lines(options)]
    lines += ["", "[run]", *_lines(about)]
    for title, table in {
        "input": _input(str(options.get("file", ""))),
        "outcome": outcome,
        "versions": versions(),
    }.items():
        lines += ["", f"[run.{title}]", *_lines(table)] if table else []
    return "\n".join(lines) + "\n"


def _input(file: str) -> dict[str, Any]:
    path = Path(os.path.expanduser(file))
    if not file or not path.is_file():
        return {}
    about = path.stat()
    changed = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
    return {"path": str(path.resolve()), "bytes": about.st_size, "changed": changed}


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items() if value is not None]


def _key(name: str) -> str:
    plain = name.replace("_", "-")
    return plain if plain.replace("-", "").isalnum() and plain.isascii() else _value(name)


def _value(value: Any) -> str:
    """A value in TOML, whose strings, numbers, booleans and lists are written as in JSON."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
