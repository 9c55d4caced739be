"""Redacted reports hold no raw value and no id."""

import re
from dataclasses import replace

import pytest

from addml.report import redacted, write_report
from addml.text import cell_text
from tests.report.sample import shop

SECRETS = ("51234.75", "51,234", "Elbonia", "A-100017", "A-100004", "2031", "4,099x", "ring twice")
SECRETS += ("mostly 3 to 40", "mostly DE")


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_no_raw_value_stays(tmp_path, name):
    path = write_report(shop(), tmp_path / name, redact=True)
    text = path.read_text(encoding="utf-8")
    for secret in SECRETS:
        assert secret not in text, secret
    for kept in ("amount above the usual", "62%", "17", "country rare or unseen", "dropped"):
        assert kept in text, kept


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_no_value_of_a_real_table_stays(tmp_path, findings, name):
    text = write_report(findings, tmp_path / name, redact=True).read_text(encoding="utf-8")
    text = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    if name.endswith("html"):  # the numbers of the charts are of the scores, not of the table
        text = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    else:
        text = re.sub(r"### ROC curve.*?## Training", "", text, flags=re.DOTALL)  # points of curves of the scores
    values = {cell_text(value) for finding in findings.ranked for value in finding.values.values()}
    told = {value for value in values if len(value) >= 6 and re.search(rf"(?<![\d.]){re.escape(value)}(?![\d])", text)}
    assert len(values) > 500
    assert not told
    assert not any(value in text for finding in findings.ranked for value in finding.ids.values())
    assert not any(one.words in text for one in findings.usual)


def test_without_redaction_they_are_there(tmp_path):
    text = write_report(shop(), tmp_path / "r.html").read_text(encoding="utf-8")
    for secret in ("51,234.75", "Elbonia", "A-100017", "4,099x"):
        assert secret in text


def test_reasons_and_groups_name_columns_alone():
    finding = redacted(shop()).ranked[0]
    assert [reason.words for reason in finding.reasons] == ["amount above the usual", "country rare or unseen"]
    assert redacted(shop()).groups[0].words == "amount, country"


def test_drift_keeps_what_tells_no_value():
    first, second = redacted(shop()).drift
    numbers = {"psi": 0.04, "gaps_now": 0.0, "outside_count": 3}
    assert first == {"column": "mean radius", **numbers, "words": "as in training"}
    assert "figures" not in second
    assert second["words"] == "unseen: [redacted]"


def test_quoted_and_known_values_in_sentences_are_hidden():
    hidden = redacted(shop())
    assert hidden.notes == ("Decimal commas in amount.", "country: 1 unseen value, [redacted]")
    assert hidden.left_out[1] == ("remark", "free text such as [redacted]")
    assert hidden.settings["query"] == "select * where country <> [redacted]"
    assert hidden.settings["members"] == 5


@pytest.mark.parametrize("value", ["4711.25", "2031-02-03", "true", "'O\\'Brien said \"Elbonia\"'", '"it\'s Elbonia"'])
def test_constants_are_hidden_however_they_are_written(value):
    hidden = redacted(
        shop(left_out=(("c", f"constant: {value} in every row"),), notes=(f"column 'x' holds ({value})",))
    )
    assert hidden.left_out == (("c", "constant: [redacted] in every row"),)
    assert "Elbonia" not in hidden.notes[0]


def test_the_findings_themselves_stay_as_they_were():
    findings = shop()
    redacted(findings)
    assert findings.ranked[0].ids == {"order": "A-100017"}


def test_rows_beyond_the_list_hold_nothing(million):
    hidden = redacted(million)
    assert len(hidden.ranked) == len(million.ranked)
    assert not any(finding.ids or finding.reasons for finding in hidden.ranked[200:])


def test_the_value_that_marks_an_anomaly_is_a_value_of_the_table():
    hidden = redacted(shop(settings={"label": "outcome", "anomaly_value": "Malignant"})).settings
    assert hidden == {"label": "outcome", "anomaly_value": "[redacted]"}
    assert redacted(shop(settings={"anomaly_value": None})).settings == {"anomaly_value": None}


def test_a_missing_value_hides_no_word():
    found = shop()
    first = replace(found.ranked[0], values={**found.ranked[0].values, "amount": None})
    found = replace(found, ranked=(first, *found.ranked[1:]), notes=("missing values: 25 cells, None of them an id",))
    assert redacted(found).notes == ("missing values: 25 cells, None of them an id",)
