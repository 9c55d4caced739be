"""The HTML page: one file with its styles, scripts and numbers, which may load nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from string import Template
from typing import Any

from addml.findings import Findings
from addml.report import charts
from addml.report.digest import headline, listed_rows, score_words
from addml.report.markup import Html, el, escaped, joined, json_text
from addml.report.sections import Section, sections, summary
from addml.text import text

SCRIPTS = ("words.js", "lines.js", "map.js", "strip.js", "rows.js", "page.js")


def html_page(findings: Findings, *, is_redacted: bool = False) -> str:
    """The whole page."""
    shown = sections(findings)
    styles = {"library_style": static("uPlot.min.css"), "style": static("report.css")}
    scripts = {"start": static("start.js"), "library": _library(), "script": _script()}
    return Template(_resource("templates", "page.html")).substitute(
        policy=policy(list(styles.values()), list(scripts.values()), pictures=bool(findings.pictures)),
        title=title(findings),
        contents=_contents(shown),
        summary=summary(findings),
        sections=joined([_section(section) for section in shown], "\n"),
        footer=_footer(findings, is_redacted),
        numbers=json_text(numbers(findings)),
        **styles,
        **scripts,
    )


def policy(styles: list[str], scripts: list[str], *, pictures: bool = False) -> str:
    """A policy under which nothing is loaded and only these very styles and scripts apply; pictures lie in the page."""
    return "; ".join(
        [
            "default-src 'none'",
            *(["img-src data:"] if pictures else []),
            f"style-src {' '.join(map(_hash, styles))}",
            f"script-src {' '.join(map(_hash, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def static(name: str) -> str:
    """A file that ships with the package."""
    return _resource("static", name)


def _resource(folder: str, name: str) -> str:
    return (resources.files("addml.report") / folder / name).read_bytes().decode()


def _script() -> str:
    """The scripts of the page as one function, so that they share their names with nobody else."""
    return "\n".join(['"use strict";', "(function () {", *map(static, SCRIPTS), "})();"])


def _library() -> str:
    """The chart library with its licence, which goes where it goes."""
    return f"/*!\n{static('uPlot.LICENSE.txt').strip()}\n*/\n{static('uPlot.iife.min.js').strip()}\n"


# Parts of the page ------------------------------------------------------------------------------------------


def title(findings: Findings) -> Html:
    """The title of the window."""
    return escaped(f"{' '.join(headline(findings))} – {text(findings.source, 60)}")


def _contents(shown: list[Section]) -> Html:
    links = [("summary", "Summary"), *((name, link) for name, link, _, _ in shown)]
    return joined([el("a", title, href=f"#{name}") for name, title in links])


def _section(section: Section) -> Html:
    name, _, title, content = section
    return el("section", el("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title")


def _footer(findings: Findings, is_redacted: bool) -> Html:
    version = findings.versions.get("addml", "")
    words = f"Made by addml {version}".strip() + ". This file loads nothing from anywhere."
    hidden = " Raw values and ids were left out of it." if is_redacted else ""
    return el("p", words + hidden + " Charts by uPlot (MIT licence, in this file).")


def numbers(findings: Findings) -> dict[str, Any]:
    """What the charts draw, and what they say of a ranked row."""
    score = score_words(findings)
    return {
        "threshold": charts.finite(findings.threshold, 10),
        "scores": _histogram(findings),
        "training": charts.training(findings),
        "noun": findings.noun,
        "space": charts.space(findings),
        "dropped": charts.dropped(findings),
        "curves": charts.curves(findings),
        "ranked": [
            {
                "row": finding.row,
                "rank": finding.rank,
                "score": score(finding.score),
                "anomaly": finding.is_anomaly,
                "why": [text(reason.words, 90) for reason in finding.reasons[:3]],
            }
            for finding in listed_rows(findings)
        ],
    }


def _histogram(findings: Findings) -> dict[str, Any] | None:
    found = charts.histogram(findings.scores, findings.threshold)
    if found is None:
        return None
    return {
        "edges": [charts.finite(edge, 10) for edge in found.edges],
        "counts": found.counts.tolist(),
        "first": found.first_anomalous,
        "below": found.below,
        "above": found.above,
        "log": found.log,
    }
