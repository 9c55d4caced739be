"""The report as Markdown."""

from dataclasses import replace

import numpy as np
import pytest
from markdown_it import MarkdownIt

from addml.report.document import Paragraph
from addml.report.html import to_html
from addml.report.markdown import escaped, to_markdown
from addml.report.sections import build_document
from tests.report.sample import shop
from tests.report.test_html import NASTY, Reader, bare, nasty

HEADINGS = (
    "# 20 of 377 rows flagged",
    "## Scores of all rows",
    "## Ranked rows and their reasons",
    "### Top rows compared with usual values",
    "## Map of the metric space",
    "## Evaluation against the labels",
    "### ROC curve",
    "## Training",
    "## Rows left out of training",
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
    assert f"| 1 | {first.row} | P-{84000 + 137 * (first.row - 1)} |" in text


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
    assert escaped("batch_size (5%), −1.5 of 3") == "batch_size (5%), −1.5 of 3"


@pytest.mark.parametrize("findings", [bare([]), bare([0.5]), bare([np.nan, 2.0]), shop(ranked=(), groups=(), usual=())])
def test_findings_with_next_to_nothing(findings):
    assert markdown(findings).startswith("# ")


def test_without_usual_values_only_values_are_shown():
    assert "### Top rows compared with usual values" in markdown(shop())
    assert "### Top rows with their values" in markdown(replace(shop(), usual=()))


def test_drift_is_a_table():
    assert "| country | 0.41 | 0.2% |" in markdown(shop())


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
        for block in section.blocks:
            if isinstance(block, Paragraph) and block.text:
                assert escaped(block.text) in text
                assert f"{block.text} {block.hint}".strip() in page
                assert not block.hint or block.hint not in text
