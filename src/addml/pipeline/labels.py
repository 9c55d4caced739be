"""Labels in a column or given as row numbers: what they mean, which training rows have one, how well scores agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from addml.errors import AddmlError
from addml.pipeline.known import ID, Known
from addml.pipeline.options import Options
from addml.pipeline.sources import find
from addml.pipeline.vus import volumes
from addml.text import counted, listed

if TYPE_CHECKING:
    import pyarrow as pa

ANOMALY_WORDS = {"1", "1.0", "true", "t", "yes", "y", "anomaly", "anomalous", "abnormal", "outlier", "fraud", "attack"}
NORMAL_WORDS = {"0", "0.0", "false", "f", "no", "n", "normal", "inlier", "ok", "benign", "regular"}
UNKNOWN = -1
ANOMALIES, NORMAL = "--known-anomalies", "--known-normal"
CURVE_POINTS = 500
FIRST_ROWS = (10, 50, 100, 500, 1000)  # k of precision at k


def read_label(column: pa.ChunkedArray, anomaly_value: str | None, name: str) -> np.ndarray:
    """1 for anomalies, 0 for normal rows, -1 where the label is missing: null, NaN or an empty text."""
    codes, values = _coded(column)
    meanings = np.array([*_meanings(values, anomaly_value, name), UNKNOWN])  # the last is that of code -1
    return np.asarray(meanings[codes])


def is_labelled(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    codes, values = _coded(column)
    return np.asarray(np.array([*map(bool, values), False])[codes])


def _coded(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """The code of each row's label, -1 where it is missing, and the text of each code."""
    import pyarrow as pa

    whole = column if isinstance(column, pa.Array) else column.combine_chunks()
    encoded = pa.chunked_array([whole]).dictionary_encode().combine_chunks()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, [_text(value) for value in encoded.dictionary.to_pylist()]


def _text(value: Any) -> str:
    """The value as it is written on the command line; empty for NaN."""
    if isinstance(value, float) and (value.is_integer() or value != value):
        return "" if value != value else str(int(value))
    return str(value).strip()


def _meanings(values: list[str], anomaly_value: str | None, name: str) -> list[int]:
    shown = f"it holds {listed([repr(value) for value in values if value])}."
    if anomaly_value is not None:
        if anomaly_value not in values:
            raise AddmlError(
                f"no row has {anomaly_value!r} (--anomaly-value) in the label column {name!r}; {shown}", column=name
            )
        return [int(value == anomaly_value) if value else UNKNOWN for value in values]
    words = [value.lower() for value in values]
    if not {*words} <= ANOMALY_WORDS | NORMAL_WORDS | {""}:
        raise AddmlError(
            f"say which value of the label column {name!r} marks an anomaly: --anomaly-value VALUE; {shown}",
            column=name,
        )
    return [int(word in ANOMALY_WORDS) if word else UNKNOWN for word in words]


# Labels to train on -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownLabels:
    """A column with labels, the value in it that marks an anomaly; places and entries: 1 anomaly, 0 normal."""

    column: str | None
    anomaly_value: str | None
    rows: Mapping[int, int]
    entries: Mapping[int, Known]

    @classmethod
    def of(cls, options: Options) -> KnownLabels:
        """The labels that the options name; a row cannot be both."""
        rows, entries = dict[int, int](), dict[int, Known]()
        for name, given, label in ((ANOMALIES, options.known_anomalies, 1), (NORMAL, options.known_normal, 0)):
            for number in (number for text in given for number in row_numbers(text)):
                if rows.setdefault(number - 1, label) != label:
                    raise AddmlError(f"row {number} is in both {ANOMALIES} and {NORMAL}; remove it from one.")
            if (known := Known.of((text for text in given if not row_numbers(text)), name)).entries:
                entries[label] = known
        return cls(options.train_labels, options.anomaly_value, rows, entries)

    def in_table(self, names: Sequence[str], ids: Sequence[str], source: str) -> KnownLabels:
        """The same for a table with these columns, some of which name its rows."""
        for name, who in (pair for known in self.entries.values() for pair in known.columns):
            find(name, names, who, source)
        return replace(self, entries={label: known.naming_rows(ids) for label, known in self.entries.items()})

    @property
    def columns(self) -> list[str]:
        """The columns that tell which rows are known."""
        own = [name for known in self.entries.values() for name in (*known.ids, *(name for name, _ in known.columns))]
        return [*([self.column] if self.column else []), *own]

    @property
    def names(self) -> str:
        """The options that were given; empty where there are none."""
        labels = {1: ANOMALIES, 0: NORMAL}
        options = [f"--train-labels {self.column}"] if self.column else []
        given = (*self.rows.values(), *self.entries)
        return " and ".join([*options, *(labels[label] for label in (1, 0) if label in given)])

    def is_known(self, batch: pa.RecordBatch, start: int) -> np.ndarray:
        """Which rows of a batch, the first of which is row `start`, have a label."""
        found = np.zeros(batch.num_rows, bool) if self.column is None else is_labelled(batch[self.column])
        own = np.array([place for place in self.rows if 0 <= place - start < batch.num_rows], np.int64)
        found[own - start] = True
        for known in self.entries.values():
            found |= known.codes(batch) >= 0
        return found

    def marks(self, table: pa.Table, places: np.ndarray, rows: int) -> np.ndarray | None:
        """The labels of the training rows, which lie at these places among `rows` rows; None without labels."""
        if not self.names:
            return None
        marks = np.full(len(places), UNKNOWN) if self.column is None else self._from_column(table)
        for place, label in self.rows.items():
            if place >= rows:
                raise AddmlError(f"there is no row {place + 1} ({self.names}) among {counted(rows, 'row')}.")
            at = np.searchsorted(places, place)
            if at == len(places) or places[at] != place:
                raise AddmlError(
                    f"--sample {len(places)} leaves no room for row {place + 1} ({self.names}); give more."
                )
            marks[at] = label
        codes = {label: known.codes(table) for label, known in self.entries.items()}
        by_entry = {label: own >= 0 for label, own in codes.items()}
        for label, known in self.entries.items():
            for code, entry in enumerate(known.entries):
                if not entry.reason and code not in codes[label]:  # a typing error; a file may be about other days
                    raise AddmlError(f"{entry.place}: no row has this id.")
        if len(by_entry) == 2 and (both := by_entry[0] & by_entry[1]).any():
            raise AddmlError(f"row {places[both][0] + 1} is in both {ANOMALIES} and {NORMAL}; remove it from one.")
        for label, own in by_entry.items():
            marks[own] = label
        if int((marks == 1).sum()) + 2 > len(marks):
            raise AddmlError(f"all rows are marked as anomalies ({self.names}); there is nothing normal to learn.")
        return None if (marks == UNKNOWN).all() else marks

    def _from_column(self, table: pa.Table) -> np.ndarray:
        assert self.column is not None
        if not is_labelled(table[self.column]).any():
            raise AddmlError(
                f"the column {self.column!r} (--train-labels) holds no label; leave it out, or fill some in.",
                column=self.column,
            )
        return read_label(table[self.column], self.anomaly_value, self.column)

    def words(self, marks: np.ndarray) -> str:
        anomalies, normal = int((marks == 1).sum()), int((marks == 0).sum())
        both = f"{counted(anomalies, 'anomaly', 'anomalies')} and {counted(normal, 'normal row')}"
        return f"learned from {'answers' if self.rows or self.entries else self.column}: {both} labelled"


def row_numbers(text: str) -> list[int]:
    """Row numbers, from 1 on, comma-separated; none where the text holds ids or names a file."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.lstrip("-").isdigit() for part in parts):
        return []
    if wrong := [part for part in parts if int(part) < 1]:
        raise AddmlError(f"{wrong[0]} is no row number; the first row is 1, and an id is written {ID}{wrong[0]}.")
    return [int(part) for part in parts]


# How well scores agree with a label column -----------------------------------------------------------------


def evaluate(
    scores: np.ndarray, labels: np.ndarray, threshold: float, name: str, *, steps: bool = False
) -> dict[str, Any]:
    """ROC-AUC, average precision, precision at k, the decision's figures and the curves; VUS for steps of a series.

    Rows without a label do not count: a margin around labelled steps is measured in steps that have one.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    known = labels != UNKNOWN
    marked, own = labels[known], scores[known]
    anomalies = int(marked.sum())
    if anomalies in (0, len(marked)):
        which = "no anomaly" if not anomalies else "no normal row"
        raise AddmlError(
            f"the label column {name!r} marks {which} among {counted(len(marked), 'row')}: nothing to evaluate."
        )
    return {
        "label": name,
        "rows": len(marked),
        "anomalies": anomalies,
        "unlabelled": int((~known).sum()),
        "roc_auc": float(roc_auc_score(marked, own)),
        "average_precision": float(average_precision_score(marked, own)),
        **(dict(zip(("vus_pr", "vus_roc"), volumes(marked, own)[::-1], strict=True)) if steps else {}),
        "precision_at": _precision_at(own, marked, anomalies),
        **_decision(own > threshold, marked == 1),
        "curves": _curves(own, marked),
    }


def _precision_at(scores: np.ndarray, marked: np.ndarray, anomalies: int) -> dict[int, float]:
    """The share of anomalies among the k highest scores, for round k and for k = the number of anomalies."""
    hits = np.cumsum(marked[np.argsort(-scores, kind="stable")])
    wanted = sorted({k for k in (*FIRST_ROWS, anomalies) if k <= len(scores)})
    return {k: float(hits[k - 1] / k) for k in wanted}


def _decision(flagged: np.ndarray, true: np.ndarray) -> dict[str, float]:
    hits, found, marked = int((flagged & true).sum()), int(flagged.sum()), int(true.sum())
    return {"precision": hits / max(found, 1), "recall": hits / marked, "f1": 2 * hits / (found + marked)}


def _curves(scores: np.ndarray, marked: np.ndarray) -> dict[str, Any]:
    from sklearn.metrics import precision_recall_curve, roc_curve

    false_rate, true_rate, _ = roc_curve(marked, scores)
    precision, recall, _ = precision_recall_curve(marked, scores)
    return {
        "roc": dict(zip(("fpr", "tpr"), _thinned(false_rate, true_rate), strict=True)),
        "pr": dict(zip(("recall", "precision"), _thinned(recall, precision), strict=True)),
    }


def _thinned(x: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """At most CURVE_POINTS points, at even steps along the curve, so that a steep beginning keeps its shape."""
    if len(x) > CURVE_POINTS:
        length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
        places = np.unique(np.searchsorted(length, np.linspace(0, length[-1], CURVE_POINTS)).clip(0, len(x) - 1))
        x, y = x[places], y[places]
    return [[round(float(value), 6) for value in values] for values in (x, y)]
