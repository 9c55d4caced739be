"""SVG drawings: bars, and a series that stays small however long it is."""

import math
import re

import numpy as np

from addml.findings import Findings, Track
from addml.report.charts import MAX_SERIES_POINTS, envelope
from addml.report.html import to_html
from addml.report.sections import build_document
from addml.report.summary import BAR_EDGE, BAR_WIDTH, mark_position
from tests.report.sample import shop


def findings(steps, events=(), values=None):
    scores = np.zeros(steps)
    drawn = Track(("a", "b"), scores, (("x<y", np.zeros(steps) if values is None else values),), tuple(events))
    return Findings("s", steps, ("x",), (), (), scores, 1.0, (), track=drawn)


def drawing(findings):
    found = re.search(r'<svg [^>]*class="track".*?</svg>.*?</svg>', to_html(build_document(findings)), re.DOTALL)
    return found[0] if found else ""


def test_the_least_and_the_most_of_every_stretch_are_drawn():
    values = np.random.default_rng(0).standard_normal(5000)
    values[1234] = 99
    values[10:20] = np.nan
    low, high = envelope(values)
    assert len(low) == MAX_SERIES_POINTS
    assert np.nanmax(high) == 99
    assert np.nanmin(low) == np.nanmin(values)
    short = np.array([1.0, np.nan, 3.0])
    np.testing.assert_array_equal(envelope(short)[0], short)


def test_a_drawing_stays_small_and_escapes_names():
    small, large = (len(drawing(findings(steps, [(5, 9)]))) for steps in (10_000, 1_000_000))
    assert abs(large - small) < 200
    page = drawing(findings(100, [(10, 20), (50, 51)]))
    assert "x&lt;y" in page
    assert page.count('class="event"') == 2
    assert re.search(r'<rect x="10.0|<rect x="100.0"', page)
    assert "nan" not in drawing(findings(50, values=np.full(50, np.nan)))


def test_tables_have_no_such_section():
    plain = Findings("s", 3, ("x",), (), (), np.zeros(3), 1.0, ())
    assert drawing(plain) == ""


def test_marks_stay_on_the_bar_and_in_order():
    places = [mark_position(offset) for offset in (-math.inf, -50, -3, -1, 0, 1, 3, 50, math.inf)]
    assert places == sorted(places)
    assert places[0] >= BAR_EDGE
    assert places[-1] <= BAR_WIDTH - BAR_EDGE


def test_the_middle_of_a_bar_is_one_upright_line():
    assert '<line x1="80.0" x2="80.0" y1="4" y2="12" class="middle">' in to_html(build_document(shop()))
