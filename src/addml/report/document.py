"""What a report consists of, as plain values that `html` and `markdown` render; empty blocks are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from addml.findings import Picture

Pairs = Sequence[tuple[str, str]]


class Paragraph(NamedTuple):
    """Running text."""

    text: str
    style: str = "about"
    hint: str = ""  # how to read or use what only the page has


class Facts(NamedTuple):
    """Names with values."""

    pairs: Pairs


class Bullets(NamedTuple):
    """A list of sentences."""

    items: Sequence[str]


class Table(NamedTuple):
    """Rows of cells; the first cell of each row is its heading."""

    title: str  # for screen readers
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    style: str = ""


class Chart(NamedTuple):
    """A chart that the page's script draws from the document's data; Markdown shows the table instead."""

    name: str
    label: str  # for screen readers
    title: str = ""
    style: str = ""
    caption: str = ""
    legend: Pairs = ()  # mark, meaning
    table: Table | None = None


class Drawing(NamedTuple):
    """A drawing, as of a series and its events; Markdown leaves it out."""

    svg: str


class Gallery(NamedTuple):
    """Images with their scores."""

    images: Sequence[tuple[Picture, str]]


class Comparison(NamedTuple):
    """One value of a row and the usual values of its column."""

    column: str
    value: str
    usual: str
    position: str  # "above the usual"
    contribution: str  # to the row's score; empty unless a reason names the column
    offset: float | None = None  # of a number: -1 and 1 are the ends of the usual range, 0 is its middle
    frequency: float | None = None  # of a category: the share of usual rows that have it


class RankedRow(NamedTuple):
    """One ranked row with its reasons and, for the first ones, its values."""

    rank: int
    row: int
    name: str  # "Row 1,204"
    is_flagged: bool
    score: str
    bar: tuple[float, float] | None  # score and threshold between the lowest score (0) and the highest (1)
    rarity: str  # "1 in 2,400"
    ids: Pairs
    reasons: Pairs  # words, contribution
    similar: str  # "and 3 similar rows", of the first row of a group
    comparisons: Sequence[Comparison]
    more_columns: int  # that are not compared


class RowGroup(NamedTuple):
    """Rows that are flagged for the same columns."""

    size: str  # "3 rows"
    reason: str
    ranks: Sequence[int]  # the listed ones
    rows: str  # "rows 4, 17, 23"


class Ranking(NamedTuple):
    """The ranked rows, the flagged ones first; in the page, the groups filter them."""

    noun: str  # what is ranked: "row", "image", "event"
    name: str  # what one is called: "Row", "Image", "Step"
    rows: Sequence[RankedRow]
    examples: Sequence[RankedRow]  # the first rows to look at, one of each group
    groups: Sequence[RowGroup]
    ungrouped: str
    divider: str  # between the flagged rows and the others
    has_usual: bool  # whether usual values are known


class Part(NamedTuple):
    """Several blocks: under a title, folding if `is_open` is set, or side by side with a style."""

    blocks: Sequence[Block]
    title: str = ""
    style: str = ""
    is_open: bool | None = None


Block = Paragraph | Facts | Bullets | Table | Chart | Drawing | Gallery | Ranking | Part


class Section(NamedTuple):
    """A section with its name in the contents."""

    name: str
    link: str
    title: str
    blocks: Sequence[Block]


class Document(NamedTuple):
    """A whole report."""

    source: str
    headline: tuple[str, str]  # "20", "of 377 rows flagged"
    lead: str
    figures: Sequence[tuple[str, str, str]]  # label, value, note
    caveat: str  # about the data
    ranking: Ranking
    scores: Chart | None
    sections: Sequence[Section]
    footer: str
    data: dict[str, Any]  # for the charts of the page
