"""A series drawn: bounded however long it is, with all that stands out kept."""

import re

import numpy as np

from addml.findings import Findings, Track
from addml.report.track import MOST_POINTS, envelope, track


def findings(steps, events=(), values=None):
    scores = np.zeros(steps)
    drawn = Track(("a", "b"), scores, (("x<y", np.zeros(steps) if values is None else values),), tuple(events))
    return Findings("s", steps, ("x",), (), (), scores, 1.0, (), track=drawn)


def test_the_least_and_the_most_of_every_stretch_are_drawn():
    values = np.random.default_rng(0).standard_normal(5000)
    values[1234] = 99
    values[10:20] = np.nan
    low, high = envelope(values)
    assert len(low) == MOST_POINTS
    assert np.nanmax(high) == 99
    assert np.nanmin(low) == np.nanmin(values)
    short = np.array([1.0, np.nan, 3.0])
    np.testing.assert_array_equal(envelope(short)[0], short)


def test_a_drawing_stays_small_and_escapes_names():
    small, large = (len(track(findings(steps, [(5, 9)]))) for steps in (10_000, 1_000_000))
    assert abs(large - small) < 200
    page = track(findings(100, [(10, 20), (50, 51)]))
    assert "x&lt;y" in page
    assert page.count('class="event"') == 2
    assert re.search(r'<rect x="10.0|<rect x="100.0"', page)
    assert "nan" not in track(findings(50, values=np.full(50, np.nan)))


def test_tables_have_no_such_section():
    plain = Findings("s", 3, ("x",), (), (), np.zeros(3), 1.0, ())
    assert track(plain) == ""
