"""The report as Markdown: the same content, in words and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from addml.findings import Finding, Findings
from addml.report import charts
from addml.report.comparison import comparisons
from addml.report.digest import (
    MOST_ITEMS,
    MOST_REASONS,
    distillation_words,
    flat,
    headline,
    ids_of,
    key_numbers,
    lead,
    likely,
    listed_rows,
    ranked_noun,
    rows_left,
    score_words,
    similar,
    ungrouped,
)
from addml.report.facts import cell, drift_head, evaluated, facts, spoken, tails
from addml.text import counted, number, share, text

SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<!\w)_|_(?!\w))|^(\s*\d+)(?=[.)](\s|$))|^\s*[-+=#](?=[-+=#\s]|$)")
MOST_DETAILS = 10
MOST_TRAINING_ROWS = 15
BAR = 30  # characters of the longest bar


def markdown(findings: Findings, *, is_redacted: bool = False) -> str:
    """The whole report."""
    parts = [
        f"# {escaped(' '.join(headline(findings)))}",
        escaped(lead(findings)),
        table(("", "", ""), key_numbers(findings)),
        *_scores(findings),
        *_ranked(findings),
        *_details(findings),
        *_space(findings),
        *_evaluation(findings),
        *_drift(findings),
        *_training(findings),
        *_distillation(findings),
        *_data(findings),
        *_settings(findings),
        "Raw values and ids were left out of this report." if is_redacted else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(value: Any) -> str:
    """Text that Markdown, and the HTML that Markdown allows, take for nothing else."""
    line = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(lambda found: f"{found[0]}\\" if found[2] else f"\\{found[0].lstrip()}", line)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; every cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(map(str, line) if place == 1 else map(escaped, line))} |" for place, line in enumerate(lines)
    )


def _bar(part: float, most: float) -> str:
    return "█" * max(1, round(BAR * part / most)) if part and most else ""


# Scores and rows --------------------------------------------------------------------------------------------


def _scores(findings: Findings) -> list[str]:
    found = charts.histogram(findings.scores, findings.threshold)
    if found is None:
        return []
    counts = np.log1p(found.counts) if found.log else found.counts
    rows = [
        (
            number(found.edges[i], 3),
            number(found.edges[i + 1], 3),
            count,
            _side(i, found),
            _bar(counts[i], counts.max()),
        )
        for i, count in enumerate(found.counts)
    ]
    scale = "Bars grow with the logarithm of the count." if found.log else ""
    words = " ".join(filter(None, (tails(found, findings.threshold, findings.noun), scale)))
    return ["## Scores", escaped(words), table(("above", "up to", f"{findings.noun}s", "", ""), rows)]


def _side(place: int, found: charts.Histogram) -> str:
    return "stands out" if place >= found.first_anomalous else ""


def _ranked(findings: Findings) -> list[str]:
    listed = listed_rows(findings)
    if not listed:
        return []
    head = ("rank", "row", "score", "stands out", "why (share of the score)")
    ids = list(dict.fromkeys(name for finding in listed for name, _ in ids_of(finding)))
    score = score_words(findings)
    rows = [_row(finding, ids, _scored(finding, score(finding.score))) for finding in listed]
    parts = [f"## Ranked {ranked_noun(findings)}s", *_groups(findings), table((*head[:2], *ids, *head[2:]), rows)]
    return [*parts, escaped(rows_left(findings))]


def _scored(finding: Finding, score: str) -> str:
    return f"{score} ({likely(finding)})" if likely(finding) else score


def _row(finding: Finding, ids: list[str], score: str) -> list[Any]:
    own = dict(ids_of(finding))
    why = "; ".join(f"{text(reason.words)} ({share(reason.share)})" for reason in finding.reasons[:MOST_REASONS])
    flag = "yes" if finding.is_anomaly else "no"
    return [finding.rank, finding.row, *(own.get(name, "") for name in ids), score, flag, why]


def _groups(findings: Findings) -> list[str]:
    rows = [
        (len(group.ranks), text(group.words or ", ".join(group.columns)), _ranks(group.ranks))
        for group in similar(findings)
    ]
    if not rows:
        return []
    nouns = f"{ranked_noun(findings)}s"
    return [f"### Similar {nouns}, grouped", table((nouns, "why", "ranks"), rows), ungrouped(findings)]


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:12])) + (" …" if len(ranks) > 12 else "")


def _details(findings: Findings) -> list[str]:
    usual = {one.column: one for one in findings.usual}
    parts: list[str] = []
    for finding in findings.ranked[:MOST_DETAILS]:
        shown = comparisons(finding, usual)
        rows = [
            (one.column, one.value, one.usual, one.where, "" if one.reason is None else share(one.reason))
            for one in shown
        ]
        if rows:
            head = ("column", "value", "usual", "where it lies", "share of the score")
            parts += [f"### {findings.noun.capitalize()} {finding.row:,}, rank {finding.rank}", table(head, rows)]
            if left := len(finding.values) - len(shown):
                parts.append(f"{counted(left, 'more column')}, less unusual, not shown.")
    nouns = f"{ranked_noun(findings)}s"
    title = f"## The top {nouns} beside the usual values" if usual else f"## The values of the top {nouns}"
    return [title, *parts] if parts else []


def _space(findings: Findings) -> list[str]:
    points = charts.space(findings)
    if points is None:
        return []
    center = f"The centre of the normal rows lies at ({_xy(*points['center'])})."
    found = sorted(zip(points["rank"], points["row"], points["x"], points["y"], strict=True))
    rows = [(rank, row, _xy(x), _xy(y)) for rank, row, x, y in found if rank][:20]
    return ["## Map", escaped(center), table(("rank", "row", "x", "y"), rows)] if rows else ["## Map", escaped(center)]


def _xy(*values: float | None) -> str:
    return ", ".join("–" if value is None else number(value, 3) for value in values)


# Training ---------------------------------------------------------------------------------------------------


def _training(findings: Findings) -> list[str]:
    found = charts.training(findings)
    if found is None:
        return []
    panels = found["panels"]
    rows = [
        (found["epochs"][i], *(_xy(panel["mean"][i]) for panel in panels))
        for i in charts.thinned(len(found["epochs"]), MOST_TRAINING_ROWS)
    ]
    members = panels[0]["count"]
    words = f"{counted(len(findings.history), 'epoch')}" + (f", the mean of {members} members." if members > 1 else ".")
    return ["## Training", words, table(("epoch", *(panel["title"].lower() for panel in panels)), rows)]


def _distillation(findings: Findings) -> list[str]:
    found = charts.dropped(findings)
    if found is None:
        return []
    rows = [
        (finding.rank, finding.row, _mean_dropped(cells), _bar(sum(cell or 0 for cell in cells), 100 * len(cells)))
        for finding, cells in zip(listed_rows(findings), found["cells"], strict=False)
    ]
    head = ("rank", "row", "dropped, of all epochs and members", "")
    return ["## Distillation", escaped(distillation_words(findings)), table(head, rows)]


def _mean_dropped(cells: list[int | None]) -> str:
    known = [cell for cell in cells if cell is not None]
    return share(sum(known) / len(known) / 100) if known else "–"


# Evaluation, drift, data, settings --------------------------------------------------------------------------


def _evaluation(findings: Findings) -> list[str]:
    if not findings.evaluation:
        return []
    parts = ["## Evaluation", table(("measure", "value"), evaluated(findings))]
    for curve in charts.curves(findings).values():
        picked = charts.thinned(len(curve["x"]), 11)
        rows = [(_xy(curve["x"][i]), _xy(curve["y"][i])) for i in picked]
        parts += [f"### {curve['title']}", table((curve["x_label"], curve["y_label"]), rows)]
    return parts


def _drift(findings: Findings) -> list[str]:
    if not findings.drift:
        return []
    head = drift_head(findings)
    rows = [[cell(entry.get(key, ""), key) for key in head] for entry in findings.drift[:MOST_ITEMS]]
    return ["## Drift", table(list(map(spoken, head)), rows), _more(len(findings.drift), "column")]


def _data(findings: Findings) -> list[str]:
    parts = ["## Data", table(("", ""), facts(findings))]
    if findings.notes:
        parts += ["### Notes", "\n".join(f"- {escaped(text(note, 600))}" for note in findings.notes[:MOST_ITEMS])]
        parts.append(_more(len(findings.notes), "note"))
    if findings.left_out:
        rows = [(text(column), text(why, 300)) for column, why in findings.left_out[:MOST_ITEMS]]
        parts += ["### Left out, and why", table(("column", "why"), rows), _more(len(findings.left_out), "column")]
    if findings.columns:
        usual = {one.column: (one.kind, text(one.words)) for one in findings.usual}
        used = [(text(column), *usual.get(column, ("", ""))) for column in findings.columns[:MOST_ITEMS]]
        parts += ["### Columns used", table(("column", "kind", "usual values"), used)]
        parts.append(_more(len(findings.columns), "column"))
    return parts


def _settings(findings: Findings) -> list[str]:
    parts = []
    for title, pairs in (("Settings", flat(findings.settings)), ("Versions", flat(dict(findings.versions)))):
        if pairs:
            parts += [
                f"## {title}",
                table(("name", "value"), pairs[:MOST_ITEMS]),
                _more(len(pairs), title.lower()[:-1]),
            ]
    return parts


def _more(count: int, what: str) -> str:
    return f"{counted(count - MOST_ITEMS, f'more {what}')} not shown." if count > MOST_ITEMS else ""
