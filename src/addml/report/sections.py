"""The sections of the page; a section with nothing to say is empty and has no place in the contents."""

from __future__ import annotations

from typing import Any

from addml.findings import Findings
from addml.report import charts
from addml.report.digest import (
    MOST_DETAILS,
    MOST_ITEMS,
    MOST_ROWS,
    distillation_words,
    flat,
    headline,
    key_numbers,
    lead,
    ranked_noun,
)
from addml.report.facts import cell, drift_head, evaluated, facts, spoken, tails
from addml.report.gallery import gallery
from addml.report.markup import Html, definitions, el, escaped, joined, table
from addml.report.ranking import groups, ranked_table, top_rows
from addml.report.track import track
from addml.text import counted, number, text

Section = tuple[str, str, str, Html]  # id, name in the contents, title, content
SHARES = {  # what they are of, by what is ranked
    "row": "how much of the row's score its columns contribute",
    "image": "how much of what makes the image strange lies in that part of it",
    "step": "how much of what makes the highest steps of an event strange is that column's",
}


def sections(findings: Findings) -> list[Section]:
    """Every section that has something to say, in the order of reading."""
    every = [
        ("pictures", "Images", "The images, and where they are strange", gallery(findings)),
        ("series", "Series", "The series, and its events", track(findings)),
        ("rows", "Rows", f"Ranked {ranked_noun(findings)}s, and why", ranked(findings)),
        ("map", "Map", "A map of the metric space", space_map(findings)),
        ("evaluation", "Evaluation", "Evaluation against the labels", evaluation(findings)),
        ("drift", "Drift", "Drift from the training rows", drift(findings)),
        ("training", "Training", "Training", training(findings)),
        ("distillation", "Distillation", "What distillation dropped, and when", distillation(findings)),
        ("data", "Data", "What was read, and what was left out", data(findings)),
        ("settings", "Settings", "Settings and versions", settings(findings)),
    ]
    return [section for section in every if section[-1]]


def chart(name: str, label: str, class_: str = "", keys: bool = True) -> Html:
    """The place of a chart, which the script fills."""
    hint = " Arrow keys move through it." if keys else ""
    return el("div", id=name, class_=f"chart {class_}".strip(), role="img", tabindex="0", aria_label=label + hint)


def choice(name: str, label: str, pressed: bool) -> Html:
    """A button that is on or off."""
    return el("button", label, type="button", id=name, class_="choice", aria_pressed="true" if pressed else "false")


# The first screen -------------------------------------------------------------------------------------------


def summary(findings: Findings) -> Html:
    """What was found in one sentence, the key numbers, the top rows and where the scores lie."""
    count, rest = headline(findings)
    kind = "count some" if findings.anomalies else "count"
    numbers = [
        el("div", el("dt", label), el("dd", value, el("small", note))) for label, value, note in key_numbers(findings)
    ]
    said = [el("p", lead(findings), class_="lead")] if lead(findings) else []
    return joined(
        [
            el("p", "Anomaly report", el("span", text(findings.source), class_="source"), class_="eyebrow"),
            el("h1", el("span", count, class_=kind), " ", rest),
            *said,
            el("dl", *numbers, class_="numbers"),
            _caveats(findings),
            el("div", el("div", top_rows(findings)), _scores(findings), class_="split"),
        ]
    )


def _caveats(findings: Findings) -> Html:
    left_out, notes = len(findings.left_out), len(findings.notes)
    words = [f"{counted(left_out, 'column')} left out"] if left_out else []
    words += [counted(notes, "note")] if notes else []
    return el("p", el("a", " and ".join(words), href="#data"), " on the data.", class_="caveat") if words else Html("")


def _scores(findings: Findings) -> Html:
    found = charts.histogram(findings.scores, findings.threshold)
    if found is None:
        return Html("")
    above = counted(findings.anomalies, "lies", "lie")
    label = (
        f"Histogram of {counted(findings.rows, 'score')} from {number(found.edges[0])} to {number(found.edges[-1])}; "
        f"{above} above the threshold of {number(findings.threshold)}."
    )
    head = el("div", el("h2", f"Scores of all {findings.noun}s"), choice("log", "Log scale", found.log), class_="head")
    return el(
        "figure",
        head,
        chart("scores", label, "tall"),
        el("figcaption", tails(found, findings.threshold, findings.noun)),
    )


# Rows and map -----------------------------------------------------------------------------------------------


def ranked(findings: Findings) -> Html:
    """The table of ranked rows with its groups."""
    if not findings.ranked:
        return Html("")
    flagged = sum(finding.is_anomaly for finding in findings.ranked[:MOST_ROWS])
    words = f"The share beside a reason is {SHARES[findings.noun]}."
    if not flagged:
        words = f"No {findings.noun} scores above the threshold; these come nearest. {words}"
    if findings.columns and min(len(findings.ranked), MOST_ROWS) > MOST_DETAILS:
        beside = " beside the usual ones" if findings.usual else ""
        words += f" The first {MOST_DETAILS} open to show their values{beside}."
    tools = el(
        "div",
        choice("all-details", "Open all details", False),
        el("button", "Show all rows", type="button", id="all-rows", class_="choice", hidden=True),
        class_="tools",
    )
    return joined([el("p", words, class_="about"), groups(findings), tools, ranked_table(findings)])


def space_map(findings: Findings) -> Html:
    """The metric space in two dimensions."""
    points = charts.space(findings)
    if points is None:
        return Html("")
    shown, anomalous = len(points["x"]), sum(points["anomaly"])
    out = counted(anomalous, "stands out", "stand out")
    label = f"Map of {counted(shown, 'row')} in the metric space: {out} from the cloud of normal rows."
    words = (
        "The metric space pressed into two dimensions: what lies close together here is alike to the detector. "
        "Distances that need the other dimensions are lost."
    )
    legend = [
        el("li", el("i", class_="dot normal"), f"{shown - anomalous:,} normal rows{_sampled(findings, shown)}"),
        el("li", el("i", class_="dot anomaly"), "rows that stand out, the first ten with their rank"),
        el("li", el("i", class_="cross"), "centre of the normal rows"),
    ]
    zoom = [
        el("button", sign, type="button", data_zoom=how, aria_label=name, title=name)
        for sign, how, name in (("+", "in", "Zoom in"), ("−", "out", "Zoom out"), ("⤢", "all", "Show the whole map"))
    ]
    frame = el("div", chart("space", label, "map"), el("div", *zoom, class_="zoom"), class_="frame")
    return joined([el("p", words, class_="about"), el("figure", frame, el("ul", *legend, class_="legend"))])


def _sampled(findings: Findings, shown: int) -> str:
    return f" of {findings.rows - findings.anomalies:,}, a sample" if shown < findings.rows else ""


# Training ---------------------------------------------------------------------------------------------------


def training(findings: Findings) -> Html:
    """Loss, validation and rows kept, the members as thin lines."""
    found = charts.training(findings)
    if found is None:
        return Html("")
    members, drawn = found["panels"][0]["count"], len(found["panels"][0]["members"])
    words = f"{counted(len(findings.history), 'epoch')}."
    if drawn:
        those = "each of which" if drawn == members else f"the first {drawn} of which"
        words += f" The thick line is the mean of the {members} members, {those} is a thin line."
    figures = [
        el("figure", el("h3", panel["title"]), chart(f"training-{panel['name']}", _curve_label(panel), "short"))
        for panel in found["panels"]
    ]
    head = ("Epoch", *(panel["title"] for panel in found["panels"]))
    picked = charts.thinned(len(found["epochs"]), 50)
    rows = [[found["epochs"][i], *(_cell(panel["mean"][i]) for panel in found["panels"])] for i in picked]
    numbers = el("details", el("summary", "The numbers"), table("Training by epoch", head, rows, class_="numeric"))
    return joined([el("p", words, class_="about"), el("div", *figures, class_="three"), numbers])


def _curve_label(panel: dict[str, Any]) -> str:
    known = [value for value in panel["mean"] if value is not None]
    ends = f" from {number(known[0])} to {number(known[-1])}" if known else ""
    return f"{panel['title']} by epoch{ends}."


def _cell(value: float | None) -> str:
    return "–" if value is None else number(value)


def distillation(findings: Findings) -> Html:
    """Which of the ranked rows were dropped from training, and when."""
    found = charts.dropped(findings)
    if found is None:
        return Html("")
    words = (
        "Each epoch trains only on the rows nearest to the centre and drops the others as likely anomalies. "
        f"One line is a ranked row, one step an epoch. {distillation_words(findings)}"
    )
    rows, epochs = counted(len(found["cells"]), "ranked row"), counted(len(found["epochs"]), "epoch")
    label = f"Heat strip of {rows} over {epochs}. {words}"
    legend = [
        el("li", el("i", class_="swatch kept"), "kept"),
        el("li", el("i", class_="swatch some"), "dropped by some members"),
        el("li", el("i", class_="swatch dropped"), "dropped by all"),
    ]
    if any(cell is None for row in found["cells"] for cell in row):
        legend.append(el("li", el("i", class_="swatch"), "blank: not trained on"))
    figure = el("figure", chart("dropped", label, "strip"), el("ul", *legend, class_="legend"))
    return joined([el("p", words, class_="about"), figure])


# Evaluation and drift ---------------------------------------------------------------------------------------


def evaluation(findings: Findings) -> Html:
    """How well the scores agree with the labels, which training never saw."""
    if not findings.evaluation:
        return Html("")
    figures = [
        el(
            "figure",
            el("h3", curve["title"]),
            chart(f"curve-{name}", f"{curve['title']}: {curve['y_label']} against {curve['x_label']}."),
        )
        for name, curve in charts.curves(findings).items()
    ]
    about = el("p", "The label column was used here only; training never saw it.", class_="about")
    return joined(
        [about, definitions(evaluated(findings), "facts"), el("div", *figures, class_="two") if figures else ""]
    )


def drift(findings: Findings) -> Html:
    """How the table differs from the training rows, column by column."""
    if not findings.drift:
        return Html("")
    head = drift_head(findings)
    rows = [[cell(entry.get(key, ""), key) for key in head] for entry in findings.drift[:MOST_ITEMS]]
    about = el("p", "How this table differs from the rows that the model was trained on.", class_="about")
    return joined([about, table("Drift by column", list(map(spoken, head)), rows), more_than(len(findings.drift))])


def more_than(count: int, most: int = MOST_ITEMS, what: str = "column") -> Html:
    """How many are not shown, said."""
    return el("p", f"{counted(count - most, f'more {what}')} not shown.", class_="muted") if count > most else Html("")


# Data and settings ------------------------------------------------------------------------------------------


def data(findings: Findings) -> Html:
    """What was read, what was left out and why, and what is to be said about it."""
    parts = [definitions(facts(findings), "facts"), _notes(findings), _left_out(findings), _used(findings)]
    return joined(parts)


def _notes(findings: Findings) -> Html:
    if not findings.notes:
        return Html("")
    items = [el("li", text(note, 600)) for note in findings.notes[:MOST_ITEMS]]
    return joined([el("h3", "Notes"), el("ul", *items, class_="notes"), more_than(len(findings.notes), what="note")])


def _left_out(findings: Findings) -> Html:
    if not findings.left_out:
        return Html("")
    rows = [(text(column), text(why, 300)) for column, why in findings.left_out[:MOST_ITEMS]]
    more = more_than(len(findings.left_out))
    return joined([el("h3", "Left out, and why"), table("Columns left out", ("Column", "Why"), rows), more])


def _used(findings: Findings) -> Html:
    if not findings.columns:
        return Html("")
    usual = {one.column: (one.kind, text(one.words) or "–") for one in findings.usual}
    rows = [(text(column), *usual.get(column, ("", ""))) for column in findings.columns[:MOST_ITEMS]]
    content = table("Columns used", ("Column", "Kind", "Usual values"), rows)
    title = f"{counted(len(findings.columns), 'column')} used"
    return el("details", el("summary", title), content, more_than(len(findings.columns)), open=len(rows) <= 12)


def settings(findings: Findings) -> Html:
    """What is needed to repeat the run."""
    if not findings.settings and not findings.versions:
        return Html("")
    parts = [escaped("")]
    for title, pairs in (("Settings", flat(findings.settings)), ("Versions", flat(dict(findings.versions)))):
        if pairs:
            head = ("Setting", "Value") if title == "Settings" else ("Package", "Version")
            parts.append(el("div", el("h3", title), table(title, head, pairs[:MOST_ITEMS], class_="plain")))
    about = el("p", "With these settings and versions the run can be repeated.", class_="about")
    return joined([about, el("div", *parts, class_="two wide")])
