"""The report as Markdown."""

from dataclasses import replace

import numpy as np
import pytest
from markdown_it import MarkdownIt

from addml.report.markdown import escaped, markdown
from tests.report.sample import shop
from tests.report.test_page import NASTY, bare, nasty

HEADINGS = (
    "# 20 of 377 rows stand out",
    "## Scores",
    "## Ranked rows",
    "## The top rows beside the usual values",
    "## Map",
    "## Evaluation",
    "## Training",
    "## Distillation",
    "## Data",
    "### Left out, and why",
    "## Settings",
    "## Versions",
)


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
    assert escaped("batch_size (5 %), −1.5 of 3") == "batch_size (5 %), −1.5 of 3"


@pytest.mark.parametrize("findings", [bare([]), bare([0.5]), bare([np.nan, 2.0]), shop(ranked=(), groups=(), usual=())])
def test_findings_with_next_to_nothing(findings):
    assert markdown(findings).startswith("# ")


def test_values_whose_usual_ones_nobody_knows_stand_beside_none():
    assert "## The top rows beside the usual values" in markdown(shop())
    assert "## The values of the top rows" in markdown(replace(shop(), usual=()))


def test_drift_is_a_table():
    assert "| country | 0.41 | 0.2 % |" in markdown(shop())


def test_a_million_rows(million):
    text = markdown(million)
    assert len(text) < 500_000
    assert "99,800 more rows stand out" in text
