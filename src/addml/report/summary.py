"""What a report says about rows: headline, key figures, and the ranked rows compared with usual values."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from addml.findings import Finding, Findings, Reason, Usual
from addml.report.html import Html, button, el, folded, joined, paragraph, table
from addml.text import MISSING, cell_text, counted, fixed, number, one_in, one_line, percent, python_value

MAX_ROWS = 200  # ranked rows in a report
MAX_DETAILS = 50  # ranked rows whose values are shown
MAX_COLUMNS = 30  # compared for a row: those of its reasons, then the most unusual ones
SHOWN_COLUMNS = 8  # of these; the others unfold
MAX_REASONS = 5
MAX_LEAD = 110  # characters of reasons below the headline
MAX_IDS = 4
MAX_GROUPS = 12
TOP_ROWS = 5  # shown first, one of each group of similar rows
COMMON = 0.05  # least share of the usual rows that makes a category common
BAR_WIDTH = 160
BAND = (60, 100)  # the usual range on a bar
BAR_EDGE = 6  # least distance of a mark from the ends


def headline(findings: Findings) -> tuple[str, str]:
    """How many rows or events are flagged: the count, and the rest of the sentence."""
    count, rows, noun, track = findings.anomalies, findings.rows, findings.noun, findings.track
    if track is not None and rows > 1:
        events, series = len(track.events), len(track.entities)
        within = f" of {series:,} series" if series > 1 else ""
        return f"{events:,}" if events else "No", f"{'event' if events == 1 else 'events'} in {rows:,} steps{within}"
    if rows == 0:
        return f"No {noun}s", "to score"
    if rows == 1:
        return f"The only {noun}", "is flagged" if count else "is not flagged"
    return f"{count:,}" if count else "None", f"of {rows:,} {noun}s flagged"


def lead(findings: Findings) -> str:
    """The sentences below the headline: the first row with the reasons that fit, and the rule."""
    if not len(findings.scores):
        return ""
    threshold, noun = number(findings.threshold), findings.noun.capitalize()
    if not findings.anomalies:
        scores = findings.scores[np.isfinite(findings.scores)]
        highest = f"; the highest is {number(float(scores.max()))}" if len(scores) else ""
        if findings.too_short:
            return f"The events above the threshold of {threshold} are shorter than --min-steps{highest}."
        closest = " The closest events are listed." if findings.track is not None and findings.ranked else ""
        return f"No score is above the threshold of {threshold}{highest}.{closest}"
    rule = f"{noun}s with a score above {threshold} are flagged."
    rule = f"Flagged: {findings.rule}." if findings.decided_by else rule
    if not findings.ranked:
        return rule
    first = findings.ranked[0]
    name = f"{noun} {first.row:,}"
    if findings.pictures and first.ids:
        name = one_line(next(iter(first.ids.values())), 60)  # the file
    if findings.track is not None and "start" in first.ids:
        name = one_line(event_name(first))
    reasons = [one_line(reason.words, MAX_LEAD) for reason in first.reasons[:2]]
    words = "; ".join(reasons if len("; ".join(reasons)) <= MAX_LEAD else reasons[:1]).removesuffix("…")
    return f"{name} ranks first{f': {words}' if words else ''}. {rule}"


def event_name(event: Finding) -> str:
    """The entity of an event, if any, and its times."""
    *entity, start, end, _, _ = map(str, event.ids.values())
    return " ".join([*entity, start if start == end else f"{start} to {end}"])


def key_figures(findings: Findings) -> list[tuple[str, str, str]]:
    """Labels, values and notes."""
    noun, trained = findings.noun, findings.trained_rows
    used = f"{'all' if trained == findings.rows else f'{trained:,}'} used for training" if trained else "scored"
    figures = [(f"{noun.capitalize()}s read", f"{findings.rows:,}", used)]
    if noun != "image":
        figures.append(("Columns used", f"{len(findings.columns):,}", f"{len(findings.left_out) or 'none'} dropped"))
    share = percent(findings.anomalies / findings.rows) if findings.rows else "–"
    figures.append(("Flagged", share, f"of all {noun}s"))
    note = findings.decided_by or "higher scores are flagged"
    figures.append(("Threshold", number(findings.threshold, 3), note))
    scores = findings.scores[np.isfinite(findings.scores)]
    if len(scores):
        median = f"median {number(float(np.median(scores)), 3)}"
        figures.append(("Highest score", number(float(scores.max()), 3), median))
    area = (findings.evaluation or {}).get("roc_auc")
    if isinstance(area, int | float):
        figures.append(("ROC-AUC", f"{area:.3f}", "against the labels"))
    return figures


class RankedRows:
    def __init__(self, findings: Findings) -> None:
        self.findings, self.listed = findings, findings.ranked[:MAX_ROWS]
        self.noun = findings.noun if findings.track is None else "event"  # of what is ranked
        self.usual = {usual.column: usual for usual in findings.usual}
        ranks = {row.rank for row in self.listed}
        self.examples = [row for row in findings.examples if row.rank in ranks][:TOP_ROWS]
        self.groups = [group for group in findings.groups if len(group.ranks) > 1]
        self.score = score_format(findings)
        scores = findings.scores[np.isfinite(findings.scores)]
        self.low, self.high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)

    def name(self, finding: Finding) -> str:
        return f"{self.findings.noun.capitalize()} {finding.row:,}"

    def top(self) -> Html:
        """The first rows, one of each group."""
        if not self.examples:
            return el("p", f"No {self.noun} is ranked.", class_="muted")
        similar, items = {group.ranks[0]: len(group.ranks) - 1 for group in self.groups}, []
        for row in self.examples:
            is_event = self.findings.track is not None and "start" in row.ids
            title = one_line(event_name(row), 80) if is_event else self.name(row)
            name = [el("a", title, href=f"#rank-{row.rank}", class_="row-link")]
            ids = sorted(map(_id_text, list(row.ids.values())[:MAX_IDS]), key=lambda x: -sum(map(str.isalpha, x)))
            name += [el("span", one_line(value, 40), class_="id") for value in ids[:1] if not is_event]
            reasons = joined([el("span", one_line(reason.words)) for reason in row.reasons[:2]], Html("<i>; </i>"))
            content = [el("b", *name), el("span", reasons or "no reason listed", class_="why")]
            if row.rank in similar:
                more = counted(similar[row.rank], f"similar {self.noun}")
                content.append(el("small", f"and {more}", class_="muted"))
            rank, score = el("span", row.rank, class_="rank"), el("span", self._score(row), class_="score")
            items.append(el("li", rank, el("span", *content), score, class_=None if row.is_anomaly else "below"))
        title = f"Top {self.noun}s" if self.examples[0].is_anomaly else "Highest scores"
        title += ", one of each group" if self.groups else ""
        return joined([el("h2", title), el("ol", *items, class_="top")])

    def _score(self, finding: Finding) -> Html:
        """The score, with a bar from the lowest to the highest score and a tick at the threshold."""
        parts: list[str] = [self.score(finding.score)]
        if math.isfinite(finding.score) and self.high > self.low:
            ends = np.array([finding.score, self.findings.threshold])
            score, threshold = np.clip((ends - self.low) / (self.high - self.low), 0, 1)
            style = "fill out" if score > threshold else "fill"
            track = el("rect", x=0, width=100, y=2, height=4, rx=2, class_="track")
            fill = el("rect", x=0, width=f"{100 * score:.1f}", y=2, height=4, rx=2, class_=style)
            tick = el("rect", x=f"{100 * threshold - 0.75:.1f}", width="1.5", y=0, height=8, class_="tick")
            parts.append(el("svg", track, fill, tick, viewBox="0 0 100 8", class_="score-bar", aria_hidden="true"))
        if finding.p_value is not None:
            parts.append(el("small", one_in(finding.p_value, self.findings.least_p_value)))
        return joined(parts)

    def filters(self) -> Html:
        """The groups of similar rows; on the page each is a button that filters the list."""
        cards, rows = [], {row.rank: row.row for row in self.listed}
        for group in self.groups[:MAX_GROUPS]:
            ranks = [rank for rank in group.ranks if rank in rows]
            first = ", ".join(f"{rows[rank]:,}" for rank in ranks[:6]) + (" …" if len(group.ranks) > 6 else "")
            words = one_line(group.words or ", ".join(group.columns))
            content = [el("b", counted(len(group.ranks), self.noun)), el("span", words, class_="words")]
            content += [el("small", f"{self.findings.noun}s {first}")] if ranks else []
            state = {"data_ranks": " ".join(map(str, ranks)), "aria_pressed": "false"}
            cards.append(el("li", el("button", *content, type="button", **state)))
        if not cards:
            return Html("")
        hidden = len(self.groups) - len(cards)
        more = f"{counted(hidden, 'more group is', 'more groups are')} not shown." if hidden else ""
        title = el("h3", f"Groups of similar {self.noun}s")
        return joined([title, el("ul", *cards, class_="groups"), paragraph(more, style="muted")])

    def table(self) -> Html:
        """All listed rows. Roles are explicit because the styles for narrow screens turn rows into blocks."""
        opener = button("all-details", "Open all details", aria_pressed="false")
        tools = el("div", opener, button("all-rows", "Show all", hidden=True), class_="tools")
        body: list[Html] = []
        for i, row in enumerate(self.listed):
            if i and self.listed[i - 1].is_anomaly and not row.is_anomaly:
                words = f"Not flagged: the next {self.noun}s below the threshold of {number(self.findings.threshold)}"
                body.append(el("tr", el("td", words, colspan=5, role="cell"), class_="divider", role="row"))
            has_details = i < MAX_DETAILS and bool(row.values)
            body.append(self._row(row, has_details))
            if has_details:
                body.append(self._details(row))
        titles = ("Rank", self.findings.noun.capitalize(), "Score", "Reasons")
        head = [el("th", title, scope="col", role="columnheader") for title in titles]
        details = el("span", "Details", class_="unseen")
        head.append(el("th", details, scope="col", role="columnheader", class_="opener"))
        caption = el("caption", f"Ranked {self.noun}s with their reasons", class_="unseen")
        content = [caption, el("thead", el("tr", *head, role="row"), role="rowgroup")]
        rows = el("tbody", *body, role="rowgroup")
        return joined([tools, el("table", *content, rows, class_="ranked", role="table")])

    def _row(self, finding: Finding, has_details: bool) -> Html:
        name, rank = self.name(finding), finding.rank
        ids = [
            el("span", el("span", one_line(key), class_="key"), " ", _id_text(value), class_="id")
            for key, value in list(finding.ids.items())[: MAX_IDS if self.findings.track is None else None]
        ]
        reasons = [
            el("li", el("span", one_line(reason.words)), " ", el("small", percent(reason.share)))
            for reason in finding.reasons[:MAX_REASONS]
        ]
        label = el("span", f"Details of {name}", class_="unseen")
        opener = el("button", label, type="button", aria_expanded="false", aria_controls=f"detail-{rank}")
        cells = [
            el("td", rank, class_="rank", role="cell"),
            el("th", el("span", name, class_="row-name"), *ids, scope="row", class_="name", role="rowheader"),
            el("td", self._score(finding), class_="score", role="cell"),
            el("td", el("ul", *reasons) if reasons else el("span", "–", class_="muted"), class_="reasons", role="cell"),
            el("td", opener if has_details else "", class_="opener", role="cell"),
        ]
        style = "finding" if finding.is_anomaly else "finding below"
        return el("tr", *cells, id=f"rank-{rank}", class_=style, data_rank=rank, tabindex="-1", role="row")

    def _details(self, finding: Finding) -> Html:
        compared, has_usual = comparisons(finding, self.usual), bool(self.usual)
        title = self.name(finding) if self.findings.track is None else f"{self.name(finding)}, the peak"
        title += " compared with usual values" if has_usual else ""
        content = [el("h4", title, aria_hidden="true"), _compared(title, compared[:SHOWN_COLUMNS], has_usual)]
        rest, hidden = compared[SHOWN_COLUMNS:], len(finding.values) - len(compared)
        if rest:
            more = counted(len(rest), "more column") + (", less unusual" if has_usual else "")
            content.append(folded(more, _compared(f"{title}, {more}", rest, has_usual)))
        if hidden:
            words = counted(hidden, "more column is", "more columns are")
            content.append(el("p", f"{words} not shown.", class_="muted"))
        is_printed = any(row.rank == finding.rank for row in self.examples)
        cell = el("td", *content, colspan=5, role="cell")
        style = "detail printed" if is_printed else "detail"
        return el("tr", cell, id=f"detail-{finding.rank}", class_=style, data_rank=finding.rank, role="row")

    def unlisted(self) -> str:
        """How many flagged rows or events are not listed; empty if all are."""
        ranked = self.findings.ranked
        flagged = self.findings.anomalies if self.findings.track is None else sum(row.is_anomaly for row in ranked)
        more = flagged - sum(row.is_anomaly for row in self.listed)
        words = counted(more, f"more {self.noun} is", f"more {self.noun}s are")
        return f"{words} flagged; the scored table has all of them." if more > 0 else ""


def score_format(findings: Findings) -> Callable[[float], str]:
    """A format that gives all listed scores the same number of decimals."""
    sizes = [abs(finding.score) for finding in findings.ranked[:MAX_ROWS] if math.isfinite(finding.score)]
    largest = max(sizes, default=0.0)
    if not 1e-3 <= largest < 1e6:
        return number
    return lambda score: fixed(score, max(0, 3 - math.floor(math.log10(largest))))


def _id_text(value: Any) -> str:
    return MISSING if value is None else one_line(value)


class Position(NamedTuple):
    """Where a value lies among the usual values of its column, without revealing the value."""

    offset: float | None = None  # of a number: -1 and 1 are the ends of the usual range, 0 its middle
    frequency: float | None = None  # of a category: its share of the usual rows
    words: str = ""  # "above the usual"


class Comparison(NamedTuple):
    """One value of a row, and the usual values of its column."""

    column: str
    value: str
    usual: str
    contribution: str  # to the row's score, "62%", or "35% together" with other columns; empty without a reason
    position: Position


def comparisons(finding: Finding, usual: dict[str, Usual]) -> list[Comparison]:
    """The columns of the row's reasons, then the most unusual ones."""
    shares, joint = dict[str, float](), set[str]()
    for reason in finding.reasons:
        columns = _columns_named(reason, finding.values)
        shares |= {column: shares.get(column, 0.0) + reason.share for column in columns}
        if len(columns) > 1:
            joint.update(columns)
    positions = {column: position(value, usual.get(column)) for column, value in finding.values.items()}

    def importance(column: str) -> tuple[bool, float, float]:
        offset, frequency, _ = positions[column]
        unusualness = abs(offset) if offset is not None else 1 - frequency if frequency is not None else 0.0
        return column in shares, shares.get(column, 0.0), unusualness

    rows = []
    for column in heapq.nlargest(MAX_COLUMNS, positions, key=importance):
        words = one_line(usual[column].words) if column in usual else ""
        share = percent(shares[column]) if column in shares else ""
        share += " together" if column in joint else ""
        value = cell_text(finding.values[column])
        rows.append(Comparison(one_line(column), value, words, share, positions[column]))
    return rows


def _columns_named(reason: Reason, columns: Collection[str]) -> list[str]:
    """The columns that a reason names: one, or several joined by commas, although a name may contain commas too."""
    if reason.column in columns:
        return [reason.column]
    return [column for column in columns if f", {column}, " in f", {reason.column}, "]


def position(value: Any, usual: Usual | None) -> Position:
    """Where a value lies; empty if it is missing, or its column has no usual values."""
    value = python_value(value)
    if usual is None or cell_text(value) == MISSING:
        return Position()
    if usual.common:
        frequency = {name.lower(): share for name, share in usual.common}.get(str(value).lower(), 0.0)
        words = "a common value" if frequency >= COMMON else "an uncommon value" if frequency else "rare or unseen"
        return Position(frequency=frequency, words=words)
    if usual.low is None or usual.middle is None or usual.high is None or isinstance(value, bool | str):
        return Position()
    try:
        distance = float(value) - usual.middle
    except (TypeError, ValueError, OverflowError):  # a date, or an integer beyond float64
        return Position()
    half = usual.high - usual.middle if distance > 0 else usual.middle - usual.low
    offset = distance / half if half > 0 else math.copysign(math.inf, distance) if distance else 0.0
    words = "above the usual" if offset > 1 else "below the usual" if offset < -1 else "within the usual"
    return Position(offset=offset, words=words)


def _compared(title: str, rows: Sequence[Comparison], has_usual: bool) -> Html:
    """A table of values, with the usual values if known; a redacted value is replaced by its position."""
    if not any(row.usual or row.position.words for row in rows):
        head = ("Column", "Position" if has_usual else "Value", "Contribution")
        return table(title, head, [(row.column, row.value, row.contribution) for row in rows], "compare short")
    cells: list[list[str]] = []
    for row in rows:
        value = el("span", row.value, class_="gap" if row.value == MISSING else "value")
        frequency = row.position.frequency
        words = f"in {percent(frequency)} of rows" if frequency else row.position.words
        position = joined([_position_bar(row.position, words), el("small", words)])
        cells.append([row.column, value, el("span", row.usual, class_="muted"), position, row.contribution])
    return table(title, ("Column", "Value", "Usual values", "Position", "Contribution"), cells, "compare")


def _position_bar(position: Position, label: str) -> Html:
    """A number as a mark beside the band of the usual range; a category as a bar of its frequency."""
    offset, frequency, _ = position
    full = BAR_WIDTH - 2 * BAR_EDGE
    if offset is not None:
        shapes = [
            el("line", x1=BAR_EDGE, x2=BAR_WIDTH - BAR_EDGE, y1=8, y2=8, class_="axis"),
            el("rect", x=BAND[0], width=BAND[1] - BAND[0], y=4, height=8, rx=2, class_="band"),
            el("line", x1=BAR_WIDTH / 2, x2=BAR_WIDTH / 2, y1=4, y2=12, class_="middle"),
            el("circle", cx=f"{mark_position(offset):.1f}", cy=8, r=4.5, class_="out" if abs(offset) > 1 else "in"),
        ]
    elif frequency is not None:
        size = {"x": BAR_EDGE, "y": 5, "height": 6, "rx": 3}
        fill = el("rect", **size, width=f"{min(1.0, frequency) * full:.1f}", class_="fill")
        none = el("circle", cx=BAR_EDGE + 4, cy=8, r=4.5, class_="out")
        shapes = [el("rect", **size, width=full, class_="track"), fill if frequency else none]
    else:
        return Html("")
    return el("svg", *shapes, viewBox=f"0 0 {BAR_WIDTH} 16", class_="bar", role="img", aria_label=label)


def mark_position(offset: float) -> float:
    """The x of a mark: linear within the usual range, compressed outside."""
    middle, half, size = BAR_WIDTH / 2, (BAND[1] - BAND[0]) / 2, abs(offset)
    beyond = 1 - 1 / (1 + max(0.0, size - 1) / 4)
    return middle + math.copysign(half * min(1.0, size) + (middle - half - BAR_EDGE) * beyond, offset)
