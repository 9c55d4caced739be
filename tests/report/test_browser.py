"""The page in a real browser: nothing is complained about, nothing is asked for, charts answer."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from addml.findings import Findings, Track
from addml.report import write_report
from tests.report.sample import DRIFT, shop
from tests.report.test_html import NASTY, nasty
from tests.report.test_tracks import series, times

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory, findings):
    return write_report(replace(findings, drift=DRIFT), tmp_path_factory.mktemp("report") / "report.html")


TIP = "document.querySelector('#tip').hidden ? null : document.querySelector('#tip').innerText"
PIXELS = "[...document.querySelectorAll('{}')].map((canvas) => canvas.toDataURL()).join()"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 420])
def test_no_complaint_and_no_request(browser, page, width, dark):
    browser.open(page, width, dark=dark)
    assert browser.requests() == [page.as_uri()]
    assert browser.complaints() == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('canvas').length") == 6


@pytest.mark.parametrize("text", NASTY)
def test_nasty_values_do_nothing(browser, tmp_path, text):
    path = write_report(nasty(text), tmp_path / "nasty.html")
    browser.open(path)
    browser.point("#scores", 0.5, 0.5)
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.requests() == [path.as_uri()]
    assert browser.complaints() == []


def test_the_policy_stops_what_is_not_the_page(browser, page, tmp_path):
    other = tmp_path / "other.html"
    code, image = '<script>document.title = "taken"</script>', '<img src="http://127.0.0.1:9/x.png">'
    added = f'{code}{image}<i style="color: red"></i></body>'
    other.write_text(page.read_text(encoding="utf-8").replace("</body>", added), encoding="utf-8")
    browser.open(other)
    assert browser.value("document.title").startswith("20 of 377 rows")
    assert len([one for one in browser.complaints() if "Content Security Policy" in one]) == 3


@pytest.mark.parametrize(
    ("chart", "said"),
    [
        ("#scores", r"\d+ rows?\nscore .* to .*\nnormal"),
        ("#training-train_loss", r"Training loss [\d.]+\nepoch \d+\nmembers .* to .*"),
        ("#training-rows_kept", r"Rows kept 226\nepoch \d+"),
        ("#curve-roc", r"Share of anomalies found [\d.]+\nShare of normal rows flagged [\d.]+"),
        ("#curve-pr", r"Precision [\d.]+\nRecall [\d.]+"),
    ],
)
def test_charts_answer_the_mouse(browser, page, chart, said):
    browser.open(page)
    browser.point(chart, 0.45, 0.5)
    browser.wait(f"({TIP}) !== null")
    assert re.fullmatch(said, browser.value(TIP)), browser.value(TIP)


def test_charts_answer_the_keyboard(browser, page):
    browser.open(page)
    browser.focus("#scores")
    browser.press("ArrowLeft")
    browser.wait(f"({TIP}) !== null")
    assert "flagged" in browser.value(TIP)


def test_the_theme_follows_the_system_and_the_button(browser, page):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, dark=True)
    dark, drawn = browser.value(ground), browser.value(PIXELS.format("canvas"))
    assert browser.value("document.querySelector('#theme').getAttribute('aria-pressed')") == "true"
    browser.point("#theme", click=True)
    light = browser.value(ground)
    assert light != dark
    assert browser.value("document.querySelector('#theme').getAttribute('aria-pressed')") == "false"
    assert browser.value(PIXELS.format("canvas")) != drawn
    browser.point("#theme", click=True)
    assert browser.value(ground) == dark
    browser.value("localStorage.clear()")
    browser.open(page, dark=False)
    assert browser.value(ground) == light


def test_rows_open_and_close(browser, page):
    browser.open(page)
    height = "document.querySelector('#detail-2').getBoundingClientRect().height"
    assert browser.value("document.querySelector('#detail-1').getBoundingClientRect().height") > 100
    assert browser.value(height) == 0
    browser.point("#rank-2 .opener button", click=True)
    assert browser.value(height) > 100
    assert browser.value("document.querySelector('#rank-2 .opener button').ariaExpanded") == "true"
    browser.point("#rank-2 .opener button", click=True)
    assert browser.value(height) == 0
    browser.point("#all-details", click=True)
    assert browser.value("document.querySelectorAll('.detail.open').length") == 26


def test_a_group_shows_only_its_rows(browser, page, findings):
    shown = "[...document.querySelectorAll('.finding')].filter((row) => !row.hidden).map((row) => +row.dataset.rank)"
    browser.open(page)
    browser.point(".groups button", click=True)
    assert browser.value(shown) == list(findings.groups[0].ranks)
    browser.point("#all-rows", click=True)
    assert len(browser.value(shown)) == 26


def test_the_scale_of_the_counts_changes(browser, page):
    browser.open(page)
    before = browser.value(PIXELS.format("#scores canvas"))
    browser.point("#log", click=True)
    assert browser.value("document.querySelector('#log').ariaPressed") == "true"
    assert browser.value(PIXELS.format("#scores canvas")) != before


def test_it_prints_and_is_itself_again(browser, page):
    browser.open(page, dark=True)
    before = browser.value("document.documentElement.outerHTML.length")
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 5 <= printed.count(b"/Type /Page\n") <= 14
    assert browser.value("document.documentElement.className") == "js"
    assert browser.value("document.documentElement.dataset.theme ?? null") is None
    assert abs(browser.value("document.documentElement.outerHTML.length") - before) < 500
    assert browser.complaints() == []


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext reads what was printed")
def test_no_header_of_a_table_ends_a_printed_page(browser, page, tmp_path):
    heads = re.compile(r"(Rank +Row|Column +(Value|Reason|Column type)|Setting +Value|Row \d+ compared)")
    moved, lasts = tmp_path / "moved.html", []
    for lines in range(0, 26, 3):  # tables begin anywhere on a page
        text = re.sub(r"(?=<section|<table class=\"ranked\")", "<br>" * lines, page.read_text(encoding="utf-8"))
        moved.write_text(text, encoding="utf-8")
        browser.open(moved)
        done = subprocess.run(["pdftotext", "-layout", "-", "-"], input=browser.pdf(), capture_output=True, check=True)
        lasts += [
            printed.split("\n")[-1].strip() for one in done.stdout.decode().split("\f") if (printed := one.rstrip())
        ]
    assert len(lasts) > 50
    assert [last for last in lasts if heads.match(last)] == []


def test_without_scripts_everything_but_the_charts_is_there(browser, page):
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.load(page)
        document = browser.send("DOM.getDocument", depth=0)["root"]["nodeId"]
        details = browser.send("DOM.querySelectorAll", nodeId=document, selector=".detail")["nodeIds"]
        assert browser.send("DOM.getBoxModel", nodeId=details[3])["model"]["height"] > 100
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("width", [320, 768])
def test_long_names_do_not_widen_the_page(browser, tmp_path, width):
    names = ("x" * 500, "a b " * 200)
    odd = shop(source="y" * 400, columns=names, notes=("z" * 1000,), settings={"k" * 300: "v" * 900})
    browser.open(write_report(odd, tmp_path / "long.html"), width)
    assert browser.value("document.documentElement.scrollWidth") <= width


def test_a_series_is_zoomed_by_keys_and_shown_whole_again(browser, tmp_path):
    path = write_report(series(2, 3), tmp_path / "series.html")
    browser.open(path)
    view = "document.querySelector('svg.track .stretched').getAttribute('viewBox')"
    times = "[...document.querySelectorAll('svg.track .times')[0].children].map((one) => one.textContent)"
    press = "document.querySelector('svg.track').dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}))"
    whole, named = browser.value(view), browser.value(times)
    browser.value(press % "+")
    assert browser.value(view).split()[0::2] == ["250", "500"]
    assert set(browser.value(times)) != set(named)
    browser.value(press % "ArrowRight")
    assert browser.value(view).split()[0::2] == ["375", "500"]
    browser.value(press % "Escape")
    assert (browser.value(view), browser.value(times)) == (whole, named)
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 400])
def test_the_texts_of_a_series_are_large_enough_to_read(browser, tmp_path, width):
    browser.open(write_report(series(2, 3), tmp_path / "series.html"), width)
    high = (
        "Math.min(...[...document.querySelectorAll('svg.track text')].map((one) => one.getBoundingClientRect().height))"
    )
    assert browser.value(high) >= 11
    assert browser.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (times(2880, 300), ["2026-03-02", "2026-03-04", "2026-03-06", "2026-03-08", "2026-03-10"]),
        (times(97, 900), ["03-01 06:00", "03-01 12:00", "03-01 18:00"]),
        (times(61, 1), ["00:00:10", "00:00:20", "00:00:30", "00:00:40", "00:00:50"]),
        (times(215, 86400), ["2026-04", "2026-05", "2026-06", "2026-07", "2026-08", "2026-09"]),
        (times(1200, 86400), ["2026-07", "2027-01", "2027-07", "2028-01", "2028-07", "2029-01"]),
        (np.arange(1000), ["200", "400", "600", "800"]),
        (np.zeros(3), []),
    ],
)
def test_the_axis_of_a_series_has_round_times(browser, tmp_path, when, words):
    scores = np.zeros(len(when))
    track = Track(("a", "b"), scores, (), (), when)
    found = Findings("s", len(when), ("x",), (), (), scores, 1.0, (), track=track, noun="step")
    browser.open(write_report(found, tmp_path / "series.html"))
    names = "[...document.querySelectorAll('svg.track .times text')].map((one) => one.textContent)"
    assert browser.value(names) == words
    assert browser.value("document.querySelectorAll('svg.track .grid').length") == len(words)
    assert browser.complaints() == []
