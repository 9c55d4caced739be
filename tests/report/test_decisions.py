"""Thresholds and probabilities in the report."""

from dataclasses import replace

import pytest

from addml.report import write_report
from addml.report.digest import key_numbers, likely
from tests.report.sample import shop


def decided():
    findings = shop()
    ranked = tuple(replace(one, probability=0.875 / one.rank, confidence=1.0) for one in findings.ranked)
    return replace(findings, ranked=ranked, decided_by="by the tail of the scores for 0.01 false alarms")


@pytest.mark.parametrize("name", ["r.html", "r.md"])
@pytest.mark.parametrize("redact", [False, True])
def test_the_report_says_how_probable_and_how_decided(tmp_path, name, redact):
    text = write_report(decided(), tmp_path / name, redact=redact).read_text(encoding="utf-8")
    assert likely(decided().ranked[0]) in text
    assert "by the tail of the scores for 0.01 false alarms" in text


def test_words():
    assert likely(decided().ranked[0]).endswith("probable")
    assert likely(shop().ranked[0]) == ""
    assert ("Threshold", "scores above it stand out") in [(label, words) for label, _, words in key_numbers(shop())]


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_without_probabilities_nothing_is_said(tmp_path, name):
    assert "probable" not in write_report(shop(), tmp_path / name).read_text(encoding="utf-8")
