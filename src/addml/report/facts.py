"""What was read, measured and compared, as pairs and cells: the same for HTML and Markdown."""

from __future__ import annotations

from typing import Any

from addml.findings import Findings
from addml.report import charts
from addml.report.digest import MOST_ITEMS, setting
from addml.text import counted, number, plain, share, text

NAMES = {
    "roc_auc": "ROC-AUC",
    "average_precision": "Average precision",
    "vus_pr": "VUS-PR",
    "vus_roc": "VUS-ROC",
}


def facts(findings: Findings) -> list[tuple[str, str]]:
    """What was read, in pairs."""
    nouns = f"{findings.noun.capitalize()}s"
    pairs = [("Source", text(findings.source)), (nouns, f"{findings.rows:,}")]
    if findings.noun != "image":
        pairs.append(("Columns used", f"{len(findings.columns):,}"))
        pairs.append(("Columns left out", f"{len(findings.left_out):,}"))
    return [*pairs, (f"{nouns} trained on", f"{findings.trained_rows:,}")] if findings.trained_rows else pairs


def tails(found: charts.Histogram, threshold: float, noun: str) -> str:
    """What the axis of the scores does not show."""
    words = []
    if found.above:
        words.append(f"{counted(found.above, noun)} beyond the right end in the last bar.")
    if found.below:
        words.append(f"{counted(found.below, noun)} beyond the left end in the first bar.")
    if found.left_out:
        words.append(f"{counted(found.left_out, 'score')} not finite, left out.")
    if not found.edges[0] <= threshold <= found.edges[-1]:
        words.append(f"The threshold of {number(threshold)} lies outside the axis.")
    return " ".join(words)


def evaluated(findings: Findings) -> list[tuple[str, str]]:
    """What an evaluation says in numbers, in pairs."""
    pairs: list[tuple[str, Any]] = []
    for name, value in charts.evaluation_numbers(findings).items():
        if isinstance(value, dict):
            pairs += [(f"{spoken(name)} {key}", value[key]) for key in value]
        else:
            pairs.append((NAMES.get(name, spoken(name)), value))
    return [(text(name), cell(value)) for name, value in pairs[:MOST_ITEMS]]


def spoken(key: str) -> str:
    """A key of a dict as a heading."""
    words = text(key).replace("_", " ")
    return words[:1].upper() + words[1:]


def drift_head(findings: Findings) -> list[str]:
    """The keys of all entries, `column` first."""
    return list(dict.fromkeys(["column", *(key for entry in findings.drift for key in entry)]))


def cell(value: Any, key: str = "") -> str:
    """A value of a table whose shape is another's: shares as per cent, numbers rounded."""
    value = plain(value)
    if isinstance(value, bool) or value is None:
        return setting(value)
    if isinstance(value, float) and "share" in key:
        return share(value)
    return number(value) if isinstance(value, int | float) else text(setting(value))
