"""Labels and known rows: a label column, row numbers, ids, and conditions in a TOML file.

A condition is `column op value`, joined by `and`: `store = Turin and miles > 12`. It is parsed, never evaluated.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from addml.arrow import PLAIN_NUMBERS, as_numbers, as_text, is_date, is_numeric, parse_numbers
from addml.errors import AddmlError
from addml.findings import Hidden
from addml.inputs.table import Columns
from addml.pipeline.options import KNOWN_ENDING, Options, is_known_file, read_toml
from addml.pipeline.sources import find
from addml.text import counted, did_you_mean, listed

ANOMALY_WORDS = {"1", "1.0", "true", "t", "yes", "y", "anomaly", "anomalous", "abnormal", "outlier", "fraud", "attack"}
NORMAL_WORDS = {"0", "0.0", "false", "f", "no", "n", "normal", "inlier", "ok", "benign", "regular"}
UNKNOWN = -1
ANOMALIES, NORMAL = "--known-anomalies", "--known-normal"
ID = "id:"
TABLE, KEYS = "known", ("id", "when", "reason", "expires", "score")
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
CLAUSE = re.compile(
    r"""\s*(?P<column>"[^"]*"|'[^']*'|[^<>=!"']+?)\s*(?P<op><=|>=|!=|=|<|>)\s*"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^<>=!"'\s][^<>=!"']*?)\s*(?:\s(?P<more>and)(?:\s|$)|$)""",
    re.IGNORECASE,
)

Column: TypeAlias = pa.Array | pa.ChunkedArray
Table: TypeAlias = pa.RecordBatch | pa.Table


def read_label(column: Column, anomaly_value: str | None, name: str) -> np.ndarray:
    """1 for anomalies, 0 for normal rows, -1 for missing labels (null, NaN or empty text)."""
    codes, values = _coded(column)
    content = f"it holds {listed([repr(value) for value in values if value])}."
    if anomaly_value is None:
        values, anomalous = [value.lower() for value in values], ANOMALY_WORDS
        if not {*values} <= ANOMALY_WORDS | NORMAL_WORDS | {""}:
            remedy = "name the value that marks an anomaly with --anomaly-value VALUE"
            raise AddmlError(f"label column {name!r}: {remedy}; {content}", column=name)
    else:
        anomalous = {anomaly_value}
        if anomaly_value not in values:
            problem = f"no row has {anomaly_value!r} (--anomaly-value)"
            raise AddmlError(f"label column {name!r}: {problem}; {content}", column=name)
    labels = [int(value in anomalous) if value else UNKNOWN for value in values]
    return np.asarray(np.array([*labels, UNKNOWN])[codes])  # code -1 takes the last


def _coded(column: Column) -> tuple[np.ndarray, list[str]]:
    """The code of each row's label (-1: null) and the text of each code ("" for NaN)."""
    encoded = _array(column).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    texts = []
    for value in encoded.dictionary.drop_null().to_pylist():
        if isinstance(value, float) and (value != value or value.is_integer()):
            value = "" if value != value else int(value)
        texts.append(str(value).strip())
    return codes, texts


def _array(column: Column) -> pa.Array:
    return column if isinstance(column, pa.Array) else column.combine_chunks()


class Clause(NamedTuple):
    """One comparison of a condition."""

    column: str
    op: str
    value: str

    def holds(self, batch: Table, columns: Columns | None) -> np.ndarray:
        """Test each row; an empty cell equals "" and is neither above nor below anything."""
        column, compare, is_order = _array(batch[self.column]), OPERATORS[self.op], self.op not in ("=", "!=")
        fitted = next((column for column in (columns.fitted if columns else ()) if column.name == self.column), None)
        is_number = is_numeric(column.type) or (fitted is not None and fitted.kind == "number")
        limit = float(parse_numbers(pa.array([self.value]), PLAIN_NUMBERS)[0][0])
        if not self.value or is_date(column.type) or not (is_number or (is_order and limit == limit)):
            texts = np.asarray(as_text(column).cast(pa.string()).fill_null(""), object)
            return np.asarray(compare(texts, self.value) & ((texts != "") | (not is_order)), bool)
        if limit != limit:
            raise AddmlError(f"{' '.join(self)}: {self.column!r} holds numbers; compare it with a number.")
        if fitted is not None and is_number:
            numbers = np.array(fitted.read(column), np.float64)
        elif is_numeric(column.type):
            numbers = as_numbers(column)
        else:
            numbers = parse_numbers(as_text(column), PLAIN_NUMBERS)[0]
        return np.asarray(compare(numbers, limit) & ((numbers == numbers) | (self.op == "!=")))


def parse_condition(text: str) -> tuple[Clause, ...]:
    """Parse a condition; quote names and values that contain operators or `and`."""
    clauses, start = list[Clause](), 0
    while True:
        match = CLAUSE.match(text, start)
        if match is None:
            form = f"column op value, joined by and (op: {' '.join(OPERATORS)})"
            raise AddmlError(f"{text!r} is not a condition; write {form}.")
        column, value = (match[name].strip() for name in ("column", "value"))
        column, value = (part[1:-1] if part[:1] in ("'", '"') else part for part in (column, value))
        clauses.append(Clause(column, match["op"], value))
        if match["more"] is None:
            return tuple(clauses)
        start = match.end()


@dataclass(frozen=True)
class Entry:
    """Ids or a condition that select known rows."""

    name: str  # "known.toml, entry 2"
    ids: frozenset[str]
    clauses: tuple[Clause, ...] = ()
    reason: str = ""
    expires: date | None = None
    score: float | None = None  # of the row that the entry was written for

    @property
    def words(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


@dataclass(frozen=True)
class KnownRows:
    """Entries, of which the first match wins, and the id columns."""

    entries: tuple[Entry, ...]
    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str], option: str, today: date | None = None) -> KnownRows:
        """Read comma-separated ids and files; warn of expired entries and skip them."""
        entries = list[Entry]()
        for text in texts:
            parts = [part.strip().removeprefix(ID) for part in text.split(",") if part.strip()]
            if not parts:
                raise AddmlError(f"{option} {text}: must be row numbers, ids or a {KNOWN_ENDING} file.")
            ids = [Entry(f"{option} {part}", frozenset([part])) for part in parts]
            entries += _read(text) if is_known_file(text) else ids
        expired = [entry for entry in entries if entry.expires and entry.expires < (today or date.today())]
        for entry in expired:
            warnings.warn(f"{entry.words} expired on {entry.expires} and is ignored: renew or remove it", stacklevel=1)
        return cls(tuple(entry for entry in entries if entry not in expired))

    def with_ids(self, ids: Sequence[str], by: Sequence[str] = ()) -> KnownRows:
        """Set the id columns; those of groups do not identify rows."""
        return replace(self, ids=tuple(name for name in ids if name not in by))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that conditions use, each with the entry's name."""
        return [(clause.column, entry.name) for entry in self.entries for clause in entry.clauses]

    def codes(self, batch: Table, columns: Columns | None = None) -> np.ndarray:
        """The index (n,) of the entry that each row matches, or -1; values are read with the model's `columns`."""
        codes = np.full(batch.num_rows, -1)
        for code, entry in reversed([*enumerate(self.entries)]):
            if entry.ids and not self.ids:
                raise AddmlError(f"{entry.name}: needs an id column; name it with --id NAME.")
            if entry.clauses:
                matched = np.logical_and.reduce([clause.holds(batch, columns) for clause in entry.clauses])
            else:
                texts = [as_text(_array(batch[name])).cast(pa.string()) for name in self.ids]
                matched = np.logical_or.reduce([np.isin(np.asarray(ids, object), [*entry.ids]) for ids in texts])
            codes[matched] = code
        return codes

    def hidden(self, codes: np.ndarray, scores: np.ndarray, threshold: float) -> tuple[Hidden, ...]:
        """The flagged rows that each entry hides; warn if one scores higher than the entry's example."""
        hidden = []
        for code, entry in enumerate(self.entries):
            rows = np.flatnonzero((codes == code) & (scores > threshold))
            if not len(rows):
                continue
            row, score = int(rows[scores[rows].argmax()]) + 1, float(scores[rows].max())
            expires = None if entry.expires is None else str(entry.expires)
            hidden.append(Hidden(entry.name, entry.reason, expires, len(rows), row, score))
            if entry.score is not None and score > entry.score:
                stranger = f"stranger than its example, {entry.score:.4g}"
                warnings.warn(f"{entry.words} hides row {row}, score {score:.4g}: {stranger}", stacklevel=2)
        return tuple(hidden)


def _read(file: str) -> list[Entry]:
    document = read_toml(file)
    entries = document.pop(TABLE, None)
    if document or not isinstance(entries, list) or not entries:
        raise AddmlError(f"{file}: must hold [[{TABLE}]] entries and nothing else.", file=file)
    return [_entry(entry, f"{file}, entry {number}") for number, entry in enumerate(entries, start=1)]


def _entry(entry: Any, where: str) -> Entry:
    for name in entry if isinstance(entry, dict) else [TABLE]:
        if name not in KEYS:
            raise AddmlError(f"{where}: {name!r} is not one of {', '.join(KEYS)}.{did_you_mean(name, KEYS)}")
    ids, condition, reason, expires, score = (entry.get(name) for name in KEYS)
    if (ids is None) == (condition is None) or ids == []:
        raise AddmlError(f"{where}: needs either id or when.")
    if not isinstance(reason, str) or not reason.strip():
        raise AddmlError(f"{where}: needs a reason, for whoever reads it next year.")
    if expires is not None and type(expires) is not date:
        raise AddmlError(f"{where}: expires = {expires!r}: must be a date without quotes, such as 2027-01-31.")
    if score is not None and type(score) not in (int, float):
        raise AddmlError(f"{where}: score = {score!r}: must be a number, the score of the entry's example.")
    try:
        clauses = () if condition is None else parse_condition(str(condition))
    except AddmlError as error:
        raise AddmlError(f"{where}: when = {error}") from None
    ids = [] if ids is None else ids if isinstance(ids, list) else [ids]
    return Entry(where, frozenset(map(str, ids)), clauses, reason.strip(), expires, score)


@dataclass(frozen=True)
class TrainingLabels:
    """Labels to train on (1: anomaly, 0: normal): from a column, from row numbers and from entries."""

    column: str | None
    anomaly_value: str | None
    rows: Mapping[int, int]  # label by 0-based row
    entries: Mapping[int, KnownRows]  # by label

    @classmethod
    def of(cls, options: Options) -> TrainingLabels:
        """Read the options; a row cannot have both labels."""
        rows, entries = dict[int, int](), dict[int, KnownRows]()
        for name, texts, label in ((ANOMALIES, options.known_anomalies, 1), (NORMAL, options.known_normal, 0)):
            for number in (number for text in texts for number in row_numbers(text)):
                if rows.setdefault(number - 1, label) != label:
                    raise AddmlError(f"row {number} is in both {ANOMALIES} and {NORMAL}; remove it from one.")
            entries[label] = KnownRows.of((text for text in texts if not row_numbers(text)), name)
        entries = {label: known for label, known in entries.items() if known.entries}
        return cls(options.train_labels, options.anomaly_value, rows, entries)

    def in_table(self, names: Sequence[str], ids: Sequence[str], source: str) -> TrainingLabels:
        """Check the columns of conditions against the table and set its id columns."""
        for known in self.entries.values():
            for name, entry in known.columns:
                find(name, names, entry, source)
        return replace(self, entries={label: known.with_ids(ids) for label, known in self.entries.items()})

    @property
    def columns(self) -> list[str]:
        """The columns needed to find known rows."""
        entries = self.entries.values()
        names = [name for known in entries for name in (*known.ids, *(name for name, _ in known.columns))]
        return [self.column, *names] if self.column else names

    @property
    def options(self) -> str:
        """The options that set labels, for messages; empty without labels."""
        labels = (*self.rows.values(), *self.entries)
        options = [f"--train-labels {self.column}"] if self.column else []
        return " and ".join([*options, *(name for label, name in ((1, ANOMALIES), (0, NORMAL)) if label in labels)])

    def is_known(self, batch: pa.RecordBatch, start: int) -> np.ndarray:
        """Which rows of a batch have a label; `start` is the index of its first row."""
        is_known = np.zeros(batch.num_rows, bool)
        if self.column is not None:
            codes, values = _coded(batch[self.column])
            is_known |= np.array([*map(bool, values), False])[codes]  # code -1 takes the last
        for row in self.rows:
            if start <= row < start + batch.num_rows:
                is_known[row - start] = True
        for known in self.entries.values():
            is_known |= known.codes(batch) >= 0
        return is_known

    def of_rows(self, table: pa.Table, indices: np.ndarray, n_rows: int) -> np.ndarray | None:
        """The labels of training rows with these `indices` among `n_rows` rows of the file; None without labels."""
        if not self.options:
            return None
        labels = np.full(len(indices), UNKNOWN)
        if self.column is not None:
            labels = read_label(table[self.column], self.anomaly_value, self.column)
            if (labels == UNKNOWN).all():
                problem = f"the column {self.column!r} (--train-labels) holds no labels"
                raise AddmlError(f"{problem}; add some, or remove the option.", column=self.column)
        for row, label in self.rows.items():
            if row >= n_rows:
                raise AddmlError(f"{self.options}: there is no row {row + 1}; the table has {counted(n_rows, 'row')}.")
            i = np.searchsorted(indices, row)
            if i == len(indices) or indices[i] != row:
                raise AddmlError(f"--sample {len(indices)} is too small for row {row + 1}; increase it.")
            labels[i] = label
        by_entry = {label: known.codes(table) for label, known in self.entries.items()}
        for label, codes in by_entry.items():
            for code, entry in enumerate(self.entries[label].entries):
                if not entry.reason and code not in codes:  # an id on the command line; files may cover other days
                    raise AddmlError(f"{entry.name}: no row has this id.")
            labels[codes >= 0] = label
        if len(by_entry) == 2 and (in_both := (by_entry[0] >= 0) & (by_entry[1] >= 0)).any():
            raise AddmlError(f"row {indices[in_both][0] + 1} is in both {ANOMALIES} and {NORMAL}; remove it from one.")
        if int((labels == 1).sum()) + 2 > len(labels):
            raise AddmlError(f"{self.options}: training needs at least two rows that are not anomalies.")
        return None if (labels == UNKNOWN).all() else labels

    def note(self, labels: np.ndarray) -> str:
        anomalies, normal = int((labels == 1).sum()), int((labels == 0).sum())
        counts = f"{counted(anomalies, 'anomaly', 'anomalies')} and {counted(normal, 'normal row')}"
        return f"learned from {'answers' if self.rows or self.entries else self.column}: {counts} labelled"


def row_numbers(text: str) -> list[int]:
    """Parse comma-separated, 1-based row numbers; empty if the text holds ids or names a file."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.lstrip("-").isdigit() for part in parts):
        return []
    for part in parts:
        if int(part) < 1:
            raise AddmlError(f"{part} is not a row number, as the first row is 1; write {ID}{part} for an id.")
    return [int(part) for part in parts]
