"""Series in a report: an axis of round times, one picture an event, entities, and pages that stay readable."""

import re
from dataclasses import replace

import numpy as np
import pytest

from addml.findings import EventPicture, Finding, Findings, Track
from addml.report import redacted
from addml.report.charts import event_plot, series_plot
from addml.report.html import to_html, to_markdown
from addml.report.sections import MAX_SERIES, build_document

START = np.datetime64("2026-03-01T00:00:00", "ns")


def times(steps, seconds):
    return START + np.arange(steps) * np.timedelta64(seconds, "s")


def series(entities, events, pictures=3):
    steps = 100 * entities
    spans = [(100 * (place % entities) + 10, 100 * (place % entities) + 20) for place in range(events)]
    band = np.stack([np.full(30, -1.0), np.zeros(30), np.ones(30)])
    shown = [
        EventPicture(rank, times(30, 60), (10, 20), (("heat", np.full(30, 3.0), band),))
        for rank in range(1, min(pictures, events) + 1)
    ]
    ranked = tuple(
        Finding(start + 1, rank, 9.0 - rank / events, True,
                {"host": f"h{start // 100}", "start": "a", "end": "b", "peak": "a", "steps": 10})
        for rank, (start, _) in enumerate(spans, start=1)
    )  # fmt: skip
    own = tuple((f"h{place}", 100 * place, 100 * place + 100) for place in range(entities))
    when = np.tile(times(100, 60), entities)
    scores = np.zeros(steps)
    for start, stop in spans:
        scores[start:stop] = 5
    track = Track(("a", "b"), scores, (("heat", scores),), tuple(spans), when, own, tuple(shown))
    return Findings("pumps.csv", steps, ("heat",), (), (), scores, 1.0, ranked, track=track, noun="step")


def test_events_are_in_the_headline_and_each_has_a_picture():
    page = to_html(build_document(series(5, 3)))
    assert re.search(r'<span class="count some">3</span> events in 500 steps of 5 series', page)
    assert page.count('class="band"') == 3
    assert len(re.findall('<svg [^>]*class="track"', page)) == 5 + 3
    assert "1. h0 a to b" in page
    assert "h0 a to b ranks first" in page
    none = to_markdown(build_document(series(2, 0)))
    assert none.startswith("# No events in 200 steps of 2 series")


def test_a_page_of_three_thousand_events_stays_readable():
    page = to_html(build_document(series(1000, 3000, pictures=30)))
    assert len(page) < 2_000_000
    assert len(re.findall('<svg [^>]*class="track"', page)) == MAX_SERIES + 30
    assert "988 more series are not drawn." in page
    assert "2,970 more events are not drawn." in page
    assert page.count('class="finding') == 200


def test_an_event_is_named_by_its_times_and_told_whole():
    page = to_html(build_document(series(2, 2)))
    assert '<a href="#rank-1" class="row-link">h0 a to b</a>' in page  # not the step of the peak beside the start
    assert page.count('<span class="key">steps</span> 10') == 2  # after host, start, end and peak
    found = series(1, 1)
    told = to_html(build_document(replace(found, ranked=(replace(found.ranked[0], values={"heat": 5.0}),))))
    assert "Step 11, the peak" in told


def test_a_panel_is_titled_by_the_range_of_its_values():
    track = series(1, 1).track
    assert "score: 0 to 5" in str(series_plot(track, 99.0, "a series"))


def test_columns_without_usual_values_have_no_empty_cells():
    page = to_markdown(build_document(series(1, 1)))
    assert "| Column |\n| --- |\n| heat |" in page


@pytest.mark.parametrize(("events", "said"), [(3, "Events are shaded"), (600, "The 500 strongest events are shaded")])
def test_which_events_are_shaded_is_said(events, said):
    page = to_html(build_document(series(600, events, pictures=0)))
    assert said in page


def test_the_band_is_drawn_around_what_is_expected():
    picture = EventPicture(
        1, times(3, 60), (1, 2), (("a", np.array([0.0, 4, 0]), np.array([[-1.0] * 3, [0] * 3, [1] * 3])),)
    )
    drawn = str(event_plot(picture, "an event"))
    tops = {
        float(y) for y in re.search(r'd="([^"]*)Z" class="band"', drawn)[1].replace("M", "L").split("L")[1].split()[1:]
    }
    (high,) = tops  # 1 in a panel from -1 to 4, 90 high below 26
    assert high == pytest.approx(26 + 90 * (1 - 2 / 5))


def test_a_redacted_series_has_neither_times_nor_names():
    page = to_html(build_document(redacted(series(3, 3)), is_redacted=True))
    assert "series 1: 1 event" in page
    assert ">h1" not in page
    assert "2026" not in page.split("</style>")[-1].split("<script")[0]
    assert 'class="band"' not in page
