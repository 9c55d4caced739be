"""What people know of rows, by ids and in a TOML file kept in Git: which rows, why, and until when.

A condition is `column op value`, joined by `and`: `store = Turin and miles > 12`. It is parsed, never evaluated.
"""

from __future__ import annotations

import operator
import os
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from addml.arrow import PLAIN_NUMBERS, as_numbers, as_text, is_date, is_numeric, parse_numbers
from addml.errors import AddmlError
from addml.findings import Hidden
from addml.pipeline.options import KNOWN_ENDING, names_file
from addml.text import did_you_mean

if TYPE_CHECKING:
    from addml.inputs.table import Columns

ID = "id:"
TABLE, KEYS = "known", ("id", "when", "reason", "expires", "score")
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
CLAUSE = re.compile(
    r"""\s*(?P<column>"[^"]*"|'[^']*'|[^<>=!"']+?)\s*(?P<op><=|>=|!=|=|<|>)\s*"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^<>=!"'\s][^<>=!"']*?)\s*(?:\s(?P<more>and)(?:\s|$)|$)""",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Clause:
    """One comparison of a condition."""

    column: str
    op: str
    value: str

    def holds(self, batch: pa.RecordBatch | pa.Table, columns: Columns | None) -> np.ndarray:
        """Of which rows it is true; an empty cell equals "" and is neither above nor below anything."""
        column = _array(batch[self.column])
        fitted = next((one for one in (columns.fitted if columns else ()) if one.name == self.column), None)
        is_number = is_numeric(column.type) or (fitted is not None and fitted.kind == "number")
        ordered, compare = self.op not in ("=", "!="), COMPARED[self.op]
        if self.value and not is_date(column.type) and (is_number or (ordered and _number(self.value) is not None)):
            numbers = np.array(_numbers(column) if fitted is None or not is_number else fitted.read(column), np.float64)
            return np.asarray(compare(numbers, self._number) & ((numbers == numbers) | (self.op == "!=")))
        texts = np.asarray(as_text(column).cast(pa.string()).fill_null(""), object)
        return np.asarray(compare(texts, self.value) & ((texts != "") | (not ordered)), bool)

    @property
    def _number(self) -> float:
        if (number := _number(self.value)) is None:
            raise AddmlError(
                f"{self.column} {self.op} {self.value}: {self.column!r} holds numbers; compare it with one."
            )
        return number


def parse_condition(text: str) -> tuple[Clause, ...]:
    """The comparisons of a condition; names and values with signs or `and` in them are quoted."""
    clauses, start, more = list[Clause](), 0, True
    while more:
        found = CLAUSE.match(text, start)
        if found is None:
            raise AddmlError(
                f"{text!r} is no condition; write column op value, joined by and (op: {' '.join(COMPARED)})."
            )
        column, value = (found[name].strip() for name in ("column", "value"))
        clauses.append(Clause(_unquoted(column), found["op"], _unquoted(value)))
        start, more = found.end(), found["more"] is not None
    return tuple(clauses)


@dataclass(frozen=True)
class Entry:
    """Rows of an id or a condition, why they are known, until when, and the score of the row it was written for."""

    place: str  # "known.toml, entry 2"
    ids: frozenset[str]
    clauses: tuple[Clause, ...]
    reason: str = ""
    expires: date | None = None
    score: float | None = None

    @property
    def words(self) -> str:
        """Where it stands and why."""
        return f"{self.place} ({self.reason})" if self.reason else self.place


@dataclass(frozen=True)
class Known:
    """Entries in the order in which they are tried, and the columns that ids stand in."""

    entries: tuple[Entry, ...]
    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Iterable[str], option: str, today: date | None = None) -> Known:
        """Ids, comma-separated or repeated, and files; entries that have expired are left out with a warning."""
        entries = list[Entry]()
        for text in given:
            parts = [part.strip().removeprefix(ID) for part in text.split(",") if part.strip()]
            if not parts:
                raise AddmlError(f"{option} {text}: give row numbers, ids or a file that ends in {KNOWN_ENDING}.")
            entries += (
                _read(text) if names_file(text) else [Entry(f"{option} {one}", frozenset([one]), ()) for one in parts]
            )
        expired = [one for one in entries if one.expires is not None and one.expires < (today or date.today())]
        for one in expired:
            warnings.warn(
                f"{one.words} expired on {one.expires}: renew or remove it; it does nothing now", stacklevel=1
            )
        return cls(tuple(one for one in entries if one not in expired))

    def naming_rows(self, ids: Sequence[str], by: Sequence[str] = ()) -> Known:
        """With the columns that name rows, of which those that name groups do not."""
        return replace(self, ids=tuple(name for name in ids if name not in by))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of conditions, and where each is named."""
        return [(clause.column, one.place) for one in self.entries for clause in one.clauses]

    def codes(self, batch: pa.RecordBatch | pa.Table, columns: Columns | None = None) -> np.ndarray:
        """The entry that each row (n,) is known by, -1 where none is; `columns` as a model reads them."""
        found = np.full(batch.num_rows, -1)
        for code, entry in reversed([*enumerate(self.entries)]):
            if entry.ids and not self.ids:
                raise AddmlError(
                    f"{entry.place}: ids need a column that names rows; give it by --id NAME.", option="id"
                )
            named = [as_text(_array(batch[name])).cast(pa.string()) for name in self.ids] if entry.ids else []
            holds = [clause.holds(batch, columns) for clause in entry.clauses]
            matched = [np.isin(np.asarray(texts, object), [*entry.ids]) for texts in named]
            found[np.logical_and.reduce(holds) if holds else np.logical_or.reduce(matched)] = code
        return found

    def hidden(self, codes: np.ndarray, scores: np.ndarray, threshold: float) -> tuple[Hidden, ...]:
        """What each entry hides of the rows above the threshold; a warning where that is stranger than its example."""
        found = []
        for code, entry in enumerate(self.entries):
            own = np.flatnonzero((codes == code) & (scores > threshold))
            if not len(own):
                continue
            row, score = int(own[scores[own].argmax()]) + 1, float(scores[own].max())
            found.append(Hidden(entry.place, entry.reason, str(entry.expires or "") or None, len(own), row, score))
            if entry.score is not None and score > entry.score:
                warnings.warn(
                    f"{entry.words} hides row {row}, score {score:.4g}: stranger than its example, {entry.score:.4g}",
                    stacklevel=2,
                )
        return tuple(found)


def _read(file: str) -> list[Entry]:
    try:
        document = tomllib.loads(Path(os.path.expanduser(file)).read_text("utf-8-sig"))
    except OSError as error:
        raise AddmlError(f"{file}: cannot be read: {error.strerror}.", file=file) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AddmlError(f"{file}: is not a TOML file: {error}.", file=file) from error
    entries = document.pop(TABLE, None)
    if document or not isinstance(entries, list) or not entries:
        raise AddmlError(f"{file}: give entries that begin with [[{TABLE}]], and nothing else.", file=file)
    return [_entry(entry, f"{file}, entry {number}") for number, entry in enumerate(entries, start=1)]


def _entry(entry: Any, place: str) -> Entry:
    for name in entry if isinstance(entry, dict) else [TABLE]:
        if name not in KEYS:
            raise AddmlError(f"{place}: {name!r} is not one of {', '.join(KEYS)}.{did_you_mean(name, KEYS)}")
    reason, expires, score, condition = (entry.get(name) for name in ("reason", "expires", "score", "when"))
    ids = entry.get("id", [])
    ids = [str(one) for one in (ids if isinstance(ids, list) else [ids])]
    if bool(ids) == (condition is not None):
        raise AddmlError(f"{place}: give either id or when.")
    if not isinstance(reason, str) or not reason.strip():
        raise AddmlError(f"{place}: give a reason, for whoever reads it next year.")
    if expires is not None and type(expires) is not date:
        raise AddmlError(f"{place}: expires = {_shown(expires)}: give a date without quotes, such as 2027-01-31.")
    if score is not None and type(score) not in (int, float):
        raise AddmlError(f"{place}: score = {_shown(score)}: give the score of its example, a number.")
    try:
        clauses = () if condition is None else parse_condition(str(condition))
    except AddmlError as error:
        raise AddmlError(f"{place}: when = {error}") from None
    return Entry(place, frozenset(ids), clauses, reason.strip(), expires, score)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, datetime) else repr(value)


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in "\"'" else text


def _number(text: str) -> float | None:
    number = float(parse_numbers(pa.array([text]), PLAIN_NUMBERS)[0][0])
    return None if number != number else number


def _numbers(column: pa.Array) -> np.ndarray:
    return as_numbers(column) if is_numeric(column.type) else parse_numbers(as_text(column), PLAIN_NUMBERS)[0]


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column if isinstance(column, pa.Array) else column.combine_chunks()
