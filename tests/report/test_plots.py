"""Figures for papers."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from addml.findings import Track
from addml.report.notebook import write_figures
from tests.report.sample import shop
from tests.report.test_html import bare
from tests.report.test_tracks import series

NAMES = {"scores", "training", "roc", "precision_recall"}


def test_every_figure_in_every_format(tmp_path, findings):
    files = write_figures(findings, tmp_path / "figures")
    assert {file.stem for file in files} == NAMES
    assert {file.suffix for file in files} == {".png", ".svg"}
    for file in files:
        begins = file.read_bytes()[:8]
        assert begins == b"\x89PNG\r\n\x1a\n" if file.suffix == ".png" else begins.startswith(b"<?xml")
    assert sorted(tmp_path.rglob("*.*")) == sorted(files)


def test_the_same_findings_give_the_same_files(tmp_path):
    first = [file.read_bytes() for file in write_figures(shop(), tmp_path / "a")]
    assert first == [file.read_bytes() for file in write_figures(shop(), tmp_path / "b")]


def test_what_is_not_there_is_not_drawn(tmp_path):
    assert [file.name for file in write_figures(shop(), tmp_path)] == ["scores.png", "scores.svg"]
    assert write_figures(bare([np.nan]), tmp_path / "none") == []


@pytest.mark.parametrize("noun", ["row", "image", "step"])
def test_counts_are_of_what_is_scored(tmp_path, noun):
    _, file = write_figures(replace(shop(), noun=noun), tmp_path)
    assert f">{noun}s</text>" in file.read_text()


def test_dollars_in_the_name_of_a_channel_are_no_formula(tmp_path):
    track = Track(("a", "b"), np.zeros(9), (("in $\\foo$ \n or $1$", np.arange(9.0)),), ())
    write_figures(replace(bare(np.zeros(9)), track=track), tmp_path)
    assert "in $\\foo$   or $1$" in (tmp_path / "series.svg").read_text()


def test_a_series_is_drawn_over_its_times_and_several_one_after_another(tmp_path):
    write_figures(series(1, 1), tmp_path / "one")  # 100 minutes from midnight on
    drawn = (tmp_path / "one" / "series.svg").read_text()
    assert re.findall(r">01 ([0-9:]+)</text>", drawn)[:3] == ["00:00", "00:15", "00:30"]
    assert ">step" not in drawn
    write_figures(series(3, 1), tmp_path / "three")
    assert ">step of 3 series, one after another</text>" in (tmp_path / "three" / "series.svg").read_text()


def test_pyplot_is_left_alone(tmp_path):
    sys.modules.pop("matplotlib.pyplot", None)
    write_figures(shop(), tmp_path)
    assert "matplotlib.pyplot" not in sys.modules


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'addml\[plots\]'"):
        write_figures(shop(), tmp_path / "new")
    assert not (tmp_path / "new").exists()
