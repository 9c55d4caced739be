"""The report as Markdown."""

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from markdown_it import MarkdownIt

from addml.report.html import plain, to_html, to_markdown
from addml.report.sections import build_document
from tests.report.sample import shop
from tests.report.test_html import NASTY, Reader, bare, nasty

HEADINGS = (
    "# 20 of 377 rows flagged",
    "## Scores of all rows",
    "## Ranked rows and their reasons",
    "### Groups of similar rows",
    "## Evaluation against the labels",
    "### ROC curve",
    "## Training",
    "## Data",
    "### Dropped columns",
    "### Settings",
    "### Versions",
)


def markdown(findings):
    return to_markdown(build_document(findings))


def test_it_has_all_the_parts(findings):
    text = markdown(findings)
    for heading in HEADINGS:
        assert f"\n{heading}\n" in f"\n{text}", heading
    first = findings.ranked[0]
    assert f"| 1 | Row {first.row} patient P-{84000 + 137 * (first.row - 1)} |" in text


def test_tables_are_tables(findings):
    for block in markdown(findings).split("\n\n"):
        if block.startswith("|"):
            widths = {line.replace("\\|", "").count("|") for line in block.splitlines()}
            assert len(widths) == 1, block


MARKS = ["a|b", "**bold**", "[link](http://example.org)", "# heading", "`code`", "- x", "1. y"]


@pytest.mark.parametrize("text", [*NASTY, *MARKS])
def test_values_stay_text(text):
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(nasty(text)))
    for tag in ("<script", "<img", "<strong", "<em>", "<a ", "<code", "<ol"):
        assert tag not in html
    assert html.count("<h1") == 1


def test_escapes_only_what_needs_it():
    assert plain("batch_size (5%), −1.5 of 3") == "batch_size (5%), −1.5 of 3"


@pytest.mark.parametrize("findings", [bare([]), bare([0.5]), bare([np.nan, 2.0]), shop(ranked=(), groups=(), usual=())])
def test_findings_with_next_to_nothing(findings):
    assert markdown(findings).startswith("# ")


def test_without_usual_values_only_values_are_shown():
    assert "#### Row 17 compared with usual values\n\n| Column | Value | Usual values |" in markdown(shop())
    assert "#### Row 17\n\n| Column | Value | Contribution |" in markdown(replace(shop(), usual=()))


def test_drift_is_a_table():
    assert "| country | 0.41 | 0.2% |" in markdown(shop())
    assert "| amount | 51,234.75 | 12.5, mostly 3 to 40 | above the usual | 62% |" in markdown(shop())


def test_a_million_rows(million):
    text = markdown(million)
    assert len(text) < 500_000
    assert "99,800 more rows are flagged" in text


def test_it_says_what_the_page_says(findings):
    document = build_document(replace(findings, drift=shop().drift))
    page, text = Reader(to_html(document)).text, to_markdown(document)
    for section in document.sections:
        assert f"\n## {section.title}\n" in text
        assert section.title in page
    for words in re.findall(r'<p class="about">([^<]+)', to_html(document)):
        assert plain(unescape(words)) in text


def test_what_only_the_page_has_is_left_out(findings):
    text = markdown(findings)
    for words in (
        "The thin lines are",
        "Numbers\n",
        "Log scale\n",
        "Open all details",
        "Details",
        "Zoom in",
        "dot normal",
    ):
        assert words not in text


def test_a_row_is_one_line(million):
    (line,) = [line for line in markdown(million).splitlines() if line.startswith("| 7 | Row ")]
    assert line.count("; ") == 4  # five reasons
    assert line.count(" (20%)") == 5
