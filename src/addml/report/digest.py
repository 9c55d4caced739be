"""What the report says first and how much of everything it lists: the same for HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from addml.findings import Finding, Findings, Group
from addml.text import counted, fixed, number, plain, raw, share, text

MOST_ROWS = 200  # ranked rows listed
MOST_DETAILS = 50  # of them, each beside its usual values
MOST_REASONS = 5
MOST_IDS = 4
MOST_GROUPS = 30
LEAD = 110  # characters of reasons in the first sentence
MOST_ITEMS = 200  # columns, notes, settings

Pairs = list[tuple[str, str]]


def headline(findings: Findings) -> tuple[str, str]:
    """What was found in one sentence, in two parts: the count, and the rest."""
    count, rows, noun = findings.anomalies, findings.rows, findings.noun
    if rows == 0:
        return f"No {noun}s", "to judge"
    if rows == 1:
        return (f"The only {noun}", "stands out") if count else (f"The only {noun}", "does not stand out")
    if count == 0:
        return "None", f"of {rows:,} {noun}s stands out"
    return f"{count:,}", f"of {rows:,} {noun}s {'stands' if count == 1 else 'stand'} out"


def lead(findings: Findings) -> str:
    """The sentence under the headline."""
    if not len(findings.scores):
        return ""
    line = number(findings.threshold)
    if not findings.anomalies:
        top = f"; the highest is {number(_highest(findings))}" if np.isfinite(findings.scores).any() else ""
        return f"No score lies above the threshold of {line}{top}."
    if not findings.ranked:
        return f"{article(findings.noun)} stands out when its score is above {line}."
    first = findings.ranked[0]
    name = (
        text(next(iter(first.ids.values())), 60)
        if findings.pictures and first.ids
        else f"{findings.noun.capitalize()} {first.row:,}"
    )
    return f"{name} stands out most{_why(first)} {article(findings.noun)} stands out when its score is above {line}."


def article(noun: str) -> str:
    """An image, a row, at the beginning of a sentence."""
    return f"{'An' if noun[0] in 'aeiou' else 'A'} {noun}"


def _why(finding: Finding) -> str:
    """The reasons that a sentence can hold."""
    words = [text(reason.words, LEAD) for reason in finding.reasons[:2]]
    if len("; ".join(words)) > LEAD:
        words = words[:1]
    return f": {'; '.join(words).removesuffix('…')}." if words else "."


def likely(finding: Finding) -> str:
    """How probable it is that a row is an anomaly, in words; nothing where that is not known."""
    return "" if finding.probability is None else f"{share(finding.probability)} probable"


def key_numbers(findings: Findings) -> list[tuple[str, str, str]]:
    """Label, number and a few words of context."""
    left_out = counted(len(findings.left_out), "column") + " left out" if findings.left_out else "none left out"
    columns = [] if findings.noun == "image" else [("Columns used", f"{len(findings.columns):,}", left_out)]
    flagged = share(findings.anomalies / findings.rows) if findings.rows else "–"
    numbers = [
        (f"{findings.noun.capitalize()}s read", f"{findings.rows:,}", _trained(findings)),
        *columns,
        ("Standing out", flagged, f"of all {findings.noun}s"),
        ("Threshold", number(findings.threshold, 3), findings.decided_by or "scores above it stand out"),
    ]
    if np.isfinite(findings.scores).any():
        middle = number(float(np.median(findings.scores[np.isfinite(findings.scores)])), 3)
        numbers.append(
            ("Highest score", number(_highest(findings), 3), f"half of the {findings.noun}s are under {middle}")
        )
    area = (findings.evaluation or {}).get("roc_auc")
    if isinstance(area, int | float):
        numbers.append(("ROC-AUC", f"{area:.3f}", "against the labels"))
    return numbers


def _highest(findings: Findings) -> float:
    return float(findings.scores[np.isfinite(findings.scores)].max())


def _trained(findings: Findings) -> str:
    if not findings.trained_rows:
        return "scored"
    if findings.trained_rows == findings.rows:
        return "all of them trained on"
    return f"trained on {findings.trained_rows:,}"


def listed_rows(findings: Findings) -> tuple[Finding, ...]:
    """The ranked rows that the report lists."""
    return findings.ranked[:MOST_ROWS]


def score_words(findings: Findings) -> Callable[[float], str]:
    """Says scores with the same number of decimals for the whole list."""
    sizes = [abs(finding.score) for finding in listed_rows(findings) if math.isfinite(finding.score)]
    most = max(sizes, default=0.0)
    if not 1e-3 <= most < 1e6:
        return number
    return lambda score: fixed(score, max(0, 3 - math.floor(math.log10(most))))


def ranked_noun(findings: Findings) -> str:
    """What is ranked: rows, images, or the events of a series."""
    return findings.noun if findings.track is None else "event"


def rows_left(findings: Findings) -> str:
    """How many rows, or events of a series, stand out without being listed, said."""
    shown, is_series = listed_rows(findings), findings.track is not None
    more = len(findings.ranked) if is_series else findings.anomalies
    more -= sum(finding.is_anomaly for finding in shown)
    if more <= 0:
        return ""
    noun = f"more {ranked_noun(findings)}"
    return f"{counted(more, noun)} {'stands' if more == 1 else 'stand'} out; the scored table has all of them."


def ids_of(finding: Finding) -> Pairs:
    """The id columns of a row."""
    return [(text(name), raw(value)) for name, value in list(finding.ids.items())[:MOST_IDS]]


def similar(findings: Findings) -> list[Group]:
    """Groups of more than one row, the largest first as given."""
    return [group for group in findings.groups if len(group.ranks) > 1][:MOST_GROUPS]


def ungrouped(findings: Findings) -> str:
    """What the shown groups leave, said."""
    alone = sum(len(group.ranks) == 1 for group in findings.groups)
    hidden = sum(len(group.ranks) > 1 for group in findings.groups) - len(similar(findings))
    words = [f"{counted(hidden, 'more group')} not shown."] if hidden else []
    if alone:
        how = "stands out in its own way" if alone == 1 else "stand out each in its own way"
        words.append(f"{counted(alone, ranked_noun(findings))} {how}.")
    return " ".join(words)


def distillation_words(findings: Findings) -> str:
    """What distillation did with the rows that stand out."""
    if findings.dropped is None or not len(findings.dropped):
        return ""
    flags = np.array([finding.is_anomaly for finding in findings.ranked], bool)
    if not flags.any():
        return ""
    cells = np.asarray(findings.dropped, float)[:, flags]
    cells = cells[:, np.isfinite(cells).any(axis=0)]  # the rows that were trained on
    always, count = int((np.nan_to_num(cells, nan=1.0) >= 1).all(axis=0).sum()), cells.shape[1]
    if not count:
        return "None of the rows that stand out was in the sample that was trained on."
    if always == count:
        return "Every row that stands out was dropped by every member in every epoch."
    mean = share(float(np.nanmean(cells)))
    return f"The rows that stand out were dropped {mean} of the time, {always or 'none'} of the {count:,} always."


def flat(settings: dict[str, Any], prefix: str = "") -> Pairs:
    """Nested settings as pairs of a dotted name and a text."""
    pairs: Pairs = []
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            pairs += flat(value, f"{name}.")
        else:
            pairs.append((text(name), setting(value)))
    return pairs


def setting(value: Any) -> str:
    """A setting as it is written in a configuration."""
    value = plain(value)
    if isinstance(value, list | tuple | set | frozenset):
        return text(", ".join(setting(inner) for inner in value) or "none", 500)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return text(repr(value) if isinstance(value, float) else value, 500)
