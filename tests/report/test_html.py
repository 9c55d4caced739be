"""The HTML page: what it says, that it is safe, and how large it is."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from addml.findings import Finding, Findings, Group, Reason, Usual
from addml.report import redacted
from addml.report.html import static, to_html
from addml.report.sections import build_document
from tests.report.sample import shop

NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)",
    "<!--",
    "]]>",
    "$policy ${script} %s {0}",
    "\u2028\u2029\x00\ud800",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
]
VOID = {"meta"}


def rendered(findings, **options):
    return to_html(build_document(findings, **options))


class Reader(HTMLParser):
    """Checks that elements nest, and remembers them."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.attributes, self.texts, self.content = [], set(), [], [], {}
        self.feed(page)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in VOID:
            self.stack.append(tag)
            self.content.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] in ("script", "style"):
            self.content[self.stack[-1]][-1] += data
        else:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def nasty(text):
    usual = Usual(text, "category", text, common=((text, 0.5),))
    finding = Finding(1, 1, 3.0, True, {text: text}, {text: text, "n": 1}, (Reason(text, 0.5, text),))
    return Findings(
        source=text,
        rows=3,
        columns=(text,),
        left_out=((text, text),),
        notes=(text,),
        scores=np.array([3.0, 0.0, 0.1]),
        threshold=1.0,
        ranked=(finding, replace(finding, row=2, rank=2)),
        groups=(Group((text,), text, (1, 2)),),
        usual=(usual,),
        evaluation={text: text, "roc_auc": 0.5, "precision_at_k": {text: text}},
        drift=({"column": text, text: text},),
        settings={text: text, "inner": {text: [text]}},
        versions={text: text},
    )


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("text", NASTY)
def test_values_stay_text(text, redact):
    page = rendered(nasty(text), is_redacted=redact)
    page.encode("utf-8")
    reader = Reader(page)
    harmless = Reader(rendered(nasty("harmless"), is_redacted=redact))
    assert reader.tags == harmless.tags
    assert {one[:2] for one in reader.attributes} == {one[:2] for one in harmless.attributes}
    assert page.count("<script") == 4
    for tag, name, value in reader.attributes:
        assert not name.startswith("on"), (tag, name, value)
        assert name not in ("style", "src", "srcdoc", "action"), (tag, name, value)
        if name == "href":
            assert value.startswith("#")
    if "alert" in text or "<" in text:
        assert text in reader.text


def test_only_the_scripts_and_styles_of_the_page_may_run(findings):
    page = rendered(findings)
    reader = Reader(page)
    policy = next(value for tag, name, value in reader.attributes if tag == "meta" and name == "content")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    numbers, code = reader.content["script"][1], [reader.content["script"][i] for i in (0, 2, 3)]
    for part in (*code, *reader.content["style"]):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" in policy
    json.loads(numbers)
    assert policy.count("sha256-") == 5


def test_nothing_is_loaded_from_anywhere(findings):
    reader = Reader(rendered(findings))
    assert not [one for one in reader.attributes if one[1] in ("src", "srcset", "data", "poster", "xlink:href")]
    assert "url(" not in "".join(reader.content["style"])
    assert "@import" not in "".join(reader.content["style"])
    for name in ("words.js", "lines.js", "rows.js", "page.js", "start.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp", static(name))


def test_the_licence_of_the_chart_library_goes_along(findings):
    assert "Copyright (c) 2022 Leon Sorokin" in rendered(findings)
    assert "uPlot (v1.6.32)" in static("uPlot.iife.min.js")


def test_the_first_screen_says_what_was_found(findings):
    said = Reader(rendered(findings)).text
    assert "20 of 377 rows flagged" in said
    assert f"Row {findings.ranked[0].row} ranks first: {findings.ranked[0].reasons[0].words}" in said
    for words in ("2 columns dropped", "P-", "ROC-AUC", "Threshold", f"{findings.threshold:.3g}"):
        assert words in said


def test_every_section_is_there_and_in_the_contents(findings):
    page = rendered(replace(findings, drift=shop().drift))
    for name in ("rows", "evaluation", "drift", "training", "data", "settings"):
        assert f'<section id="{name}" aria-labelledby="{name}-title">' in page
        assert f'href="#{name}"' in page


def test_dropped_columns_and_notes_are_listed(findings):
    said = Reader(rendered(findings)).text
    for column, why in findings.left_out:
        assert f"{column} {why}" in said
    for note in findings.notes:
        assert note in said
    assert "contamination 0.0530" in said  # the settings, to repeat the run
    assert np.__version__ in said


def test_each_top_row_is_compared_with_the_usual_values():
    said = Reader(rendered(shop())).text
    assert "amount 51,234.75 12.5, mostly 3 to 40 above the usual 62%" in said
    assert "country Elbonia mostly DE, FR, AT rare or unseen 21%" in said
    assert "age missing 41, mostly 22 to 67" in said


def test_without_usual_values_only_values_are_shown():
    said = Reader(rendered(replace(shop(), usual=()))).text
    assert "compared with usual values" not in said
    assert re.search(r"Column Value Contribution amount 51,234\.75 62%", said)
    assert "Column Position Contribution" in Reader(rendered(redacted(shop()), is_redacted=True)).text


@pytest.mark.parametrize(
    ("noun", "words"),
    [
        ("row", "the part of the row's score that comes from these columns."),
        ("image", "the part of the image's score that comes from this region."),
        ("step", "the channel's part of the distance from what was expected."),
    ],
)
def test_contributions_are_explained(noun, words):
    assert (
        f"The percentage after a reason is its contribution: {words}"
        in Reader(rendered(replace(shop(), noun=noun))).text
    )


def test_charts_are_described_for_those_who_do_not_see_them(findings):
    reader = Reader(rendered(findings))
    labels = [value for _, name, value in reader.attributes if name == "aria-label"]
    assert any(label.startswith("Histogram of 377 scores") and "20 above the threshold" in label for label in labels)
    images = [one for one in reader.attributes if one[1:] == ("role", "img")]
    assert len([one for one in images if one[0] == "div"]) == 6  # scores, 3 of training, 2 curves


def test_the_same_findings_give_the_same_page(findings):
    assert rendered(findings) == rendered(findings)


# Odd findings -----------------------------------------------------------------------------------------------


def numbers_of(page):
    text = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', page, re.DOTALL)[1]

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def bare(scores, threshold=1.0, **more):
    scores = np.asarray(scores, float)
    return Findings("t.csv", len(scores), ("x",), (), (), scores, threshold, (), **more)


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        (bare([]), "No rows to score"),
        (bare([0.5]), "The only row is not flagged"),
        (bare([1.5]), "The only row is flagged"),
        (bare([0.1, 0.2, 0.3]), "None of 3 rows flagged"),
        (bare([0.1, 0.2, 1.3]), "1 of 3 rows flagged"),
        (bare([0.1, np.nan, np.inf], np.nan), "None of 3 rows flagged"),
        (bare([np.nan, np.nan]), "None of 2 rows flagged"),
        (bare([1.0, 1.0, 1.0]), "None of 3 rows flagged"),
    ],
)
def test_findings_with_next_to_nothing(findings, said):
    page = rendered(findings)
    assert said in Reader(page).text
    numbers_of(page)


def test_no_number_is_not_a_number():
    finding = Finding(1, 1, float("nan"), False, values={"x": float("nan")}, reasons=(Reason("x", float("nan"), "x"),))
    odd = bare(
        [np.nan, 1.0, np.inf],
        np.inf,
        history=({"epoch": 1, "train_loss": np.nan, "validation_loss": np.inf, "members": [{"train_loss": np.nan}]},),
        evaluation={"roc_auc": np.nan, "curves": {"roc": {"fpr": [0, np.nan, 1], "tpr": [0, 1, 1]}}},
        drift=({"column": "x", "shift": np.nan},),
    )
    numbers_of(rendered(replace(odd, ranked=(finding,))))


def test_long_names_and_other_scripts():
    name = "größe_" + "very" * 3000
    usual = (Usual(name, "number", "1", 0.0, 1.0, 2.0), Usual("年齢🙂", "number", "1", 0.0, 1.0, 2.0))
    finding = Finding(1, 1, 3.0, True, {"שם": "أهلا"}, {name: 5.0, "年齢🙂": 7}, (Reason("年齢🙂", 0.5, "年齢🙂 7x"),))
    page = rendered(shop(columns=(name, "年齢🙂"), usual=usual, ranked=(finding,)))
    assert name not in page
    assert "größe_very" in page
    for word in ("年齢🙂", "שם", "أهلا"):
        assert word in Reader(page).text


@pytest.mark.slow
def test_ten_thousand_columns(million):
    names = tuple(f"column number {j}" for j in range(10_000))
    values = dict.fromkeys(names, 1.25)
    rows = tuple(Finding(i, i, 9.0, True, {}, values) for i in range(1, 61))
    usual = tuple(Usual(name, "number", "1", 0.0, 1.0, 2.0) for name in names)
    page = rendered(shop(columns=names, usual=usual, ranked=rows))
    assert len(page) < 3_000_000
    assert "9,970 more columns are not shown" in Reader(page).text
    assert "9,800 more columns are not shown" in Reader(page).text


def test_a_million_rows_stay_under_five_megabytes(million):
    page = rendered(million)
    assert len(page.encode()) < 5_000_000
    said = Reader(page).text
    assert "100,000 of 1,000,000 rows flagged" in said
    assert "99,800 more rows are flagged" in said
    assert "800 more notes are not shown" in said
    numbers_of(page)


def test_the_lead_says_how_rows_were_chosen_and_how_many_stand_clear():
    share = "the 10% highest-scoring training rows"
    found = replace(shop(), decided_by=share, clear=1)
    assert f"Flagged: {share} (score above {found.threshold:.4g}); it stands clear of the rest." in rendered(found)
