"""`python -m benchmarks dialects`: CSV dialects and damaged files, read by addml, by DuckDB's sniffer and by pandas.

Every file is generated from a known table. A reader is right if it returns the names (where there is a header), rows
and values: numbers as numbers, dates as dates or as written, text exactly. If it only leaves numbers or marks of
missing values as text, that is counted separately. An error counts as refused. Anything else is wrong, such as lost
rows or a title taken for a header.
"""

from __future__ import annotations

import gzip
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import markdown

DIALECTS, DAMAGED = 360, 20  # files in all, and of each kind of damage
OUTCOMES = ("right", "as text", "refused", "wrong")
TITLES = ("Sales by branch", "printed 2026-03-01 08:15", "all amounts in thousands; not audited")
NAMES = ("item", "pieces", "amount", "share", "day", "city", "checked")
ITEMS = ("bolt", "nut, steel", "5/8 screw; black", "wing | nut", "washer", "long\tpin", "O'Neill rivet", "two words")
CITIES = {
    "utf-8": ("Köln", "Łódź", "Αθήνα", "Osaka"),
    "utf-8-sig": ("Köln", "Łódź", "Αθήνα", "Osaka"),
    "utf-16": ("Köln", "Łódź", "Αθήνα", "Osaka"),
    "cp1252": ("Köln", "Orléans", "Málaga", "Osaka"),
    "cp1250": ("Wrocław", "Białystok", "Łomża", "Osaka"),
    "cp1251": ("Москва", "Казань", "Самара", "Osaka"),
    "shift_jis": ("東京都", "大阪市", "名古屋", "Osaka"),
}
MARKERS = ("NA", "-", "null")
DAYS = {"iso": "%Y-%m-%d", "day first": "%d.%m.%Y", "slashes": "%d/%m/%Y", "month first": "%m/%d/%Y"}


@dataclass(frozen=True)
class Drawn:
    """One file: its bytes, its table (None if it holds none), and its kind."""

    kind: str
    content: bytes
    rows: list[list[Any]] | None
    named: bool = True
    suffix: str = ".csv"


# Files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    """How a table is written."""

    delimiter: str = ","
    quote: str = '"'
    quoting: str = "where needed"
    escape: str = ""  # before a quote in a cell; else it is doubled
    end: str = "\n"
    encoding: str = "utf-8"
    header: bool = True
    decimal: str = "."
    thousands: str = ""
    negative: str = "-"  # or parentheses
    day: str = "iso"
    missing: str = ""
    above: str = "nothing"
    last: bool = True  # whether the last line ends
    newlines: bool = False  # in cells

    @property
    def kind(self) -> str:
        """The hardest property of the style."""
        if self.above != "nothing":
            return "lines above the table"
        if not self.header:
            return "no header"
        if self.thousands or self.negative != "-" or self.decimal == ",":
            return "numbers as people write them"
        if self.missing:
            return "missing values as NA, - or null"
        if self.encoding not in ("utf-8", "utf-8-sig"):
            return "encodings"
        if self.quote != '"' or self.escape or self.newlines:
            return "unusual quotes, line ends in cells"
        return "delimiters and line ends"


def drawn_rows(random: np.random.Generator, style: Style) -> list[list[Any]]:
    """The values of a table: text, integers, decimals, dates, booleans and missing values."""
    cities, items = CITIES[style.encoding], [*ITEMS, "two\nlines"] if style.newlines else ITEMS
    begin, rows = date(2026, 1, 1), []
    for _ in range(int(random.choice([25, 60, 400]))):
        amount = round(float(random.normal(800, 2500)), 2)
        rows.append(
            [
                str(random.choice(items)),
                int(random.integers(1, 900)),
                None if random.random() < 0.08 else amount,
                round(float(random.random()), 4),
                begin + timedelta(days=int(random.integers(0, 364))),
                str(random.choice(cities)),
                bool(random.random() < 0.3),
            ]
        )
    return rows


def style_of(random: np.random.Generator) -> Style:
    """A random dialect without contradictions, such as some program writes."""

    def one(*choices: Any) -> Any:
        return choices[int(random.integers(len(choices)))]

    delimiter = one(",", ",", ";", ";", "\t", "|")
    decimal = one(".", ".", ".", ",") if delimiter != "," else "."
    quote, escape = one(('"', ""), ('"', ""), ('"', "\\"), ("'", ""))
    return Style(
        delimiter,
        quote,
        one("where needed", "all", "texts"),
        escape,
        one("\n", "\n", "\r\n", "\r\n", "\r"),
        one("utf-8", "utf-8", "utf-8", *CITIES),
        one(True, True, True, True, True, False),
        decimal,
        one("", "", "", "", "." if decimal == "," else ",", " "),
        one("-", "-", "-", "-", "-", "-", "()"),
        one(*DAYS),
        one("", "", "", *MARKERS),
        one(*["nothing"] * 9, "titles", "titles with delimiters", "sep=", "comments"),
        one(True, True, False),
        one(True, False, False),
    )


def written(rows: list[list[Any]], style: Style) -> str:
    """The text of a table in this style."""
    lines = [_line(NAMES, style)] if style.header else []
    lines += [_line([_cell(value, style) for value in row], style, row) for row in rows]
    text = style.end.join([*_above(style), *lines])
    return text + style.end if style.last else text


def _above(style: Style) -> list[str]:
    blank = style.delimiter * (len(NAMES) - 1)
    return {
        "nothing": [],
        "titles": [*TITLES[:2], ""],
        "titles with delimiters": [TITLES[0] + blank, TITLES[1] + blank, blank],
        "sep=": [f"sep={style.delimiter}"],
        "comments": [f"# {title}" for title in TITLES],
    }[style.above]


def _cell(value: Any, style: Style) -> str:
    if value is None:
        return style.missing
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.strftime(DAYS[style.day])
    if isinstance(value, float):
        text = f"{abs(value):,.2f}" if abs(value) >= 1 or value == 0 else f"{abs(value)}"
        text = text.replace(",", "\0").replace(".", style.decimal).replace("\0", style.thousands)
        return text if value >= 0 else f"({text})" if style.negative == "()" else f"-{text}"
    return str(value)


def _line(cells: Sequence[str], style: Style, values: Sequence[Any] | None = None) -> str:
    return style.delimiter.join(
        _quoted(cell, style, values is None or isinstance(values[place], str)) for place, cell in enumerate(cells)
    )


def _quoted(cell: str, style: Style, is_text: bool) -> str:
    needed = any(mark in cell for mark in (style.delimiter, style.quote, "\n", "\r"))
    if not (needed or style.quoting == "all" or (style.quoting == "texts" and is_text)):
        return cell
    return style.quote + cell.replace(style.quote, (style.escape or style.quote) + style.quote) + style.quote


def dialects(seed: int = 10) -> Iterator[Drawn]:
    """Intact files."""
    random = np.random.default_rng(seed)
    for _ in range(DIALECTS):
        style = style_of(random)
        rows = drawn_rows(random, style)
        content = written(rows, style).encode(style.encoding)
        yield Drawn(style.kind, content, rows, style.header)


# Damage -------------------------------------------------------------------------------------------------------


def damaged(seed: int = 11) -> Iterator[Drawn]:
    """Damaged files. Their content is lost, so an error is the right answer."""
    random = np.random.default_rng(seed)
    for name, spoil in DAMAGE.items():
        for _ in range(DAMAGED):
            style = Style(delimiter=str(random.choice([",", ";"])), day="iso")
            rows = drawn_rows(random, style)
            yield spoil(name, rows, written(rows, style), style, int(random.integers(5, 20)))


def _spoilt(change: Callable[[list[str], int, Style], list[str]]) -> Callable[..., Drawn]:
    """Damage to lines that leaves no right reading."""

    def spoil(name: str, rows: list[list[Any]], text: str, style: Style, at: int) -> Drawn:
        return Drawn(name, "\n".join(change(text.split("\n"), at, style)).encode(), None)

    return spoil


def _on_line(change: Callable[[str, Style], str]) -> Callable[..., Drawn]:
    return _spoilt(lambda lines, at, style: [*lines[:at], change(lines[at], style), *lines[at + 1 :]])


def _one_byte(name: str, rows: list[list[Any]], text: str, style: Style, at: int) -> Drawn:
    """UTF-8 with one letter of Windows-1252: to be refused, or read except for that letter."""
    content = text.encode().replace("Köln".encode(), b"K\xf6ln", 1)
    return Drawn(name, content, rows)


def _cut_gzip(name: str, rows: list[list[Any]], text: str, style: Style, at: int) -> Drawn:
    packed = gzip.compress(text.encode(), mtime=0)
    return Drawn(name, packed[: len(packed) * at // 20], None, suffix=".csv.gz")


def _harmless(change: Callable[[str], str]) -> Callable[..., Drawn]:
    """Apparent damage that loses nothing."""

    def spoil(name: str, rows: list[list[Any]], text: str, style: Style, at: int) -> Drawn:
        return Drawn(name, change(text).encode(), rows)

    return spoil


DAMAGE: dict[str, Callable[..., Drawn]] = {
    "a quote never closed": _on_line(lambda line, style: '"' + line),
    "a row with a cell too many": _on_line(lambda line, style: line + style.delimiter + "extra"),
    "a row with a cell too few": _on_line(lambda line, style: line.rpartition(style.delimiter)[0]),
    "cut off within a row": _spoilt(lambda lines, at, style: [*lines[:-3], lines[-3][: len(lines[-3]) // 3]]),
    "gzip data cut short": _cut_gzip,
    "a web page": _spoilt(lambda lines, at, style: ["<!DOCTYPE html>", "<html><body>", *lines[:at], "</body></html>"]),
    "binary data": _spoilt(lambda lines, at, style: ["\x00\x01\x02\x7f" * 50, *lines]),
    "one letter in another encoding": _one_byte,
    "mixed line ends": _harmless(lambda text: text.replace("\n", "\r\n", text.count("\n") // 2)),
    "blank lines at the end": _harmless(lambda text: text + "\n\n\n"),
    "blank lines between rows": _harmless(lambda text: text.replace("\n", "\n\n", 10)),
}


# Readers ------------------------------------------------------------------------------------------------------


def by_addml(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read as by `addml detect`."""
    from addml.io.read import read_table

    table = read_table(path).table
    return table.column_names, [list(row.values()) for row in table.to_pylist()]


def by_duckdb(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read by DuckDB's `read_csv` with the dialect of `sniff_csv`."""
    import duckdb

    found = duckdb.connect().execute("select * from read_csv(?, sample_size = -1)", [str(path)])
    return [column[0] for column in found.description or ()], [list(row) for row in found.fetchall()]


def by_pandas(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read by pandas' `read_csv`, which detects the delimiter."""
    import pandas

    frame = pandas.read_csv(path, sep=None, engine="python")
    return [str(name) for name in frame.columns], frame.astype(object).to_numpy().tolist()


READERS = {"addml": by_addml, "DuckDB": by_duckdb, "pandas": by_pandas}


def outcome(read: Callable[[Path], tuple[list[str], list[list[Any]]]], path: Path, drawn: Drawn) -> str:
    """Whether a reader is right, leaves text, refuses or is wrong."""
    try:
        names, rows = read(path)
    except Exception:  # of whatever kind: it says that something is wrong
        return "refused"
    if drawn.rows is None or len(rows) != len(drawn.rows) or (drawn.named and names != list(NAMES)):
        return "wrong"
    pairs = list(zip(drawn.rows, rows, strict=True))
    if any(len(a) != len(b) for a, b in pairs):
        return "wrong"
    found = [how for a, b in pairs for how in map(_compared, a, b)]
    return max(found, key=OUTCOMES.index)


def _compared(expected: Any, found: Any) -> str:
    if (expected is None and found in MARKERS) or (isinstance(expected, int | float) and isinstance(found, str)):
        return "as text"
    return "right" if _same(expected, found) else "wrong"


def _same(expected: Any, found: Any) -> bool:
    if expected is None or found is None or found != found:
        return expected is None and (found is None or found != found)
    if isinstance(expected, bool):
        return bool(found == expected)
    if isinstance(expected, int | float):
        return math.isclose(float(found), expected, rel_tol=1e-9)
    if isinstance(expected, date):
        if isinstance(found, str):
            return found in [expected.strftime(form) for form in DAYS.values()]
        return bool((found.date() if isinstance(found, datetime) else found) == expected)
    return bool(str(found).replace("\r\n", "\n").replace("\r", "\n") == expected)


def dialects_table() -> str:
    """For each kind of file, how many each reader reads right, refuses or reads wrong."""
    files = [*dialects(), *damaged()]
    counts: dict[str, dict[str, list[int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, drawn in enumerate(files):
            path = Path(folder) / f"{number}{drawn.suffix}"
            path.write_bytes(drawn.content)
            for name, read in READERS.items():
                place = OUTCOMES.index(outcome(read, path, drawn))
                counts.setdefault(drawn.kind, {}).setdefault(name, [0] * len(OUTCOMES))[place] += 1
    totals = {name: np.sum([kind[name] for kind in counts.values()], axis=0) for name in READERS}
    rows = [[f"{kind} ({sum(found['addml'])})", *_shown(found)] for kind, found in counts.items()]
    rows.append([f"**all {len(files)}**", *_shown(totals)])
    return markdown([f"files: {' / '.join(OUTCOMES)}", *READERS], rows)


def _shown(found: dict[str, Any]) -> list[str]:
    return [" / ".join(map(str, found[name])) for name in READERS]
