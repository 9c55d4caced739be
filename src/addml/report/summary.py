"""What a report says first: headline, key figures, scores, and the ranked rows compared with usual values."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from addml.findings import Finding, Findings, Group, Usual
from addml.report import charts
from addml.report.charts import MAX_ROWS
from addml.report.document import Chart, Comparison, RankedRow, Ranking, RowGroup, Table
from addml.text import MISSING, cell_text, counted, fixed, number, one_in, one_line, percent, python_value

MAX_DETAILS = 50  # ranked rows whose values are shown
MAX_COLUMNS = 30  # compared for one row: those of its reasons, then the most unusual ones
MAX_REASONS = 5
MAX_IDS = 4
MAX_GROUPS = 12
TOP_ROWS = 5  # shown first, one of each group of similar rows
COMMON = 0.05  # share of the usual rows from which a category is common
MAX_LEAD = 110  # characters of reasons below the headline
BAR_LENGTH = 30  # characters of the longest bar in a table


def headline(findings: Findings) -> tuple[str, str]:
    """How many rows are flagged, in two parts."""
    count, rows, noun, track = findings.anomalies, findings.rows, findings.noun, findings.track
    if track is not None and rows > 1:
        found, series = len(track.events), len(track.entities)
        within = f" of {series:,} series" if series > 1 else ""
        return f"{found:,}" if found else "No", f"{'event' if found == 1 else 'events'} in {rows:,} steps{within}"
    if rows == 0:
        return f"No {noun}s", "to score"
    if rows == 1:
        return f"The only {noun}", "is flagged" if count else "is not flagged"
    return f"{count:,}" if count else "None", f"of {rows:,} {noun}s flagged"


def lead(findings: Findings) -> str:
    """The sentences below the headline: the first row with as many reasons as fit, and the rule."""
    if not len(findings.scores):
        return ""
    threshold = number(findings.threshold)
    if not findings.anomalies:
        known = findings.scores[np.isfinite(findings.scores)]
        highest = f"; the highest is {number(float(known.max()))}" if len(known) else ""
        return f"No score is above the threshold of {threshold}{highest}."
    rule = f"{findings.noun.capitalize()}s with a score above {threshold} are flagged."
    rule = f"Flagged: {findings.rule}." if findings.decided_by else rule
    if not findings.ranked:
        return rule
    first = findings.ranked[0]
    name = f"{findings.noun.capitalize()} {first.row:,}"
    if findings.pictures and first.ids:
        name = one_line(next(iter(first.ids.values())), 60)  # the file
    if findings.track is not None and "start" in first.ids:
        name = one_line(event_name(first))
    reasons = [one_line(reason.words, MAX_LEAD) for reason in first.reasons[:2]]
    words = "; ".join(reasons if len("; ".join(reasons)) <= MAX_LEAD else reasons[:1]).removesuffix("…")
    return f"{name} ranks first{f': {words}' if words else ''}. {rule}"


def event_name(event: Finding) -> str:
    """The entity of an event, if it has one, and its times."""
    *entity, start, end, _, _ = map(str, event.ids.values())
    return " ".join([*entity, start if start == end else f"{start} to {end}"])


def key_figures(findings: Findings) -> list[tuple[str, str, str]]:
    """Label, value and a note."""
    noun, trained = findings.noun, findings.trained_rows
    training = f"{'all' if trained == findings.rows else f'{trained:,}'} used for training" if trained else "scored"
    figures = [(f"{noun.capitalize()}s read", f"{findings.rows:,}", training)]
    if noun != "image":
        figures.append(("Columns used", f"{len(findings.columns):,}", f"{len(findings.left_out) or 'none'} dropped"))
    share = percent(findings.anomalies / findings.rows) if findings.rows else "–"
    figures.append(("Flagged", share, f"of all {noun}s"))
    note = findings.decided_by or "higher scores are flagged"
    figures.append(("Threshold", number(findings.threshold, 3), note))
    known = findings.scores[np.isfinite(findings.scores)]
    if len(known):
        median = f"median {number(float(np.median(known)), 3)}"
        figures.append(("Highest score", number(float(known.max()), 3), median))
    area = (findings.evaluation or {}).get("roc_auc")
    return [*figures, ("ROC-AUC", f"{area:.3f}", "against the labels")] if isinstance(area, int | float) else figures


def caveat(findings: Findings) -> str:
    """What to know about the data."""
    dropped = [f"{counted(len(findings.left_out), 'column')} dropped"] if findings.left_out else []
    notes = [f"{counted(len(findings.notes), 'note')} on the data"] if findings.notes else []
    return ", ".join(dropped + notes)


def score_chart(findings: Findings) -> Chart | None:
    """The histogram of all scores; None without a finite score."""
    found = charts.histogram(findings.scores, findings.threshold)
    if found is None:
        return None
    first, last = number(found.edges[0]), number(found.edges[-1])
    above = f"{findings.anomalies:,} above the threshold of {number(findings.threshold)}"
    bars = np.log1p(found.counts) if found.log else found.counts
    edges = [number(edge, 3) for edge in found.edges]
    flags = ["flagged" if place >= found.first_anomalous else "" for place in range(len(bars))]
    counts, drawn = [f"{count:,}" for count in found.counts], map(text_bar, bars / bars.max())
    noun, threshold = findings.noun, findings.threshold
    is_off = not found.edges[0] <= threshold <= found.edges[-1]
    notes = [
        (found.above, f"The last bar includes {counted(found.above, noun)} beyond the right end of the axis."),
        (found.below, f"The first bar includes {counted(found.below, noun)} beyond the left end of the axis."),
        (found.not_finite, f"{counted(found.not_finite, 'score is', 'scores are')} not finite and not shown."),
        (is_off, f"The threshold of {number(threshold)} is off the axis."),
    ]
    head = ("above", "up to", f"{noun}s", "", "log scale" if found.log else "")
    return Chart(
        "scores",
        f"Histogram of {counted(findings.rows, 'score')} from {first} to {last}: {above}.",
        title=f"Scores of all {noun}s",
        style="tall",
        caption=" ".join(note for holds, note in notes if holds),
        table=Table("Scores", head, list(zip(edges, edges[1:], counts, flags, drawn, strict=False))),
    )


def text_bar(part: float) -> str:
    """A bar of characters for a part between 0 and 1."""
    return "█" * max(1, round(BAR_LENGTH * part)) if part else ""


# Ranked rows ------------------------------------------------------------------------------------------------


def ranking(findings: Findings) -> Ranking:
    """The first MAX_ROWS ranked rows."""
    usual, noun = {one.column: one for one in findings.usual}, ranked_noun(findings)
    similar = {group.ranks[0]: len(group.ranks) - 1 for group in findings.groups if len(group.ranks) > 1}
    row = _row_maker(findings, usual)
    listed = {
        finding.rank: row(finding, place < MAX_DETAILS, similar.get(finding.rank, 0))
        for place, finding in enumerate(findings.ranked[:MAX_ROWS])
    }
    divider = f"Not flagged: the next {noun}s below the threshold of {number(findings.threshold)}"
    name, groups, rows = findings.noun.capitalize(), _groups(findings), list(listed.values())
    examples = [listed[one.rank] for one in findings.examples if one.rank in listed][:TOP_ROWS]
    return Ranking(noun, name, rows, examples, groups, ungrouped(findings) if groups else "", divider, bool(usual))


def _row_maker(findings: Findings, usual: dict[str, Usual]) -> Callable[[Finding, bool, int], RankedRow]:
    show, noun = score_format(findings), ranked_noun(findings)
    known = findings.scores[np.isfinite(findings.scores)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)

    def position(value: float) -> float:
        return max(0.0, min(1.0, (value - low) / (high - low)))

    def row(finding: Finding, has_details: bool, similar: int) -> RankedRow:
        compared = comparisons(finding, usual) if has_details else []
        ids, score = list(finding.ids.items())[:MAX_IDS], finding.score
        has_bar = math.isfinite(score) and high > low
        return RankedRow(
            rank=finding.rank,
            row=finding.row,
            name=f"{findings.noun.capitalize()} {finding.row:,}",
            is_flagged=finding.is_anomaly,
            score=show(score),
            bar=(position(score), position(findings.threshold)) if has_bar else None,
            rarity="" if finding.p_value is None else one_in(finding.p_value, findings.least_p_value),
            ids=[(one_line(name), MISSING if value is None else one_line(value)) for name, value in ids],
            reasons=[(one_line(one.words), percent(one.share)) for one in finding.reasons[:MAX_REASONS]],
            similar=f"and {counted(similar, f'similar {noun}')}" if similar else "",
            comparisons=compared,
            more_columns=len(finding.values) - len(compared),
        )

    return row


def ranked_noun(findings: Findings) -> str:
    """What is ranked: rows, images, or the events of a series."""
    return findings.noun if findings.track is None else "event"


def score_format(findings: Findings) -> Callable[[float], str]:
    """Writes all listed scores with the same number of decimals."""
    sizes = [abs(finding.score) for finding in findings.ranked[:MAX_ROWS] if math.isfinite(finding.score)]
    largest = max(sizes, default=0.0)
    if not 1e-3 <= largest < 1e6:
        return number
    return lambda score: fixed(score, max(0, 3 - math.floor(math.log10(largest))))


def unlisted(findings: Findings) -> str:
    """How many flagged rows, or events of a series, are not listed."""
    flagged = findings.anomalies if findings.track is None else sum(one.is_anomaly for one in findings.ranked)
    more = flagged - sum(finding.is_anomaly for finding in findings.ranked[:MAX_ROWS])
    noun = f"more {ranked_noun(findings)}"
    those = counted(more, f"{noun} is", f"{noun}s are")
    return f"{those} flagged; the scored table has all of them." if more > 0 else ""


# Groups -----------------------------------------------------------------------------------------------------


def similar(findings: Findings) -> list[Group]:
    """The first MAX_GROUPS groups of more than one row."""
    return [group for group in findings.groups if len(group.ranks) > 1][:MAX_GROUPS]


def _groups(findings: Findings) -> list[RowGroup]:
    listed = {finding.rank: finding.row for finding in findings.ranked[:MAX_ROWS]}
    groups = []
    for group in similar(findings):
        ranks = [rank for rank in group.ranks if rank in listed]
        rows = ", ".join(f"{listed[rank]:,}" for rank in ranks[:6]) + (" …" if len(group.ranks) > 6 else "")
        size, words = counted(len(group.ranks), ranked_noun(findings)), group.words or ", ".join(group.columns)
        groups.append(RowGroup(size, one_line(words), ranks, f"{findings.noun}s {rows}" if ranks else ""))
    return groups


def ungrouped(findings: Findings) -> str:
    """How many rows and groups the listed groups do not cover."""
    alone = sum(len(group.ranks) == 1 for group in findings.groups)
    hidden, noun = len(findings.groups) - alone - len(similar(findings)), ranked_noun(findings)
    sentences = [f"{counted(hidden, 'more group is', 'more groups are')} not shown."] if hidden else []
    sentences += [f"{counted(alone, f'{noun} is', f'{noun}s are')} in no group."] if alone else []
    return " ".join(sentences)


# Comparison with the usual values ---------------------------------------------------------------------------


def comparisons(finding: Finding, usual: dict[str, Usual]) -> list[Comparison]:
    """The columns of the row's reasons, then the most unusual ones."""
    shares: dict[str, float] = {}
    for reason in finding.reasons:
        column = column_of(reason.column, finding.values)
        shares[column] = shares.get(column, 0.0) + reason.share

    def importance(item: tuple[str, Any]) -> tuple[bool, float, float]:
        column, value = item
        offset, frequency = _offset(value, usual.get(column)), _frequency(value, usual.get(column))
        unusual = abs(offset) if offset is not None else 1 - frequency if frequency is not None else 0.0
        return column in shares, shares.get(column, 0.0), unusual

    found = []
    for column, value in heapq.nlargest(MAX_COLUMNS, finding.values.items(), key=importance):
        own = usual.get(column)
        frequency = _frequency(value, own)
        position = f"in {percent(frequency)} of rows" if frequency else direction(value, own)
        words, share = one_line(own.words if own else ""), percent(shares[column]) if column in shares else ""
        offset = _offset(value, own)
        found.append(Comparison(one_line(column), cell_text(value), words, position, share, offset, frequency))
    return found


def column_of(feature: str, columns: Collection[str]) -> str:
    """The column of a feature: `country` of `country=DE`."""
    if feature in columns or "=" not in feature:
        return feature
    owners = [column for column in columns if feature.startswith(f"{column}=")]
    return max(owners, key=len, default=feature.partition("=")[0])


def direction(value: Any, usual: Usual | None) -> str:
    """Where a value lies, without revealing it; empty if unknown."""
    offset, frequency = _offset(value, usual), _frequency(value, usual)
    if offset is not None:
        return "above the usual" if offset > 1 else "below the usual" if offset < -1 else "within the usual"
    if frequency is None:
        return ""
    return "rare or unseen" if frequency == 0 else "a common value" if frequency >= COMMON else "an uncommon value"


def _offset(value: Any, usual: Usual | None) -> float | None:
    """The distance of a number from the middle, in halves of the usual range; None if it is not a number."""
    value = python_value(value)
    if usual is None or usual.low is None or usual.middle is None or usual.high is None:
        return None
    try:
        distance = math.nan if isinstance(value, bool | str | None) else float(value) - usual.middle
    except (TypeError, ValueError, OverflowError):
        return None
    if math.isnan(distance):
        return None
    half = usual.high - usual.middle if distance > 0 else usual.middle - usual.low
    return distance / half if half > 0 else math.copysign(math.inf, distance) if distance else 0.0


def _frequency(value: Any, usual: Usual | None) -> float | None:
    """The share of usual rows with this category; 0 if it is not among the common ones, None if it has none."""
    value = python_value(value)
    if usual is None or not usual.common or cell_text(value) == MISSING:
        return None
    if isinstance(value, bool):
        return {name.lower(): share for name, share in usual.common}.get(str(value).lower(), 0.0)
    return dict(usual.common).get(str(value), 0.0)
