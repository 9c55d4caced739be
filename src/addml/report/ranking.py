"""The ranked rows as HTML: the first ones at once, then all of them with their reasons and their usual values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from addml.findings import Finding, Findings, Group, Reason, Usual
from addml.report.bars import range_bar, score_bar, share_bar
from addml.report.comparison import Comparison, common_words, comparisons
from addml.report.digest import (
    MOST_DETAILS,
    MOST_REASONS,
    ids_of,
    likely,
    listed_rows,
    ranked_noun,
    rows_left,
    score_words,
    similar,
    ungrouped,
)
from addml.report.markup import Html, el, joined, table
from addml.text import MISSING, counted, number, share, text

TOP = 5  # rows on the first screen; their details are printed too
SHOWN = 8  # columns of a row's details; the others unfold


def top_rows(findings: Findings) -> Html:
    """The first rows, each with why, for the first screen."""
    score = _scores(findings)
    rows = [_top_row(finding, score(finding), findings.noun) for finding in findings.ranked[:TOP]]
    if not rows:
        return el("p", f"No {findings.noun} was ranked.", class_="muted")
    flagged = any(finding.is_anomaly for finding in findings.ranked[:TOP])
    title = f"The top {ranked_noun(findings)}s" if flagged else "The highest scores"
    return joined([el("h2", title), el("ol", *rows, class_="top")])


def _top_row(finding: Finding, score: Html, noun: str) -> Html:
    why = joined([el("span", text(reason.words)) for reason in finding.reasons[:2]], Html("<i>; </i>"))
    name = el("a", f"{noun.capitalize()} {finding.row:,}", href=f"#rank-{finding.rank}", class_="row-link")
    ids = joined([el("span", value, class_="id") for _, value in ids_of(finding)[:1]])
    return el(
        "li",
        el("span", finding.rank, class_="rank"),
        el("span", el("b", name, ids), el("span", why or el("span", "no reason was asked for"), class_="why")),
        el("span", score, class_="score"),
        class_=None if finding.is_anomaly else "below",
    )


def _scores(findings: Findings) -> Callable[[Finding], Html]:
    """A score with its place between the lowest and the highest, and a tick at the threshold."""
    scores = findings.scores[np.isfinite(findings.scores)]
    low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
    words = score_words(findings)

    def cell(finding: Finding) -> Html:
        bar = score_bar(finding.score, low, findings.threshold, high)
        return joined([words(finding.score), bar, el("small", likely(finding)) if likely(finding) else ""])

    return cell


# Groups -----------------------------------------------------------------------------------------------------


def groups(findings: Findings) -> Html:
    """Rows that stand out for the same columns, as buttons that show only them."""
    several = similar(findings)
    if not several:
        return Html("")
    listed = {finding.rank: finding.row for finding in listed_rows(findings)}
    cards = [_group(group, listed, findings) for group in several]
    rest = el("p", ungrouped(findings), class_="muted") if ungrouped(findings) else ""
    return joined([el("h3", f"Similar {ranked_noun(findings)}s, grouped"), el("ul", *cards, class_="groups"), rest])


def _group(group: Group, listed: dict[int, int], findings: Findings) -> Html:
    ranks = [rank for rank in group.ranks if rank in listed]
    rows = ", ".join(f"{listed[rank]:,}" for rank in ranks[:6]) + (" …" if len(group.ranks) > 6 else "")
    words = text(group.words or ", ".join(group.columns))
    content = joined(
        [
            el("b", counted(len(group.ranks), ranked_noun(findings))),
            el("span", words, class_="words"),
            el("small", f"{findings.noun}{'' if len(group.ranks) == 1 else 's'} {rows}") if ranks else "",
        ]
    )
    return el("li", el("button", content, type="button", data_ranks=" ".join(map(str, ranks)), aria_pressed="false"))


# The table --------------------------------------------------------------------------------------------------


def ranked_table(findings: Findings) -> Html:
    """Every listed row; a button opens the details of the first ones."""
    usual, listed = {one.column: one for one in findings.usual}, listed_rows(findings)
    score = _scores(findings)
    body: list[Html] = []
    for place, finding in enumerate(listed):
        if place and listed[place - 1].is_anomaly and not finding.is_anomaly:
            body.append(_divider(findings))
        body += _rows(finding, usual, score(finding), place, findings.noun)
    head = [
        el("th", title, scope="col", role="columnheader")
        for title in (
            "Rank",
            findings.noun.capitalize(),
            "Score",
            "Why it stands out",
            Html('<span class="unseen">Details</span>'),
        )
    ]
    whole = el(
        "table",
        el("caption", f"The ranked {ranked_noun(findings)}s with their reasons", class_="unseen"),
        el("thead", el("tr", *head, role="row"), role="rowgroup"),
        el("tbody", *body, role="rowgroup"),
        class_="ranked",
        role="table",  # said again because narrow screens lay the rows out as blocks
    )
    return joined([whole, el("p", rows_left(findings), class_="more") if rows_left(findings) else ""])


def _divider(findings: Findings) -> Html:
    words = f"Below the threshold of {number(findings.threshold)}: the next in line, not flagged"
    return el("tr", el("td", words, colspan=5, role="cell"), class_="divider", role="row")


def _rows(finding: Finding, usual: dict[str, Usual], score: Html, place: int, noun: str) -> list[Html]:
    has_detail = place < MOST_DETAILS and bool(finding.values)
    cells = [
        el("td", finding.rank, class_="rank", role="cell"),
        el("th", _name(finding, noun), scope="row", class_="name", role="rowheader"),
        el("td", score, class_="score", role="cell"),
        el("td", _reasons(finding.reasons), class_="reasons", role="cell"),
        el("td", _opener(finding, noun) if has_detail else "", class_="opener", role="cell"),
    ]
    kind = "finding" if finding.is_anomaly else "finding below"
    rank = finding.rank
    row = el("tr", *cells, id=f"rank-{rank}", class_=kind, data_rank=rank, tabindex="-1", role="row")
    return [row, _detail(finding, usual, place, noun)] if has_detail else [row]


def _name(finding: Finding, noun: str) -> Html:
    ids = [el("span", el("small", name), " ", value, class_="id") for name, value in ids_of(finding)]
    return joined([el("span", f"{noun.capitalize()} {finding.row:,}", class_="row-name"), *ids])


def _reasons(reasons: Sequence[Reason]) -> Html:
    if not reasons:
        return el("span", "–", class_="muted")
    items = [
        el("li", el("span", text(reason.words)), " ", el("small", share(reason.share)))
        for reason in reasons[:MOST_REASONS]
    ]
    return el("ul", *items)


def _opener(finding: Finding, noun: str) -> Html:
    return el(
        "button",
        el("span", f"Details of {noun} {finding.row}", class_="unseen"),
        type="button",
        aria_expanded="false",
        aria_controls=f"detail-{finding.rank}",
    )


# One row's details ------------------------------------------------------------------------------------------


def _detail(finding: Finding, usual: dict[str, Usual], place: int, noun: str) -> Html:
    shown = comparisons(finding, usual)
    title = f"{noun.capitalize()} {finding.row:,}" + (" beside the usual values" if usual else "")
    folded, left = shown[SHOWN:], len(finding.values) - len(shown)
    content = [el("h4", title, aria_hidden="true"), _compared(title, shown[:SHOWN], bool(usual))]
    if folded:
        more = counted(len(folded), "more column") + (", less unusual" if usual else "")
        content.append(el("details", el("summary", more), _compared(f"{title}, {more}", folded, bool(usual))))
    if left:
        content.append(el("p", f"{counted(left, 'more column')} not shown.", class_="muted"))
    kind = "detail printed" if place < TOP else "detail"
    cell = el("td", *content, colspan=5, role="cell")
    return el("tr", cell, id=f"detail-{finding.rank}", class_=kind, data_rank=finding.rank, role="row")


def _compared(title: str, some: list[Comparison], is_known: bool) -> Html:
    """Values beside the usual ones, if those are known; redacted, a value is where it lies."""
    head = ("Column", "Value", "Usual", "Where it lies", "Share of score")
    if not any(one.usual or one.where for one in some):
        second = head[3] if is_known else head[1]
        return table(title, (head[0], second, head[4]), [_short(one) for one in some], class_="compare short")
    return table(title, head, [_comparison(one) for one in some], class_="compare")


def _short(one: Comparison) -> list[str]:
    return [one.column, one.value, "" if one.reason is None else share(one.reason)]


def _comparison(one: Comparison) -> list[Html | str]:
    value = el("span", one.value, class_="gap" if one.value == MISSING else "value")
    part = "" if one.reason is None else share(one.reason)
    return [one.column, value, el("span", one.usual, class_="muted"), _where(one), part]


def _where(one: Comparison) -> Html:
    if one.offset is not None:
        return joined([range_bar(one.offset, one.where), el("small", one.where)])
    if one.common is not None:
        return joined([share_bar(one.common, common_words(one.common)), el("small", common_words(one.common))])
    return el("small", one.where)
