"""The page in a real browser: a file goes in, ranked rows, the report and answers about rows come out."""

import pytest

from tests.report.devtools import CHROMIUM, Browser

pytestmark = pytest.mark.slow
TAB = "[...document.querySelectorAll('.tabs button')].find(one => one.textContent.startsWith({!r}))"


@pytest.fixture(scope="module")
def page(server):
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH: apt-get install -y --no-install-recommends chromium")
    browser = Browser()
    browser.go(f"{server.url}/?token={server.token}")
    browser.wait("document.querySelectorAll('#models li').length > 0")
    yield browser
    browser.close()


def hand_in(page, path):
    """Choose a file as a person does, and press the button."""
    page.send("DOM.enable")
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.send("DOM.setFileInputFiles", files=[str(path)], nodeId=node)
    page.value("document.querySelector('#upload button').click()")


def test_a_file_is_ranked_looked_into_and_asked_about(server, page):
    assert page.value("location.href") == f"{server.url}/"  # without the token
    assert page.value("document.cookie") == ""  # which no script reads
    hand_in(page, server.folder / "small.csv")
    page.wait("!!document.querySelector('.tabs')")
    assert page.value("document.querySelector('#view h3').textContent") == "30 of 300 rows flagged"
    first = page.value("document.querySelector('tbody tr').textContent")
    assert "person-00042" in first
    assert "height" in first
    page.value(f"{TAB.format('Report')}.click()")
    assert page.value("!document.querySelector('iframe').hidden")
    assert page.value("document.querySelector('iframe').contentDocument") is None  # a stranger to the page
    page.value(f"{TAB.format('Try')}.click()")
    page.wait("!!document.querySelector('.verdict')")
    assert page.value("document.querySelector('.verdict b').textContent") == "not flagged"
    change = "const field = document.querySelector('[name=height]'); field.value = '260';"
    page.value(f"(() => {{{change} field.dispatchEvent(new Event('input', {{bubbles: true}}))}})()")
    page.wait("document.querySelector('.verdict b').textContent === 'flagged'")
    assert "height" in page.value("document.querySelector('.why').textContent")
    page.value("document.querySelector('tbody .ask').click()")  # the strangest row
    page.wait("document.querySelector('#view').textContent.includes('Change values of row 42 ')")
    assert page.value("document.querySelector('[name=height]').value") == "260"
    score = page.value("document.querySelector('tbody tr').children[3].textContent")
    assert page.value("document.querySelector('.verdict span').textContent").startswith(f"score {score},")


def answer(page, row, word):
    cells = f"[...document.querySelectorAll('tbody tr')].find(one => one.children[1].textContent === '{row}')"
    page.value(f"[...{cells}.querySelectorAll('.answer')].find(one => one.textContent === '{word}').click()")


def test_answers_are_learned_from(server, page):
    page.value("view.replaceChildren()")
    hand_in(page, server.folder / "small.csv")
    page.wait("!!document.querySelector('.answers')")
    assert page.value("document.querySelector('.answers button').hidden")
    rows = page.value("[...document.querySelectorAll('tbody tr')].map(one => one.children[1].textContent)")
    answer(page, 42, "yes")
    answer(page, rows[5], "yes")
    answer(page, rows[5], "no")  # changed
    answer(page, rows[6], "no")
    answer(page, rows[6], "no")  # and taken back
    assert page.value("document.querySelector('.answers button').textContent") == "Train with 2 answers"
    page.value("document.querySelector('.answers button').click()")
    page.wait("document.querySelector('.answers')?.textContent.includes('Trained with 2 answers.')")
    assert "1 anomaly and 1 normal row labelled" in page.value("document.querySelector('#view').textContent")
    pressed = page.value(
        "[...document.querySelectorAll('.answer[aria-pressed=true]')].map("
        "one => one.closest('tr').children[1].textContent + one.textContent)"
    )
    assert "42yes" in pressed


def test_what_a_table_holds_is_never_markup(server, page, tmp_path):
    rows = "".join(f"{i % 7},{i % 5},<img src=x onerror=alert(1)>\n" for i in range(80))
    (tmp_path / "<b>odd.csv").write_text("a,<i>b</i>,c\n" + rows + "900,900,<script>alert(1)</script>\n")
    hand_in(page, tmp_path / "<b>odd.csv")
    page.wait("document.querySelector('#view .muted')?.textContent.startsWith('<b>odd.csv')")
    assert page.value("document.querySelectorAll('#view img, #view b, #view i, #view script, #runs b').length") == 0
    assert "<i>b</i>" in page.value("document.querySelector('tbody').textContent")


def test_what_went_wrong_is_shown(page, tmp_path):
    (tmp_path / "one.csv").write_text("a\n1\n")
    hand_in(page, tmp_path / "one.csv")
    page.wait("document.querySelector('#view h3')?.textContent === 'one.csv failed'")
    assert "at least two" in page.value("document.querySelector('#view p').textContent")


def test_the_focus_stays_when_a_list_is_made_anew(page):
    page.value("document.querySelector('#runs .delete').focus()")
    before = page.value("(document.activeElement.mine = true, document.activeElement.dataset.key)")
    page.value("(lists.runs = '', refresh())")
    assert page.value("document.activeElement.mine") is None
    assert page.value("document.activeElement.dataset.key") == before


def test_a_run_that_is_removed_is_shown_no_longer(server, page):
    hand_in(page, server.folder / "small.csv")
    page.wait("!!document.querySelector('#runs [aria-current]')?.textContent.startsWith('small.csv')")
    page.value("document.querySelector('#runs li:has([aria-current]) .delete').click()")
    page.wait("shown === null && document.querySelector('#view').children.length === 0")
    page.value("new Promise((done) => setTimeout(done, 1200))")  # it is looked after every second
    assert page.value("document.querySelector('#failure').hidden")


def test_reasons_have_room_on_a_narrow_screen(page):
    page.send("Emulation.setDeviceMetricsOverride", width=360, height=700, deviceScaleFactor=1, mobile=False)
    page.value("[...document.querySelectorAll('#runs .open')].at(-1).click()")
    page.wait("!!document.querySelector('td.reasons')")
    assert page.value("document.querySelector('td.reasons').offsetWidth") >= 14 * 15
    assert page.value("document.documentElement.scrollWidth") == 360
    page.send("Emulation.clearDeviceMetricsOverride")


def test_no_error_and_no_other_server(server, page):
    problems = [event for event in page.events if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert problems == []
    asked = [
        event["params"]["request"]["url"] for event in page.events if event.get("method") == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith((server.url, "data:")) for url in asked)
