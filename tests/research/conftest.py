"""A registry of two small sets, and one that is missing."""

from functools import partial

import pytest

from research import datasets, experiment
from research.__main__ import main
from tests.cli.running import run_addml
from tests.research.toy import blob


@pytest.fixture
def registry(monkeypatch):
    """Sets `one` and `two`; `gone` is known and not available."""
    known = {"one": blob("one"), "two": blob("two", 48, seed=1)}
    monkeypatch.setattr(datasets, "available", lambda name: name in known)
    monkeypatch.setattr(experiment, "load", lambda name: known[name])
    monkeypatch.setattr(datasets, "size", lambda name: known[name].shape)
    monkeypatch.setattr(datasets, "title", str.title)
    return known


@pytest.fixture
def research(tmp_path):
    """Run `python -m research` with these arguments in an empty folder of the test's own."""
    return partial(run_addml, tmp_path, main=main)
